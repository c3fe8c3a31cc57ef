"""Who is mixed with whom.

The paper pairs rows of one shuffled batch. That is what `pairs_within` does, and for an array, which can be shuffled
as a whole, it is all one needs. A stream may come sorted, by class or by camera; then a batch holds few partners, or
the wrong ones. `pairs_anywhere` pairs each row with one drawn from all rows seen so far, of which it keeps a bounded
uniform sample, and weights the pairs so that every two rows of the stream count the same, in whatever order they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Batch, Floats, Logits, Predictor
from pseudocal.batches import count, size, stack, take

Numbers = NDArray[np.intp]

MOST_PARTNERS = 4096  # more inputs than this do not make the sample of partners any better


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Rows to mix, as two numbers of rows of a batch, what the model says of each, and how much each pair counts.

    Nothing is copied until it is asked for: `x` and `partner`, the rows of the larger and of the smaller share, are
    copies made anew each time.

    >>> pairs = Pairs(np.array([[1.0], [2.0], [3.0]]), np.eye(3), np.array([0, 1]), np.array([2, 0]))
    >>> pairs.x.tolist(), pairs.partner.tolist(), pairs.logits.argmax(axis=1).tolist()
    ([[1.0], [2.0]], [[3.0], [1.0]], [0, 1])
    """

    rows: Batch  # (m, ...)
    row_logits: Logits  # (m, classes)
    first: Numbers  # (n,): rows that have the larger share
    second: Numbers  # (n,): their partners
    weights: Floats | None = None  # (n,)
    ids: NDArray[np.int64] | None = None  # (m,): which input of the stream each row is, for mixes that share one

    @classmethod
    def of(
        cls, x: Batch, partner: Batch, logits: Logits, partner_logits: Logits, weights: Floats | None = None
    ) -> Pairs:
        """Pair each row of `x` with that of `partner` in the same place.

        >>> Pairs.of(np.array([1.0]), np.array([2.0]), np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])).partner
        array([2.])
        """
        n = len(logits)
        both = np.concatenate([logits, partner_logits])
        return cls(stack([x, partner]), both, np.arange(n), np.arange(n, 2 * n), weights)

    @property
    def x(self) -> Batch:
        """The rows of the larger share, `(n, ...)`."""
        return take(self.rows, self.first)

    @property
    def partner(self) -> Batch:
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
        return Pairs(self.rows, self.row_logits, self.first[kept], self.second[kept], weights, self.ids)


def apart(pairs: Pairs) -> Pairs:
    """Those pairs whose two rows the model tells apart.

    >>> x = np.array([[4.0, 0.0], [0.0, 4.0]])
    >>> len(apart(Pairs(x, x, np.array([0, 1]), np.array([0, 0]))))
    1
    """
    pseudo = pairs.row_logits.argmax(axis=1)
    return pairs[np.flatnonzero(pseudo[pairs.first] != pseudo[pairs.second])]


def pairs_within(predict: Predictor, batches: Iterable[Batch], *, rng: np.random.Generator) -> Iterator[Pairs]:
    """Pair each row of a batch with another of the same batch, every row once on either side."""
    seen = 0
    for x in batches:
        logits = predict(x)
        n = len(logits)
        if n > 1:
            yield Pairs(x, logits, np.arange(n), ring(n, rng), ids=np.arange(seen, seen + n))
        seen += n


def pairs_anywhere(
    predict: Predictor, batches: Iterable[Batch], *, rng: np.random.Generator, memory: int
) -> Iterator[Pairs]:
    """Pair each row with one of those before it, or of its own batch; inputs that wait take `memory` bytes at most.

    With s rows before a batch of n, a row has s + (n - 1)/2 partners to itself (each pair inside the batch is shared
    by two). It draws one of them and counts for all, so each pair of rows in the stream has the same expected weight.
    Which of the two has the larger share is a toss, so each row is expected to lead as often as any other.

    Batches may differ in the shape of their rows, as images of several sizes do. Rows are then paired with those of
    their own shape: no picture is cut or stretched for it, and what the model says of each lies pixel on pixel.
    """
    past = _Past(memory, rng)
    for x in batches:
        logits = predict(x)
        n, shape = len(logits), tuple(x.shape[1:])
        before = past.count(shape)
        partners = before + (n - 1) / 2
        if partners > 0:
            older = np.flatnonzero(rng.random(n) < before / partners)
            x_past, logits_past, ids_past = past.draw(len(older), shape)
            everyone, all_logits = stack([x, *x_past]), np.concatenate([logits, *logits_past])
            first, second = np.arange(n), ring(n, rng)
            second[older] = n + np.arange(len(older))
            swap = older[rng.random(len(older)) < 0.5]
            first[swap], second[swap] = second[swap], first[swap]
            ids = np.concatenate([np.arange(past.seen, past.seen + n), ids_past])
            yield Pairs(everyone, all_logits, first, second, np.full(n, partners), ids)
        past.add(x, logits)


class _Past:
    """A uniform sample of the rows seen so far, with what the model said of them."""

    def __init__(self, memory: int, rng: np.random.Generator) -> None:
        self.seen = 0
        self._memory = memory
        self._rng = rng
        self._rows: list[tuple[Batch, Logits, int]] = []
        self._shapes: Counter[tuple[int, ...]] = Counter()

    def count(self, shape: tuple[int, ...]) -> int:
        """How many rows of this shape there were, if one of them is still here."""
        return self._shapes[shape] if len(self._fitting(shape)) else 0

    def draw(self, n: int, shape: tuple[int, ...]) -> tuple[list[Batch], list[Logits], NDArray[np.int64]]:
        """Draw n rows of this shape with replacement, and which of all rows they are."""
        if n == 0:
            return [], [], np.empty(0, dtype=np.int64)
        fitting = self._fitting(shape)
        drawn = [self._rows[fitting[i]] for i in self._rng.integers(len(fitting), size=n)]
        x, logits, ids = zip(*drawn, strict=True)
        return list(x), list(logits), np.array(ids, dtype=np.int64)

    def add(self, x: Batch, logits: Logits) -> None:
        """Let rows in, each in the place of a random one once the memory is full."""
        n = count(x)
        capacity = max(2, min(MOST_PARTNERS, self._memory * n // (size(x) + logits.nbytes)))
        self._shapes[tuple(x.shape[1:])] += n
        while len(self._rows) > capacity:  # larger rows than before
            del self._rows[int(self._rng.integers(len(self._rows)))]
        for i in range(n):
            self.seen += 1
            row = np.array([i])
            if len(self._rows) < capacity:
                self._rows.append((take(x, row), logits[row], self.seen - 1))  # copies: views would keep all alive
            elif (place := int(self._rng.integers(self.seen))) < len(self._rows):
                self._rows[place] = (take(x, row), logits[row], self.seen - 1)

    def _fitting(self, shape: tuple[int, ...]) -> Sequence[int]:
        everyone = range(len(self._rows))
        if len(self._shapes) < 2:
            return everyone
        return [i for i in everyone if tuple(self._rows[i][0].shape[1:]) == shape]


def ring(n: int, rng: np.random.Generator) -> Numbers:
    """A random partner for each of n rows: everyone has one, everyone is one, nobody is their own if n > 1."""
    order = rng.permutation(n)
    partner = np.empty(n, dtype=np.intp)
    partner[order] = np.roll(order, 1)
    return partner
