"""Batches of inputs of any type.

Inputs are opaque: arrays, tensors, sparse matrices or data frames. They are only indexed by rows,
stacked, and mixed with `+` and `*`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Inputs, Predictor, as_numpy, unmasked

NO_NUMBERS = "text, categories or dates"  # why a column is not mixed
MISSING = "missing values"
DEFAULT_BATCH_SIZE = 128  # inputs predicted together, in Python and in the command
MIXED_AT_ONCE = 2**20  # bytes of inputs mixed at a time, so that they stay in the cache
COPIES = 8  # copies of a batch's inputs and maps that may be in memory at the same time
# assumed size of these copies per number of an input, before the model has predicted anything
BYTES_PER_NUMBER = 256


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs that are predicted together.

    Attributes:
        number: The position of the batch in the pass, from 0.
        rows: The row numbers of its inputs in the data.
        inputs: The inputs themselves.

    """

    number: int
    rows: NDArray[np.intp]
    inputs: Inputs


def as_inputs(x: Inputs) -> Inputs:
    """The same inputs; reject masked values, and dates and times, which cannot be mixed.

    >>> as_inputs(np.array(["2026-01-01"], dtype="datetime64[D]"))
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected inputs that are numbers, since pairs of them are mixed, got dtype
    datetime64[D]: convert them to numbers first
    """
    x = unmasked(x, "inputs")
    if isinstance(x, np.ndarray) and x.dtype.kind in "mM":
        raise InputError(
            "expected inputs that are numbers, since pairs of them are mixed, got dtype "
            f"{x.dtype}: convert them to numbers first"
        )
    return x.tocsr() if hasattr(x, "tocsr") else x  # other sparse formats cannot be indexed by rows


def count(x: Inputs) -> int:
    """The number of inputs in a batch.

    >>> count(np.zeros((3, 8, 8)))
    3
    """
    return int(x.shape[0])


def take(x: Inputs, rows: NDArray[np.intp]) -> Inputs:
    """A copy of the selected rows.

    >>> take(np.array([10, 20, 30]), np.array([2, 0]))
    array([30, 10])
    """
    if hasattr(
        x, "iloc"
    ):  # a pandas frame: select by position and reset the index, so that two selections align
        return x.iloc[rows].reset_index(drop=True)
    return x[rows]


def stack(parts: list[Inputs]) -> Inputs:
    """Concatenate several batches into one.

    >>> stack([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    first = parts[0]
    shapes = {tuple(part.shape[1:]) for part in parts}
    if len(shapes) > 1:
        raise InputError(
            "expected inputs of one shape, since pairs of them are mixed, got shapes "
            f"{sorted(shapes)}"
        )
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if hasattr(first, "iloc"):
        return sys.modules["pandas"].concat(parts, ignore_index=True)
    if _is_polars(first):
        return sys.modules["polars"].concat(parts)
    if hasattr(first, "tocsr"):
        return sys.modules["scipy.sparse"].vstack(parts, format="csr")
    return sys.modules["torch"].cat(parts)


def blend(x: Inputs, first: NDArray[np.intp], second: NDArray[np.intp], lam: float) -> Inputs:
    """The mixup samples `lam * x[first] + (1 - lam) * x[second]`.

    Arrays and tensors are copied only once.

    >>> blend(np.array([10.0, 0.0, 20.0]), np.array([0, 1]), np.array([1, 2]), 0.75)
    array([7.5, 5. ])
    """
    mixed = take(x, first)
    try:
        if not _is_floating(x):
            return lam * mixed + (1 - lam) * take(x, second)
        step = max(1, MIXED_AT_ONCE * count(x) // max(1, size(x)))
        for start in range(0, len(first), step):  # in place, in chunks that stay in the cache
            place = slice(start, start + step)
            partner = take(x, second[place])
            partner *= 1 - lam
            mixed[place] *= lam
            mixed[place] += partner
        return mixed
    except Exception as error:
        if not (isinstance(error, TypeError) or _is_polars(x)):  # polars has errors of its own
            raise
        raise InputError(
            f"expected inputs that are numbers, since pairs of them are mixed, got "
            f"{type(x).__name__}: {error}; for texts or categories, pseudocal.rows_to_label says "
            "which few inputs to label"
        ) from error


def columns_not_mixed(data: Any) -> dict[str, str]:
    """The columns of a table that cannot be mixed, and why.

    A table is a data frame, or a NumPy array of rows. A number mixed with a missing one is missing.

    >>> columns_not_mixed(np.array([[1.0, np.nan], [2.0, 3.0]]))
    {'1': 'missing values'}
    """
    if isinstance(data, np.ndarray):
        if data.ndim != 2 or data.dtype.kind != "f" or len(data) == 0:
            return {}
        # a minimum with NaN is NaN, and it takes no memory
        return {str(i): MISSING for i in np.flatnonzero(np.isnan(data.min(axis=0)))}
    if _is_polars(data):
        whys = [(column.name, _why_polars_is_not_mixed(column)) for column in data]
    elif hasattr(data, "iloc") and hasattr(data, "columns"):
        names = map(str, data.columns)
        whys = [(name, _why_not_mixed(data.iloc[:, i])) for i, name in enumerate(names)]
    else:
        return {}
    return {name: why for name, why in whys if why}


def _why_not_mixed(column: Any) -> str:
    """Why a column of a pandas frame is not mixed; empty for numbers and time differences."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "O":
        numbers = all(isinstance(value, Real) for value in column.dropna())
    else:
        numbers = column.dtype.kind in "biufcm"
    if not numbers:
        return NO_NUMBERS
    return MISSING if column.isna().any() else ""


