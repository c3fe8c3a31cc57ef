"""Vector and matrix scaling with a ridge penalty that is chosen on held-out source rows.

Both maps have more parameters than few labelled rows can fix. The penalty holds them close to
temperature scaling: logits are divided by the temperature of the source first, and the distance
from the identity counts after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Labelled, Logits
from pseudocal.calibrators.confidence import checked
from pseudocal.metrics import Outcomes, nll
from pseudocal.randomness import Streams
from pseudocal.scaling import MatrixScaling, VectorScaling, fit_temperature

PENALTIES = tuple(
    float(10 ** (power / 2)) for power in range(2, -13, -1)
)  # 10 to 1e-6, the strongest first
FOLDS = 5
Map = TypeVar("Map", VectorScaling, MatrixScaling)


def fit_ridge(fit: Callable[..., Map], source: Labelled) -> tuple[Map, float]:
    """Fit a map with the penalty of least held-out loss, and return both.

    >>> from pseudocal.scaling import fit_vector
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(60, 3))
    >>> labels = (logits + rng.gumbel(size=(60, 3))).argmax(axis=1)
    >>> scaling, penalty = fit_ridge(fit_vector, Labelled(logits, labels))    # the logits are right as they are
    >>> bool(np.abs(scaling.weight - 1).max() < 0.3), penalty > 0.01
    (True, True)

    Args:
        fit: `fit_vector` or `fit_matrix`.
        source: Labelled logits of the source validation set.

    """
    source = checked(source)
    temperature = fit_temperature(source.logits, source.labels).temperature
    logits = np.asarray(source.logits, dtype=np.float64) / temperature
    penalty = chosen_penalty(fit, logits, source.labels)
    found = fit(logits, source.labels, penalty=penalty)
    return type(found)(found.weight / temperature, found.bias), penalty


def chosen_penalty(fit: Callable[..., Map], logits: Logits, labels: NDArray[np.intp]) -> float:
    """The penalty of least negative log-likelihood on the rows of each fold that the others were fitted without.

    Penalties become weaker until the loss has risen twice, so the slow fits of an overfitted map
    are not made.

    Args:
        fit: `fit_vector` or `fit_matrix`.
        logits: Logits of shape `(n, classes)`.
        labels: Class indices `(n,)`.

    """
    n = len(labels)
    folds = np.array_split(Streams(0).order().permutation(n), min(FOLDS, n))
    losses: list[float] = []
    for penalty in PENALTIES:
        total = 0.0
        for held_out in folds:
            rest = np.setdiff1d(np.arange(n), held_out)
            scaling = fit(logits[rest], labels[rest], penalty=penalty)
            total += len(held_out) * nll(
                Outcomes.from_logits(scaling(logits[held_out]), labels[held_out])
            )
        losses.append(total)
        if len(losses) > 2 and losses[-1] > losses[-2] > losses[-3]:
            break
    return PENALTIES[int(np.argmin(losses))]
