"""A uniform sample of labelled logits that never takes more than its memory.

Each row draws a random key when it arrives and the rows with the smallest keys stay. Below the budget everything
stays and a fit on the sample is exact; above it the sample is uniform over all rows, whatever their order. Keys
decide, not arrival, so two reservoirs merge into one as if they had been one from the start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Labelled

Rows = NDArray[np.void]  # structured: logits, label, weight, key; group, if rows have one
PIECE = 1 << 17  # rows that are copied at a time: a frame has millions of pixels


class Reservoir:
    """Keep a uniform sample of the rows that were added, in at most `memory` bytes.

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
        self._limit = np.inf  # once the memory is full: a row with a larger key would leave at once
        self._rows: Rows | None = None

    def __len__(self) -> int:
        return self._held

    def add(self, labelled: Labelled) -> None:
        """Let rows in, and out those whose keys are the largest once the memory is full."""
        keys = self._rng.random(len(labelled))
        coming = np.flatnonzero(keys < self._limit)
        for piece in np.array_split(coming, max(1, -(-len(coming) // PIECE))):
            self._insert(_rows(labelled, piece, keys))
        self.seen += len(keys)

    def merge(self, other: Reservoir) -> None:
        """Take in what another reservoir has seen and kept."""
        if other._rows is not None:
            self._insert(other._rows[: other._held])
        self.seen += other.seen

    @property
    def labelled(self) -> Labelled:
        """The rows that stayed."""
        if self._rows is None:
            raise InputError("expected at least one row in the reservoir, got none")
        rows = self._rows[: self._held]
        groups = rows["group"] if "group" in (rows.dtype.names or ()) else None
        return Labelled(rows["logits"], rows["label"], rows["weight"], groups)

    def _insert(self, new: Rows) -> None:
        if self._rows is None:  # memory that is not touched is not taken, so the whole of it is asked for at once
            self._rows = np.empty(max(1, self.memory // new.dtype.itemsize), dtype=new.dtype)
        if new.dtype != self._rows.dtype:
            raise InputError(f"expected rows of {self._rows.dtype['logits']} logits, got {new.dtype['logits']}")
        fits = min(len(new), len(self._rows) - self._held)
        self._rows[self._held : self._held + fits] = new[:fits]
        self._held += fits
        rest = new[fits:]
        if len(rest):
            keys = np.concatenate([self._rows["key"], rest["key"]])
            stay = np.argpartition(keys, self._held - 1)[: self._held]
            leave = np.setdiff1d(np.arange(self._held), stay)
            self._rows[leave] = rest[np.sort(stay[stay >= self._held]) - self._held]
        if self._held == len(self._rows):
            self._limit = float(self._rows["key"].max())


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
