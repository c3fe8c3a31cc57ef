"""Reliability diagrams and the metrics of predictions.

Each metric takes probabilities and labels, or `Outcomes`: the same numbers in a form that can be
merged and resampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

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
        count: The number of predictions in each bin, of shape `(bins,)`. A prediction of weight 2
            counts as two.
        confidence_sum: The sum of their confidences.
        correct_sum: The number of them that are right.

    """

    edges: Doubles
    count: NDArray[Any]
    confidence_sum: Doubles
    correct_sum: NDArray[Any]

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
        upper = np.unique(_upper_edges(outcomes, check_bins(bins)))
        return cls._between(np.concatenate([[0.0], upper[:-1], [1.0]]), outcomes)

    @classmethod
    def _between(cls, edges: Doubles, outcomes: Outcomes) -> Reliability:
        k = bin_of(outcomes.confidence, edges)
        bins = len(edges) - 1
        right = outcomes.correct
        weights = outcomes.weights
        count: NDArray[Any]
        correct: NDArray[Any]
        if weights is not None:
            count = np.bincount(k, weights, bins)
            confidence = np.bincount(k, weights * outcomes.confidence, bins)
            correct = np.bincount(k, weights * right, bins)
        else:
            count = np.bincount(k, minlength=bins)
            confidence = np.bincount(k, outcomes.confidence, bins)
            if right.dtype == bool:
                correct = np.bincount(k[right], minlength=bins)
            else:
                correct = np.bincount(k, right, bins)
        return cls(edges, count, confidence.astype(np.float64), correct)

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


