"""Pairs: which inputs are mixed with each other.

The paper pairs the rows of one shuffled batch: `WithinBatch`. For an array, which can be shuffled
as a whole, that is enough. A stream may be sorted, by class or by camera; then a batch holds few
suitable partners. `AnywhereBefore` pairs each row with one drawn from all rows seen so far, of
which it keeps a bounded uniform sample. It weights the pairs so that any two rows of the stream
count the same, whatever their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, Inputs, Logits
from pseudocal.batches import DEFAULT_BATCH_SIZE, Batch, count, shuffled, size, stack, take
from pseudocal.randomness import Streams

Numbers = NDArray[np.intp]
Classes = NDArray[np.integer[Any]]

MOST_PARTNERS = 4096  # rows kept as partners at most: a larger sample would be no better


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of rows to mix, given by their row numbers, with the model's logits and a weight for each pair.

    No inputs are copied until they are needed: the properties `x` and `partner` return new copies
    each time.

    >>> pairs = Pairs(np.array([[1.0], [2.0], [3.0]]), np.eye(3), np.array([0, 1]), np.array([2, 0]))
    >>> pairs.x.tolist(), pairs.partner.tolist(), pairs.logits.argmax(axis=1).tolist()
    ([[1.0], [2.0]], [[3.0], [1.0]], [0, 1])

    Attributes:
        inputs: The inputs, of shape `(m, ...)`.
        outputs: Their logits, of shape `(m, classes)`; for images the classes of the pixels are
            enough.
        first: The row numbers of the inputs with the larger weight, of shape `(n,)`.
        second: The row numbers of their partners, of shape `(n,)`.
        weights: The weight of each pair, of shape `(n,)`; None means 1 for each.
        ids: The number of each row in the data, of shape `(m,)`: mixup samples that share an input
            are not independent.
        opinions: The class that each second opinion predicts for each row, of shape `(m,
            opinions)`, if there are any.

    """

    inputs: Inputs
    outputs: Logits
    first: Numbers
    second: Numbers
    weights: Floats | None = None
    ids: NDArray[np.int64] | None = None
    opinions: Classes | None = None

    @classmethod
    def of(
        cls,
        x: Inputs,
        partner: Inputs,
        logits: Logits,
        partner_logits: Logits,
        weights: Floats | None = None,
    ) -> Pairs:
        """Pair each row of `x` with the row of `partner` at the same position.

        >>> Pairs.of(np.array([1.0]), np.array([2.0]), np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])).partner
        array([2.])

        Args:
            x: The inputs with the larger weight, `(n, ...)`.
            partner: Their partners, `(n, ...)`.
            logits: The logits of `x`, `(n, classes)`.
            partner_logits: The logits of `partner`, `(n, classes)`.
            weights: The weight of each pair, `(n,)`; None means 1 for each.

        """
        n = len(logits)
        both = np.concatenate([logits, partner_logits])
        return cls(stack([x, partner]), both, np.arange(n), np.arange(n, 2 * n), weights)

    @property
    def x(self) -> Inputs:
        """The inputs with the larger weight, `(n, ...)`."""
        return take(self.inputs, self.first)

    @property
    def partner(self) -> Inputs:
        """The inputs with the smaller weight, `(n, ...)`."""
        return take(self.inputs, self.second)

    @property
    def logits(self) -> Logits:
        """The logits of `x`, `(n, classes)`."""
        return self.outputs[self.first]

    @property
    def partner_logits(self) -> Logits:
        """The logits of `partner`, `(n, classes)`."""
        return self.outputs[self.second]

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, kept: Numbers) -> Pairs:
        weights = None if self.weights is None else self.weights[kept]
        return replace(self, first=self.first[kept], second=self.second[kept], weights=weights)


def with_different_classes(pairs: Pairs) -> Pairs:
    """The pairs whose two rows have different predicted classes.

    >>> x = np.array([[4.0, 0.0], [0.0, 4.0]])
    >>> len(with_different_classes(Pairs(x, x, np.array([0, 1]), np.array([0, 0]))))
    1

    Args:
        pairs: All pairs.

    """
    pseudo = pairs.outputs.argmax(axis=1)
    return pairs[np.flatnonzero(pseudo[pairs.first] != pseudo[pairs.second])]


