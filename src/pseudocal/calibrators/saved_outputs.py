"""The accuracy of a model from its saved outputs and those of a second model, without any inputs.

Without inputs there are no mixup samples, so nothing tells how often two models make the same
mistake. What remains is their agreement, corrected for chance: Cohen's kappa, scaled so that no
agreement beyond chance means an accuracy of 1 / classes. The estimate is too low if the second
model is much worse, and too high if both make the same mistakes, as two prompts of one language
model do. So its interval is wide, and the verdict is never `apply`.

The constants were chosen by `benchmarks/saved_outputs.py`; docs/evaluation/index.md has its results on
families that were left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, as_labels, as_logits, check_rows
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import (
    Effect,
    confidences,
    match_confidence,
    predictions,
)
from pseudocal.calibrators.trust import (
    LESS_CONFIDENT,
    NORMAL_90,
    AccuracyEstimate,
    Trust,
)
from pseudocal.calibrators.wording import Reason, ReasonCode
from pseudocal.scaling import TemperatureScaling

# in 90% of the pairs of models, families weighted equally, the accuracy was at most this fraction of
# the estimate below it, and at most this far above it
BELOW_AND_ABOVE = (0.44, 0.28)
# outputs that agree on more inputs than this are practically the same
IDENTICAL = 0.98
# the log-odds of the agreement above those of the first model's mean confidence from which both
# outputs may come from one model; of two prompts of one language model, nine in ten are above
SAME_MODEL = 0.6
ESTIMATOR = "agreement"  # the name of the temperature in the report
PRIOR = "saved outputs"  # and beside labels, where it counts little


@dataclass(frozen=True)
class SavedPair:
    """What is known of two saved outputs of the same inputs.

    >>> pair = SavedPair(classes=4, agreement=0.7, chance=0.25, confidence=0.9)
    >>> pair.accuracy, pair.may_be_one_model
    (0.7, False)

    Attributes:
        classes: The number of classes.
        agreement: The fraction of inputs on which the predicted classes agree.
        chance: The agreement expected of unrelated predictions with these classes.
        confidence: The mean confidence of the first model.
        second_confidence: The mean confidence of the second; None if only its classes are known.

    """

    classes: int
    agreement: float
    chance: float
    confidence: float
    second_confidence: float | None = None

    @classmethod
    def of(cls, logits: ArrayLike, second: ArrayLike) -> SavedPair:
        """Compare logits `(n, classes)` with other logits, or with predicted classes `(n,)`."""
        own = as_logits(logits)
        check_rows(own)
        other = np.asarray(second)
        if len(other) != len(own):
            raise InputError(f"expected {len(own)} outputs of the second model, got {len(other)}")
        second_confidence = None
        if other.ndim == 1:
            theirs = as_labels(other, own)
        else:
            other = as_logits(other)
            check_rows(other)
            if other.shape != own.shape:
                raise InputError(f"the outputs have shapes {own.shape} and {other.shape}")
            theirs = predictions(other)
            second_confidence = float(confidences(other).mean())
        ours = predictions(own)
        classes = own.shape[1]
        counts = [np.bincount(each, minlength=classes) / len(own) for each in (ours, theirs)]
        return cls(
            classes,
            float((ours == theirs).mean()),
            float(counts[0] @ counts[1]),
            float(confidences(own).mean()),
            second_confidence,
        )

    @property
    def accuracy(self) -> float:
        """The estimated accuracy of the first model."""
        kappa = 0.0
        if self.chance < 1:
            kappa = max(0.0, (self.agreement - self.chance) / (1 - self.chance))
        lowest = 1 / self.classes
        return lowest + (1 - lowest) * kappa

    @property
    def excess(self) -> float:
        """The log-odds of the agreement above those of the first model's mean confidence."""
        return _log_odds(self.agreement) - _log_odds(self.confidence)

    @property
    def may_be_one_model(self) -> bool:
        """Whether the outputs agree more than the confidence of the first model explains."""
        return self.agreement >= IDENTICAL or self.excess >= SAME_MODEL

    @property
    def second_is_less_confident(self) -> bool:
        """Whether the second model is far less confident, and so perhaps much worse."""
        if self.second_confidence is None:
            return False
        return self.second_confidence < self.confidence - LESS_CONFIDENT

    @property
    def estimate(self) -> AccuracyEstimate:
        """The estimated accuracy with its 90% interval.

        An end that nothing supports is 0 or 1.
        """
        below, above = BELOW_AND_ABOVE
        low = self.accuracy * (1 - below)
        high = min(1.0, self.accuracy + above)
        if self.may_be_one_model:
            return AccuracyEstimate(self.accuracy, 0.0, 1.0)
        if self.second_is_less_confident:
            high = 1.0
        return AccuracyEstimate(self.accuracy, low, high)


