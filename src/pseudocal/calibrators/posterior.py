"""The temperature from a few answers and from label-free estimates together.

The answers have a likelihood as a function of g = log T. Each label-free estimate is a prior of g: Student's density
with 3 degrees of freedom around it, whose heavy tails let the answers win where the estimate is far off. The product
can have two peaks, so it is summed on a grid; the temperature is exp of the posterior mean of g.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError, Logits, check_temperature
from pseudocal.calibrators.confidence import gaps
from pseudocal.scaling.temperature import BOUNDS

LogTs = NDArray[np.float64]

DEGREES = 3  # of freedom
ANY = (math.log(1.6), 1.0)  # centre and width of log T over the models of the development tasks
LOG_T = (math.log(BOUNDS[0]), math.log(BOUNDS[1]))
GRID_POINTS = 101  # of each grid
FAR = 7.0  # a grid around an estimate reaches 55 widths to either side
PEAK_ROUNDS = 6  # each divides the range that holds the peak by 50
LEAST_PROBABILITY = 1e-300  # of a probability, for a logarithm


@dataclass(frozen=True)
class Prior:
    """What is known of the temperature without answers.

    Half of the time, say, the estimate is off by about its width, and else it is worth nothing: then the temperature is
    any that models need.

    >>> prior = Prior("mixes", temperature=2.0, width=0.5, doubt=0.0)
    >>> density = prior.log_density(np.log([1.0, 2.0, 4.0]))
    >>> (density - density.max()).round(3)                   # -2 log(1 + (log 2 / 0.5)^2 / 3)
    array([-0.99,  0.  , -0.99])

    Attributes:
        estimator: Where the estimate comes from: "mixes", "agreement", or another name.
        temperature: The estimate.
        width: The scale of Student's density of log T around it. `math.inf` leaves the estimate out.
        doubt: The chance that the estimate is worth nothing, from 0 to 1.

    """

    estimator: str
    temperature: float
    width: float
    doubt: float = 0.5

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if not self.width > 0:
            raise InputError(f"expected a positive width of the prior, got {self.width}")
        if not 0 <= self.doubt <= 1:
            raise InputError(f"expected a doubt from 0 to 1, got {self.doubt}")

    def log_density(self, log_t: ArrayLike) -> LogTs:
        """The logarithm of the density of log T, up to a constant."""
        g = np.asarray(log_t, dtype=np.float64)
        if math.isinf(self.width):
            return np.zeros_like(g)
        with np.errstate(divide="ignore"):
            believed = np.log(1 - self.doubt) + _student(g, math.log(self.temperature), self.width)
            other = np.log(self.doubt) + _student(g, *ANY)
        density: LogTs = np.logaddexp(believed, other)
        return density


def _student(g: LogTs, centre: float, width: float) -> LogTs:
    density: LogTs = -math.log(width) - (DEGREES + 1) / 2 * np.log1p(((g - centre) / width) ** 2 / DEGREES)
    return density


@dataclass(frozen=True, eq=False)
class Posterior:
    """The density of log T on a grid, given all answers and given all but one.

    Attributes:
        log_t: `(points,)`, the grid.
        log_likelihood: `(n, points)`, of each answer, times what the answers are worth together.
        log_prior: `(points,)`, up to a constant.

    """

    log_t: LogTs
    log_likelihood: LogTs
    log_prior: LogTs

    @property
    def density(self) -> LogTs:
        """`(points,)`, the share of each point of the grid; they sum to one."""
        return self._shares(self.log_likelihood.sum(axis=0))

    @property
    def mean(self) -> float:
        """The posterior mean of log T."""
        return float(self.density @ self.log_t)

    @property
    def deviation(self) -> float:
        """The posterior standard deviation of log T."""
        return math.sqrt(float(self.density @ (self.log_t - self.mean) ** 2))

    def quantile(self, share: float) -> float:
        """The log T that has `share` of the density below it."""
        density = self.density
        return float(np.interp(share, np.cumsum(density) - density / 2, self.log_t))

    def without(self, groups: NDArray[np.intp]) -> LogTs:
        """`(n,)`: for each answer the posterior mean of log T without the answers of its group, itself included."""
        of_group = np.zeros((int(groups.max()) + 1, len(self.log_t)))
        np.add.at(of_group, groups, self.log_likelihood)
        means: LogTs = self._shares(of_group.sum(axis=0) - of_group) @ self.log_t
        return means[groups]

    def _shares(self, log_likelihood: LogTs) -> LogTs:
        log_density = log_likelihood + self.log_prior
        shares: LogTs = np.exp(log_density - log_density.max(axis=-1, keepdims=True)) * np.gradient(self.log_t)
        shares /= shares.sum(axis=-1, keepdims=True)
        return shares


def log_likelihood(logits: Logits, labels: NDArray[np.int64], log_t: LogTs) -> LogTs:
    """The log-likelihood of each answer at each temperature, `(n, points)`.

    A negative label says that none of the classes is right: its likelihood is that of the predicted class being wrong.

    >>> logits, labels = np.array([[math.log(3), 0.0]] * 3), np.array([0, 1, -2])
    >>> np.exp(log_likelihood(logits, labels, np.array([0.0]))).ravel().round(4)
    array([0.75, 0.25, 0.25])
    """
    below, rows = gaps(logits), np.arange(len(logits))
    wrong = labels < 0
    found = np.empty((len(logits), len(log_t)))
    for k, g in enumerate(log_t):
        d = below * math.exp(-g)
        log_total = np.log(np.exp(d).sum(axis=1))
        not_top = np.log(np.maximum(-np.expm1(-log_total), LEAST_PROBABILITY))
        found[:, k] = np.where(wrong, not_top, d[rows, np.maximum(labels, 0)] - log_total)
    return np.maximum(found, math.log(LEAST_PROBABILITY))


def posterior(likelihood: Callable[[LogTs], LogTs], priors: Sequence[Prior], *, worth: float = 1.0) -> Posterior:
    """Likelihood and priors on a grid that is fine around the estimates and around the peak of the likelihood.

    Args:
        likelihood: From a grid of log T to the log-likelihood of each answer, `(n, points)`.
        priors: Any number of them. Without any, every log T between the bounds of `fit_temperature` is as likely.
        worth: How many independent answers one answer is worth: below one where answers go together, above one where
            they are spread well or a large part of all rows.

    """
    peak, width = _peak(lambda g: worth * likelihood(g).sum(axis=0))
    fine = np.sinh(np.linspace(-FAR, FAR, GRID_POINTS))
    believed = [prior for prior in priors if not math.isinf(prior.width)]
    around = [math.log(prior.temperature) + prior.width / 10 * fine for prior in believed]
    grid = np.unique(np.concatenate([np.linspace(*LOG_T, 2 * GRID_POINTS), peak + width / 10 * fine, *around]))
    grid = grid[(grid >= LOG_T[0]) & (grid <= LOG_T[1])]
    return Posterior(grid, worth * likelihood(grid), sum((p.log_density(grid) for p in priors), np.zeros(len(grid))))


def _peak(log_likelihood: Callable[[LogTs], LogTs]) -> tuple[float, float]:
    """Where a function of log T is largest, and how wide it is there: one over the root of its curvature."""
    low, high = LOG_T
    for _ in range(PEAK_ROUNDS):
        grid = np.linspace(low, high, GRID_POINTS)
        best = int(np.argmax(log_likelihood(grid)))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, GRID_POINTS - 1)]
    peak, step = float(grid[best]), 1e-3
    left, middle, right = log_likelihood(peak + step * np.array([-1.0, 0.0, 1.0]))
    curvature = (2 * middle - left - right) / step**2
    return peak, 1 / math.sqrt(max(float(curvature), 1.0))