def _upper_edges(outcomes: Outcomes, bins: int) -> Doubles:
    """The largest confidence of each of `bins` bins of equal weight, in ascending order."""
    n = len(outcomes)
    if outcomes.weights is None:
        last = -(-n * np.arange(1, bins + 1) // bins) - 1
        upper: Doubles = np.partition(outcomes.confidence, np.unique(last))[last]
        return upper
    order = np.argsort(outcomes.confidence)
    cumulative = np.cumsum(outcomes.weights[order])
    last = np.searchsorted(cumulative * bins, cumulative[-1] * np.arange(1, bins + 1))
    return np.asarray(outcomes.confidence[order][np.minimum(last, n - 1)])


def _ratio(total: ArrayLike, count: NDArray[Any]) -> Doubles:
    mean: Doubles = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return mean


def _outcomes(
    probabilities: ArrayLike | Outcomes, labels: ArrayLike | None, weights: ArrayLike | None
) -> Outcomes:
    """The outcomes that a metric is computed from."""
    if isinstance(probabilities, Outcomes):
        if labels is not None or weights is not None:
            raise InputError(
                "expected Outcomes alone, since they include labels and weights, got labels or "
                "weights as well"
            )
        return probabilities
    if labels is None:
        raise InputError("expected labels with the probabilities, got none")
    return Outcomes.from_probabilities(probabilities, labels, weights=weights)


@overload
def accuracy(probabilities: Outcomes) -> float: ...
@overload
def accuracy(
    probabilities: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> float: ...
def accuracy(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
) -> float:
    """The fraction of correct predictions.

    >>> accuracy([[0.75, 0.25], [0.6, 0.4], [0.1, 0.9]], [0, 1, 1])              # 2 of 3
    0.6666666666666666

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    return outcomes.mean(outcomes.correct)


@overload
def nll(probabilities: Outcomes) -> float: ...
@overload
def nll(
    probabilities: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> float: ...
def nll(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
) -> float:
    """The mean negative log-likelihood of the labels (log loss), in nats.

    It is inf if a label has probability zero.

    >>> round(nll([[0.5, 0.5], [0.25, 0.75]], [0, 0]), 4)                   # (log 2 + log 4) / 2
    1.0397

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    return outcomes.mean(outcomes.nll)


@overload
def brier(probabilities: Outcomes, *, classes: int | None = None) -> float: ...
@overload
def brier(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    classes: int | None = None,
    weights: ArrayLike | None = None,
) -> float: ...
def brier(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    *,
    classes: int | None = None,
    weights: ArrayLike | None = None,
) -> float:
    """The squared error between probabilities and one-hot labels, summed over the classes.

    This is the definition of Brier (1950), from 0 to 2.

    >>> brier([[0.75, 0.25]], [1]), brier([[0.75, 0.25]], [1], classes=2)      # (3/4)^2 + (3/4)^2
    (1.125, 0.5625)

    The appendix of the PseudoCal paper defines the mean over the classes; its figures and its
    official code use the sum, as scikit-learn does for more than two classes.

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        classes: The number of classes to divide by, for the mean over the classes; None for the
            sum.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    if classes is not None and classes < 2:
        raise InputError(f"expected at least two classes, got {classes}")
    return outcomes.mean(outcomes.brier) / (classes or 1)


@overload
def ece(probabilities: Outcomes, *, bins: int = 15) -> float: ...
@overload
def ece(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    *,
    weights: ArrayLike | None = None,
) -> float: ...
def ece(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    bins: int = 15,
    *,
    weights: ArrayLike | None = None,
) -> float:
    """The expected calibration error: |confidence - accuracy|, averaged over bins of confidence.

    The bins have equal width (Naeini et al. 2015, Guo et al. 2017), and each counts with its
    fraction of the predictions. Confidence is the probability of the predicted class, for two
    classes as well.

    >>> ece([[0.75, 0.25]] * 4, [0, 0, 1, 1])                       # confidence 3/4, accuracy 1/2
    0.25
    >>> ece([0.25] * 4, [0, 0, 1, 1])                           # the same as one column
    0.25

    The ECE is biased upwards: a perfectly calibrated model gets about sqrt(bins / n) / 3 by chance.

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        bins: The number of bins.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    return Reliability.of(outcomes, bins).ece


@overload
def equal_mass_ece(probabilities: Outcomes, *, bins: int = 15) -> float: ...
@overload
def equal_mass_ece(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    *,
    weights: ArrayLike | None = None,
) -> float: ...
def equal_mass_ece(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    bins: int = 15,
    *,
    weights: ArrayLike | None = None,
) -> float:
    """The expected calibration error over bins of equally many rows ("adaptive ECE").

    Rows of equal confidence share a bin, so the order of the rows does not matter.

    The bins are {0.6, 0.7} and {0.8, 0.9}, with accuracies 1/2 and 1:

    >>> p = [[0.6, 0.4], [0.7, 0.3], [0.8, 0.2], [0.9, 0.1]]
    >>> round(equal_mass_ece(p, [0, 1, 0, 0], bins=2), 6)                      # (0.15 + 0.15) / 2
    0.15

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        bins: The number of bins.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    return Reliability.equal_mass(outcomes, bins).ece


@overload
def mce(probabilities: Outcomes, *, bins: int = 15) -> float: ...
@overload
def mce(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    *,
    weights: ArrayLike | None = None,
) -> float: ...
def mce(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    bins: int = 15,
    *,
    weights: ArrayLike | None = None,
) -> float:
    """The maximum calibration error: the gap of the worst bin, even if it has a single row.

    >>> round(mce([[0.6, 0.4], [0.9, 0.1]], [0, 0]), 6)                         # 1 - 0.6
    0.4

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        bins: The number of bins.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    return Reliability.of(outcomes, bins).mce


@overload
def debiased_l2(probabilities: Outcomes, *, bins: int = 15) -> float: ...
@overload
def debiased_l2(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    *,
    weights: ArrayLike | None = None,
) -> float: ...
def debiased_l2(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    bins: int = 15,
    *,
    weights: ArrayLike | None = None,
) -> float:
    """The debiased root mean squared calibration error over bins of equal mass (Kumar et al. 2019).

    The squared gap of a bin overestimates the true one by the variance of its accuracy,
    a (1 - a) / (n - 1), which is subtracted. A negative estimate becomes zero. A bin with a single
    row counts as calibrated. With weights, n is the effective number of rows.

    Here the gap is 1/4 and the variance (1/2 * 1/2) / 3, more than the square of the gap:

    >>> debiased_l2([[0.75, 0.25]] * 4, [0, 0, 1, 1])
    0.0

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        bins: The number of bins.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    binned = Reliability.equal_mass(outcomes, bins)
    right = binned.accuracy
    count = _effective_count(binned, outcomes)
    variance = right * (1 - right) / np.maximum(count - 1, 1)
    square = np.where(count > 1, (binned.confidence - right) ** 2 - variance, 0.0)
    return float(np.sqrt(max(0.0, np.average(square, weights=binned.count))))


def _effective_count(binned: Reliability, outcomes: Outcomes) -> NDArray[Any]:
    """The number of equally weighted rows that would be as informative (Kish), for each bin."""
    if outcomes.weights is None:
        return binned.count
    k = bin_of(outcomes.confidence, binned.edges)
    squares = np.bincount(k, outcomes.weights**2, len(binned.count))
    filled = squares > 0
    effective: NDArray[Any] = np.zeros(len(squares))
    effective[filled] = binned.count[filled] ** 2 / squares[filled]
    return effective


@overload
def overconfidence(probabilities: Outcomes) -> float: ...
@overload
def overconfidence(
    probabilities: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> float: ...
def overconfidence(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
) -> float:
    """Mean confidence minus accuracy: above zero the model is overconfident.

    >>> overconfidence([[0.75, 0.25]] * 4, [0, 0, 1, 1])                        # 3/4 - 1/2
    0.25

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    return outcomes.mean(outcomes.confidence) - outcomes.mean(outcomes.correct)


@overload
def aurc(probabilities: Outcomes) -> float: ...
@overload
def aurc(
    probabilities: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> float: ...
def aurc(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
) -> float:
    """The area under the risk-coverage curve.

    The error rate of the k most confident predictions, averaged over k. It measures how well the
    confidence ranks correct predictions above wrong ones. Rows of equal confidence share their
    error rate, the average over all their orders.

    The errors are 0, 1/2, 1/2 in order of confidence, so the risks are 0, 1/4 and 1/3:

    >>> round(aurc([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4]], [0, 1, 0]), 6)
    0.194444

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    if outcomes.weights is not None:
        return _weighted_aurc(outcomes[outcomes.weights > 0])
    _, group, size = np.unique(-outcomes.confidence, return_inverse=True, return_counts=True)
    errors = np.repeat(np.bincount(group, ~outcomes.correct) / size, size)  # most confident first
    return float((np.cumsum(errors) / np.arange(1, len(errors) + 1)).mean())


def _weighted_aurc(outcomes: Outcomes) -> float:
    weights = outcomes.weights_or_ones
    _, group = np.unique(-outcomes.confidence, return_inverse=True)
    rate = np.bincount(group, weights * ~outcomes.correct) / np.bincount(group, weights)
    order = np.lexsort((weights, group))  # most confident first; ties in an order of their own
    weights = weights[order]
    risk = np.cumsum(weights * rate[group[order]]) / np.cumsum(weights)
    return float(np.average(risk, weights=weights))


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


@overload
def score(probabilities: Outcomes) -> dict[str, float]: ...
@overload
def score(
    probabilities: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> dict[str, float]: ...
def score(
    probabilities: ArrayLike | Outcomes,
    labels: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
) -> dict[str, float]:
    """Every metric by its name, for tables.

    >>> scores = score([[0.75, 0.25]] * 4, [0, 0, 0, 1])
    >>> scores["accuracy"], scores["ece"]
    (0.75, 0.0)

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`; or `Outcomes` alone.
        labels: The true classes, of shape `(n,)`.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    outcomes = _outcomes(probabilities, labels, weights)
    return {name: metric(outcomes) for name, metric in METRICS.items()}
