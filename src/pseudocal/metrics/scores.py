"""Reliability by bins of confidence, and the metrics of outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError
from pseudocal.metrics.outcomes import Outcomes
from pseudocal.passes import Doubles

Metric = Callable[[Outcomes], float]


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """For each bin of confidence: how many predictions, the sum of their confidence, how many were right.

    Bin k holds the confidences in (edges[k], edges[k + 1]], as in Guo et al. (ICML 2017). A confidence of exactly 0,
    which that rule puts nowhere, belongs to the first bin; the confidence of a predicted class is never 0.

    >>> outcomes = Outcomes.from_probabilities([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]], labels=[0, 1, 0])
    >>> reliability = Reliability.of(outcomes, bins=2)
    >>> reliability.count, reliability.accuracy.round(3), reliability.confidence.round(3)
    (array([0, 3]), array([ nan, 0.667]), array([nan, 0.8]))
    >>> round(reliability.ece, 3)                       # |2.4 - 2| / 3
    0.133

    The sums of two parts add up to those of the whole, so the ECE of ten billion pixels needs a kilobyte:
    `functools.reduce(operator.add, (Reliability.of(outcomes) for outcomes in batches))`.

    >>> round((reliability + reliability).ece, 3), (reliability + reliability).count
    (0.133, array([0, 6]))

    Attributes:
        edges: the ends of the bins, `(bins + 1,)`, ascending from 0 to 1.
        count: the number of predictions in each bin, `(bins,)`.
        confidence_sum: the sum of their confidences.
        correct_sum: how many of them are right.

    """

    edges: Doubles
    count: NDArray[np.int64]
    confidence_sum: Doubles
    correct_sum: NDArray[np.int64]

    @classmethod
    def of(cls, outcomes: Outcomes, bins: int = 15) -> Reliability:
        """Sort outcomes into bins of equal width."""
        return cls._between(equal_width(bins), outcomes)

    @classmethod
    def equal_mass(cls, outcomes: Outcomes, bins: int = 15) -> Reliability:
        """Sort outcomes into bins of equally many rows; rows of the same confidence stay together."""
        n, bins = len(outcomes), check_bins(bins)
        last = -(-n * np.arange(1, bins + 1) // bins) - 1  # the last row of each bin, in ascending order
        upper = np.unique(np.partition(outcomes.confidence, np.unique(last))[last])
        return cls._between(np.concatenate([[0.0], upper[:-1], [1.0]]), outcomes)

    @classmethod
    def _between(cls, edges: Doubles, outcomes: Outcomes) -> Reliability:
        k, bins = bin_of(outcomes.confidence, edges), len(edges) - 1
        confidence = np.bincount(k, weights=outcomes.confidence, minlength=bins).astype(np.float64)
        right = outcomes.correct
        correct = np.bincount(k[right], minlength=bins) if right.dtype == bool else np.bincount(k, right, bins)
        return cls(edges, np.bincount(k, minlength=bins), confidence, correct)

    def __add__(self, other: Reliability) -> Reliability:
        if not np.array_equal(self.edges, other.edges):
            raise InputError(f"expected the same bins on both sides, got edges {self.edges} and {other.edges}")
        return Reliability(
            self.edges,
            self.count + other.count,
            self.confidence_sum + other.confidence_sum,
            self.correct_sum + other.correct_sum,
        )

    def __radd__(self, other: int) -> Reliability:
        if other != 0:  # what `sum` starts from
            raise InputError(f"expected a Reliability to add, got {other!r}")
        return self

    @property
    def accuracy(self) -> Doubles:
        """The share of right predictions in each bin, NaN where it is empty."""
        return _ratio(self.correct_sum, self.count)

    @property
    def confidence(self) -> Doubles:
        """The mean confidence in each bin, NaN where it is empty."""
        return _ratio(self.confidence_sum, self.count)

    @property
    def ece(self) -> float:
        """The gap between confidence and accuracy, averaged over the predictions."""
        return float(np.abs(self.confidence_sum - self.correct_sum).sum() / self.count.sum())

    @property
    def mce(self) -> float:
        """The gap of the worst bin."""
        return float(np.nanmax(np.abs(self.confidence - self.accuracy)))

    @property
    def signed(self) -> float:
        """Mean confidence minus accuracy: above zero the model is overconfident, below it underconfident."""
        return float((self.confidence_sum - self.correct_sum).sum() / self.count.sum())

    def accuracy_interval(self, level: float = 0.95) -> tuple[Doubles, Doubles]:
        """The Clopper-Pearson interval of each bin's accuracy: exact for small bins, NaN for empty ones.

        Ten right out of ten still leave room for doubt, down to 0.025 ** (1 / 10):

        >>> bin = Reliability(np.array([0.0, 1.0]), np.array([10]), np.array([9.0]), np.array([10]))
        >>> low, high = bin.accuracy_interval()
        >>> low.round(4), high
        (array([0.6915]), array([1.]))
        """
        low, high = clopper_pearson(self.correct_sum, self.count, level)
        empty = self.count == 0
        return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def equal_width(bins: int) -> Doubles:
    """The edges of `bins` equal bins of [0, 1]; k / bins is rounded once, so that 0.2 is the edge 3 / 15.

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
    """Refuse a number of bins that is not a positive integer."""
    if not isinstance(bins, int | np.integer) or bins < 1:
        raise InputError(f"expected a positive number of bins, got {bins!r}")
    return int(bins)


