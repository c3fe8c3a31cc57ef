"""Read logits or probabilities a block of rows at a time, so that nothing of the input's size is allocated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Logits, Probabilities, as_logits, check_rows
from pseudocal.passes import block_starts, let_go, row_sums, scaled

TOLERANCE = 1e-3  # how far a row of probabilities may be from summing to one: float16 rounds so much

WIDE = 32  # from so many classes on the inner loops run over classes, below it over rows

Column = NDArray[np.float64]  # (n,)
Columns = Floats  # (classes, n)


def as_probabilities(probabilities: ArrayLike) -> Probabilities:
    """See `probabilities` as a floating array `(n, classes)`; the blocks check what is in it."""
    array = np.asanyarray(probabilities)
    if array.ndim != 2:
        raise InputError(f"expected probabilities of shape (n, classes), got shape {array.shape}")
    return as_logits(array)


def logit_blocks(logits: Logits, starts: range | None = None) -> Iterator[tuple[slice, Columns]]:
    """Blocks of logits `(classes, m)` that may be overwritten, each with the rows it comes from.

    They are float64, or float32 where the logits are float16: thousands of times finer than the numbers themselves.
    """
    for rows, block in _blocks(logits, starts):
        if not (np.isfinite(block.min()) and np.isfinite(block.max())):
            check_rows(block.T, np.arange(rows.start, rows.stop))
        yield rows, block


def probability_blocks(probabilities: Probabilities, starts: range | None = None) -> Iterator[tuple[slice, Columns]]:
    """Blocks of probabilities, like `logit_blocks`.

    >>> list(probability_blocks(np.array([[0.5, 0.5], [2.0, -1.0]])))
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected probabilities that are non-negative and sum to one, got [ 2. -1.] in row 1;
    these look like logits: pass them as logits
    """
    for rows, block in _blocks(probabilities, starts):
        good = (block >= 0).all(axis=0) & (abs(block.sum(axis=0) - 1) <= TOLERANCE)
        if not good.all():
            _refuse(block, rows, int(np.argmin(good)))
        yield rows, block


def sum_classes(block: Columns) -> Floats:
    """Add up each row, in the block's precision, by the way that suits how the block lies in memory.

    >>> sum_classes(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([4., 6.])
    """
    sums: Floats = np.empty(block.shape[1], dtype=block.dtype)
    if block.flags.f_contiguous:
        row_sums(block.T, sums)
    else:
        block.sum(axis=0, out=sums)
    return sums


def _refuse(block: Columns, rows: slice, i: int) -> None:
    hint = "; these look like logits: pass them as logits" if (block < 0).any() or (block > 1 + TOLERANCE).any() else ""
    raise InputError(
        f"expected probabilities that are non-negative and sum to one, got {block[:, i]} in row {rows.start + i}{hint}"
    )


def _blocks(array: Floats, starts: range | None) -> Iterator[tuple[slice, Columns]]:
    n, classes = array.shape
    starts = block_starts(array.shape) if starts is None else starts
    scratch = np.empty((starts.step, classes), dtype=np.float32 if array.dtype == np.float16 else np.float64)
    for start in starts:
        rows = slice(start, min(start + starts.step, n))
        block = scratch[: rows.stop - start]
        scaled(array[rows], 1.0, block)
        yield rows, block.T if classes >= WIDE else np.ascontiguousarray(block.T)
        let_go(array, start, rows.stop)
