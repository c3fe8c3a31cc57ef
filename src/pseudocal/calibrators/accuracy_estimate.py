"""The estimate.

The accuracy that is expected on the target, without labels, and how far off it may be.

With a usable second opinion it is what the agreement implies (`agreement.py`), without one the
calibrated confidence. The interval adds the error of the method to that of sampling. The error of
the method is what was seen on the development tasks; `docs/trust_test.md` has the test on families
that were left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pseudocal.calibrators.agreement import Agreement
from pseudocal.calibrators.consensus import Consensus

NORMAL_90 = 1.645  # the normal quantile of a 90% interval
# on 90% of the development tasks the accuracy was at most this far below and above the calibrated
# confidence
ALONE_BELOW_AND_ABOVE = (0.52, 0.15)
# and at most this far from the estimate of several models, beside the sampling error: c /
# sqrt(classes), and always
TOGETHER = (0.84, 0.05)
# and at most this part of (estimate - chance) below, and this far above, the estimate of a
# surrogate: much of what it takes for right may be whole groups with a wrong name, however often it
# agrees
SURROGATE_BELOW_AND_ABOVE = (0.72, 0.13)


@dataclass(frozen=True)
class AccuracyEstimate:
    """The accuracy on the target, with a 90% interval that includes the error of the method.

    >>> estimated_accuracy = AccuracyEstimate(0.58, 0.46, 0.7)
    >>> estimated_accuracy.low <= estimated_accuracy.accuracy <= estimated_accuracy.high
    True

    Attributes:
        accuracy: The expected accuracy.
        low: The lower end of the interval.
        high: The upper end of the interval.

    """

    accuracy: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether anything is: an interval from 0 to 1 says nothing."""
        return self.low > 0 or self.high < 1


def estimate_together(consensus: Consensus) -> AccuracyEstimate:
    """The accuracy that second opinions imply.

    >>> agreement = Agreement(classes=10, rows=1000, rate=0.6, shared=0.2, mistakes=500.0)
    >>> estimated_accuracy = estimate_together(Consensus((agreement,)))
    >>> round(estimated_accuracy.accuracy, 2), round(estimated_accuracy.low, 2), round(estimated_accuracy.high, 2)
    (0.52, 0.25, 0.79)
    """
    below, above = estimate_errors(consensus)
    low = consensus.accuracy - NORMAL_90 * below
    high = consensus.accuracy + NORMAL_90 * above
    return AccuracyEstimate(consensus.accuracy, max(0.0, low), min(1.0, high))


def estimate_alone(confidence: float, agreements: Sequence[Agreement]) -> AccuracyEstimate:
    """The calibrated confidence.

    With two classes, on half of what the models disagree on the first is wrong.

    >>> estimate_alone(0.6, [])
    AccuracyEstimate(accuracy=0.6, low=0.07..., high=0.75)
    """
    is_binary = [a for a in agreements if a.is_binary and not a.surrogate]
    most = min([1.0, *((1 + a.rate) / 2 + NORMAL_90 * a.rate_error / 2 for a in is_binary)])
    below, above = ALONE_BELOW_AND_ABOVE
    accuracy = min(confidence, most)
    return AccuracyEstimate(accuracy, max(0.0, accuracy - below), min(most, accuracy + above))


def estimate_errors(consensus: Consensus) -> tuple[float, float]:
    """The standard errors of the accuracy below the estimate and above it.

    Those of a surrogate are lopsided.
    """
    classes = consensus.agreements[0].classes
    if consensus.estimator == "surrogate":
        of_method = (
            SURROGATE_BELOW_AND_ABOVE[0] * (consensus.accuracy - 1 / classes),
            SURROGATE_BELOW_AND_ABOVE[1],
        )
    else:
        of_method = (math.hypot(TOGETHER[0] / math.sqrt(classes), TOGETHER[1]),) * 2
    below, above = (
        math.hypot(each / NORMAL_90, consensus.error, consensus.spread) for each in of_method
    )
    return below, above
