"""Who is mixed with whom.

The paper pairs rows of one shuffled batch: `WithinBatch`. For an array, which can be shuffled as a whole, that is all
one needs. A stream may come sorted, by class or by camera; then a batch holds few partners, or the wrong ones.
`AnywhereBefore` pairs each row with one drawn from all rows seen so far, of which it keeps a bounded uniform sample,
and weights the pairs so that every two rows of the stream count the same, in whatever order they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, Inputs, Logits
from pseudocal.batches import Batch, count, shuffled, size, stack, take
from pseudocal.randomness import Streams

Numbers = NDArray[np.intp]
Classes = NDArray[np.integer[Any]]

MOST_PARTNERS = 4096  # more inputs than this do not make the sample of partners any better


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Rows to mix, as two numbers of rows of a batch, what the model says of each, and how much each pair counts.

    Nothing is copied until it is asked for: `x` and `partner`, the rows of the larger and of the smaller share, are
    copies made anew each time.

    >>> pairs = Pairs(np.array([[1.0], [2.0], [3.0]]), np.eye(3), np.array([0, 1]), np.array([2, 0]))
    >>> pairs.x.tolist(), pairs.partner.tolist(), pairs.logits.argmax(axis=1).tolist()
    ([[1.0], [2.0]], [[3.0], [1.0]], [0, 1])

    Attributes:
        rows: the inputs, `(m, ...)`.
        row_logits: what the model says of each, `(m, classes)`; of images the classes of the pixels are enough.
        first: the rows that have the larger share, `(n,)`.
        second: their partners, `(n,)`.
        weights: how much each pair counts, `(n,)`; one each when absent.
        ids: which input of the data each row is, `(m,)`: mixes that share one are not independent.
        opinions: the class that a second opinion gives to each row, `(m,)`, if there is one.

    """

    rows: Inputs
    row_logits: Logits
    first: Numbers
    second: Numbers
    weights: Floats | None = None
    ids: NDArray[np.int64] | None = None
    opinions: Classes | None = None

    @classmethod
    def of(
        cls, x: Inputs, partner: Inputs, logits: Logits, partner_logits: Logits, weights: Floats | None = None
    ) -> Pairs:
        """Pair each row of `x` with that of `partner` in the same place.

        >>> Pairs.of(np.array([1.0]), np.array([2.0]), np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])).partner
        array([2.])

        Args:
            x: the larger shares, `(n, ...)`.
            partner: the smaller shares, `(n, ...)`.
            logits: what the model says of `x`.
            partner_logits: what the model says of `partner`.
            weights: how much each pair counts; one each when absent.

        """
        n = len(logits)
        both = np.concatenate([logits, partner_logits])
        return cls(stack([x, partner]), both, np.arange(n), np.arange(n, 2 * n), weights)

    @property
    def x(self) -> Inputs:
        """The rows of the larger share, `(n, ...)`."""
        return take(self.rows, self.first)

    @property
    def partner(self) -> Inputs:
        """The rows of the smaller share, `(n, ...)`."""
        return take(self.rows, self.second)

    @property
    def logits(self) -> Logits:
        """What the model says of `x`, `(n, classes)`."""
        return self.row_logits[self.first]

    @property
    def partner_logits(self) -> Logits:
        """What the model says of `partner`, `(n, classes)`."""
        return self.row_logits[self.second]

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, kept: Numbers) -> Pairs:
        weights = None if self.weights is None else self.weights[kept]
        return replace(self, first=self.first[kept], second=self.second[kept], weights=weights)


def apart(pairs: Pairs) -> Pairs:
    """Those pairs whose two rows the model tells apart.

    >>> x = np.array([[4.0, 0.0], [0.0, 4.0]])
    >>> len(apart(Pairs(x, x, np.array([0, 1]), np.array([0, 0]))))
    1
    """
    pseudo = pairs.row_logits.argmax(axis=1)
    return pairs[np.flatnonzero(pseudo[pairs.first] != pseudo[pairs.second])]


class Pairing(Protocol):
    """How the rows of a batch find their partners."""

    def of(self, batch: Batch, logits: Logits, opinions: Classes | None = None) -> Pairs:
        """The pairs of a batch, of which the model says `logits` and a second one the classes `opinions`.

        Args:
            batch: the batch.
            logits: what the model says of its inputs; of images the classes of the pixels are enough.
            opinions: the class that a second opinion gives each, if there is one.

        """
        ...


@dataclass(frozen=True)
class WithinBatch:
    """Pair each row of a batch with another of the same batch, every row once on either side: as the paper does.

    Attributes:
        streams: where the partners are drawn from; they depend on the seed and on the number of the batch alone.
        epoch: which pass over the data it is.

    """

    streams: Streams
    epoch: int = 0

    def of(self, batch: Batch, logits: Logits, opinions: Classes | None = None) -> Pairs:
        """The pairs of a batch; none if it has a single row.

        Args:
            batch: the batch.
            logits: what the model says of its inputs; of images the classes of the pixels are enough.
            opinions: the class that a second opinion gives each, if there is one.

        """
        n = len(logits)
        first = np.arange(n if n > 1 else 0)
        second = ring(n, self.streams.pairs(batch.number, self.epoch))[: len(first)]
        return Pairs(batch.inputs, logits, first, second, ids=batch.rows, opinions=opinions)


