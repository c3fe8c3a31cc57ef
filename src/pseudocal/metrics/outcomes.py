"""The outcome of each prediction.

Four numbers per row from which all metrics are computed, and how they are binned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import (
    Floats,
    InputError,
    Labels,
    as_labels,
    as_logits,
    as_numpy,
    as_weights,
    unmasked,
)
from pseudocal.passes import (
    Chunk,
    Doubles,
    as_probabilities,
    block_starts,
    logit_chunks,
    on_threads,
    probability_chunks,
    strips,
    sum_classes,
)

SAFE_LOGIT = 35.0  # below this the exponential of a logit, and its square, fit into float32

OutcomeColumns = tuple[
    Doubles, NDArray[np.bool_], Doubles, Doubles
]  # confidence, correct, nll, brier of some rows


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The confidence of each prediction, whether it is right, and its losses.

    Every metric is a function of these. Create them with `from_logits` or `from_probabilities`:

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25], [0.5, 0.5]], labels=[1, 0])
    >>> outcomes.confidence, outcomes.correct
    (array([0.75, 0.5 ]), array([False,  True]))
    >>> outcomes.brier                                  # (3/4)^2 + (3/4)^2 and (1/2)^2 + (1/2)^2
    array([1.125, 0.5  ])
    >>> np.exp(-outcomes.nll)
    array([0.25, 0.5 ])

    Select rows with an index; join outcomes with `+`, or many at once with `Outcomes.concatenate`.

    >>> len(outcomes), len(outcomes[:1]), len(outcomes + outcomes)
    (2, 1, 4)

    Attributes:
        confidence: The probability of the predicted class, of shape `(n,)`.
        correct: Whether the predicted class is the label, of shape `(n,)`.
        nll: The negative log-likelihood of the label, in nats; inf if its probability is zero.
        brier: The squared error summed over the classes, from 0 to 2.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """

    confidence: Doubles
    correct: NDArray[np.bool_]
    nll: Doubles
    brier: Doubles
    weights: Doubles | None = None

    def __post_init__(self) -> None:
        columns: list[NDArray[Any]] = [self.confidence, self.correct, self.nll, self.brier]
        if self.weights is not None:
            columns.append(self.weights)
        shapes = [np.shape(unmasked(column, "columns")) for column in columns]
        if len(set(shapes)) > 1 or len(shapes[0]) != 1 or shapes[0] == (0,):
            raise InputError(
                f"expected columns of one shape (n,) with at least one row, got shapes {shapes}"
            )

    @classmethod
    def from_logits(
        cls, logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
    ) -> Outcomes:
        """Score logits against labels.

        A class at -inf is impossible. If it is the label, the NLL is inf. Among equal logits the
        first is predicted.

        >>> Outcomes.from_logits([[0.0, -np.inf]], [1]).nll
        array([inf])

        Args:
            logits: Logits of shape `(n, classes)`, of any floating dtype; may be a memory map.
            labels: The true classes, of shape `(n,)`.
            weights: The weight of each row, of shape `(n,)`; None means 1 for each.

        """
        logits = as_logits(logits)
        labels = as_labels(labels, logits)
        columns = _columns(logits, labels, logit_chunks, _of_logits)
        row_weights = None if weights is None else as_weights(weights, len(labels))
        return cls(*columns, row_weights)

    @classmethod
    def from_probabilities(
        cls, probabilities: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
    ) -> Outcomes:
        """Score probabilities against labels.

        Args:
            probabilities: Probabilities of shape `(n, classes)`; a row that sums to 0.9995 is not
                rescaled. For two classes, the probability of the second one, of shape `(n,)`, is
                enough.
            labels: The true classes, of shape `(n,)`.
            weights: The weight of each row, of shape `(n,)`; None means 1 for each.

        """
        probabilities = as_probabilities(probabilities)
        labels = as_labels(labels, probabilities)
        columns = _columns(probabilities, labels, probability_chunks, _of_probabilities)
        row_weights = None if weights is None else as_weights(weights, len(labels))
        return cls(*columns, row_weights)

    @classmethod
    def concatenate(cls, parts: Iterable[Outcomes]) -> Outcomes:
        """Join outcomes in order, with a single copy.

        Args:
            parts: The outcomes to join.

        """
        parts = list(parts)
        if not parts:
            raise InputError("expected at least one part to join, got none")
        weights = None
        if any(part.weights is not None for part in parts):
            weights = np.concatenate([part.weights_or_ones for part in parts])
        return cls(
            np.concatenate([part.confidence for part in parts]),
            np.concatenate([part.correct for part in parts]),
            np.concatenate([part.nll for part in parts]),
            np.concatenate([part.brier for part in parts]),
            weights,
        )

    def __len__(self) -> int:
        return len(self.confidence)

    def __getitem__(self, rows: Any) -> Outcomes:
        weights = None if self.weights is None else self.weights[rows]
        return Outcomes(
            self.confidence[rows], self.correct[rows], self.nll[rows], self.brier[rows], weights
        )

    def __add__(self, other: Outcomes) -> Outcomes:
        return Outcomes.concatenate([self, other])

    @property
    def weights_or_ones(self) -> Doubles:
        """The weight of each row, of shape `(n,)`."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def mean(self, column: NDArray[Any]) -> float:
        """The weighted mean of a column with one number per row.

        >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25], [0.5, 0.5]], [1, 0], weights=[1, 3])
        >>> outcomes.mean(outcomes.correct)                                    # 3 / (1 + 3)
        0.75
        """
        if self.weights is None:
            return float(column.mean())
        return float(np.average(column, weights=self.weights))


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

    parts = strips(block_starts(array.shape))
    with on_threads(len(parts)) as in_parallel:
        list(in_parallel(strip, parts))
    return filled


def _of_logits(z: Chunk, labels: Labels) -> OutcomeColumns:
    row = np.arange(len(labels))
    predicted = z.argmax(axis=0)
    top = z[predicted, row].astype(np.float64)
    at_label = z[labels, row].astype(np.float64)
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
    with np.errstate(divide="ignore"):  # a label of probability zero has an infinite loss
        nll = -np.log(p[labels, row].astype(np.float64))
    confidence = p.max(axis=0).astype(np.float64)
    correct = p.argmax(axis=0) == labels
    p[labels, row] -= 1
    return confidence, correct, nll, np.einsum("ij,ij->j", p, p, dtype=np.float64)


def equal_width(bins: int) -> Doubles:
    """The edges of `bins` equal bins of [0, 1].

    Each k / bins is rounded once, so that 3 / 15 equals 0.2.

    >>> equal_width(4)
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    return np.arange(check_bins(bins) + 1) / bins