def _why_polars_is_not_mixed(column: Any) -> str:
    """Why a column of a polars frame is not mixed; empty for numbers."""
    if not column.dtype.is_numeric():
        return NO_NUMBERS
    missing = column.null_count() or (column.dtype.is_float() and column.is_nan().any())
    return MISSING if missing else ""


def _is_polars(x: Inputs) -> bool:
    return hasattr(x, "estimated_size")


def _is_floating(x: Inputs) -> bool:
    if isinstance(x, np.ndarray):
        return np.issubdtype(x.dtype, np.floating)
    return hasattr(x, "is_floating_point") and bool(x.is_floating_point())  # a torch tensor


def size(x: Inputs) -> int:
    """The size of a batch in bytes.

    >>> size(np.zeros((2, 3)))
    48
    """
    if hasattr(x, "nbytes"):
        return int(x.nbytes)
    if hasattr(x, "memory_usage"):
        return int(x.memory_usage(deep=True).sum())
    if _is_polars(x):
        return int(x.estimated_size())
    return int(x.data.nbytes + x.indices.nbytes + x.indptr.nbytes)  # compressed sparse rows


def is_array(data: Any) -> bool:
    """Whether `data` holds all rows at once, so that they can be shuffled, and is not a stream of batches."""
    indexed = hasattr(data, "__getitem__") or hasattr(
        data, "tocsr"
    )  # other sparse formats are converted to CSR
    return hasattr(data, "shape") and indexed and len(data.shape) > 0


