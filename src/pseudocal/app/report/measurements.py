"""Accuracy against confidence: metrics before and after with their intervals, and reliability diagrams."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.app.report.sections import Bins, Diagrams, Estimate, Measurement
from pseudocal.arrays import Labelled
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Interval, Outcomes, Reliability, Segmented, bootstrap, paired

MEASURED: tuple[Any, ...] = ("ece", "nll", "brier", "accuracy")
MEASURED_OF_IMAGES: tuple[Any, ...] = (*MEASURED, "miou")

Seen = Outcomes | Segmented  # what the metrics need to know about labelled rows, or labelled images


def measure(
    before: Seen, after: Seen | None = None, *, resamples: int | None = None, seed: int = 0
) -> tuple[Measurement, ...]:
    """Each metric with an interval, and its paired change if there is an after.

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 0, 1])
    >>> [(row.metric, row.before.value) for row in measure(outcomes) if row.metric != "nll"]
    [('ece', 0.0), ('brier', 0.375), ('accuracy', 0.75)]

    Args:
        before: outcomes of rows, or sums of images, before calibration.
        after: of the same rows or images after it.
        resamples: how often rows or images are drawn; by default 500 times for rows and 1,000 times for images.
        seed: the seed of the draws.

    """
    images = isinstance(before, Segmented)
    options = {"resamples": resamples or (1000 if images else 500), "seed": seed}
    rows = []
    for name in MEASURED_OF_IMAGES if images else MEASURED:
        row = Measurement(name, _estimate(bootstrap(name, before, **options)))
        if after is not None:
            new, change = bootstrap(name, after, **options), paired(name, before, after, **options)
            row = Measurement(name, row.before, _estimate(new), _estimate(change))
        rows.append(row)
    return tuple(rows)


def diagrams_of_labels(before: Seen, after: Seen) -> Diagrams:
    """Reliability of the inputs, or the pixels, that have labels."""
    return Diagrams("pixels" if isinstance(before, Segmented) else "inputs", _bins(before), _bins(after))


def diagrams_of_mixes(mixes: Labelled, calibration: Calibration) -> Diagrams:
    """Reliability of the mixes that the temperature was fitted on. Those of pixels share images: no intervals.

    >>> from pseudocal import TemperatureScaling
    >>> mixes = Labelled(np.zeros((4, 2)), np.zeros(4, int), groups=np.zeros(4, int))
    >>> diagrams_of_mixes(mixes, Calibration("pseudocal", TemperatureScaling(2.0))).before.has_intervals
    False
    """
    independent = mixes.groups is None
    before, after = (Outcomes.from_logits(z, mixes.labels) for z in (mixes.logits, calibration(mixes.logits)))
    return Diagrams("mixes", _bins(before, independent=independent), _bins(after, independent=independent))


def _bins(seen: Seen, *, independent: bool = True) -> Bins:
    """A reliability diagram; intervals are for rows or images that are independent."""
    labelled = seen.reliability if isinstance(seen, Segmented) else Reliability.of(seen)
    low, high = (seen if isinstance(seen, Segmented) else labelled).accuracy_interval()
    none = np.full(len(labelled.count), np.nan)
    return Bins(
        edges=tuple(labelled.edges.tolist()),
        count=tuple(labelled.count.tolist()),
        confidence=_finite(labelled.confidence),
        accuracy=_finite(labelled.accuracy),
        low=_finite(low if independent else none),
        high=_finite(high if independent else none),
        ece=labelled.ece,
    )


def _estimate(interval: Interval) -> Estimate:
    return Estimate(*_finite([interval.value, interval.low, interval.high]))


def _finite(values: ArrayLike) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in np.asarray(values))