def bin_of(confidence: Floats, edges: Doubles) -> NDArray[np.intp]:
    """The bin (a, b] that each confidence falls into.

    >>> bin_of(np.array([0.0, 0.25, 0.2501, 1.0]), equal_width(4))
    array([0, 0, 1, 3])
    """
    return np.searchsorted(edges[1:-1], confidence, side="left")


def check_bins(bins: int) -> int:
    """Reject a number of bins that is not a positive integer."""
    if not isinstance(bins, int | np.integer) or bins < 1:
        raise InputError(f"expected a positive number of bins, got {bins!r}")
    return int(bins)


def clopper_pearson(
    right: ArrayLike, count: ArrayLike, level: float = 0.95
) -> tuple[Doubles, Doubles]:
    """The Clopper-Pearson interval of a proportion, exact for small counts.

    For a count of zero it is [0, 1].

    With two right out of two, the lower end is the square root of 0.025:

    >>> low, high = clopper_pearson([2, 0], [2, 0])
    >>> low.round(3), high
    (array([0.158, 0.   ]), array([1., 1.]))
    """
    from scipy.special import betaincinv

    tail = (1 - check_level(level)) / 2
    right = as_numpy(right, "counts").astype(np.float64)
    wrong = as_numpy(count, "counts").astype(np.float64) - right
    low = np.where(right > 0, betaincinv(np.where(right > 0, right, 1), wrong + 1, tail), 0.0)
    high = np.where(wrong > 0, betaincinv(right + 1, np.where(wrong > 0, wrong, 1), 1 - tail), 1.0)
    return low, high


def check_level(level: float) -> float:
    """Reject a confidence level that is not between 0 and 1."""
    if not 0 < level < 1:
        raise InputError(f"expected a level between 0 and 1, got {level!r}")
    return level