def is_stream(data: Any) -> bool:
    """Whether `data` can be read batch by batch.

    A torch Dataset yields single inputs and is rejected.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.utils.data.Dataset):
        raise InputError(
            "expected batches, got a torch Dataset, which yields single inputs: wrap it in a "
            "DataLoader"
        )
    return isinstance(data, Iterable)


def batches_of(data: Any, batch_size: int, order: np.random.Generator) -> Iterator[Batch]:
    """The batches of a shuffled array, or those of a stream in the order they arrive.

    >>> rng = np.random.default_rng(0)
    >>> [batch.inputs.tolist() for batch in batches_of([np.array([1.0]), np.array([2.0])], 128, rng)]
    [[1.0], [2.0]]
    >>> [len(batch.rows) for batch in batches_of(np.arange(10), 4, rng)]
    [4, 3, 3]
    """
    if is_array(data):
        data = as_inputs(data)
        for number, rows in enumerate(shuffled(count(data), batch_size, order)):
            yield Batch(number, rows, take(data, rows))
    else:
        yield from streamed(data)


def shuffled(n: int, batch_size: int, order: np.random.Generator) -> list[NDArray[np.intp]]:
    """The numbers from 0 to n - 1 in random order, in batches of nearly equal size.

    >>> sorted(np.concatenate(shuffled(10, 4, np.random.default_rng(0))).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    return cut(order.permutation(n), batch_size)


def cut(rows: NDArray[np.intp], batch_size: int) -> list[NDArray[np.intp]]:
    """Split rows into batches of nearly equal size.

    >>> [batch.tolist() for batch in cut(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    return np.array_split(rows, -(-len(rows) // batch_size)) if len(rows) else []


def unread_batches(rows: NDArray[np.intp], batch_size: int) -> list[Batch]:
    """Numbered batches whose inputs have not been read yet.

    >>> [(batch.number, batch.rows.tolist()) for batch in unread_batches(np.array([2, 0, 1]), 2)]
    [(0, [2, 0]), (1, [1])]
    """
    return [Batch(number, part, None) for number, part in enumerate(cut(rows, batch_size))]


def fitting(predict: Predictor, data: Any, batch_size: int, memory: float) -> int:
    """The batch size to use.

    `batch_size`, or less for a segmentation model so that a batch fits into `memory`.

    It is at least 2. If a batch could be large, the model predicts one input first to find the size
    of its output.

    >>> images = np.zeros((10, 3, 64, 64), dtype=np.float32)
    >>> fitting(lambda x: np.zeros((len(x), 19, 64, 64), dtype=np.float32), images, 128, 2**24)
    5
    >>> fitting(lambda x: np.zeros((len(x), 1000)), images, 128, 2**24)
    128
    """
    if not may_be_large(data, batch_size, memory):
        return batch_size
    row = take(data, np.array([0]))
    try:
        logits = as_numpy(predict(row))
    except (
        Exception
    ):  # the same error will be raised, and reported, when the first batch is predicted
        return batch_size
    if logits.ndim < 3:
        return batch_size
    return min(batch_size, max(2, int(memory / (COPIES * (size(row) + logits.nbytes)))))


def may_be_large(data: Any, batch_size: int, memory: float) -> bool:
    """Whether `data` is an array of images so large that a batch and its logits may not fit into `memory`.

    >>> may_be_large(np.zeros((9, 3, 32, 32)), 128, 2**29), may_be_large(np.zeros((9, 3, 512, 512)), 128, 2**29)
    (False, True)
    """
    if not is_array(data) or len(data.shape) < 3 or count(data) == 0:
        return False
    return bool(BYTES_PER_NUMBER * batch_size * math.prod(data.shape[1:]) > memory)


def streamed(data: Iterable[Any]) -> Iterator[Batch]:
    """The batches of a stream, numbered.

    Anything that comes with the inputs, such as labels, is ignored.

    >>> [batch.inputs for batch in streamed([(np.array([1.0]), "label")])]
    [array([1.])]
    """
    seen = 0
    for number, item in enumerate(data):
        if isinstance(item, Batch):
            yield item
            continue
        x = item[0] if isinstance(item, tuple | list) and item else item
        if isinstance(x, Mapping):
            key = next((key for key in ("pixel_values", "inputs_embeds") if key in x), None)
            hint = (
                ""
                if key is None
                else f"; pass the inputs alone: (batch[{key!r}] for batch in loader)"
            )
            if "input_ids" in x:
                hint = (
                    "; token ids are numbers of words, which cannot be mixed: save the logits of "
                    "the texts and use pseudocal label"
                )
            raise InputError(
                "expected batches that are arrays, tensors or (inputs, ...) tuples, "
                f"got a mapping with {sorted(x)}{hint}"
            )
        if not hasattr(x, "shape") or len(x.shape) == 0:
            raise InputError(
                f"expected batches that are arrays or tensors with rows, got {type(x).__name__}"
            )
        yield Batch(number, np.arange(seen, seen + count(x)), as_inputs(x))
        seen += count(x)
