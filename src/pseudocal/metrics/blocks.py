"""Read logits or probabilities a block of rows at a time, so that nothing of the input's size is allocated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError, Logits, Probabilities, as_logits, check_rows

BLOCK = 1 << 17  # numbers per block: with its scratch it stays in a core's cache
TOLERANCE = 1e-3  # how far a row of probabilities may be from summing to one: float16 rounds so much

Column = NDArray[np.float64]  # (n,)
Columns = NDArray[np.float64]  # (classes, n): class first, so that the inner loops run over rows


def as_probabilities(probabilities: ArrayLike) -> Probabilities:
    """See `probabilities` as a floating array `(n, classes)`; the blocks check what is in it."""
    array = np.asanyarray(probabilities)
    if array.ndim != 2:
        raise InputError(f"expected probabilities of shape (n, classes), got shape {array.shape}")
    return as_logits(array)


def logit_blocks(logits: Logits) -> Iterator[tuple[slice, Columns]]:
    """Blocks of logits `(classes, m)` in float64 that may be overwritten, each with the rows it comes from."""
    for rows, block in _blocks(logits):
        check_rows(block.T, np.arange(rows.start, rows.stop))
        yield rows, block


def probability_blocks(probabilities: Probabilities) -> Iterator[tuple[slice, Columns]]:
    """Blocks of probabilities, like `logit_blocks`.

    >>> list(probability_blocks(np.array([[0.5, 0.5], [2.0, -1.0]])))
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected probabilities that are non-negative and sum to one, got [ 2. -1.] in row 1;
    these look like logits: pass them as logits
    """
    for rows, block in _blocks(probabilities):
        good = (block >= 0).all(axis=0) & (abs(block.sum(axis=0) - 1) <= TOLERANCE)
        if not good.all():
            _refuse(block, rows, int(np.argmin(good)))
        yield rows, block


def _refuse(block: Columns, rows: slice, i: int) -> None:
    hint = "; these look like logits: pass them as logits" if (block < 0).any() or (block > 1 + TOLERANCE).any() else ""
    raise InputError(
        f"expected probabilities that are non-negative and sum to one, got {block[:, i]} in row {rows.start + i}{hint}"
    )


def _blocks(array: Logits) -> Iterator[tuple[slice, Columns]]:
    n, classes = array.shape
    size = max(1, BLOCK // classes)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        yield rows, array[rows].T.astype(np.float64, order="C")
