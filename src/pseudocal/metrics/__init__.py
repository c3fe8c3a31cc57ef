"""Metrics of calibration and accuracy.

Of rows (`Outcomes`) and of images (`Segmented`), with intervals.
"""

from pseudocal.metrics.classwise import classwise_ece
from pseudocal.metrics.images import confidence_image, confidence_map, correct_image
from pseudocal.metrics.intervals import Interval, bootstrap, paired
from pseudocal.metrics.outcomes import Outcomes
from pseudocal.metrics.scores import (
    METRICS,
    Metric,
    Reliability,
    accuracy,
    aurc,
    brier,
    debiased_l2,
    ece,
    equal_mass_ece,
    mce,
    nll,
    overconfidence,
    score,
)
from pseudocal.metrics.segmented import Segmented

__all__ = [
    "METRICS",
    "Interval",
    "Metric",
    "Outcomes",
    "Reliability",
    "Segmented",
    "accuracy",
    "aurc",
    "bootstrap",
    "brier",
    "classwise_ece",
    "confidence_image",
    "confidence_map",
    "correct_image",
    "debiased_l2",
    "ece",
    "equal_mass_ece",
    "mce",
    "nll",
    "overconfidence",
    "paired",
    "score",
]