class Pairing(Protocol):
    """A rule that pairs the rows of a batch."""

    def of(
        self, batch: Batch, logits: Logits, opinions: Classes | None = None, epoch: int = 0
    ) -> Pairs:
        """The pairs of a batch.

        Args:
            batch: The batch.
            logits: The model's logits of its rows.
            opinions: The classes that second opinions predict for its rows, `(n, opinions)`, if
                there are any.
            epoch: How often the batch was paired before.

        """
        ...

    def keep(self, batch: Batch, logits: Logits, opinions: Classes | None = None) -> None:
        """Keep rows of a batch as partners of later ones, after its last pairs were drawn."""
        ...


@dataclass(frozen=True)
class WithinBatch:
    """Pair each row of a batch with another row of the same batch.

    Every row occurs once with the larger weight and once as the partner. The paper permutes the
    batch (`randperm`), which may pair a row with itself; such a pair has one predicted class, and is
    dropped. A random `ring` pairs no row with itself, so it loses no pairs.

    Attributes:
        streams: The random streams; the partners depend only on the seed, the epoch and the number
            of the batch.

    """

    streams: Streams

    def of(
        self, batch: Batch, logits: Logits, opinions: Classes | None = None, epoch: int = 0
    ) -> Pairs:
        """The pairs of a batch; there are none if it has a single row."""
        n = len(logits)
        first = np.arange(n if n > 1 else 0)
        second = ring(n, self.streams.pairs(batch.number, epoch))[: len(first)]
        return Pairs(batch.inputs, logits, first, second, ids=batch.rows, opinions=opinions)

    def keep(self, batch: Batch, logits: Logits, opinions: Classes | None = None) -> None:
        """Nothing to keep: no row is a partner of another batch."""


