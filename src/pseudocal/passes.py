"""Passes over an array that may be larger than memory: chunk by chunk, on several cores."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import (
    Floats,
    InputError,
    Logits,
    Probabilities,
    as_logits,
    as_numpy,
    check_rows,
    cores,
    is_real,
)

CHUNK_NUMBERS = 1 << 18  # numbers per chunk: few enough for a cache, enough to outweigh the calls
LARGE_ARRAY = 1 << 24  # an array with at least this many numbers is read in larger chunks,
LARGE_CHUNK_NUMBERS = 1 << 19  # since threads wait for the interpreter lock between chunks
WORTHWHILE = 4  # chunks per core below which another thread costs more than it saves
BLAS_ALONE = 8192  # numbers that BLAS multiplies without starting threads of its own
AROUND = 2**21  # bytes before the requested one that the system may map as well
PICKED_AT_ONCE = 64  # rows that are read from a memory map at a time
SUM_TOLERANCE = (
    1e-3  # how far a row of probabilities may be from summing to one: float16 rounds that much
)
MANY_CLASSES = (
    32  # with at least this many classes the inner loops run over classes, otherwise over rows
)
Doubles = NDArray[np.float64]
Chunk = (
    Floats  # (classes, n): some rows, transposed, contiguous along the classes or along the rows
)


def strips(starts: range) -> list[range]:
    """Split a range into one strip per core, or fewer if it is short.

    >>> strips(range(0, 6, 2))  # too short for two cores
    [range(0, 6, 2)]
    """
    count = max(1, min(cores(), len(starts) // WORTHWHILE))
    ends = [len(starts) * k // count for k in range(count + 1)]
    return [starts[i:j] for i, j in pairwise(ends)]


@contextmanager
def on_threads(count: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` that calls its function on several threads, and returns the results in order.

    >>> with on_threads(2) as in_parallel:
    ...     list(in_parallel(abs, [-1, -2]))
    [1, 2]
    """
    if count == 1:
        yield map
        return
    with ThreadPoolExecutor(count) as pool:
        yield pool.map


