"""Oracle: the temperature that the target's own labels ask for, as a bound on what one temperature can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, gaps, nll_loss
from pseudocal.calibrators.rivals.search import bound_at, least, released
from pseudocal.metrics.scores import bin_of, equal_width
from pseudocal.scaling import TemperatureScaling, fit_temperature

# With few rows each one that changes its bin makes a jump, and the best temperature may lie between two of them: in 48
# random cases 257 points missed it by up to 0.012, 16,385 never. With many rows a jump is small and a look is dear.
POINTS = (257, 16385)
WORK = 200_000_000  # logits to look at


def oracle(
    target_logits: ArrayLike | Labelled,
    target_labels: ArrayLike | None = None,
    *,
    by: Literal["nll", "ece"] = "nll",
    bins: int = 15,
    reference: bool = False,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Calibration:
    """The best temperature for labelled target data: logits and labels, or a `Labelled` of both, such as `pixel_rows`.

    >>> logits, labels = [[2.0, 0.0]] * 4, [0, 0, 0, 1]
    >>> round(oracle(logits, labels).temperature, 4), round(oracle(logits, labels, by="ece").temperature, 4)
    (1.8205, 1.8205)
    >>> round(oracle(Labelled(np.array(logits), np.array(labels))).temperature, 4)
    1.8205

    `weights` and `groups` are those of `fit_temperature`; a `Labelled` brings its own. Groups tell how well the
    temperature is known, which "nll" alone says.

    "nll" is temperature scaling on the target, as the paper describes it. "ece" is the least calibration error, as
    in its released code; that error jumps whenever a row changes its bin, so a search from one point stalls.
    `reference` stops where the released search does.

    Args:
        target_logits: logits of target data, or a `Labelled` with its labels, weights and groups.
        target_labels: class numbers `(n,)`; None with a `Labelled`.
        by: "nll" for the greatest likelihood, "ece" for the least calibration error.
        bins: bins of the ECE.
        reference: whether to stop where the search of the released code does.
        weights: as in `fit_temperature`.
        groups: as in `fit_temperature`.

    """
    target = _labelled(target_logits, target_labels, weights, groups)
    settings = {"by": by, "bins": bins, "reference": reference}
    if by not in ("nll", "ece"):
        raise InputError(f"expected by 'nll' or 'ece', got {by!r}")
    if by == "nll" and not reference:
        fitted = fit_temperature(target.logits, target.labels, weights=target.weights, groups=target.groups)
        return Calibration("oracle", fitted, settings)
    loss = nll_loss(target) if by == "nll" else _binned_error(target, bins)
    points = int(np.clip(WORK // target.logits.size, *POINTS))
    temperature = released(loss) if reference else least(loss, points=points)
    bound = None if reference else bound_at(temperature)
    return Calibration("oracle", TemperatureScaling(temperature, rows=len(target), bound=bound), settings)


def _labelled(
    logits: ArrayLike | Labelled, labels: ArrayLike | None, weights: ArrayLike | None, groups: ArrayLike | None
) -> Labelled:
    """All of it in one, and checked."""
    if isinstance(logits, Labelled):
        if labels is not None or weights is not None or groups is not None:
            raise InputError("expected a Labelled alone, which has labels, weights and groups, got others beside it")
        return checked(logits)
    if labels is None:
        raise InputError("expected labels beside the logits, or a Labelled of both, got logits alone")
    given = [None if column is None else np.asarray(column) for column in (weights, groups)]
    return checked(Labelled(np.asanyarray(logits), np.asanyarray(labels), *given))


def _binned_error(target: Labelled, bins: int) -> Callable[[float], float]:
    """The ECE as a function of the temperature; which rows are right does not depend on it."""
    below, edges = gaps(target.logits), equal_width(bins)
    right = target.logits.argmax(axis=1) == target.labels
    weights = np.ones(len(target)) if target.weights is None else target.weights

    def loss(temperature: float) -> float:
        confidence = 1 / np.exp(below / temperature).sum(axis=1)
        gap = np.bincount(bin_of(confidence, edges), weights=weights * (confidence - right), minlength=bins)
        return float(np.abs(gap).sum() / weights.sum())

    return loss
