"""Oracle: the temperature that the target's own labels ask for, as a bound on what one temperature can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, gaps, nll_loss
from pseudocal.calibrators.search import bound_at, least, released
from pseudocal.metrics.reliability import bin_of, equal_width
from pseudocal.scaling import TemperatureScaling, fit_temperature

# With few rows each one that changes its bin makes a jump, and the best temperature may lie between two of them: in 48
# random cases 257 points missed it by up to 0.012, 16,385 never. With many rows a jump is small and a look is dear.
POINTS = (257, 16385)
WORK = 200_000_000  # logits to look at


def oracle(
    target_logits: ArrayLike,
    target_labels: ArrayLike,
    *,
    by: Literal["nll", "ece"] = "nll",
    bins: int = 15,
    reference: bool = False,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Calibration:
    """The best temperature for labelled target data; `weights` and `groups` are those of `fit_temperature`.

    >>> logits, labels = [[2.0, 0.0]] * 4, [0, 0, 0, 1]
    >>> round(oracle(logits, labels).temperature, 4), round(oracle(logits, labels, by="ece").temperature, 4)
    (1.8205, 1.8205)

    "nll" is temperature scaling on the target, as the paper describes it. "ece" is the least calibration error, as
    in its released code; that error jumps whenever a row changes its bin, so a search from one point stalls.
    `reference` stops where the released search does.
    """
    target = checked(Labelled(np.asanyarray(target_logits), np.asanyarray(target_labels)))
    settings = {"by": by, "bins": bins, "reference": reference}
    if by not in ("nll", "ece"):
        raise InputError(f"expected by 'nll' or 'ece', got {by!r}")
    if by == "nll" and not reference:
        return Calibration(
            "oracle", fit_temperature(target.logits, target.labels, weights=weights, groups=groups), settings
        )
    loss = nll_loss(target) if by == "nll" else _binned_error(target, bins)
    points = int(np.clip(WORK // target.logits.size, *POINTS))
    temperature = released(loss) if reference else least(loss, points=points)
    bound = None if reference else bound_at(temperature)
    return Calibration("oracle", TemperatureScaling(temperature, rows=len(target), bound=bound), settings)


def _binned_error(target: Labelled, bins: int) -> Callable[[float], float]:
    """The ECE as a function of the temperature; which rows are right does not depend on it."""
    below, edges = gaps(target.logits), equal_width(bins)
    right = target.logits.argmax(axis=1) == target.labels

    def loss(temperature: float) -> float:
        confidence = 1 / np.exp(below / temperature).sum(axis=1)
        gap = np.bincount(bin_of(confidence, edges), weights=confidence - right, minlength=bins)
        return float(np.abs(gap).sum()) / len(target)

    return loss
