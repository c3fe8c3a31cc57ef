"""What the metrics need to know about each prediction: four numbers a row, however many classes there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Labels, as_labels, as_logits
from pseudocal.passes import (
    Chunk,
    Doubles,
    as_probabilities,
    block_starts,
    in_strips,
    logit_chunks,
    probability_chunks,
    sum_classes,
)

SAFE_LOGIT = 35.0  # below this size the exponential of a logit, and its square, fit into float32

OutcomeColumns = tuple[Doubles, NDArray[np.bool_], Doubles, Doubles]  # confidence, correct, nll, brier of some rows


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """How sure each prediction was, whether it was right, and what it cost.

    Every metric is a function of these. Say whether you have logits or probabilities; nothing here guesses:

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25], [0.5, 0.5]], labels=[1, 0])
    >>> outcomes.confidence, outcomes.correct
    (array([0.75, 0.5 ]), array([False,  True]))
    >>> outcomes.brier                                  # (3/4)^2 + (3/4)^2 and (1/2)^2 + (1/2)^2
    array([1.125, 0.5  ])
    >>> np.exp(-outcomes.nll)
    array([0.25, 0.5 ])

    Rows are picked with an index and joined with `+`, or many at once with `Outcomes.concatenate`.

    >>> len(outcomes), len(outcomes[:1]), len(outcomes + outcomes)
    (2, 1, 4)

    Attributes:
        confidence: the probability of the predicted class, `(n,)`.
        correct: whether the predicted class is the label.
        nll: minus the logarithm of the label's probability, in nats; inf where that class was impossible.
        brier: the squared error summed over the classes, from 0 to 2.

    """

    confidence: Doubles
    correct: NDArray[np.bool_]
    nll: Doubles
    brier: Doubles

    def __post_init__(self) -> None:
        shapes = [np.shape(column) for column in self._columns()]
        if len(set(shapes)) > 1 or len(shapes[0]) != 1 or shapes[0] == (0,):
            raise InputError(f"expected columns of one shape (n,) with at least one row, got shapes {shapes}")

    @classmethod
    def from_logits(cls, logits: ArrayLike, labels: ArrayLike) -> Outcomes:
        """Score logits against labels.

        A class at -inf is impossible. If it is the label, its NLL is inf. Of equal logits the first is predicted.

        >>> Outcomes.from_logits([[0.0, -np.inf]], [1]).nll
        array([inf])

        Args:
            logits: `(n, classes)`, of any floating dtype and layout; may be a memory map.
            labels: the true classes `(n,)`.

        """
        logits = as_logits(logits)
        labels = as_labels(labels, logits)
        return cls(*_columns(logits, labels, logit_chunks, _of_logits))

    @classmethod
    def from_probabilities(cls, probabilities: ArrayLike, labels: ArrayLike) -> Outcomes:
        """Score probabilities against labels.

        Args:
            probabilities: `(n, classes)`, taken as they are: a row that sums to 0.9995 is not rescaled.
            labels: the true classes `(n,)`.

        """
        probabilities = as_probabilities(probabilities)
        labels = as_labels(labels, probabilities)
        return cls(*_columns(probabilities, labels, probability_chunks, _of_probabilities))

    @classmethod
    def concatenate(cls, parts: Iterable[Outcomes]) -> Outcomes:
        """Join batches in their order, in one pass; repeated `+` would copy again and again."""
        columns = zip(*(part._columns() for part in parts), strict=True)
        joined = [np.concatenate(column) for column in columns]
        if not joined:
            raise InputError("expected at least one part to join, got none")
        return cls(*joined)

    def __len__(self) -> int:
        return len(self.confidence)

    def __getitem__(self, rows: Any) -> Outcomes:
        return Outcomes(*(column[rows] for column in self._columns()))

    def __add__(self, other: Outcomes) -> Outcomes:
        return Outcomes.concatenate([self, other])

    def _columns(self) -> list[NDArray[Any]]:
        return [getattr(self, field.name) for field in fields(self)]


def _columns(
    array: Floats,
    labels: Labels,
    chunks: Callable[[Floats, range], Iterator[tuple[slice, Chunk]]],
    of: Callable[[Chunk, Labels], OutcomeColumns],
) -> OutcomeColumns:
    """The columns of `Outcomes`, filled chunk by chunk on several cores."""
    n = len(array)
    filled = (np.empty(n), np.empty(n, dtype=bool), np.empty(n), np.empty(n))

    def strip(starts: range) -> None:
        for rows, x in chunks(array, starts):
            for column, part in zip(filled, of(x, labels[rows]), strict=True):
                column[rows] = part

    in_strips(block_starts(array.shape), strip)
    return filled


def _of_logits(z: Chunk, labels: Labels) -> OutcomeColumns:
    row = np.arange(len(labels))
    predicted = z.argmax(axis=0)
    top, at_label = z[predicted, row].astype(np.float64), z[labels, row].astype(np.float64)
    if not np.abs(top).max() < SAFE_LOGIT:
        z -= z[predicted, row]
        top, at_label = np.zeros_like(top), at_label - top
    np.exp(z, out=z)
    total = sum_classes(z).astype(np.float64)
    z[labels, row] -= total  # p - 1 at the label, times the total
    brier = np.einsum("ij,ij->j", z, z) / total**2
    return np.exp(top) / total, predicted == labels, np.log(total) - at_label, brier


def _of_probabilities(p: Chunk, labels: Labels) -> OutcomeColumns:
    row = np.arange(len(labels))
    with np.errstate(divide="ignore"):  # an impossible label costs inf
        nll = -np.log(p[labels, row].astype(np.float64))
    confidence, correct = p.max(axis=0).astype(np.float64), p.argmax(axis=0) == labels
    p[labels, row] -= 1
    return confidence, correct, nll, np.einsum("ij,ij->j", p, p, dtype=np.float64)
