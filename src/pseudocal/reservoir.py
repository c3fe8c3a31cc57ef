"""A uniform sample of labelled logits in bounded memory.

Each row gets a random key when it arrives, and the rows with the smallest keys are kept. Within the
memory limit all rows are kept and a fit on the sample is exact; beyond it the sample is uniform
over all rows, whatever their order. Since the keys decide and not the order of arrival, two
reservoirs merge as if they had been one from the start. A reservoir that has dropped rows holds all
rows with keys up to its `ceiling`, and merging lowers the ceiling of both to the smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Labelled, as_labels, as_weights, check_rows

Rows = NDArray[np.void]  # structured: logits, label, weight, key, and group if there are groups
PIECE = 1 << 17  # rows that are copied at a time: an image may have millions of pixels


class Sample(NamedTuple):
    """The content of a reservoir: all that is needed to merge it into another.

    Attributes:
        rows: The rows that were kept; None if no row was added.
        seen: The number of rows that were added.
        ceiling: The key above which rows were dropped; infinite if none were.

    """

    rows: Rows | None
    seen: int
    ceiling: float


def check_sample(
    sample: Sample,
    name: str,
    *,
    columns: int | None,
    classes: int,
    groups: Sequence[tuple[int, ...]],
) -> None:
    """Refuse a sample that no reservoir could have: it may come from a file of somebody else.

    >>> check_sample(Sample(None, 5, math.inf), "real", columns=3, classes=3, groups=())
    Traceback (most recent call last):
    pseudocal.arrays.InputError: real has 0 rows of 5 that were seen

    Args:
        sample: The sample.
        name: What it is called, for the error message.
        columns: The number of logits of a row; None for any number of features.
        classes: The number of classes.
        groups: The shapes that the groups of a row may have; empty if rows have no groups.

    """
    rows = sample.rows
    if rows is not None:
        _check_row_type(rows, name, columns, groups)
    held = 0 if rows is None else len(rows)
    all_kept = sample.ceiling == math.inf
    if held > sample.seen or (all_kept and held < sample.seen) or (held == 0 and sample.seen > 0):
        raise InputError(f"{name} has {held} rows of {sample.seen} that were seen")
    if math.isnan(sample.ceiling):
        raise InputError(f"{name} has NaN as its ceiling")
    if rows is None or held == 0:
        return
    check_rows(rows["logits"])
    as_labels(rows["label"], rows["logits"] if columns else np.empty((held, classes)))
    as_weights(rows["weight"], held)
    keys = rows["key"]
    if not np.all((keys >= 0) & (keys <= min(1.0, sample.ceiling))):
        raise InputError(f"{name} has keys that are not from 0 to {min(1.0, sample.ceiling):g}")
    if groups and rows["group"].min() < 0:
        raise InputError(f"{name} has a negative group")


def _check_row_type(
    rows: NDArray[Any], name: str, columns: int | None, groups: Sequence[tuple[int, ...]]
) -> None:
    """Refuse rows of other columns than `_row_type` has."""
    found = rows.dtype
    expected = ["logits", "label", "weight", "key"]
    if groups:
        expected.append("group")
    if rows.ndim != 1 or list(found.names or ()) != expected:
        raise InputError(
            f"{name} is {found} of shape {rows.shape}, not rows of {', '.join(expected)}"
        )
    logits = found["logits"]
    width = logits.shape[0] if len(logits.shape) == 1 else 0
    of_floats = logits.base in (np.float16, np.float32, np.float64)
    if not of_floats or width == 0 or (columns is not None and width != columns):
        raise InputError(f"{name} has logits of {logits.base} and shape {logits.shape}")
    plain = {"label": np.int64, "weight": np.float64, "key": np.float64}
    for column, dtype in plain.items():
        if found[column] != dtype:
            raise InputError(f"{name} has {column} of {found[column]}")
    if groups and (found["group"].base != np.int64 or found["group"].shape not in groups):
        raise InputError(f"{name} has groups of {found['group']}")


class Reservoir:
    """Keep a uniform sample of the rows that are added, in at most `memory` bytes.

    >>> reservoir = Reservoir(memory=10_000, rng=np.random.default_rng(0))
    >>> for _ in range(3):
    ...     reservoir.add(Labelled(np.zeros((400, 2), dtype=np.float32), np.zeros(400, dtype=int)))
    >>> reservoir.seen, len(reservoir)  # a row of two float32 logits, a label, a weight and a key takes 32 bytes
    (1200, 312)
    """

    def __init__(self, memory: int, rng: np.random.Generator) -> None:
        self.memory = memory
        self.seen = 0
        self._rng = rng
        self._held = 0
        self._ceiling = (
            math.inf
        )  # once the memory is full, rows with larger keys are dropped at once
        self._rows: Rows | None = None
        self._waiting: list[
            Rows
        ] = []  # rows that came when the memory was full, to be sorted in many at a time
        self._queue = 0  # the number of waiting rows

    def __len__(self) -> int:
        return self._held

    def add(self, labelled: Labelled, keys: NDArray[np.float64] | None = None) -> None:
        """Add rows; once the memory is full, the rows with the largest keys are dropped.

        Args:
            labelled: The rows.
            keys: A key for each, from 0 to 1, if they are not to be drawn: rows that have keys are
                kept or dropped alike, however they are divided into blocks.

        """
        keys = self._rng.random(len(labelled)) if keys is None else keys
        coming = np.flatnonzero(keys < self._ceiling)
        for piece in np.array_split(coming, max(1, -(-len(coming) // PIECE))):
            self._insert(_rows(labelled, piece, keys))
        self.seen += len(keys)

    def merge(self, other: Reservoir) -> None:
        """Merge another reservoir into this one."""
        self.merge_sample(other.sample)

    def merge_sample(self, sample: Sample) -> None:
        """Merge the sample of another reservoir into this one."""
        if sample.ceiling < self._ceiling:
            self._lower(sample.ceiling)
        if sample.rows is not None:
            self._insert(sample.rows)
        self.seen += sample.seen

    @property
    def sample(self) -> Sample:
        """The content of the reservoir, without its free memory."""
        self._sort_in()
        return Sample(
            None if self._rows is None else self._rows[: self._held].copy(),
            self.seen,
            self._ceiling,
        )

    @property
    def labelled(self) -> Labelled:
        """The rows that were kept."""
        if self._rows is None:
            raise InputError("expected at least one row in the reservoir, got none")
        self._sort_in()
        rows = self._rows[: self._held]
        groups = rows["group"] if "group" in (rows.dtype.names or ()) else None
        return Labelled(rows["logits"], rows["label"], rows["weight"], groups)

    def _insert(self, new: Rows) -> None:
        if (
            self._rows is None
        ):  # allocate all at once: the system provides pages only when they are written
            self._rows = np.empty(max(1, self.memory // new.dtype.itemsize), dtype=new.dtype)
        if new.dtype != self._rows.dtype:
            raise InputError(
                f"expected rows of {self._rows.dtype['logits']} logits, got {new.dtype['logits']}"
            )
        if self._ceiling < math.inf:
            new = new[new["key"] <= self._ceiling]
        fits = min(len(new), len(self._rows) - self._held)
        self._rows[self._held : self._held + fits] = new[:fits]
        self._held += fits
        if len(new) > fits:
            self._waiting.append(new[fits:].copy())
            self._queue += len(new) - fits
            if 16 * self._queue > len(self._rows):
                self._sort_in()

    def _sort_in(self) -> None:
        """Replace rows that have larger keys with waiting rows that have smaller ones.

        Rows of equal keys are kept or dropped together, so that the order in which they came makes no difference.
        """
        if self._rows is None or not self._waiting:
            return
        keys = np.concatenate([self._rows["key"], *(rows["key"] for rows in self._waiting)])
        keys.partition(self._held)
        first_out = keys[self._held]
        self._ceiling = float(
            keys[: self._held].max(where=keys[: self._held] < first_out, initial=-math.inf)
        )
        del keys
        free = np.flatnonzero(self._rows["key"] > self._ceiling)
        for rows in self._waiting:
            new = rows[rows["key"] <= self._ceiling]
            self._rows[free[: len(new)]] = new
            free = free[len(new) :]
        self._waiting = []
        self._queue = 0
        self._remove(free)

    def _lower(self, ceiling: float) -> None:
        """Lower the ceiling and drop the rows above it."""
        self._sort_in()
        self._ceiling = min(ceiling, self._ceiling)
        if self._rows is not None:
            self._remove(np.flatnonzero(self._rows["key"][: self._held] > self._ceiling))

    def _remove(self, places: NDArray[np.intp]) -> None:
        """Drop the rows at these places; rows from the end take the places before them."""
        if self._rows is None or len(places) == 0:
            return
        held = self._held - len(places)
        moved = np.setdiff1d(np.arange(held, self._held), places)
        self._rows[places[places < held]] = self._rows[moved]
        self._held = held


def _rows(labelled: Labelled, at: NDArray[np.intp], keys: NDArray[np.float64]) -> Rows:
    rows = np.empty(len(at), dtype=_row_type(labelled))
    rows["logits"], rows["label"], rows["key"] = labelled.logits[at], labelled.labels[at], keys[at]
    rows["weight"] = 1.0 if labelled.weights is None else labelled.weights[at]
    if labelled.groups is not None:
        rows["group"] = labelled.groups[at]
    return rows


def _row_type(labelled: Labelled) -> np.dtype[np.void]:
    logits: NDArray[Any] = labelled.logits
    group = [] if labelled.groups is None else [("group", np.int64, labelled.groups.shape[1:])]
    return np.dtype(
        [
            ("logits", logits.dtype, logits.shape[1:]),
            ("label", np.int64),
            ("weight", np.float64),
            ("key", np.float64),
            *group,
        ]
    )
