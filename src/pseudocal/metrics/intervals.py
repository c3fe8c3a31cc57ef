"""How far a metric can be trusted: bootstrap intervals of a metric and of its change.

What is drawn again are independent units: rows, groups of rows, or images (`samples`). The basic bootstrap mirrors the
resamples about the value, and so removes the bias that resampling shows. For a metric that cannot go below zero that
bias is estimated badly, so the interval also spans the resamples shifted onto the value. Calibration errors need one
thing more: near zero, resampling shows less than half of their bias. So outcomes are drawn as if the model were
calibrated. Unless the value is beyond what chance then gives, the truth may be zero.

How often 95 % intervals held the truth: the least and the most over ten settings (300 or 1,000 rows of ten classes,
true temperatures 0.7, 1, 1.05, 1.2 and 2), the change being that which the true temperature makes, as printed by
`benchmarks/intervals.py`:

                  accuracy       NLL            ECE            change of ECE
    percentile    0.93 to 0.96   0.94 to 0.97   0.00 to 0.97   0.01 to 0.99
    basic         0.92 to 0.97   0.93 to 0.97   0.47 to 0.95   0.56 to 0.82
    this one      0.93 to 0.97   0.95 to 0.97   0.93 to 0.98   0.96 to 0.99
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError
from pseudocal.metrics.outcomes import Outcomes
from pseudocal.metrics.samples import MetricSample, sample_of
from pseudocal.metrics.scores import Metric, check_level
from pseudocal.metrics.segmented import Segmented
from pseudocal.passes import Doubles

CALIBRATION_ERRORS = ("ece", "equal_mass_ece", "mce", "debiased_l2")  # zero for a calibrated model, never below
LIMITS: dict[str, tuple[float, float]] = {
    "accuracy": (0.0, 1.0),
    "nll": (0.0, math.inf),
    "brier": (0.0, 2.0),
    "aurc": (0.0, 1.0),
    "miou": (0.0, 1.0),
    **dict.fromkeys(CALIBRATION_ERRORS, (0.0, 1.0)),
}


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and the range that should hold the true one.

    >>> print(Interval(0.0421, 0.038, 0.0495))
    0.0421 [0.0380, 0.0495]
    >>> f"{Interval(0.0421, 0.038, 0.0495):.1%}"
    '4.2% [3.8%, 5.0%]'

    Attributes:
        value: the metric of the data at hand.
        low: the lower end.
        high: the upper end.

    """

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        value, low, high = (format(number, spec or ".4f") for number in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"

    def __str__(self) -> str:
        return format(self)


def bootstrap(
    metric: Metric | str,
    seen: Outcomes | Segmented,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> Interval:
    """The interval of a metric.

    >>> half = Outcomes.from_probabilities([[0.75, 0.25]] * 100, labels=[0, 1] * 50)
    >>> interval = bootstrap("accuracy", half)
    >>> interval.value, abs(interval.high - 0.6) < 0.02          # 1/2 + 1.96 / sqrt(4 * 100)
    (0.5, True)

    Groups of rows are drawn whole. Here each group is all right or all wrong, so there are two coins, not a hundred:

    >>> print(bootstrap("accuracy", half, groups=[0, 1] * 50))
    0.5000 [0.0000, 1.0000]

    Images are drawn whole, too, however many pixels they have:

    >>> right, wrong = (Segmented.of(np.zeros((1, 2, 9, 9)), np.full((1, 9, 9), k)) for k in (0, 1))
    >>> print(bootstrap("accuracy", right + wrong))
    0.5000 [0.0000, 1.0000]

    A single row, group or image says nothing about others: the interval is the whole range of the metric.

    >>> print(bootstrap("accuracy", right))
    1.0000 [0.0000, 1.0000]

    Args:
        metric: a name in `METRICS`, or for images one that `Segmented.score` gives. For rows it may also be a function
            of `Outcomes`, such as `functools.partial(ece, bins=10)`. A lambda hides that a metric is a calibration
            error.
        seen: outcomes of rows, or sums of images.
        level: how often the interval should hold the truth.
        resamples: how many times the units are drawn.
        seed: the seed of the draws.
        groups: numbers `(n,)`; rows that share one are not independent. For rows only.

    """
    sample = sample_of(metric, seen, groups)
    value, draws, slack = _resampled(sample, level, resamples, seed)
    low, high = ends(value, draws, level)
    least, most = _limits(sample)
    if sample.units == 1:
        return Interval(value, least, most)
    return Interval(value, max(least, low - slack), min(most, max(least, high)))


def paired(
    metric: Metric | str,
    before: Outcomes | Segmented,
    after: Outcomes | Segmented,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> Interval:
    """The interval of the change `metric(after) - metric(before)` on the same rows, groups of rows or images.

    What the two share cancels, so it shows a small gain that two separate intervals would hide. Where the ECE after
    may be chance alone, the interval reaches down to the change that this would mean.

    >>> before = Outcomes.from_probabilities([[0.9, 0.1]] * 100, labels=[0, 1] * 50)
    >>> after = Outcomes.from_probabilities([[0.6, 0.4]] * 100, labels=[0, 1] * 50)
    >>> change = paired("ece", before, after)
    >>> round(change.value, 3), change.high < 0
    (-0.3, True)

    Args:
        metric: as in `bootstrap`.
        before: outcomes of rows, or sums of images.
        after: of the same rows or images, in the same order.
        level: how often the interval should hold the truth.
        resamples: how many times the units are drawn.
        seed: the seed of the draws.
        groups: as in `bootstrap`.

    """
    first, second = (sample_of(metric, seen, groups) for seen in (before, after))
    if type(first) is not type(second) or len(first) != len(second):
        got = " and ".join(f"{len(sample)} {sample.noun}" for sample in (first, second))
        raise InputError(f"expected the same {first.noun} before and after, got {got}")
    old, new = (_resampled(sample, level, resamples, seed) for sample in (first, second))
    change = new.value - old.value
    with np.errstate(invalid="ignore"):  # the difference of two infinite losses is NaN
        low, high = ends(change, new.draws - old.draws, level)
    if first.units == 1:
        least, most = _limits(first)
        return Interval(change, least - most, most - least)
    return Interval(change, low - new.slack, high + old.slack)


class _Resampled(NamedTuple):
    value: float
    draws: Doubles  # (resamples,)
    slack: float  # how much lower the truth may lie than resampling shows


def _resampled(sample: MetricSample, level: float, resamples: int, seed: int) -> _Resampled:
    check_level(level)
    if resamples < 2:
        raise InputError(f"expected at least two resamples, got {resamples}")
    value, draws = sample.value, sample.draws(resamples, np.random.default_rng(seed))
    if sample.name not in CALIBRATION_ERRORS:
        return _Resampled(value, draws, 0.0)
    chance = sample.draws_if_calibrated(resamples, np.random.default_rng([seed, 1]))
    beyond = value > np.quantile(chance, (1 + level) / 2)
    return _Resampled(value, draws, 0.0 if beyond else max(0.0, 2 * value - float(draws.mean())))


def _limits(sample: MetricSample) -> tuple[float, float]:
    """What the metric can be."""
    return LIMITS.get(sample.name or "", (-math.inf, math.inf))


def ends(value: float, draws: Doubles, level: float) -> tuple[float, float]:
    """The lower and the upper end of two intervals: the draws mirrored about the value, and shifted onto it."""
    if not math.isfinite(value):  # an impossible label in the sample is one in the population
        return value, value
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail]).tolist()
    bias = float(draws.mean()) - value
    return min(2 * value - high, low - bias), max(2 * value - low, high - bias)
