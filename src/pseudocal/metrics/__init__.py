"""How good confidences are: metrics of `Outcomes`, `Reliability` as sums that merge, intervals of both."""

from pseudocal.metrics.classwise import classwise_ece
from pseudocal.metrics.intervals import Interval, bootstrap, paired
from pseudocal.metrics.outcomes import Outcomes
from pseudocal.metrics.reliability import Reliability
from pseudocal.metrics.scores import (
    METRICS,
    Metric,
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

__all__ = [
    "METRICS",
    "Interval",
    "Metric",
    "Outcomes",
    "Reliability",
    "accuracy",
    "aurc",
    "bootstrap",
    "brier",
    "classwise_ece",
    "debiased_l2",
    "ece",
    "equal_mass_ece",
    "mce",
    "nll",
    "overconfidence",
    "paired",
    "score",
]
