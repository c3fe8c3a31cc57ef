"""Ensemble: the mean prediction of several models (Lakshminarayanan et al., NeurIPS 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import (
    InputError,
    Inputs,
    Logits,
    Maps,
    Predictor,
    as_logits,
    as_numpy,
    check_rows,
)
from pseudocal.maps import bands

Mean = Literal["probabilities", "logits"]


def ensemble(member_logits: Sequence[ArrayLike], *, mean: Mean = "probabilities") -> Logits:
    """The logits of the members' mean probabilities, or of their mean logits.

    One member gives the first class probability 1, the other 1/2, so the mean is 3/4:

    >>> logits = ensemble([[[0.0, -np.inf]], [[0.0, 0.0]]])
    >>> np.exp(logits)
    array([[0.75, 0.25]])

    The predicted classes may change, usually for the better.

    Args:
        member_logits: The logits of each member, all of one shape `(n, classes)` or `(n, classes,
            height, width)`.
        mean: Whether to average "probabilities" or "logits".

    """
    arrays = [as_numpy(logits, "logits") for logits in member_logits]
    shapes = list(dict.fromkeys(array.shape for array in arrays))
    if len(arrays) < 2 or len(shapes) > 1:
        got = " and ".join(map(str, shapes)) if len(shapes) > 1 else f"{len(arrays)}"
        raise InputError(f"expected logits of two members or more, all of one shape, got {got}")
    if len(shapes[0]) == 4:
        return _of_maps(arrays, mean)
    members = [as_logits(logits) for logits in arrays]
    if mean not in ("probabilities", "logits"):
        raise InputError(f"expected mean 'probabilities' or 'logits', got {mean!r}")
    for logits in members:
        check_rows(logits)
    if mean == "logits":
        return np.asarray(np.mean(members, axis=0, dtype=np.float64))
    total = np.logaddexp.reduce([_log_softmax(logits) for logits in members])
    return np.asarray(total - math.log(len(members)))


def _of_maps(members: list[Maps], mean: Mean) -> Maps:
    """The same for maps, a band of pixels at a time."""
    result = np.empty(members[0].shape, dtype=np.float32)
    for band in bands(members[0]):
        rows = [
            np.moveaxis(member[:, :, band], 1, -1) for member in members
        ]  # (n, height, width, classes)
        together = ensemble([part.reshape(-1, part.shape[-1]) for part in rows], mean=mean)
        result[:, :, band] = np.moveaxis(together.reshape(rows[0].shape), -1, 1)
    return result


@dataclass(frozen=True)
class Ensemble:
    """Several models as one predictor, which PseudoCal can calibrate.

    Attributes:
        members: The models.
        mean: Whether to average "probabilities" or "logits".

    """

    members: tuple[Predictor, ...]
    mean: Mean = "probabilities"

    def __post_init__(self) -> None:
        if len(self.members) < 2:
            raise InputError(f"expected two members or more, got {len(self.members)}")

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch with every member."""
        return ensemble([predict(x) for predict in self.members], mean=self.mean)


def _log_softmax(logits: Logits) -> Logits:
    shifted = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=np.float64)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
