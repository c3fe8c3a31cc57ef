"""A target of `benchmarks/labels.py` on a grid of temperatures, with many draws of labels at once.

It does for all draws of a target together what `refine` does for one draw. `check` in `labels.py`
compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labels_targets import Target
from pseudocal import rows_to_label
from pseudocal.calibrators.anytime import CELLS, GRID
from pseudocal.calibrators.confidence import below_top
from pseudocal.calibrators.labels import labelling_order
from pseudocal.calibrators.posterior import Prior, log_likelihood
from pseudocal.calibrators.refinement import priors_of_t_and_interval

NUMBERS = (10, 20, 50, 100, 200)
BINS = 15
ALONE = (
    math.log(0.1),
    math.log(10.0),
)  # where labels alone may put log T: few of them ask for zero or infinity


class Tables:
    """All of a target that depends on a row and a temperature."""

    def __init__(self, target: Target) -> None:
        logits, below = target.logits, below_top(target.logits)
        self.target = target
        self.right = logits.argmax(axis=1) == target.labels
        self.likelihood = log_likelihood(logits, target.labels.astype(np.int64), GRID).astype(
            np.float32
        )
        self.confidence = np.stack(
            [1 / np.exp(below * math.exp(-g)).sum(axis=1) for g in GRID], axis=1
        )
        self.confidence = self.confidence.astype(np.float32)
        self.bins = np.clip(
            np.ceil(self.confidence * BINS).astype(np.int64) - 1, 0, BINS - 1
        ).astype(np.int8)
        self.mean = self.confidence.mean(axis=0, dtype=np.float64)
        self.noise = (self.confidence * (1 - self.confidence)).mean(axis=0, dtype=np.float64)
        self.order = labelling_order(logits)
        self.gaps = self.confidence - self.right[:, None]
        columns = zip(self.bins.T, self.gaps.T, strict=True)
        self.sums = np.stack(
            [np.bincount(bins, weights=gap, minlength=BINS) for bins, gap in columns]
        )

    def chosen(self, seeds: range) -> np.ndarray:
        """What `ask` draws, most questions first; fewer are the first of them."""
        return np.stack(
            [rows_to_label(self.target.logits, max(NUMBERS), seed=seed) for seed in seeds]
        )

    def random(self, seeds: range) -> np.ndarray:
        """As many rows drawn at random."""
        draws = (np.random.default_rng([seed, 1]) for seed in seeds)
        return np.stack([rng.choice(len(self.right), max(NUMBERS), replace=False) for rng in draws])


@dataclass(frozen=True, eq=False)
class Posteriors:
    """The posteriors of log T of many draws."""

    log_density: np.ndarray  # up to a constant, (draws, points)
    likelihood: np.ndarray  # the log-likelihood of each answer, (draws, n, points)
    weight: float  # independent labels that one label counts for

    @cached_property
    def density(self) -> np.ndarray:
        """The probability of each point, (draws, points)."""
        return fractions(self.log_density)

    @cached_property
    def median(self) -> np.ndarray:
        """Of log T, (draws,)."""
        return self.quantile(0.5)

    def quantile(self, fraction: float) -> np.ndarray:
        """Of log T, (draws,)."""
        return quantiles(self.density, fraction)

    def without(self) -> np.ndarray:
        """The posterior median without each of the answers, (draws, n)."""
        draws = zip(self.log_density, self.likelihood, strict=True)
        return np.stack(
            [quantiles(fractions(whole - self.weight * answers), 0.5) for whole, answers in draws]
        )


def log_density(priors: Iterable[Prior]) -> np.ndarray:
    """The log density of priors together on the grid, up to a constant."""
    return sum((prior.log_density(GRID) for prior in priors), np.zeros(len(GRID)))


def fractions(log_density: np.ndarray) -> np.ndarray:
    """Probabilities of the points of the grid."""
    found = np.exp(log_density - log_density.max(axis=-1, keepdims=True)) * CELLS
    return found / found.sum(axis=-1, keepdims=True)


def quantiles(densities: np.ndarray, fraction: float) -> np.ndarray:
    """A quantile of each row of densities."""
    middle = np.cumsum(densities, axis=1) - densities / 2
    return np.array([np.interp(fraction, row, GRID) for row in middle])


def between(log_t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The point of the grid below each log T, and how far it is to the next."""
    k = np.clip(np.searchsorted(GRID, log_t) - 1, 0, len(GRID) - 2)
    return k, np.clip((log_t - GRID[k]) / (GRID[k + 1] - GRID[k]), 0, 1)


class Draws:
    """Many draws of n answers each, for one target."""

    def __init__(self, tables: Tables, rows: np.ndarray, *, spread: bool) -> None:
        self.tables, self.spread = tables, spread
        self.labelled = rows  # in the order in which they are labelled
        if spread:  # in the order of the survey
            place = np.argsort(tables.order)
            rows = np.take_along_axis(rows, np.argsort(place[rows], axis=1), axis=1)
        self.rows = rows
        self.right = tables.right[rows]
        self.likelihood = tables.likelihood[rows]
        self.total = self.likelihood.sum(axis=1, dtype=np.float64)

    def alone(self) -> np.ndarray:
        """The log T of least NLL."""
        return np.clip(GRID[self.total.argmax(axis=1)], *ALONE)

    def posterior(self, priors: Iterable[Prior]) -> Posteriors:
        """As `refine` has it for T."""
        return self.posterior_of(log_density(priors_of_t_and_interval([*priors])[0]))

    def wide(self, priors: Iterable[Prior]) -> Posteriors:
        """As `refine` has it for the interval of T."""
        return self.posterior_of(log_density(priors_of_t_and_interval([*priors])[1]))

    def posterior_of(self, log_prior: np.ndarray) -> Posteriors:
        """With any log density on the grid as the prior."""
        weight = 1 / (1 - self.rows.shape[1] / len(self.tables.right))
        return Posteriors(weight * self.total + log_prior, self.likelihood, weight)

    def ece(self, log_t: np.ndarray | float) -> np.ndarray:
        """In points, of the rows that were not asked, (draws,)."""
        k, fraction = between(np.broadcast_to(np.asarray(log_t, dtype=float), len(self.rows)))
        return self._ece_at(k) * (1 - fraction) + self._ece_at(k + 1) * fraction

    def _ece_at(self, point: np.ndarray) -> np.ndarray:
        draws, n = self.rows.shape
        cell = self.tables.bins[self.rows, point[:, None]] + BINS * np.arange(draws)[:, None]
        gap = self.tables.gaps[self.rows, point[:, None]]
        asked = np.bincount(cell.ravel(), weights=gap.ravel(), minlength=draws * BINS).reshape(
            draws, BINS
        )
        return (
            100 * np.abs(self.tables.sums[point] - asked).sum(axis=1) / (len(self.tables.right) - n)
        )

    def confidence_at(self, log_t: np.ndarray) -> np.ndarray:
        """Of each answered row at a temperature of its own, (draws, n)."""
        k, fraction = between(log_t)
        low, high = self.tables.confidence[self.rows, k], self.tables.confidence[self.rows, k + 1]
        return (low * (1 - fraction) + high * fraction).astype(float)