def clopper_pearson(right: ArrayLike, count: ArrayLike, level: float = 0.95) -> tuple[Doubles, Doubles]:
    """The Clopper-Pearson interval of a share, exact for small counts; for a count of zero it is [0, 1].

    Two right out of two still leave room for doubt, down to the root of 0.025:

    >>> low, high = clopper_pearson([2, 0], [2, 0])
    >>> low.round(3), high
    (array([0.158, 0.   ]), array([1., 1.]))
    """
    from scipy.special import betaincinv

    tail, right = (1 - check_level(level)) / 2, np.asarray(right, dtype=np.float64)
    wrong = np.asarray(count, dtype=np.float64) - right
    low = np.where(right > 0, betaincinv(np.where(right > 0, right, 1), wrong + 1, tail), 0.0)
    high = np.where(wrong > 0, betaincinv(right + 1, np.where(wrong > 0, wrong, 1), 1 - tail), 1.0)
    return low, high


def check_level(level: float) -> float:
    """Refuse a confidence level that is not between 0 and 1."""
    if not 0 < level < 1:
        raise InputError(f"expected a level between 0 and 1, got {level!r}")
    return level


def _ratio(total: ArrayLike, count: NDArray[np.int64]) -> Doubles:
    mean: Doubles = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return mean


def accuracy(outcomes: Outcomes) -> float:
    """The share of predictions that are right."""
    return float(outcomes.correct.mean())


def nll(outcomes: Outcomes) -> float:
    """The mean negative log-likelihood of the labels, in nats; inf if an impossible class was the label."""
    return float(outcomes.nll.mean())


def brier(outcomes: Outcomes, classes: int | None = None) -> float:
    """The mean squared error between probabilities and one-hot labels, summed over the classes (Brier, 1950).

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25]], labels=[1])
    >>> brier(outcomes), brier(outcomes, classes=2)
    (1.125, 0.5625)

    The appendix of the PseudoCal paper defines the mean over the classes, which `classes` divides by; its figures
    and its official code have the sum, and so does scikit-learn for more than two classes.
    """
    if classes is not None and classes < 2:
        raise InputError(f"expected at least two classes, got {classes}")
    return float(outcomes.brier.mean()) / (classes or 1)


def ece(outcomes: Outcomes, bins: int = 15) -> float:
    """The expected calibration error over bins of equal width (Naeini et al. 2015, Guo et al. 2017).

    It is biased upwards: chance alone gives a perfectly calibrated model about sqrt(bins / n) / 3.

    >>> ece(Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 1, 1]))
    0.25
    """
    return Reliability.of(outcomes, bins).ece


def equal_mass_ece(outcomes: Outcomes, bins: int = 15) -> float:
    """The expected calibration error over bins of equally many rows ("adaptive ECE").

    Rows of the same confidence share a bin, so that their order does not matter.
    """
    return Reliability.equal_mass(outcomes, bins).ece


def mce(outcomes: Outcomes, bins: int = 15) -> float:
    """The maximum calibration error: the gap of the worst bin, even if it holds a single row."""
    return Reliability.of(outcomes, bins).mce


def debiased_l2(outcomes: Outcomes, bins: int = 15) -> float:
    """The root mean squared calibration error over bins of equal mass, without its bias (Kumar et al. 2019).

    The squared gap of a bin overstates the true one by the variance of its accuracy, which is known: a (1 - a) / n.
    An estimate below zero becomes zero. A bin of a single row says nothing and counts as calibrated.

    Here the gap is 1/4 and the variance (1/2 * 1/2) / 3, more than the square of the gap:

    >>> debiased_l2(Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 1, 1]))
    0.0
    """
    binned = Reliability.equal_mass(outcomes, bins)
    right, count = binned.accuracy, binned.count
    variance = right * (1 - right) / np.maximum(count - 1, 1)
    square = np.where(count > 1, (binned.confidence - right) ** 2 - variance, 0.0)
    return float(np.sqrt(max(0.0, np.average(square, weights=count))))


def overconfidence(outcomes: Outcomes) -> float:
    """Mean confidence minus accuracy: above zero the model is overconfident."""
    return float(outcomes.confidence.mean() - outcomes.correct.mean())


def aurc(outcomes: Outcomes) -> float:
    """The area under the risk-coverage curve: the error rate of the k surest predictions, averaged over k.

    It says how well confidence ranks right predictions above wrong ones. Rows of the same confidence share their
    error rate, which is the average over all orders of them.

    Errors 0, 1/2, 1/2 in order of confidence, so risks of 0, 1/4 and 1/3:

    >>> round(aurc(Outcomes.from_probabilities([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4]], labels=[0, 1, 0])), 6)
    0.194444
    """
    _, group, size = np.unique(-outcomes.confidence, return_inverse=True, return_counts=True)
    errors = np.repeat(np.bincount(group, ~outcomes.correct) / size, size)  # surest first
    return float((np.cumsum(errors) / np.arange(1, len(errors) + 1)).mean())


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "nll": nll,
    "brier": brier,
    "ece": ece,
    "equal_mass_ece": equal_mass_ece,
    "mce": mce,
    "debiased_l2": debiased_l2,
    "overconfidence": overconfidence,
    "aurc": aurc,
}


def score(outcomes: Outcomes) -> dict[str, float]:
    """Every metric by its name, for tables.

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 0, 1])
    >>> score(outcomes)["accuracy"], score(outcomes)["ece"]
    (0.75, 0.0)
    """
    return {name: metric(outcomes) for name, metric in METRICS.items()}