class AnywhereBefore:
    """Pair each row with one of those before it, or of its own batch; inputs that wait take `memory` bytes at most.

    With s rows before a batch of n, a row has s + (n - 1)/2 partners to itself (each pair inside the batch is shared
    by two). It draws one of them and counts for all, so each pair of rows in the stream has the same expected weight.
    Which of the two has the larger share is a toss, so each row is expected to lead as often as any other.

    Batches may differ in the shape of their rows, as images of several sizes do. Rows are then paired with those of
    their own shape: no picture is cut or stretched for it, and what the model says of each lies pixel on pixel.
    """

    def __init__(self, memory: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._past = _Past(memory, rng)

    def of(self, batch: Batch, logits: Logits, opinions: Classes | None = None) -> Pairs:
        """The pairs of the next batch of the stream.

        Args:
            batch: the batch.
            logits: what the model says of its inputs; of images the classes of the pixels are enough.
            opinions: the class that a second opinion gives each, if there is one.

        """
        rng, x, n = self._rng, batch.inputs, len(logits)
        shape = tuple(x.shape[1:])
        before = self._past.count(shape)
        partners = before + (n - 1) / 2
        if partners > 0:
            older = np.flatnonzero(rng.random(n) < before / partners)
            drawn = self._past.draw(len(older), shape)
            first, second = np.arange(n), ring(n, rng)
            second[older] = n + np.arange(len(older))
            swap = older[rng.random(len(older)) < 0.5]
            first[swap], second[swap] = second[swap], first[swap]
            pairs = Pairs(
                stack([x, *(row.inputs for row in drawn)]),
                np.concatenate([logits, *(row.logits for row in drawn)]),
                first,
                second,
                np.full(n, partners),
                np.concatenate([batch.rows, *(row.id for row in drawn)]),
                None if opinions is None else np.concatenate([opinions, *(row.opinion for row in drawn)]),
            )
        else:
            nobody = np.empty(0, dtype=np.intp)
            pairs = Pairs(x, logits, nobody, nobody)
        self._past.add(batch, logits, opinions)
        return pairs


class _Row(NamedTuple):
    """One row that waits for partners: what it is, what the models say of it, which row of the data it is."""

    inputs: Inputs
    logits: Logits
    opinion: Classes
    id: Classes


class _Past:
    """A uniform sample of the rows seen so far, with what the model said of them."""

    def __init__(self, memory: int, rng: np.random.Generator) -> None:
        self._seen = 0
        self._memory = memory
        self._rng = rng
        self._rows: list[_Row] = []
        self._shapes: Counter[tuple[int, ...]] = Counter()

    def count(self, shape: tuple[int, ...]) -> int:
        """How many rows of this shape there were, if one of them is still here."""
        return self._shapes[shape] if len(self._of_shape(shape)) else 0

    def draw(self, n: int, shape: tuple[int, ...]) -> list[_Row]:
        """Draw n rows of this shape with replacement."""
        if n == 0:
            return []
        candidates = self._of_shape(shape)
        return [self._rows[candidates[i]] for i in self._rng.integers(len(candidates), size=n)]

    def add(self, batch: Batch, logits: Logits, opinions: Classes | None) -> None:
        """Let rows in, each in the place of a random one once the memory is full."""
        x, n = batch.inputs, count(batch.inputs)
        capacity = max(2, min(MOST_PARTNERS, self._memory * n // (size(x) + logits.nbytes)))
        self._shapes[tuple(x.shape[1:])] += n
        while len(self._rows) > capacity:  # larger rows than before
            del self._rows[int(self._rng.integers(len(self._rows)))]
        said = batch.rows if opinions is None else opinions  # without a second opinion nobody looks at them
        for i in range(n):
            self._seen += 1
            place = len(self._rows) if len(self._rows) < capacity else int(self._rng.integers(self._seen))
            if place < capacity:
                row = np.array([i])
                self._rows[place : place + 1] = [_Row(take(x, row), logits[row], said[row], batch.rows[row])]

    def _of_shape(self, shape: tuple[int, ...]) -> Sequence[int]:
        everyone = range(len(self._rows))
        if len(self._shapes) < 2:
            return everyone
        return [i for i in everyone if tuple(self._rows[i].inputs.shape[1:]) == shape]


def partners(n: int, *, batch_size: int = 128, seed: int = 0) -> Numbers:
    """With whom `PseudoCal(seed=seed)` pairs each of n rows of an array, in its first epoch.

    >>> bool(np.all(np.sort(partners(300)) == np.arange(300)))  # everyone is someone's partner
    True

    Args:
        n: how many rows the array has.
        batch_size: how many rows a batch has, as in `PseudoCal.fit`.
        seed: the seed of the pairs.

    """
    streams = Streams(seed)
    partner = np.empty(n, dtype=np.intp)
    for number, rows in enumerate(shuffled(n, batch_size, streams.order())):
        partner[rows] = rows[ring(len(rows), streams.pairs(number))]
    return partner


def ring(n: int, rng: np.random.Generator) -> Numbers:
    """A random partner for each of n rows: everyone has one, everyone is one, nobody is their own if n > 1."""
    order = rng.permutation(n)
    partner = np.empty(n, dtype=np.intp)
    partner[order] = np.roll(order, 1)
    return partner