class AnywhereBefore:
    """Pair each row with a random earlier row of the stream, or with one of its own batch.

    With s rows before a batch of n, a row has s + (n - 1)/2 possible partners (each pair within the
    batch is shared by two rows). It draws one of them and is weighted for all, so each pair of rows
    in the stream has the same expected weight. Which of the two gets the larger weight is random.

    Batches may differ in the shape of their rows, like images of several sizes. Rows are then
    paired only with rows of the same shape: no image is cropped or resized, and the pixels of two
    maps correspond.

    Args:
        memory: The most bytes that the kept rows may take.
        rng: Draws the partners and the rows that are kept.

    """

    def __init__(self, memory: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._past = _Past(memory, rng)

    def of(
        self, batch: Batch, logits: Logits, opinions: Classes | None = None, epoch: int = 0
    ) -> Pairs:
        """The pairs of the next batch of the stream.

        Args:
            batch: The batch.
            logits: The model's logits of its rows; for images the classes of the pixels are enough.
            opinions: The classes that second opinions predict for its rows, `(n, opinions)`, if
                there are any.
            epoch: How often the batch was paired before; each call draws new partners.

        """
        rng = self._rng
        n = len(logits)
        shape = tuple(batch.inputs.shape[1:])
        earlier = self._past.count(shape)
        # the possible partners of a row; each pair within the batch counts half for both of its rows
        possible = earlier + (n - 1) / 2
        if possible <= 0:
            none = np.empty(0, dtype=np.intp)
            return Pairs(batch.inputs, logits, none, none)
        # a random part of the rows gets an earlier row as partner, appended to the batch; the others
        # get a row of the batch
        row = np.arange(n)
        partner_is_earlier = np.flatnonzero(rng.random(n) < earlier / possible)
        drawn = self._past.draw(len(partner_is_earlier), shape)
        partner = ring(n, rng)
        partner[partner_is_earlier] = n + np.arange(len(drawn))
        # of a row and an earlier one, either may get the larger weight
        swapped = partner_is_earlier[rng.random(len(drawn)) < 0.5]
        row[swapped], partner[swapped] = partner[swapped], row[swapped]
        if opinions is not None:
            opinions = np.concatenate([opinions, *(each.opinion for each in drawn)])
        return Pairs(
            stack([batch.inputs, *(each.inputs for each in drawn)]),
            np.concatenate([logits, *(each.logits for each in drawn)]),
            first=row,
            second=partner,
            weights=np.full(n, possible),
            ids=np.concatenate([batch.rows, *(each.id for each in drawn)]),
            opinions=opinions,
        )

    def keep(self, batch: Batch, logits: Logits, opinions: Classes | None = None) -> None:
        """Keep a sample of the rows seen so far as partners of later batches."""
        self._past.add(batch, logits, opinions)


class _Row(NamedTuple):
    """One row that is kept as a partner: its input, its predictions and its number in the data."""

    inputs: Inputs
    logits: Logits
    opinion: Classes
    id: Classes


class _Past:
    """A uniform sample of the rows seen so far, with their predictions."""

    def __init__(self, memory: int, rng: np.random.Generator) -> None:
        self._seen = 0
        self._memory = memory
        self._rng = rng
        self._rows: list[_Row] = []
        self._shapes: Counter[tuple[int, ...]] = Counter()

    def count(self, shape: tuple[int, ...]) -> int:
        """The number of rows of this shape seen so far; 0 if none of them was kept."""
        return self._shapes[shape] if len(self._of_shape(shape)) else 0

    def draw(self, n: int, shape: tuple[int, ...]) -> list[_Row]:
        """Draw n rows of this shape with replacement."""
        if n == 0:
            return []
        candidates = self._of_shape(shape)
        return [self._rows[candidates[i]] for i in self._rng.integers(len(candidates), size=n)]

    def add(self, batch: Batch, logits: Logits, opinions: Classes | None) -> None:
        """Add rows; once the memory is full, each replaces a random one."""
        x = batch.inputs
        n = count(batch.inputs)
        capacity = max(2, min(MOST_PARTNERS, self._memory * n // (size(x) + logits.nbytes)))
        self._shapes[tuple(x.shape[1:])] += n
        while len(self._rows) > capacity:  # these rows are larger than the ones before
            del self._rows[int(self._rng.integers(len(self._rows)))]
        classes = (
            batch.rows if opinions is None else opinions
        )  # without a second opinion they are not used
        for i in range(n):
            self._seen += 1
            place = (
                len(self._rows)
                if len(self._rows) < capacity
                else int(self._rng.integers(self._seen))
            )
            if place < capacity:
                row = np.array([i])
                self._rows[place : place + 1] = [
                    _Row(take(x, row), logits[row], classes[row], batch.rows[row])
                ]

    def _of_shape(self, shape: tuple[int, ...]) -> Sequence[int]:
        rows = range(len(self._rows))
        if len(self._shapes) < 2:
            return rows
        return [i for i in rows if tuple(self._rows[i].inputs.shape[1:]) == shape]


def partners(n: int, *, batch_size: int = DEFAULT_BATCH_SIZE, seed: int = 0) -> Numbers:
    """The partner that `PseudoCal(seed=seed)` gives each of the n rows of an array in its first epoch.

    >>> bool(np.all(np.sort(partners(300)) == np.arange(300)))  # every row is the partner of one row
    True

    Args:
        n: The number of rows of the array.
        batch_size: The batch size, as in `PseudoCal.fit`.
        seed: The seed of the pairs.

    """
    streams = Streams(seed)
    partner = np.empty(n, dtype=np.intp)
    for number, rows in enumerate(shuffled(n, batch_size, streams.order())):
        partner[rows] = rows[ring(len(rows), streams.pairs(number))]
    return partner


def ring(n: int, rng: np.random.Generator) -> Numbers:
    """A random partner for each of n rows.

    Every row is a partner once, and never its own if n > 1.
    """
    order = rng.permutation(n)
    partner = np.empty(n, dtype=np.intp)
    partner[order] = np.roll(order, 1)
    return partner
