"""Oracle: the best temperature given target labels, a bound on what a temperature can achieve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, Labelled, as_numpy
from pseudocal.calibrators.baselines.search import bound_at, least, released
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import below_top, checked, nll_loss
from pseudocal.metrics.outcomes import bin_of, equal_width
from pseudocal.scaling import TemperatureScaling, fit_temperature

# With few rows the ECE jumps whenever a row changes its bin, and the best temperature may lie
# between two jumps: in 48 random cases a grid of 257 points missed it by up to 0.012, one of 16,385
# never. With many rows jumps are small and each evaluation is expensive.
POINTS = (257, 16385)
WORK = 200_000_000  # logits to evaluate in total


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
    """The best temperature for labelled target data.

    >>> logits, labels = [[2.0, 0.0]] * 4, [0, 0, 0, 1]
    >>> round(oracle(logits, labels).temperature, 4)
    1.8205
    >>> round(oracle(logits, labels, by="ece").temperature, 4)
    1.8205
    >>> round(oracle(Labelled(np.array(logits), np.array(labels))).temperature, 4)
    1.8205

    Args:
        target_logits: Logits of the target, or a `Labelled` with all the data, such as `pixel_rows`
            returns.
        target_labels: Labels of the target, unless the first argument is a `Labelled`.
        by: What to minimise: "nll", which is temperature scaling on the target, as the paper
            describes it, or "ece", as its released code does.
        bins: The number of bins of the ECE.
        reference: Whether to search as the released code does, which stalls for the ECE since that
            is not continuous.
        weights: Weights of the rows, as in `fit_temperature`.
        groups: Groups of the rows, as in `fit_temperature`; they are used for the standard error
            with "nll" only.

    """
    target = _labelled(target_logits, target_labels, weights, groups)
    settings = {"by": by, "bins": bins, "reference": reference}
    if by not in ("nll", "ece"):
        raise InputError(f"expected by 'nll' or 'ece', got {by!r}")
    if by == "nll" and not reference:
        fitted = fit_temperature(
            target.logits, target.labels, weights=target.weights, groups=target.groups
        )
        return Calibration("oracle", fitted, settings)
    loss = nll_loss(target) if by == "nll" else _binned_error(target, bins)
    if reference:
        scaling = TemperatureScaling(released(loss), rows=len(target))
    else:
        points = int(np.clip(WORK // target.logits.size, *POINTS))
        temperature = least(loss, points=points)
        scaling = TemperatureScaling(temperature, rows=len(target), bound=bound_at(temperature))
    return Calibration("oracle", scaling, settings)


def _labelled(
    logits: ArrayLike | Labelled,
    labels: ArrayLike | None,
    weights: ArrayLike | None,
    groups: ArrayLike | None,
) -> Labelled:
    """All arguments as one `Labelled`, checked."""
    if isinstance(logits, Labelled):
        further = {"labels": labels, "weights": weights, "groups": groups}
        extra = [name for name, given in further.items() if given is not None]
        if extra:
            raise InputError(
                f"expected a Labelled without further arguments, got {' and '.join(extra)} as well"
            )
        return checked(logits)
    if labels is None:
        raise InputError("expected logits and labels, or a Labelled of both, got logits only")
    return checked(
        Labelled(
            as_numpy(logits, "logits"),
            as_numpy(labels, "labels"),
            None if weights is None else as_numpy(weights, "weights"),
            None if groups is None else as_numpy(groups, "groups"),
        )
    )


def _binned_error(target: Labelled, bins: int) -> Callable[[float], float]:
    """The ECE as a function of the temperature."""
    below = below_top(target.logits)
    edges = equal_width(bins)
    right = target.logits.argmax(axis=1) == target.labels
    weights = np.ones(len(target)) if target.weights is None else target.weights

    def loss(temperature: float) -> float:
        confidence = 1 / np.exp(below / temperature).sum(axis=1)
        gap = np.bincount(
            bin_of(confidence, edges), weights=weights * (confidence - right), minlength=bins
        )
        return float(np.abs(gap).sum() / weights.sum())

    return loss
