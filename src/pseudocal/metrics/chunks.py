"""Logits or probabilities a chunk of rows at a time, so that nothing of the input's size is allocated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Logits, Probabilities, as_logits, check_rows
from pseudocal.passes import block_starts, let_go, row_sums, scaled

SUM_TOLERANCE = 1e-3  # how far the sum of a row of probabilities may be from one: float16 rounds that much

MANY_CLASSES = 32  # from this many classes on, the inner loops run over classes; below it, over rows

Doubles = NDArray[np.float64]
Chunk = Floats  # (classes, n): some rows, turned so that each class is contiguous or each row is


def as_probabilities(probabilities: ArrayLike) -> Probabilities:
    """See `probabilities` as a floating array `(n, classes)`; the chunks check what is in it."""
    array = np.asanyarray(probabilities)
    if array.ndim != 2:
        raise InputError(f"expected probabilities of shape (n, classes), got shape {array.shape}")
    return as_logits(array)


def logit_chunks(logits: Logits, starts: range | None = None) -> Iterator[tuple[slice, Chunk]]:
    """Chunks of logits `(classes, m)` that may be overwritten, each with the rows it comes from.

    They are float64, or float32 where the logits are float16, which is thousands of times finer than float16.
    """
    for rows, chunk in _chunks(logits, starts):
        if not (np.isfinite(chunk.min()) and np.isfinite(chunk.max())):
            check_rows(chunk.T, np.arange(rows.start, rows.stop))
        yield rows, chunk


def probability_chunks(probabilities: Probabilities, starts: range | None = None) -> Iterator[tuple[slice, Chunk]]:
    """Chunks of probabilities, like `logit_chunks`.

    >>> list(probability_chunks(np.array([[0.5, 0.5], [2.0, -1.0]])))
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected probabilities that are non-negative and sum to one, got [ 2. -1.] in row 1;
    these look like logits: pass them as logits
    """
    for rows, chunk in _chunks(probabilities, starts):
        good = (chunk >= 0).all(axis=0) & (abs(chunk.sum(axis=0) - 1) <= SUM_TOLERANCE)
        if not good.all():
            _refuse(chunk, rows, int(np.argmin(good)))
        yield rows, chunk


def sum_classes(chunk: Chunk) -> Floats:
    """Add up each row in the chunk's own precision, in the way that suits its memory layout.

    >>> sum_classes(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([4., 6.])
    """
    sums: Floats = np.empty(chunk.shape[1], dtype=chunk.dtype)
    if chunk.flags.f_contiguous:
        row_sums(chunk.T, sums)
    else:
        chunk.sum(axis=0, out=sums)
    return sums


def _refuse(chunk: Chunk, rows: slice, i: int) -> None:
    hint = (
        "; these look like logits: pass them as logits"
        if (chunk < 0).any() or (chunk > 1 + SUM_TOLERANCE).any()
        else ""
    )
    raise InputError(
        f"expected probabilities that are non-negative and sum to one, got {chunk[:, i]} in row {rows.start + i}{hint}"
    )


def _chunks(array: Floats, starts: range | None) -> Iterator[tuple[slice, Chunk]]:
    n, classes = array.shape
    starts = block_starts(array.shape) if starts is None else starts
    scratch = np.empty((starts.step, classes), dtype=np.float32 if array.dtype == np.float16 else np.float64)
    for start in starts:
        rows = slice(start, min(start + starts.step, n))
        chunk = scratch[: rows.stop - start]
        scaled(array[rows], 1.0, chunk)
        yield rows, chunk.T if classes >= MANY_CLASSES else np.ascontiguousarray(chunk.T)
        let_go(array, start, rows.stop)
