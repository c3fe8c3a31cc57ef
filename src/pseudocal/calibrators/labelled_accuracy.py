"""What labels say about a model: its accuracy, its confidence gap and its calibration error.

The accuracy is the fraction of right predictions among the labelled rows, adjusted by the
difference in calibrated confidence between all rows and the labelled ones (prediction-powered
inference), if that narrows the interval. The interval is Jeffreys' interval for a proportion with
an effective number of labels; if all predictions are right, or all wrong, its end is exact. That
number is larger than the actual one if the rows are spread over confidences or if confidence
predicts what is right, and smaller if several pixels of one image are labelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pseudocal.metrics import Interval, Outcomes, bootstrap, debiased_l2

Numbers64 = NDArray[np.float64]

LEVEL = 0.9  # the level of every interval here
# pseudo-labels, as the calibrated confidence expects them, that stabilise a variance
IMAGINED = 4.0
# with fewer labels the interval of a calibration error is too wide to be useful
FEWEST_FOR_ECE = 100
ROWS_OF_A_BIN = 20
# pseudo-labels, with unrelated neighbours, that stabilise the variance between neighbours
STEADY = 20.0
ALL_ALIKE = 1e-12  # variances below this fraction of the sum of squares are rounding errors
# the largest factor by which the effective number of labels may exceed the actual one
MOST_GAIN = 3.0
MOST_BINS = 15


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """Predictions with a person's labels.

    Attributes:
        right: Whether each predicted class is right, of shape `(n,)`.
        confidence: The calibrated confidence of each row, with a temperature fitted without it, of
            shape `(n,)`.
        expected: The mean calibrated confidence over all rows of the target.
        noise: The mean of c (1 - c) over all rows, where c is the calibrated confidence.
        rows: The number of rows of the target.
        groups: The group of each row, numbered from zero, of shape `(n,)`; rows of one group are
            not independent.
        spread: Whether `rows_to_label` chose the rows and they are in the labelling order, so that
            neighbours represent similar parts of the target. This reduces the sampling error.

    """

    right: NDArray[np.bool_]
    confidence: Numbers64
    expected: float
    noise: float
    rows: int
    groups: NDArray[np.intp]
    spread: bool = False

    @property
    def remaining(self) -> float:
        """The fraction of rows without a label: the finite population correction."""
        return 1 - len(self.right) / self.rows


def accuracy_interval(sample: CheckedRows) -> Interval:
    """The accuracy over all rows of the target, with its 90% interval.

    Twenty right predictions with a confidence of 80%:

    >>> right = np.ones(20, dtype=bool)
    >>> twenty = CheckedRows(right, np.full(20, 0.8), 0.8, 0.16, 10**9, np.arange(20))
    >>> print(accuracy_interval(twenty))
    1.0000 [0.8609, 1.0000]

    The lower end is exact: with an accuracy of 86.09%, all twenty are right in 5% of cases, since
    0.8609^20 = 0.05.
    """
    from scipy.special import betaincinv

    right = sample.right
    fraction = float(right.mean())
    if sample.remaining == 0:
        return Interval(fraction, fraction, fraction)
    weight = _weight(sample)
    if effective_sample_size(sample, weight) <= effective_sample_size(sample, 0.0):
        weight = 0.0
    value = min(
        1.0, max(0.0, fraction + weight * (sample.expected - float(sample.confidence.mean())))
    )
    size = effective_sample_size(sample, weight)
    tail = (1 - LEVEL) / 2
    # Jeffreys' interval is too short if all are right or wrong (Brown, Cai and DasGupta, 2001)
    if right.all():
        return Interval(value, min(tail ** (1 / size), value), 1.0)
    if not right.any():
        return Interval(value, 0.0, max(1 - tail ** (1 / size), value))
    low, high = betaincinv(value * size + 0.5, (1 - value) * size + 0.5, [tail, 1 - tail]).tolist()
    return Interval(value, min(low, value), max(high, value))


def interval_of_alike(
    interval: tuple[float, float], log_t: Numbers64, log_chance: Numbers64, *, right: bool
) -> tuple[float, float]:
    """The interval of log T if all labelled predictions are right, or all wrong.

    It reaches to where that happens in 5% of draws.

    The likelihood then has no peak, so the end on the far side of it would be that of the prior
    alone. It is extended as the interval of the accuracy is. Of twenty right predictions the
    confidence is 86.09% where that happens in 5%.

    >>> log_t = np.linspace(-1.0, 1.0, 2001)
    >>> log_chance = -20 * np.log1p(np.exp(-2.0 * np.exp(-log_t)))  # two classes, logits 2 and 0
    >>> low, high = interval_of_alike((-0.9, -0.5), log_t, log_chance, right=True)
    >>> low, round(1 / (1 + math.exp(-2.0 * math.exp(-high))), 4)
    (-0.9, 0.8609)

    Args:
        interval: The ends of the posterior interval of log T.
        log_t: A grid of log T, rising.
        log_chance: The logarithm of the probability that all are right (or wrong), on the grid: it
            falls with T if they are right, and rises if they are wrong.
        right: Whether they are right.

    """
    limit = math.log((1 - LEVEL) / 2)
    low, high = interval
    if right:
        return low, max(high, float(np.interp(limit, log_chance[::-1], log_t[::-1])))
    return min(low, float(np.interp(limit, log_chance, log_t))), high


def _weight(sample: CheckedRows) -> float:
    """The weight of the confidence as a control variate, from 0 to 1.

    The one that minimises the variance.
    """
    right = sample.right.astype(np.float64)
    c = sample.confidence
    n = len(right)
    spread = float(np.var(c))
    if n < 2 or spread < 1e-12:
        return 0.0
    covariance = float(np.mean((right - right.mean()) * (c - c.mean())))
    # the variance of c over all rows
    expected = max(sample.expected * (1 - sample.expected) - sample.noise, 0.0)
    slope = (n * covariance + IMAGINED * expected) / (n * spread + IMAGINED * expected + 1e-12)
    return min(1.0, max(0.0, slope)) if covariance > 0 else 0.0


def effective_sample_size(sample: CheckedRows, weight: float) -> float:
    """The effective number of labels.

    How many independent ones would estimate the accuracy as well.

    >>> right = np.array([True, False] * 10)
    >>> same = CheckedRows(right, np.full(20, 0.5), 0.5, 0.25, 10**9, np.arange(20))
    >>> round(effective_sample_size(same, 0.0), 3)
    20.0
    >>> twins = np.repeat(np.arange(10), 2)
    >>> pairs = CheckedRows(np.repeat([True, False], 10), np.full(20, 0.5), 0.5, 0.25, 10**9, twins)
    >>> round(effective_sample_size(pairs, 0.0), 1)  # ten pairs, each both right or both wrong
    8.1
    """
    n = len(sample.right)
    right = sample.right.astype(np.float64)
    residuals = right - weight * sample.confidence
    residuals = residuals - residuals.mean()
    # of being right, if the calibrated confidence is
    variance = sample.expected * (1 - sample.expected)
    explained = (2 * weight - weight**2) * max(variance - sample.noise, 0.0)  # by the confidence
    before = n * float(right.var()) + IMAGINED * variance
    after = float(residuals @ residuals) + IMAGINED * (variance - explained)
    size = n * min(max(before / after, 1.0), MOST_GAIN) if after > 0 else float(n)
    effect = inverse_design_effect(residuals, sample.groups, spread=sample.spread)
    return size * effect / sample.remaining


def inverse_design_effect(residuals: Numbers64, groups: NDArray[np.intp], *, spread: bool) -> float:
    """How many independent labels one is worth, given how rows were drawn.

    Above 1 if spread, below if grouped.
    """
    if len(groups) > int(groups.max()) + 1:  # some group has several rows
        return cluster_effect(residuals, groups)
    return spread_effect(residuals) if spread else 1.0


def spread_effect(residuals: Numbers64) -> float:
    """The total variance over the variance between neighbours.

    For spread rows only the latter matters (Wolter, 1984).

    >>> spread_effect(np.repeat([1.0, -1.0], 50)) > 2.9, spread_effect(np.tile([1.0, -1.0], 50))
    (True, 1.0)
    """
    n = len(residuals)
    total = float(residuals.var())
    if n < 3 or total <= ALL_ALIKE * float(residuals @ residuals):
        return 1.0
    between = float(np.square(np.diff(residuals)).mean()) / 2
    return min(max((n + STEADY) * total / (n * between + STEADY * total), 1.0), MOST_GAIN)


def cluster_effect(residuals: Numbers64, groups: NDArray[np.intp]) -> float:
    """The inverse design effect of groups: the variance without groups over the variance with them.

    With few groups this variance is uncertain, so Student's quantile replaces the normal one (Korn
    and Graubard, 1998).
    """
    from scipy.special import ndtri, stdtrit

    sums = np.bincount(groups, weights=residuals)
    sizes = np.bincount(groups)
    count = len(sizes)
    if count == 1:
        return 1 / len(residuals)
    alone = float(residuals @ residuals)
    together = float(sums @ sums) * count / (count - 1)
    ratio = alone / together if together > 0 else 1.0
    few = (ndtri((1 + LEVEL) / 2) / stdtrit(count - 1, (1 + LEVEL) / 2)) ** 2
    return float(np.clip(ratio, 1 / sizes.max(), 1.0) * few)


def calibration_error(
    right: NDArray[np.bool_], confidence: Numbers64, groups: NDArray[np.intp]
) -> Interval | None:
    """The debiased calibration error with its 90% interval; None if there are too few labels.

    It is the root mean square over bins of equally many rows (`debiased_l2`), since the bias of the
    ECE is not known.
    """
    n = len(right)
    if n < FEWEST_FOR_ECE:
        return None
    squared = (confidence - right) ** 2
    nll = -np.log(np.maximum(np.where(right, confidence, 1 - confidence), 1e-300))
    # of the predicted class against all others
    outcomes = Outcomes(confidence, right, nll, 2 * squared)
    return bootstrap(partial(debiased_l2, bins=bins_for(n)), outcomes, level=LEVEL, groups=groups)


def bins_for(n: int) -> int:
    """The number of bins that suits the calibration error of `n` rows.

    >>> bins_for(100), bins_for(1000)
    (5, 15)
    """
    return min(MOST_BINS, max(2, n // ROWS_OF_A_BIN))


def gap(expected: float, accuracy: Interval) -> Interval:
    """Mean confidence over all rows minus accuracy.

    The mean is exact, so the interval comes from the accuracy.

    >>> print(gap(0.9, Interval(0.7, 0.6, 0.8)))
    0.2000 [0.1000, 0.3000]
    """
    return Interval(expected - accuracy.value, expected - accuracy.high, expected - accuracy.low)