def calibrate_saved_outputs(
    logits: ArrayLike, second: ArrayLike, settings: dict[str, Any] | None = None
) -> Calibration:
    """Calibrate saved outputs by their agreement with those of a second model.

    The temperature brings the mean confidence to the estimated accuracy, if the mean confidence is
    outside the interval of the accuracy. Otherwise, and with two classes, T = 1. The verdict is never `apply`.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(10, size=2000)
    >>> first, other = (10 * np.eye(10)[np.where(rng.random(2000) < 0.6, truth, rng.integers(10, size=2000))]
    ...                 for _ in range(2))
    >>> calibration = calibrate_saved_outputs(first, other)
    >>> calibration.verdict, round(calibration.trust.estimated_accuracy.value, 2)
    ('caution', 0.43)

    Args:
        logits: The logits of the model, of shape `(n, classes)`.
        second: The logits of the second model for the same inputs, or its predicted classes `(n,)`.
        settings: Settings for the record.

    """
    own = as_logits(logits)
    pair = SavedPair.of(own, second)
    estimate = pair.estimate
    before = pair.confidence
    evidence = {"confidence before": before, "agreement": pair.agreement}
    if pair.second_confidence is not None:
        evidence["second confidence"] = pair.second_confidence
    effects = {"none": Effect(1.0, before, before - estimate.value)}
    reasons = _doubts(pair)
    doubtful = bool(reasons)
    if not pair.may_be_one_model:
        numbers = {"agreement": pair.agreement, "accuracy": pair.accuracy}
        reasons.append(Reason(ReasonCode.SAVED_OUTPUTS_AGREE, numbers))
    scaling = TemperatureScaling(1.0)
    method = "none"
    estimates = {}
    if not doubtful:
        error = (estimate.high - estimate.low) / (2 * NORMAL_90)
        fitted = match_confidence(own, estimate.value, error)
        after = float(confidences(own, fitted.temperature).mean())
        effects[ESTIMATOR] = Effect(fitted.temperature, after, after - estimate.value)
        numbers = {"temperature": fitted.temperature, "before": before, "accuracy": pair.accuracy}
        inside = estimate.low <= before <= estimate.high
        if inside or pair.classes == 2 or fitted.bound is not None:
            reasons.append(Reason(ReasonCode.NO_CLEAR_GAIN, numbers))
        else:
            code = ReasonCode.LOWERS_CONFIDENCE
            if fitted.temperature < 1:
                code = ReasonCode.RAISES_CONFIDENCE
            reasons.append(Reason(code, numbers))
            scaling = fitted
            method = ESTIMATOR
            settings = {**(settings or {}), "estimator": ESTIMATOR}
            estimates = {PRIOR: fitted.temperature}
    evidence["confidence after"] = float(confidences(own, scaling.temperature).mean())
    reasons.append(Reason(ReasonCode.SAVED_OUTPUTS_LABEL))
    trust = Trust("caution", tuple(reasons), estimate, evidence, None, effects)
    counts = {"pairs": 0, "mixup_samples": 0, "forward_passes": 0}
    return Calibration(
        method,
        scaling,
        settings or {},
        counts,
        trust=trust,
        estimates=estimates,
        classes=own.shape[1],
    )


def _doubts(pair: SavedPair) -> list[Reason]:
    """Why no temperature follows from the agreement."""
    found = []
    if pair.may_be_one_model:
        numbers = {"agreement": pair.agreement, "before": pair.confidence}
        found.append(Reason(ReasonCode.SAVED_OUTPUTS_ALIKE, numbers))
    if pair.second_is_less_confident:
        numbers = {"second_confidence": pair.second_confidence or 0.0, "before": pair.confidence}
        found.append(Reason(ReasonCode.SECOND_MODEL_LESS_CONFIDENT, numbers))
    return found


def _log_odds(fraction: float) -> float:
    inside = min(max(fraction, 1e-9), 1 - 1e-9)
    return math.log(inside / (1 - inside))
