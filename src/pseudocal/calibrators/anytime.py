"""An interval of the temperature from labels that is valid at every number of labels.

A person looks at the verdict, labels some more, and looks again. An interval made for one number of
labels covers too rarely then, and a verdict that rests on it changes back and forth. This one covers
the temperature at all numbers of labels together with a probability of 90%: of log T it keeps the
values whose likelihood is at least a tenth of the mean likelihood over the prior (Robbins, 1970).
The mean over that of the true temperature is a supermartingale, so it ever exceeds ten with a
probability of at most a tenth (Ville, 1939), whatever the prior is. So the intersection of all
intervals up to the last label covers as well, and it never grows: a temperature of 1 that was
excluded once stays excluded. If two intervals contradict each other, the later one counts. Where
labels are correlated or are a large part of the target, their weight makes this approximate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Logits
from pseudocal.calibrators.labelled_accuracy import LEVEL
from pseudocal.calibrators.posterior import LOG_T, Likelihood, LogTs, Prior

# of log T: fine where the temperatures of nearly all models are
GRID = np.concatenate(
    [
        np.linspace(LOG_T[0], -1.5, 40)[:-1],
        np.linspace(-1.5, 2.5, 201),
        np.linspace(2.5, LOG_T[1], 60)[1:],
    ]
)
CELLS = np.gradient(GRID)
BLOCK = 1000  # labels at a time
MOST_WEIGHT = 1e6  # the largest weight of a label, if all rows have one
MOST_FURTHER = 200  # more further labels than this are not recommended
STEP = 10  # further labels are recommended in steps of this
LIKELY = 0.8  # the probability with which further labels should settle a verdict
DRAWS = 50  # of further labels


def log_prior(priors: Sequence[Prior]) -> LogTs:
    """The log probability of each point of the grid: these sum to one."""
    found = np.log(CELLS)
    for prior in priors:
        found = found + prior.log_density(GRID)
    normalised: LogTs = found - _log_sum_exp(found)
    return normalised


@dataclass(frozen=True, eq=False)
class LabelHistory:
    """The labels of some rows of a target so far, in the order in which they were given.

    Attributes:
        rows: The number of rows of the target.
        labels: The number of labels.
        effect: How many independent labels one is worth, at most 1.
        log_prior: The log probability of each point of the grid.
        total: The log-likelihood of all labels at each point of the grid.
        low: The lower end of the interval of log T.
        high: The upper end of the interval of log T.

    """

    rows: int
    effect: float
    log_prior: LogTs
    total: LogTs
    labels: int = 0
    low: float = LOG_T[0]
    high: float = LOG_T[1]

    @classmethod
    def empty(cls, rows: int, effect: float, priors: Sequence[Prior]) -> LabelHistory:
        """No labels yet."""
        return cls(rows, min(effect, 1.0), log_prior(priors), np.zeros(len(GRID)))

    def extended(self, log_likelihood: LogTs) -> LabelHistory:
        """With further labels.

        A hundred labels of a model of two classes with logits 2 and 0 (a confidence of 88%), three
        in four of them right, exclude T = 1; with four of five right they do not.

        >>> logits = np.tile([[2.0, 0.0]], (100, 1))
        >>> intervals = []
        >>> for every in (4, 5):
        ...     labels = np.where(np.arange(100) % every, 0, 1)
        ...     found = LabelHistory.empty(10**6, 1.0, [Prior("none", 1.0, 1.0)])
        ...     found = found.extended(Likelihood(logits, GRID).of(labels))
        ...     intervals.append((round(found.low, 2), round(found.high, 2)))
        >>> intervals
        [(0.13, 1.44), (-0.05, 1.02)]

        Args:
            log_likelihood: Of each label at each point of the grid, `(n, points)`.

        """
        found = self
        for start in range(0, len(log_likelihood), BLOCK):
            found = found._with_block(log_likelihood[start : start + BLOCK])
        return found

    def _with_block(self, log_likelihood: LogTs) -> LabelHistory:
        totals = self.total + np.cumsum(log_likelihood, axis=0)
        low = self.low
        high = self.high
        ends = self.intervals(totals, self.labels + 1 + np.arange(len(totals)))
        for a, b in zip(*ends, strict=True):
            if max(a, low) > min(b, high):  # they contradict each other: the last one counts
                low, high = a, b
            low = max(a, low)
            high = min(b, high)
        labels = self.labels + len(totals)
        return replace(self, total=totals[-1], labels=labels, low=float(low), high=float(high))

    def intervals(self, totals: LogTs, labels: NDArray[np.intp]) -> tuple[LogTs, LogTs]:
        """The ends of the interval at each number of labels, whose log-likelihoods are `totals`."""
        remaining = np.maximum(1 - labels / self.rows, 1 / MOST_WEIGHT)
        weighted = (self.effect / remaining)[..., None] * totals
        least = _log_sum_exp(weighted + self.log_prior) + math.log(1 - LEVEL)
        above = weighted - least[..., None]
        return _first_above(above, GRID), _first_above(above[..., ::-1], GRID[::-1])


def _first_above(heights: LogTs, places: LogTs) -> LogTs:
    """Where a function on a grid first rises above zero, in each row.

    >>> _first_above(np.array([[-1.0, 1.0, 3.0], [1.0, 2.0, 3.0]]), np.array([0.0, 2.0, 3.0]))
    array([1., 0.])
    """
    first = np.argmax(heights >= 0, axis=-1)
    before = np.maximum(first - 1, 0)
    at_first = np.take_along_axis(heights, first[..., None], axis=-1)[..., 0]
    at_before = np.take_along_axis(heights, before[..., None], axis=-1)[..., 0]
    back = np.where(first > 0, at_first / np.where(first > 0, at_first - at_before, 1.0), 0.0)
    found: LogTs = places[first] - back * (places[first] - places[before])
    return found


def _log_sum_exp(values: LogTs) -> LogTs:
    most = values.max(axis=-1)
    total: LogTs = most + np.log(np.exp(values - most[..., None]).sum(axis=-1))
    return total


def labels_to_settle(
    history: LabelHistory,
    next_logits: Logits,
    log_ts: LogTs,
    equivalent: tuple[float, float],
    *,
    seed: int,
) -> int | None:
    """How many further labels settle the verdict with a probability of 80%, in steps of ten.

    Further labels are drawn as the model would have them at each of several temperatures. A verdict
    is clear if the interval excludes T = 1, or if all of it is as good as T = 1.

    Args:
        history: The labels so far.
        next_logits: The logits of the rows to be labelled next, `(n, classes)`.
        log_ts: Values of log T that the labels so far support, equally likely.
        equivalent: The lowest and the highest log T that are as good as T = 1.
        seed: The seed of the labels.

    Returns:
        The number, or None if more than these rows are needed.

    """
    likelihood = Likelihood(next_logits, GRID)
    rng = np.random.default_rng(seed)
    starts = np.arange(0, len(next_logits), STEP)
    ends = np.minimum(starts + STEP, len(next_logits))
    totals = np.empty((len(log_ts), len(starts), len(GRID)))
    for draw, log_t in enumerate(log_ts):
        labels = _drawn(likelihood.below * math.exp(-log_t), rng)
        of_steps = np.add.reduceat(likelihood.of(labels), starts, axis=0)
        totals[draw] = history.total + np.cumsum(of_steps, axis=0)
    low, high = history.intervals(totals, history.labels + ends)
    low = np.maximum(np.maximum.accumulate(low, axis=1), history.low)
    high = np.minimum(np.minimum.accumulate(high, axis=1), history.high)
    same = (equivalent[0] <= low) & (high <= equivalent[1])
    decided = ((low > 0) | (high < 0) | same).mean(axis=0)
    enough = np.flatnonzero(decided >= LIKELY)
    return int(ends[enough[0]]) if len(enough) else None


def _drawn(below: LogTs, rng: np.random.Generator) -> NDArray[np.int64]:
    """A class of each row, drawn by its probabilities."""
    chances = np.cumsum(np.exp(below), axis=1)
    drawn: NDArray[np.int64] = (chances < rng.random((len(below), 1)) * chances[:, -1:]).sum(axis=1)
    return drawn
