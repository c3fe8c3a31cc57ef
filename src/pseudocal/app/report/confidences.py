"""What the model predicts of each input, and how sure it is before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, Logits, softmax
from pseudocal.calibrators import Calibration

BLOCK = 1 << 22  # numbers per block of rows: what is computed at a time takes some tens of megabytes
TOP = 5


@dataclass(frozen=True, eq=False)
class Confidences:
    """Per input: the likeliest classes, most likely first, with the model's probability and the calibrated one.

    >>> from pseudocal import TemperatureScaling
    >>> half = Calibration("pseudocal", TemperatureScaling(2.0))
    >>> confidences = Confidences.of(np.array([[0.0, np.log(9.0)]]), half)
    >>> confidences.top, confidences.before.round(3), confidences.after.round(3)   # 9 to 1, and its root: 3 to 1
    (array([[1, 0]]), array([[0.9, 0.1]]), array([[0.75, 0.25]]))
    """

    top: NDArray[np.int64]  # (n, k)
    before: Floats  # (n, k)
    after: Floats  # (n, k)

    @classmethod
    def of(cls, logits: Logits, calibration: Calibration) -> Confidences:
        """Read logits, which may be a memory map, a block of rows at a time."""
        columns = [_top(block, calibration) for block in blocks(logits)]
        return cls(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))

    def __len__(self) -> int:
        return len(self.top)


def blocks(logits: Logits) -> Iterator[Logits]:
    """Rows in blocks of bounded size."""
    step = max(1, BLOCK // logits.shape[1])
    for start in range(0, len(logits), step):
        yield np.asarray(logits[start : start + step])


def _top(logits: Logits, calibration: Calibration) -> tuple[NDArray[Any], ...]:
    k = min(TOP, logits.shape[1])
    before, after = softmax(logits), calibration.probabilities(logits)
    some = (
        np.argpartition(logits, -k, axis=1)[:, -k:] if k < logits.shape[1] else np.tile(np.arange(k), (len(logits), 1))
    )
    order = np.argsort(-np.take_along_axis(logits, some, axis=1), axis=1, kind="stable")
    top = np.take_along_axis(some, order, axis=1)
    return top, np.take_along_axis(before, top, axis=1), np.take_along_axis(after, top, axis=1)
