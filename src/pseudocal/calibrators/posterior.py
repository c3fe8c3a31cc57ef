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

Column = NDArray[np.float64]

DEGREES = 3  # of freedom
ANY = (math.log(1.6), 1.0)  # centre and width of log T over the models of the development tasks
LOG_T = (math.log(BOUNDS[0]), math.log(BOUNDS[1]))
POINTS = 401  # of each grid
NEGLIGIBLE = 20.0  # a log density this far below the peak
FLOOR = 1e-300  # of a probability, for a logarithm


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

    def log_density(self, log_t: ArrayLike) -> Column:
        """The logarithm of the density of log T, up to a constant."""
        g = np.asarray(log_t, dtype=np.float64)
        if math.isinf(self.width):
            return np.zeros_like(g)
        with np.errstate(divide="ignore"):
            believed = np.log(1 - self.doubt) + _student(g, math.log(self.temperature), self.width)
            other = np.log(self.doubt) + _student(g, *ANY)
        return np.logaddexp(believed, other)


def _student(g: Column, centre: float, width: float) -> Column:
    density: Column = -math.log(width) - (DEGREES + 1) / 2 * np.log1p(((g - centre) / width) ** 2 / DEGREES)
    return density


@dataclass(frozen=True, eq=False)
class Posterior:
    """The density of log T on a grid, given all answers and given all but one.

    Attributes:
        log_t: `(points,)`, the grid.
        log_likelihood: `(n, points)`, of each answer, times what the answers are worth together.
        log_prior: `(points,)`, up to a constant.

    """

    log_t: Column
    log_likelihood: Column
    log_prior: Column

    @property
    def density(self) -> Column:
        """`(points,)`, summing to one."""
        return _normalized(self.log_likelihood.sum(axis=0) + self.log_prior)

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
        step = self.log_t[1] - self.log_t[0]
        below = np.cumsum(self.density)
        return float(np.interp(share, below, self.log_t + step / 2))

    def without(self, groups: NDArray[np.intp]) -> Column:
        """`(n,)`: for each answer the posterior mean of log T without the answers of its group, itself included."""
        all_of_them = self.log_likelihood.sum(axis=0) + self.log_prior
        of_group = np.zeros((int(groups.max()) + 1, len(self.log_t)))
        np.add.at(of_group, groups, self.log_likelihood)
        means: Column = _normalized(all_of_them - of_group) @ self.log_t
        return means[groups]


def _normalized(log_density: Column) -> Column:
    density: Column = np.exp(log_density - log_density.max(axis=-1, keepdims=True))
    density /= density.sum(axis=-1, keepdims=True)
    return density


def log_likelihood(logits: Logits, labels: NDArray[np.int64], log_t: Column) -> Column:
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
        not_top = np.log(np.maximum(-np.expm1(-log_total), FLOOR))
        found[:, k] = np.where(wrong, not_top, d[rows, np.maximum(labels, 0)] - log_total)
    return np.maximum(found, math.log(FLOOR))


def posterior(likelihood: Callable[[Column], Column], priors: Sequence[Prior], *, worth: float = 1.0) -> Posterior:
    """Sum likelihood and priors on a grid that is made finer until it resolves the peak.

    Args:
        likelihood: From a grid of log T to the log-likelihood of each answer, `(n, points)`.
        priors: Any number of them. Without any, every log T between the bounds of `fit_temperature` is as likely.
        worth: How many independent answers one answer is worth: below one where answers go together, above one where
            they are a large part of all rows.

    """
    low, high = LOG_T
    while True:
        grid = np.linspace(low, high, POINTS)
        found = Posterior(grid, worth * likelihood(grid), sum((p.log_density(grid) for p in priors), np.zeros(POINTS)))
        log_density = found.log_likelihood.sum(axis=0) + found.log_prior
        mass = np.flatnonzero(log_density > log_density.max() - NEGLIGIBLE)
        first, last = max(mass[0] - 1, 0), min(mass[-1] + 1, POINTS - 1)
        step = grid[1] - grid[0]
        if last - first > POINTS / 3 or step < 1e-9:
            return found
        low, high = grid[first], grid[last]