def block_starts(shape: tuple[int, ...], rows: int | None = None) -> range:
    """The first row of each chunk of an array, or of `rows` of its rows.

    The step is the number of rows per chunk.

    >>> block_starts((5, 2**16))
    range(0, 5, 4)
    """
    n = shape[0] if rows is None else rows
    columns = shape[1]
    chunk = CHUNK_NUMBERS if n * columns < LARGE_ARRAY else LARGE_CHUNK_NUMBERS
    return range(0, n, max(1, chunk // columns))


def scaled(z: Floats, b: float, out: Floats) -> None:
    """Write `b * z` into `out`, in the precision of `out`.

    NumPy converts float16 one number at a time. Shifting the bits to their positions in a float32
    gives the number times 2^-112 exactly, in half the time.

    >>> x = np.empty((1, 3), dtype=np.float32)
    >>> scaled(np.array([[1.5, -0.25, 6e-8]], dtype=np.float16), 2.0, x)
    >>> x.round(9)
    array([[ 3.00e+00, -5.00e-01,  1.19e-07]], dtype=float32)
    """
    if z.dtype != np.float16 or out.dtype != np.float32 or not 0 < b < 2**15 or not _all_finite(z):
        np.multiply(z, b, out=out, dtype=out.dtype)
        return
    bits = out.view(np.int32)
    np.left_shift(
        z.view(np.int16), 13, out=bits, dtype=np.int32
    )  # sign, exponent and fraction are now in place
    bits &= np.int32(-0x70002000)  # clear the copies of the sign bit between them
    out *= np.float32(b * 2.0**112)


def row_sums(x: Floats, out: Floats) -> None:
    """Write the sum of each row into `out`.

    For short rows a product with ones is faster than a sum over the axis. It is computed in small
    pieces, so that BLAS does not start threads inside our threads.

    >>> sums = np.empty(2)
    >>> row_sums(np.array([[1.0, 2.0], [3.0, 4.0]]), sums)
    >>> sums
    array([3., 7.])
    """
    n, columns = x.shape
    ones = np.ones(columns, dtype=x.dtype)
    piece = max(1, BLAS_ALONE // columns)
    whole = n - n % piece
    np.matmul(x[:whole].reshape(-1, piece, columns), ones, out=out[:whole].reshape(-1, piece))
    np.matmul(x[whole:], ones, out=out[whole:])


def dot(x: Floats, y: Floats) -> float:
    """The product of two vectors, in pieces that BLAS multiplies without threads of its own.

    >>> dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    whole = len(x) - len(x) % BLAS_ALONE
    rest = float(x[whole:] @ y[whole:])
    if whole == 0:
        return rest
    pieces = np.vecdot(x[:whole].reshape(-1, BLAS_ALONE), y[:whole].reshape(-1, BLAS_ALONE))
    return float(pieces.sum()) + rest


def _all_finite(z: NDArray[np.float16]) -> bool:
    """Whether no exponent is all ones.

    0x7c00 and above are +inf and NaN, 0xfc00 and above -inf and NaN.
    """
    return z.size == 0 or bool(z.view(np.int16).max() < 0x7C00 and z.view(np.uint16).max() < 0xFC00)


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether an array is a memory map."""
    return getattr(array, "_mmap", None) is not None


def picked(array: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """The selected rows, in ascending order.

    A memory map is read a few rows at a time: each maps up to megabytes. `take` is faster than an
    index, but would first copy the whole of an array that is not contiguous.

    >>> picked(np.array([10, 20, 30]), np.array([0, 2]))
    array([10, 30])
    """
    if not array.flags.c_contiguous:
        return array[rows]
    if not is_mapped(array) or len(rows) == 0:
        return array.take(rows, axis=0)
    parts = []
    for few in np.array_split(rows, -(-len(rows) // PICKED_AT_ONCE)):
        parts.append(np.asarray(array.take(few, axis=0)))
        let_go(array, int(few[0]), int(few[-1]) + 1)
    return np.concatenate(parts)


def let_go(array: NDArray[Any], start: int, stop: int) -> None:
    """Release the memory of rows of a memory map that have been read.

    Reading them again goes back to the file.

    The system would release it when memory runs short, but until then it counts as memory of this
    process.

    >>> let_go(np.zeros((4, 2)), 0, 4)  # no memory map: nothing to do
    """
    held = getattr(array, "_mmap", None)
    if (
        held is None
        or getattr(array, "mode", "c") == "c"
        or not array.flags.c_contiguous
        or len(array) == 0
    ):
        return  # releasing a copy-on-write map would lose what was written to it
    offset = array.ctypes.data - np.frombuffer(held, dtype=np.uint8).ctypes.data
    row = array.nbytes // len(array)
    page = mmap.PAGESIZE
    first = max(0, offset + row * start - AROUND) // page * page
    last = min(-(-(offset + row * stop) // page) * page, len(held))
    if last > first and hasattr(mmap, "MADV_DONTNEED"):
        held.madvise(mmap.MADV_DONTNEED, first, last - first)


def as_probabilities(probabilities: ArrayLike) -> Probabilities:
    """Convert to a floating-point array `(n, classes)`; its values are checked chunk by chunk.

    Probabilities of shape `(n,)` are those of the second of two classes.

    >>> as_probabilities([0.25])
    array([[0.75, 0.25]])
    """
    array = as_numpy(probabilities, "probabilities")
    if not is_real(array):
        raise InputError(f"expected probabilities that are real numbers, got dtype {array.dtype}")
    if array.ndim == 1:
        return as_logits(np.stack([1 - array, array], axis=1))
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(
            "expected probabilities of shape (n, classes), or of shape (n,) for the second of two "
            f"classes, got shape {array.shape}"
        )
    return as_logits(array)


def logit_chunks(logits: Logits, starts: range | None = None) -> Iterator[tuple[slice, Chunk]]:
    """Chunks of logits `(classes, m)` that may be overwritten, each with its rows.

    They are float64, or float32 if the logits are float16.
    """
    for rows, chunk in _chunks(logits, starts):
        if not (np.isfinite(chunk.min()) and np.isfinite(chunk.max())):
            check_rows(chunk.T, np.arange(rows.start, rows.stop))
        yield rows, chunk


def probability_chunks(
    probabilities: Probabilities, starts: range | None = None
) -> Iterator[tuple[slice, Chunk]]:
    """Chunks of probabilities, like `logit_chunks`.

    >>> list(probability_chunks(np.array([[0.5, 0.5], [2.0, -1.0]])))
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected probabilities that are non-negative and sum to one, got [
    2. -1.] in row 1; these look like logits: pass them as logits
    """
    for rows, chunk in _chunks(probabilities, starts):
        good = (chunk >= 0).all(axis=0) & (abs(chunk.sum(axis=0) - 1) <= SUM_TOLERANCE)
        if not good.all():
            _refuse(chunk, rows, int(np.argmin(good)))
        yield rows, chunk


def sum_classes(chunk: Chunk) -> Floats:
    """The sum of each row, in the precision of the chunk and in the fastest way for its memory layout.

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
        f"expected probabilities that are non-negative and sum to one, got {chunk[:, i]} in row "
        f"{rows.start + i}{hint}"
    )


def _chunks(array: Floats, starts: range | None) -> Iterator[tuple[slice, Chunk]]:
    n, classes = array.shape
    starts = block_starts(array.shape) if starts is None else starts
    scratch = np.empty(
        (starts.step, classes), dtype=np.float32 if array.dtype == np.float16 else np.float64
    )
    for start in starts:
        rows = slice(start, min(start + starts.step, n))
        chunk = scratch[: rows.stop - start]
        scaled(array[rows], 1.0, chunk)
        yield rows, chunk.T if classes >= MANY_CLASSES else np.ascontiguousarray(chunk.T)
        let_go(array, start, rows.stop)
