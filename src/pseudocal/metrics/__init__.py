"""Metrics of calibration and accuracy: of rows (`Outcomes`) and of images (`Segmented`), with intervals."""

from pseudocal.metrics.classwise import classwise_ece
from pseudocal.metrics.images import confidence_map, confidence_picture, correct_picture
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
    "confidence_map",
    "confidence_picture",
    "correct_picture",
    "debiased_l2",
    "ece",
    "equal_mass_ece",
    "mce",
    "nll",
    "overconfidence",
    "paired",
    "score",
]
