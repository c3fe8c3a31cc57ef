"""What a model eats, seen as batches of rows.

Inputs are opaque. Whether they are arrays, tensors, sparse matrices or data frames, all that is asked of them is to
be indexed by rows, stacked, and mixed with `+` and `*`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Batch, InputError, Predictor, as_numpy

BLOCK = 2**20  # bytes of rows that are mixed at a time
COPIES = 8  # of inputs and logits of a batch that may be held at a time, where every pixel has a class
LARGE = 256  # bytes that all of them may take for each number of an input, before anybody has asked the model


def count(x: Batch) -> int:
    """How many rows a batch has.

    >>> count(np.zeros((3, 8, 8)))
    3
    """
    return int(x.shape[0])


def take(x: Batch, rows: NDArray[np.intp]) -> Batch:
    """A copy of some rows.

    >>> take(np.array([10, 20, 30]), np.array([2, 0]))
    array([30, 10])
    """
    if hasattr(x, "iloc"):  # a pandas frame: rows by position, renumbered so that two selections line up
        return x.iloc[rows].reset_index(drop=True)
    return x[rows]


def stack(parts: list[Batch]) -> Batch:
    """One batch of the rows of several.

    >>> stack([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    first = parts[0]
    shapes = {tuple(part.shape[1:]) for part in parts}
    if len(shapes) > 1:
        raise InputError(f"expected inputs of one shape, since pairs of them are mixed, got shapes {sorted(shapes)}")
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if hasattr(first, "iloc"):
        return sys.modules["pandas"].concat(parts, ignore_index=True)
    if hasattr(first, "tocsr"):
        return sys.modules["scipy.sparse"].vstack(parts, format="csr")
    return sys.modules["torch"].cat(parts)


def blend(x: Batch, first: NDArray[np.intp], second: NDArray[np.intp], lam: float) -> Batch:
    """The mix `lam * x[first] + (1 - lam) * x[second]` of rows; those of arrays and tensors are copied once.

    >>> blend(np.array([10.0, 0.0, 20.0]), np.array([0, 1]), np.array([1, 2]), 0.75)
    array([7.5, 5. ])
    """
    mixed = take(x, first)
    try:
        if not _is_floating(x):
            return lam * mixed + (1 - lam) * take(x, second)
        step = max(1, BLOCK * count(x) // max(1, size(x)))
        for start in range(0, len(first), step):  # in pieces that stay in the cache, the copy in place
            place = slice(start, start + step)
            partner = take(x, second[place])
            partner *= 1 - lam
            mixed[place] *= lam
            mixed[place] += partner
        return mixed
    except TypeError as error:
        raise InputError(
            f"expected inputs that are numbers, since pairs of them are mixed, got {type(x).__name__}: {error}; "
            "mix what the model makes of text or categories, such as embeddings, instead"
        ) from error


def _is_floating(x: Batch) -> bool:
    if isinstance(x, np.ndarray):
        return np.issubdtype(x.dtype, np.floating)
    return hasattr(x, "is_floating_point") and bool(x.is_floating_point())  # a torch tensor


def size(x: Batch) -> int:
    """How many bytes a batch takes.

    >>> size(np.zeros((2, 3)))
    48
    """
    if hasattr(x, "nbytes"):
        return int(x.nbytes)
    if hasattr(x, "memory_usage"):
        return int(x.memory_usage(deep=True).sum())
    return int(x.data.nbytes + x.indices.nbytes + x.indptr.nbytes)  # compressed sparse rows


def is_array(data: Any) -> bool:
    """Whether `data` is all rows at once, so that they can be shuffled, rather than a stream of batches."""
    return hasattr(data, "shape") and hasattr(data, "__getitem__") and len(data.shape) > 0


def is_stream(data: Any) -> bool:
    """Whether `data` can be read batch by batch; a torch Dataset, which gives single rows, is refused."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.utils.data.Dataset):
        raise InputError("expected batches, got a torch Dataset, which gives single rows: wrap it in a DataLoader")
    return isinstance(data, Iterable)


def shuffled(data: Batch, batch_size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """The rows of an array in random order, in batches of nearly equal size.

    >>> [len(x) for x in shuffled(np.arange(10), 4, np.random.default_rng(0))]
    [4, 3, 3]
    """
    data = data.tocsr() if hasattr(data, "tocsr") else data
    order = rng.permutation(count(data))
    for rows in np.array_split(order, max(1, -(-len(order) // batch_size))) if len(order) else ():
        yield take(data, rows)


def fitting(predict: Predictor, data: Any, batch_size: int, memory: float) -> int:
    """`batch_size`, or less for an array of images whose every pixel gets a class: what fits into `memory`, at least 2.

    Where a batch could be large the model is asked about one row, to see what it gives.

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
        said = as_numpy(predict(row))
    except Exception:  # it will be told where it happens again
        return batch_size
    if said.ndim < 3:
        return batch_size
    return min(batch_size, max(2, int(memory / (COPIES * (size(row) + said.nbytes)))))


def may_be_large(data: Any, batch_size: int, memory: float) -> bool:
    """Whether `data` is an array of images of which a batch may not fit into `memory` with what is said of it.

    >>> may_be_large(np.zeros((9, 3, 32, 32)), 128, 2**29), may_be_large(np.zeros((9, 3, 512, 512)), 128, 2**29)
    (False, True)
    """
    if not is_array(data) or len(data.shape) < 3 or count(data) == 0:
        return False
    return bool(LARGE * batch_size * math.prod(data.shape[1:]) > memory)


def streamed(data: Iterable[Any]) -> Iterator[Batch]:
    """The inputs of each batch of a stream; what comes with them, such as labels, is never looked at.

    >>> list(streamed([(np.array([1.0]), "label")]))
    [array([1.])]
    """
    for item in data:
        x = item[0] if isinstance(item, tuple | list) and item else item
        if isinstance(x, Mapping):
            raise InputError(
                f"expected batches that are arrays, tensors or (inputs, ...) tuples, got a mapping with {sorted(x)}; "
                "pass the inputs alone: (batch['pixel_values'] for batch in loader)"
            )
        if not hasattr(x, "shape") or len(x.shape) == 0:
            raise InputError(f"expected batches that are arrays or tensors with rows, got {type(x).__name__}")
        yield x.tocsr() if hasattr(x, "tocsr") else x
