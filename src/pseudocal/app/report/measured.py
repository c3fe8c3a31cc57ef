"""What labels, where there are some, say of the confidences before and after."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Labels, Logits
from pseudocal.metrics import METRICS, Outcomes, Reliability, bootstrap, paired
from pseudocal.metrics.intervals import Interval

SHOWN = ("ece", "nll", "brier", "accuracy")


def measure(
    before: Outcomes, after: Outcomes | None = None, *, resamples: int = 500, seed: int = 0
) -> list[dict[str, Any]]:
    """A row for each metric: its value with an interval, and the paired change if there is an after.

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 0, 1])
    >>> [(row["metric"], row["before"]["value"]) for row in measure(outcomes) if row["metric"] != "nll"]
    [('ece', 0.0), ('brier', 0.375), ('accuracy', 0.75)]
    """
    rows = []
    for name in SHOWN:
        row: dict[str, Any] = {
            "metric": name,
            "before": plain(bootstrap(METRICS[name], before, resamples=resamples, seed=seed)),
        }
        if after is not None:
            row["after"] = plain(bootstrap(METRICS[name], after, resamples=resamples, seed=seed))
            row["change"] = plain(paired(METRICS[name], before, after, resamples=resamples, seed=seed))
        rows.append(row)
    return rows


def reliability(logits: Logits, labels: Labels, bins: int = 15, intervals: bool = True) -> dict[str, list[Any]]:
    """The sums per bin that a reliability diagram is drawn from, as JSON values.

    Intervals are for rows that are independent.

    >>> reliability(np.zeros((4, 2)), np.zeros(4, int), bins=1, intervals=False)["high"]
    [None]
    """
    binned = Reliability.of(Outcomes.from_logits(logits, labels), bins)
    none = np.full(len(binned.count), np.nan)
    return bins_of(binned, binned.accuracy_interval() if intervals else (none, none))


def bins_of(binned: Reliability, interval: tuple[ArrayLike, ArrayLike]) -> dict[str, list[Any]]:
    """A `Reliability` as JSON values, with the interval of each bin's accuracy, NaN where it has none."""
    low, high = interval
    return {
        "edges": binned.edges.tolist(),
        "count": binned.count.tolist(),
        "confidence": _or_none(binned.confidence),
        "accuracy": _or_none(binned.accuracy),
        "low": _or_none(low),
        "high": _or_none(high),
        "ece": [binned.ece],
    }


def _or_none(values: ArrayLike) -> list[float | None]:
    return [None if np.isnan(v) else float(v) for v in np.asarray(values)]


def plain(interval: Interval) -> dict[str, float | None]:
    """An interval as JSON values."""
    values = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {key: float(value) if abs(value) < math.inf else None for key, value in values.items()}
