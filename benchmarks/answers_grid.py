"""A target of `benchmarks/answers.py` with all that depends on a row and a temperature, computed once on a grid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from answers_targets import Target
from pseudocal import ask, fit_temperature
from pseudocal.calibrators.confidence import gaps
from pseudocal.calibrators.measures import design_gain
from pseudocal.calibrators.posterior import Posterior, Prior, log_likelihood
from pseudocal.calibrators.survey import survey_order

NUMBERS = (10, 20, 50, 100, 200)
GRID = np.linspace(-3.5, 5.0, 171)  # of log T
BINS = 15
ALONE = (math.log(0.1), math.log(10.0))  # where labels alone may put log T: few of them ask for zero or infinity


@dataclass(frozen=True, eq=False)
class Tables:
    """A target with all that depends on a row and a temperature."""

    target: Target
    asked: dict[int, np.ndarray] = field(default_factory=dict)  # by seed

    @cached_property
    def likelihood(self) -> np.ndarray:
        """Of the label of each row at each temperature, as a logarithm."""
        return log_likelihood(self.target.logits, self.target.labels.astype(np.int64), GRID)

    @cached_property
    def confidence(self) -> np.ndarray:
        """Of each row at each temperature."""
        below = gaps(self.target.logits)
        return np.stack([1 / np.exp(below * math.exp(-g)).sum(axis=1) for g in GRID], axis=1).astype(np.float32)

    @cached_property
    def right(self) -> np.ndarray:
        """Whether each prediction is right."""
        return self.target.logits.argmax(axis=1) == self.target.labels

    @cached_property
    def bins(self) -> np.ndarray:
        """Of each row at each temperature."""
        return np.clip(np.ceil(self.confidence * BINS).astype(np.int16) - 1, 0, BINS - 1)

    @cached_property
    def place(self) -> np.ndarray:
        """Of each row in the survey."""
        return np.argsort(survey_order(self.target.logits))

    @cached_property
    def oracle(self) -> float:
        """The log T of least NLL on all rows."""
        return math.log(fit_temperature(self.target.logits, self.target.labels).temperature)

    @cached_property
    def mean(self) -> np.ndarray:
        """Confidence at each temperature."""
        return self.confidence.mean(axis=0)

    @cached_property
    def noise(self) -> np.ndarray:
        """The mean of c (1 - c) at each temperature."""
        return (self.confidence * (1 - self.confidence)).mean(axis=0)

    @cached_property
    def sums(self) -> np.ndarray:
        """Of the gaps of all rows in each bin."""
        return self.gaps_in_bins(np.arange(len(self.right)))

    def gaps_in_bins(self, rows: np.ndarray) -> np.ndarray:
        """Confidence minus accuracy, summed in each bin at each temperature."""
        gap = self.confidence[rows] - self.right[rows, None]
        return np.stack([np.where(self.bins[rows] == b, gap, 0.0).sum(axis=0) for b in range(BINS)])

    def ece(self, log_t: float, asked: np.ndarray) -> float:
        """In points, of the rows that were not asked."""
        k = int(np.clip(np.searchsorted(GRID, log_t) - 1, 0, len(GRID) - 2))
        near = slice(k, k + 2)
        gap = self.confidence[asked, near] - self.right[asked, None]
        left = self.sums[:, near].copy()
        for side in range(2):
            np.subtract.at(left[:, side], self.bins[asked, k + side], gap[:, side])
        ends = 100 * np.abs(left).sum(axis=0) / (len(self.right) - len(asked))
        return float(np.interp(log_t, GRID[near], ends))

    def confidence_at(self, rows: np.ndarray, log_t: np.ndarray) -> np.ndarray:
        """Of each row at a temperature of its own."""
        at = np.clip((log_t - GRID[0]) / (GRID[1] - GRID[0]), 0, len(GRID) - 1.001)
        k, share = at.astype(int), at % 1
        return (self.confidence[rows, k] * (1 - share) + self.confidence[rows, k + 1] * share).astype(float)

    def draw(self, n: int, seed: int, *, chosen: bool) -> np.ndarray:
        """Rows to ask about; those of `ask` in the order of the survey."""
        if not chosen:
            return np.random.default_rng([seed, n]).choice(len(self.right), n, replace=False)
        if seed not in self.asked:
            self.asked[seed] = ask(self.target.logits, max(NUMBERS), seed=seed)
        rows = self.asked[seed][:n]  # the first questions are the same whatever n is
        return rows[np.argsort(self.place[rows])]

    def posterior(self, rows: np.ndarray, priors: Iterable[Prior]) -> Posterior:
        """As `refine` has it, on the grid; rows that `ask` drew."""
        prior = sum((p.log_density(GRID) for p in priors), np.zeros(len(GRID)))
        own = self.likelihood[rows] / (1 - len(rows) / len(self.right))
        k = int(np.clip(np.searchsorted(GRID, Posterior(GRID, own, prior).mean), 1, len(GRID) - 2))
        gain = design_gain(own[:, k + 1] - own[:, k - 1], np.arange(len(rows)), spread=True)
        return Posterior(GRID, gain * own, prior)

    def alone(self, rows: np.ndarray) -> float:
        """The temperature of least NLL on some labels."""
        return float(np.clip(GRID[np.argmax(self.likelihood[rows].sum(axis=0))], *ALONE))
