"""`PseudoCal` on predictions that exist already.

The first half of `PseudoCal.fit`, `steps`, is given a `CachedModel` in place of the network. The
second half, `conclude`, is given the `saved_evidence` of the samples that the steps have left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pseudocal.arrays import Labelled, Logits
from pseudocal.calibrators import Evidence, PseudoCal, Step


@dataclass(frozen=True, eq=False)
class CachedModel:
    """A model that looks its logits up.

    Image i is the unit vector e_i here. A mixup sample of the images i and j is then the vector
    lam e_i + (1 - lam) e_j, whose largest entry is at i.

    >>> model = CachedModel(np.array([[4.0, 0.0], [0.0, 4.0]]), np.array([[3.0, 1.0], [2.0, 2.0]]))
    >>> e0, e1 = model.inputs[[0]], model.inputs[[1]]
    >>> model(e1)
    array([[0., 4.]])
    >>> model(0.65 * e1 + 0.35 * e0)
    array([[2., 2.]])

    Attributes:
        real: the logits of the images, of shape `(n, classes)`.
        mixed: row i has the logits of image i mixed with its partner; None if there are none.

    """

    real: Logits
    mixed: Logits | None = None

    @property
    def inputs(self) -> Any:
        """The images as unit vectors: a sparse identity matrix."""
        return sparse.eye_array(len(self.real), format="csr")

    def __call__(self, x: Any, /) -> Logits:
        """Look up the logits of images, or of mixup samples."""
        rows: NDArray[np.intp] = x.argmax(axis=1)
        is_mixup = x.max() < 1
        if not is_mixup:
            return self.real[rows]
        assert self.mixed is not None
        return self.mixed[rows]


def saved_evidence(method: PseudoCal, real: Logits, mixup_samples: Labelled) -> Evidence:
    """Return the evidence that a pass over the target has left, as one step.

    >>> real = np.array([[2.0, 0.0]] * 4)
    >>> mixup_samples = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))
    >>> evidence = saved_evidence(PseudoCal(), real, mixup_samples)
    >>> round(evidence.temperature().temperature, 4)  # 2 / log 3, since three of four are right
    1.8205

    Args:
        method: the settings of PseudoCal.
        real: the target logits, of shape `(n, classes)`.
        mixup_samples: the logits of the mixup samples, with their labels.

    """
    n = len(real)
    evidence = method.empty_evidence()
    evidence.add(
        Step(
            rows=np.arange(n),
            shape=(),
            real=Labelled(real, real.argmax(axis=1)),
            pairs=n,
            mixup_samples=mixup_samples,
            opinions=(),
            passes=n + len(mixup_samples),
        )
    )
    return evidence
