"""Reliability diagrams and the metrics of outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError
from pseudocal.metrics.outcomes import Outcomes, bin_of, check_bins, clopper_pearson, equal_width
from pseudocal.notebook import reliability_html
from pseudocal.passes import Doubles

Metric = Callable[[Outcomes], float]


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """A reliability diagram.

    The number of predictions, their confidence and their accuracy in bins of confidence.

    Bin k holds the confidences in (edges[k], edges[k + 1]], as in Guo et al. (ICML 2017); the first
    bin includes 0.

    >>> outcomes = Outcomes.from_probabilities([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]], labels=[0, 1, 0])
    >>> reliability = Reliability.of(outcomes, bins=2)
    >>> reliability.count, reliability.accuracy.round(3), reliability.confidence.round(3)
    (array([0, 3]), array([ nan, 0.667]), array([nan, 0.8]))
    >>> round(reliability.ece, 3)                       # |2.4 - 2| / 3
    0.133

    The sums of two parts add up to those of the whole, so the ECE of ten billion pixels needs a
    kilobyte of memory: `sum(Reliability.of(outcomes) for outcomes in batches)`.

    >>> round((reliability + reliability).ece, 3), (reliability + reliability).count
    (0.133, array([0, 6]))

    Attributes:
        edges: The edges of the bins, of shape `(bins + 1,)`, from 0 to 1.
        count: The number of predictions in each bin, of shape `(bins,)`.
        confidence_sum: The sum of their confidences.
        correct_sum: The number of them that are right.

    """

    edges: Doubles
    count: NDArray[np.int64]
    confidence_sum: Doubles
    correct_sum: NDArray[np.int64]

    @classmethod
    def of(cls, outcomes: Outcomes, bins: int = 15) -> Reliability:
        """Group outcomes into bins of equal width.

        Args:
            outcomes: The outcomes of the predictions.
            bins: The number of bins.

        """
        return cls._between(equal_width(bins), outcomes)

    @classmethod
    def equal_mass(cls, outcomes: Outcomes, bins: int = 15) -> Reliability:
        """Group outcomes into bins of equally many rows; rows of equal confidence stay together.

        Args:
            outcomes: The outcomes of the predictions.
            bins: The number of bins.

        """
        n = len(outcomes)
        bins = check_bins(bins)
        last = (
            -(-n * np.arange(1, bins + 1) // bins) - 1
        )  # the last row of each bin, in ascending order
        upper = np.unique(np.partition(outcomes.confidence, np.unique(last))[last])
        return cls._between(np.concatenate([[0.0], upper[:-1], [1.0]]), outcomes)

    @classmethod
    def _between(cls, edges: Doubles, outcomes: Outcomes) -> Reliability:
        k = bin_of(outcomes.confidence, edges)
        bins = len(edges) - 1
        confidence = np.bincount(k, weights=outcomes.confidence, minlength=bins).astype(np.float64)
        right = outcomes.correct
        correct = (
            np.bincount(k[right], minlength=bins)
            if right.dtype == bool
            else np.bincount(k, right, bins)
        )
        return cls(edges, np.bincount(k, minlength=bins), confidence, correct)

    def __add__(self, other: Reliability) -> Reliability:
        if not np.array_equal(self.edges, other.edges):
            raise InputError(
                f"expected the same bins on both sides, got edges {self.edges} and {other.edges}"
            )
        sums = (
            getattr(self, name) + getattr(other, name)
            for name in ("count", "confidence_sum", "correct_sum")
        )
        return Reliability(self.edges, *sums)

    _repr_html_ = reliability_html

    def __radd__(self, other: int) -> Reliability:
        if other != 0:  # what `sum` starts from
            raise InputError(f"expected a Reliability to add, got {other!r}")
        return self

    @property
    def accuracy(self) -> Doubles:
        """The accuracy in each bin, NaN if it is empty."""
        return _ratio(self.correct_sum, self.count)

    @property
    def confidence(self) -> Doubles:
        """The mean confidence in each bin, NaN if it is empty."""
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
        """Mean confidence minus accuracy.

        Above zero the model is overconfident, below it underconfident.
        """
        return float((self.confidence_sum - self.correct_sum).sum() / self.count.sum())

    def accuracy_interval(self, level: float = 0.95) -> tuple[Doubles, Doubles]:
        """The Clopper-Pearson interval of each bin's accuracy.

        Exact for small bins, NaN for empty ones.

        With ten right out of ten, the lower end is 0.025 ** (1 / 10):

        >>> bin = Reliability(np.array([0.0, 1.0]), np.array([10]), np.array([9.0]), np.array([10]))
        >>> low, high = bin.accuracy_interval()
        >>> low.round(4), high
        (array([0.6915]), array([1.]))
        """
        low, high = clopper_pearson(self.correct_sum, self.count, level)
        empty = self.count == 0
        return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def _ratio(total: ArrayLike, count: NDArray[np.int64]) -> Doubles:
    mean: Doubles = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return mean


def accuracy(outcomes: Outcomes) -> float:
    """The fraction of predictions that are right.

    Args:
        outcomes: The outcomes of the predictions.

    """
    return float(outcomes.correct.mean())


def nll(outcomes: Outcomes) -> float:
    """The mean negative log-likelihood of the labels, in nats; inf if a label has probability zero.

    Args:
        outcomes: The outcomes of the predictions.

    """
    return float(outcomes.nll.mean())


def brier(outcomes: Outcomes, classes: int | None = None) -> float:
    """The mean squared error between probabilities and one-hot labels, summed over the classes (Brier, 1950).

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25]], labels=[1])
    >>> brier(outcomes), brier(outcomes, classes=2)
    (1.125, 0.5625)

    The appendix of the PseudoCal paper defines the mean over the classes; its figures and its
    official code use the sum, as scikit-learn does for more than two classes.

    Args:
        outcomes: The outcomes of the predictions.
        classes: The number of classes to divide by, for the mean over the classes; None for the
            sum.

    """
    if classes is not None and classes < 2:
        raise InputError(f"expected at least two classes, got {classes}")
    return float(outcomes.brier.mean()) / (classes or 1)


def ece(outcomes: Outcomes, bins: int = 15) -> float:
    """The expected calibration error over bins of equal width (Naeini et al. 2015, Guo et al.

    2017).

    It is biased upwards: for a perfectly calibrated model, chance alone gives about sqrt(bins / n)
    / 3.

    >>> ece(Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 1, 1]))
    0.25

    Args:
        outcomes: The outcomes of the predictions.
        bins: The number of bins.

    """
    return Reliability.of(outcomes, bins).ece


def equal_mass_ece(outcomes: Outcomes, bins: int = 15) -> float:
    """The expected calibration error over bins of equally many rows ("adaptive ECE").

    Rows of equal confidence share a bin, so that their order does not matter.

    Args:
        outcomes: The outcomes of the predictions.
        bins: The number of bins.

    """
    return Reliability.equal_mass(outcomes, bins).ece


def mce(outcomes: Outcomes, bins: int = 15) -> float:
    """The maximum calibration error: the gap of the worst bin, even if it holds a single row.

    Args:
        outcomes: The outcomes of the predictions.
        bins: The number of bins.

    """
    return Reliability.of(outcomes, bins).mce


def debiased_l2(outcomes: Outcomes, bins: int = 15) -> float:
    """The debiased root mean squared calibration error over bins of equal mass (Kumar et al. 2019).

    The squared gap of a bin overestimates the true one by the variance of its accuracy, a (1 - a) /
    n, which is subtracted. A negative estimate becomes zero. A bin with a single row counts as
    calibrated.

    Here the gap is 1/4 and the variance (1/2 * 1/2) / 3, more than the square of the gap:

    >>> debiased_l2(Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 1, 1]))
    0.0

    Args:
        outcomes: The outcomes of the predictions.
        bins: The number of bins.

    """
    binned = Reliability.equal_mass(outcomes, bins)
    right, count = binned.accuracy, binned.count
    variance = right * (1 - right) / np.maximum(count - 1, 1)
    square = np.where(count > 1, (binned.confidence - right) ** 2 - variance, 0.0)
    return float(np.sqrt(max(0.0, np.average(square, weights=count))))


def overconfidence(outcomes: Outcomes) -> float:
    """Mean confidence minus accuracy: above zero the model is overconfident.

    Args:
        outcomes: The outcomes of the predictions.

    """
    return float(outcomes.confidence.mean() - outcomes.correct.mean())


def aurc(outcomes: Outcomes) -> float:
    """The area under the risk-coverage curve.

    The error rate of the k most confident predictions, averaged over k.

    It measures how well the confidence ranks right predictions above wrong ones. Rows of equal
    confidence share their error rate, which is the average over all their orders.

    The errors are 0, 1/2, 1/2 in order of confidence, so the risks are 0, 1/4 and 1/3:

    >>> round(aurc(Outcomes.from_probabilities([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4]], labels=[0, 1, 0])), 6)
    0.194444

    Args:
        outcomes: The outcomes of the predictions.

    """
    _, group, size = np.unique(-outcomes.confidence, return_inverse=True, return_counts=True)
    errors = np.repeat(np.bincount(group, ~outcomes.correct) / size, size)  # most confident first
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

    Args:
        outcomes: The outcomes of the predictions.

    """
    return {name: metric(outcomes) for name, metric in METRICS.items()}
