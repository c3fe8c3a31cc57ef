"""A domain: images from one origin, with their labels or without.

The label-free side of adaptation and calibration takes an `Unlabelled`. It has no labels, so target labels cannot reach
training by mistake: the type leaves no way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError

Pixels = NDArray[np.uint8]  # (n, channels, height, width)
Ids = NDArray[np.int64]  # (n,)
Rows = Any  # a slice, an array of row numbers, or one number, which gives one row without the first axis


class Inputs(Protocol):
    """What a model is fed from: an array, or something that decodes rows when asked."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, channels, height, width."""
        ...

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Rows, /) -> Pixels: ...


@dataclass(frozen=True, eq=False)
class Selection:
    """Some rows of inputs that are too large to copy: nothing is decoded until rows are asked for."""

    inputs: Inputs
    rows: NDArray[np.intp]  # (n,)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """What an array of these rows would have."""
        return (len(self), *self.inputs.shape[1:])

    def __getitem__(self, rows: Rows, /) -> Pixels:
        return self.inputs[self.rows[rows]]


def select(inputs: Inputs, rows: Rows) -> Inputs:
    """Take rows now from an array, and lazily from anything else."""
    if isinstance(inputs, np.ndarray):
        return inputs[rows]
    if isinstance(inputs, Selection):
        return Selection(inputs.inputs, inputs.rows[rows])
    return Selection(inputs, np.arange(len(inputs))[rows])


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Images of a domain without their labels: all that training and calibration may see of a target.

    >>> hasattr(Unlabelled("clipart", np.zeros((4, 3, 8, 8), np.uint8)), "labels")
    False
    """

    name: str
    inputs: Inputs  # [rows] -> (k, channels, height, width) uint8

    def __len__(self) -> int:
        return len(self.inputs)

    def subset(self, rows: Rows) -> Unlabelled:
        """The named rows, in that order."""
        return replace(self, inputs=select(self.inputs, rows))

    __getitem__ = subset


@dataclass(frozen=True, eq=False)
class Domain:
    """Images of a domain with their labels.

    >>> art = Domain("art", np.zeros((10, 3, 8, 8), np.uint8), np.arange(10) % 2, ("bed", "bike"))
    >>> len(art), len(art[:3]), [len(part) for part in art.split(0.8)]
    (10, 3, [8, 2])
    """

    name: str
    inputs: Inputs  # [rows] -> (k, channels, height, width) uint8
    labels: Ids  # (n,)
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", check_labels(self.labels, len(self.inputs), self.classes))

    def __len__(self) -> int:
        return len(self.labels)

    def unlabelled(self) -> Unlabelled:
        """The same images without their labels."""
        return Unlabelled(self.name, self.inputs)

    def subset(self, rows: Rows) -> Domain:
        """The named rows, in that order."""
        return replace(self, inputs=select(self.inputs, rows), labels=self.labels[rows])

    __getitem__ = subset

    def split(self, fraction: float = 0.8, *, seed: int = 0) -> tuple[Domain, Domain]:
        """Two parts by plain random choice: `int(fraction * n)` rows to train on, the rest to validate.

        Not stratified, as in the paper's experiments: a rare class may be missing from the smaller part.
        """
        first, second = split_rows(len(self), fraction, seed)
        return self.subset(first), self.subset(second)


def check_labels(labels: ArrayLike, n: int, classes: Sequence[str]) -> Ids:
    """See `labels` as `(n,)` class numbers that fit the inputs and the class names."""
    array = np.asarray(labels)
    if array.shape != (n,):
        raise InputError(f"expected labels of shape ({n},), one for each input, got shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"expected labels that are integers, got dtype {array.dtype}")
    if n and (array.min() < 0 or array.max() >= len(classes)):
        bad = int(np.argmax((array < 0) | (array >= len(classes))))
        raise InputError(f"expected labels from 0 to {len(classes) - 1}, got {array[bad]} in row {bad}")
    return array.astype(np.int64, copy=False)


def split_rows(n: int, fraction: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Shuffle row numbers and cut them in two, the first part rounded down.

    >>> [len(part) for part in split_rows(2427, 0.8, seed=0)]
    [1941, 486]
    """
    if not 0 < fraction < 1:
        raise InputError(f"expected a fraction between 0 and 1, got {fraction}")
    rows = np.random.default_rng(seed).permutation(n)
    cut = int(fraction * n)
    return rows[:cut], rows[cut:]
