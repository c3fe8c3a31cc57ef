"""How far a metric can be trusted: bootstrap intervals, of one set of outcomes or of a change.

The basic bootstrap mirrors the resamples about the value, and so takes off the bias that resampling shows. For
a metric that cannot go below zero that bias is known badly, so the interval also spans the resamples moved onto the
value. Calibration errors need one thing more: near zero, resampling shows less than half of their bias. So labels are
drawn as if the model were calibrated; unless the value is beyond what chance then gives, the truth may be zero.

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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError
from pseudocal.metrics.outcomes import Outcomes
from pseudocal.metrics.proportions import check_level
from pseudocal.metrics.scores import Metric, accuracy, aurc, brier, debiased_l2, ece, equal_mass_ece, mce, nll

CALIBRATION_ERRORS = (ece, equal_mass_ece, mce, debiased_l2)  # zero for a calibrated model, never below
LIMITS: dict[Metric, tuple[float, float]] = {
    accuracy: (0, 1),
    nll: (0, math.inf),
    brier: (0, 2),
    aurc: (0, 1),
    **dict.fromkeys(CALIBRATION_ERRORS, (0, 1)),
}
Groups = NDArray[np.intp]  # (n,), from zero


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and the range that should hold the true one.

    >>> print(Interval(0.0421, 0.038, 0.0495))
    0.0421 [0.0380, 0.0495]
    >>> f"{Interval(0.0421, 0.038, 0.0495):.1%}"
    '4.2% [3.8%, 5.0%]'
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
    metric: Metric,
    outcomes: Outcomes,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> Interval:
    """The interval of any metric of `Outcomes`; give options with `functools.partial(ece, bins=10)`.

    Of 95 % intervals 93 to 98 % held the true accuracy, NLL or ECE where plain percentile intervals hold the ECE of a
    calibrated model never: see the module's table. A lambda hides from it that a metric is a calibration error.

    >>> half = Outcomes.from_probabilities([[0.75, 0.25]] * 100, labels=[0, 1] * 50)
    >>> interval = bootstrap(accuracy, half)
    >>> interval.value, abs(interval.high - 0.6) < 0.02          # 1/2 + 1.96 / sqrt(4 * 100)
    (0.5, True)

    `groups` `(n,)` are numbers that rows share which are not independent, such as pixels of one image: whole groups
    are drawn.

    >>> coins = bootstrap(accuracy, half, groups=[0, 1] * 50)
    >>> coins.high - coins.low                                   # all right or all wrong: two coins, not a hundred
    1

    Of a single row, or group, nothing is known of others: the interval is all that the metric can be.

    >>> print(bootstrap(accuracy, half, groups=[0] * 100))
    0.5000 [0.0000, 1.0000]
    """
    group = as_groups(groups, len(outcomes))
    sample = _resample(metric, outcomes, level, resamples, seed, group)
    low, high = ends(sample.value, sample.draws, level)
    least, most = LIMITS.get(_unwrapped(metric), (-math.inf, math.inf))
    if _is_one(outcomes, group):
        return Interval(sample.value, least, most)
    return Interval(sample.value, max(least, low - sample.slack), min(most, max(least, high)))


def paired(
    metric: Metric,
    before: Outcomes,
    after: Outcomes,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> Interval:
    """The interval of the change `metric(after) - metric(before)` on the same rows, or groups of rows.

    What the two share cancels, so a small gain shows that two separate intervals would hide. Where the ECE after may
    be chance alone, the interval reaches down to the change that this would mean. Of one row or group nothing is
    known here either.

    >>> before = Outcomes.from_probabilities([[0.9, 0.1]] * 100, labels=[0, 1] * 50)
    >>> after = Outcomes.from_probabilities([[0.6, 0.4]] * 100, labels=[0, 1] * 50)
    >>> change = paired(ece, before, after)
    >>> round(change.value, 3), change.high < 0
    (-0.3, True)
    """
    if len(before) != len(after):
        raise InputError(f"expected the same rows before and after, got {len(before)} and {len(after)} of them")
    group = as_groups(groups, len(before))
    old, new = (_resample(metric, outcomes, level, resamples, seed, group) for outcomes in (before, after))
    with np.errstate(invalid="ignore"):  # of two infinite losses the change is NaN
        low, high = ends(new.value - old.value, new.draws - old.draws, level)
    if _is_one(before, group):
        least, most = LIMITS.get(_unwrapped(metric), (-math.inf, math.inf))
        return Interval(new.value - old.value, least - most, most - least)
    return Interval(new.value - old.value, low - new.slack, high + old.slack)


class _Sample(NamedTuple):
    value: float
    draws: NDArray[np.float64]  # (resamples,)
    slack: float  # how much lower the truth may lie than resampling shows


def _resample(
    metric: Metric, outcomes: Outcomes, level: float, resamples: int, seed: int, groups: Groups | None = None
) -> _Sample:
    check_level(level)
    value, draws = metric(outcomes), resampled(metric, outcomes, resamples, seed, groups)
    if _unwrapped(metric) not in CALIBRATION_ERRORS:
        return _Sample(value, draws, 0.0)
    rng = np.random.default_rng([seed, 1])
    chance = np.array([metric(_calibrated(outcomes, rng, groups)) for _ in range(resamples)])
    beyond = value > np.quantile(chance, (1 + level) / 2)
    return _Sample(value, draws, 0.0 if beyond else max(0.0, 2 * value - float(draws.mean())))


def resampled(
    metric: Metric, outcomes: Outcomes, resamples: int, seed: int, groups: Groups | None = None
) -> NDArray[np.float64]:
    """The metric of rows, or of groups of them, drawn with replacement, `resamples` times.

    The same seed and number of rows give the same rows: this is what pairs before with after.
    """
    if resamples < 2:
        raise InputError(f"expected at least two resamples, got {resamples}")
    rng = np.random.default_rng(seed)
    if groups is None:
        n = len(outcomes)
        return np.array([metric(outcomes[rng.integers(n, size=n)]) for _ in range(resamples)])
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(groups))[:-1])
    n = len(members)
    return np.array(
        [metric(outcomes[np.concatenate([members[g] for g in rng.integers(n, size=n)])]) for _ in range(resamples)]
    )


def as_groups(groups: ArrayLike | None, n: int) -> Groups | None:
    """Groups numbered from zero, None if there are none or if each has one row."""
    if groups is None:
        return None
    numbers = np.asarray(groups)
    if numbers.shape != (n,):
        raise InputError(f"expected groups of shape ({n},), one for each row, got shape {numbers.shape}")
    found, group = np.unique(numbers, return_inverse=True)
    return None if len(found) == n else group


def _is_one(outcomes: Outcomes, groups: Groups | None) -> bool:
    """Whether there is but one row, or one group of them, to draw."""
    return len(outcomes) == 1 if groups is None else int(groups.max()) == 0


def _calibrated(outcomes: Outcomes, rng: Generator, groups: Groups | None = None) -> Outcomes:
    """What a calibrated model of these confidences might get right (Bröcker and Smith, 2007).

    How rows of a group go together is not known. But if the model were calibrated, the gaps of a group would be as
    likely with the other sign: c - s (c - r) in the place of r is as often above c as below.
    """
    if groups is None:
        return replace(outcomes, correct=rng.random(len(outcomes)) < outcomes.confidence)
    sign = rng.choice([-1.0, 1.0], size=int(groups.max()) + 1)[groups]
    right: NDArray[Any] = outcomes.confidence - sign * (outcomes.confidence - outcomes.correct)
    return replace(outcomes, correct=right)


def ends(value: float, draws: NDArray[np.float64], level: float) -> tuple[float, float]:
    """From the lower to the higher ends of two intervals: the resamples mirrored about the value, and moved onto it."""
    if not math.isfinite(value):  # an impossible label in the sample is one in the population
        return value, value
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail]).tolist()
    bias = float(draws.mean()) - value
    return min(2 * value - high, low - bias), max(2 * value - low, high - bias)


def _unwrapped(metric: Metric) -> Metric:
    return metric.func if isinstance(metric, partial) else metric
