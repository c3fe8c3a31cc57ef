"""A label-free verdict on a calibration, and the estimated accuracy that it rests on.

A narrow interval around T does not mean that the model is calibrated: mixup samples are harder than
real inputs, and the model's own mistakes count as right, but neither shows in the sampling error. A
second opinion does show it: if two models agree less often than the first is confident, the first
is overconfident.

With a usable second opinion the estimated accuracy is what the agreement implies (`agreement.py`),
without one it is the calibrated confidence. Its interval adds the error of the method to that of
sampling. All constants were chosen on the development tasks only; `docs/evaluation/index.md` reports the
test on held-out families. `wording.py` has the sentences.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators.agreement import DIFFERENT, Agreement, Consensus
from pseudocal.calibrators.confidence import Effect, mean_confidence, nearer, normal, predictions
from pseudocal.calibrators.measured import Measured
from pseudocal.calibrators.wording import IMPROVES, OPINIONS, Reason, ReasonCode
from pseudocal.files import brief
from pseudocal.scaling import TemperatureScaling

Verdict = Literal["apply", "caution", "do not apply"]
VERDICTS: tuple[Verdict, ...] = ("apply", "caution", "do not apply")  # from good to bad
Finding = tuple[Verdict, Reason]  # a reason, and the best verdict that it allows

NORMAL_90 = 1.645  # the normal quantile of a 90% interval
# on 90% of the development tasks the accuracy was at most this far below and above the calibrated
# confidence
ALONE_BELOW_AND_ABOVE = (0.52, 0.15)
# and at most this far from the estimate of several models, below it the dominance of one class too;
# beside the sampling error and the difference between the estimates. The least with a coverage of 90% on
# each development family; leaving out one family at a time, the worst coverage is 88%
TOGETHER = 0.12
# and at most this fraction of (estimate - chance) below, and this far above, the estimate of a
# surrogate: much of what it takes for right may be whole groups with a wrong name, however often it
# agrees
SURROGATE_BELOW_AND_ABOVE = (0.72, 0.13)
# the probability from which a temperature is taken to be nearer to the truth than T = 1
LIKELY = 2 / 3
# an estimate nearer to the mean confidence than this is not applied: such temperatures made
# calibration worse as often as better. To raise the confidence takes more, since few models are
# underconfident under shift, unless the models agree on nearly all inputs
NEAR = 0.07
RAISE_FROM = 0.20
NEARLY_ALL = 0.9
# from here on lowering the confidence did no harm in 96% of the development cases
CLEAR = 0.15
# from here on, and below its inverse, a temperature rather shows wrong inputs or outputs, such as
# pixels from 0 to 255 for a model trained on 0 to 1. The oracle's temperatures in `docs/paper/results`
# are between 0.69 and 4.34
EXTREME = 20.0
# inputs below which a temperature without labels is never applied
FEWEST_INPUTS = 100
# in how many of ten cases of held-out families the calibration error fell: from `CLEAR` on, and with
# other temperatures that are applied (`docs/evaluation/index.md`)
FELL_CLEAR = 8
FELL_OTHERS = 6
# models that share more than this of the first one's errors agree on most inputs anyway
MANY_SHARED = 0.5
LARGE_GAP = 0.10  # a gap between confidence and accuracy that is large
DOMINANT = 0.25  # a fraction of predictions of one class above 1 / classes that calls for caution
# a fraction at which the model hardly tells inputs apart; of two classes, half as far from 1
COLLAPSED = 0.9
# a second model whose mean confidence is this much lower may be much less accurate
LESS_CONFIDENT = 0.2
MOST_LOG_SE = 1.0  # the standard error of log T if it is larger or not known
# of the reasons of one verdict, those that are special to a run stand first. After them: why nothing is
# clear, the risk in numbers, and what was found
LATER_REASONS = (
    (
        ReasonCode.NO_CLEAR_GAIN,
        ReasonCode.WITHIN_INTERVAL,
        ReasonCode.SMALL_GAP,
        ReasonCode.RARELY_UNDERCONFIDENT,
    ),
    (ReasonCode.EXPECTED_GAIN,),
    (*OPINIONS, *IMPROVES, ReasonCode.MIXUP_UNDECIDED, ReasonCode.MIXUP_DISAGREES),
)


class UnreliableCalibrationWarning(UserWarning):
    """A calibration was fitted that should not be applied."""


def warn_if_unreliable(judged: Trust | Measured | None) -> None:
    """Warn if there is a verdict against a calibration, without labels or by labels."""
    if judged is not None and judged.verdict == "do not apply":
        why = " ".join(str(reason) for reason in judged.reasons)
        warnings.warn(
            f"this calibration should not be applied: {why}",
            UnreliableCalibrationWarning,
            stacklevel=3,
        )


@dataclass(frozen=True)
class AccuracyEstimate:
    """The estimated accuracy on the target, with a 90% interval.

    The interval includes the error of the method.

    >>> estimate = AccuracyEstimate(0.58, 0.46, 0.7)
    >>> estimate.low <= estimate.value <= estimate.high
    True
    >>> AccuracyEstimate(0.506, 0.0, 1.0)
    AccuracyEstimate(unknown)

    Attributes:
        value: The estimated accuracy.
        low: The lower end of the interval.
        high: The upper end of the interval.

    """

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether anything is known: an interval from 0 to 1 says nothing."""
        return self.low > 0 or self.high < 1

    def __repr__(self) -> str:
        if not self.known:
            return "AccuracyEstimate(unknown)"
        return f"AccuracyEstimate(value={self.value!r}, low={self.low!r}, high={self.high!r})"


def consensus_from(agreements: Iterable[Agreement], real: Labelled) -> Consensus | None:
    """What second opinions, and the model's own outputs, say of the accuracy.

    Args:
        agreements: The agreement with each second opinion.
        real: The logits of real inputs.

    """
    largest = _class_evidence(real)["largest class"]
    dominance = largest - 1 / real.logits.shape[1]
    return Consensus.of(agreements, mean_confidence(real, 1.0), dominance)


def too_close(consensus: Consensus, confidence: float) -> bool:
    """Whether the estimate is too near to the mean confidence for a temperature to help.

    >>> agreement = Agreement(classes=10, rows=1000, rate=0.6, shared=0.2, mistakes=500.0)
    >>> [too_close(Consensus((agreement,)), confidence) for confidence in (0.3, 0.5, 0.58, 0.6)]
    [False, True, True, False]

    Args:
        consensus: What second opinions say.
        confidence: The mean confidence without calibration.

    """
    gap = confidence - consensus.accuracy
    if gap >= 0 or consensus.rate >= NEARLY_ALL:
        return abs(gap) < NEAR
    return -gap < RAISE_FROM


def estimate_together(consensus: Consensus) -> AccuracyEstimate:
    """The accuracy that second opinions imply.

    >>> agreement = Agreement(classes=10, rows=1000, rate=0.6, shared=0.2, mistakes=500.0)
    >>> estimate = estimate_together(Consensus((agreement,)))
    >>> round(estimate.value, 2), round(estimate.low, 2), round(estimate.high, 2)
    (0.52, 0.4, 0.64)
    """
    below, above = estimate_errors(consensus)
    low = consensus.accuracy - NORMAL_90 * below
    high = consensus.accuracy + NORMAL_90 * above
    return AccuracyEstimate(consensus.accuracy, max(0.0, low), min(1.0, high))


def estimate_alone(confidence: float, agreements: Sequence[Agreement]) -> AccuracyEstimate:
    """The calibrated confidence.

    With two classes, the first model is wrong on half of the inputs on which the models disagree.

    >>> estimate_alone(0.6, [])
    AccuracyEstimate(value=0.6, low=0.07..., high=0.75)
    """
    most = 1.0
    for agreement in agreements:
        if agreement.is_binary and not agreement.surrogate:
            bound = (1 + agreement.rate) / 2 + NORMAL_90 * agreement.rate_error / 2
            most = min(most, bound)
    below, above = ALONE_BELOW_AND_ABOVE
    value = min(confidence, most)
    return AccuracyEstimate(value, max(0.0, value - below), min(most, value + above))


def estimate_errors(consensus: Consensus) -> tuple[float, float]:
    """The standard errors of the accuracy below the estimate and above it.

    Those of a surrogate alone are lopsided. Beside second models, the difference between its
    estimate and theirs is one of the errors. Where one class has many of the predictions, models
    often share the mistake, so the accuracy may be lower.
    """
    classes = consensus.agreements[0].classes
    differ = consensus.difference / NORMAL_90
    if consensus.estimator == "surrogate":
        below, above = SURROGATE_BELOW_AND_ABOVE
        below *= consensus.accuracy - 1 / classes
    else:
        below = math.hypot(TOGETHER, consensus.dominance)
        above = TOGETHER
    return (
        math.hypot(below / NORMAL_90, consensus.error, consensus.spread, differ),
        math.hypot(above / NORMAL_90, consensus.error, consensus.spread, differ),
    )


@dataclass(frozen=True)
class Trust:
    """Whether a calibration should be applied, and why.

    >>> reason = Reason(ReasonCode.MIXUP_ONLY)
    >>> trust = Trust("caution", (reason,), AccuracyEstimate(0.58, 0.46, 0.7), {"mixup": 12.0})
    >>> Trust.from_dict(trust.to_dict()) == trust
    True
    >>> print(*trust.reasons)
    T was fitted on mixup samples only; the accuracy estimate is just the calibrated mean
    confidence.

    Attributes:
        verdict: `"apply"`, `"caution"` or `"do not apply"`.
        reasons: The reasons for the verdict, the worst first; `str` gives the sentence of each.
        estimated_accuracy: The estimated accuracy on the target; with two classes and T = 1 it is
            not `known`.
        evidence: The numbers that the verdict is based on, by name.
        score: How doubtful the temperature is, from -0.5 to 0.5: whether it may do harm, leave the
            confidence far off, or rest on predictions of one class. None without a usable
            second opinion.
        effects: What each temperature that was found would do, by estimator, and what T = 1 does,
            as "none".

    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    estimated_accuracy: AccuracyEstimate
    evidence: dict[str, float]
    score: float | None = None
    effects: dict[str, Effect] = field(default_factory=dict)

    @property
    def temperatures(self) -> dict[str, float]:
        """The temperature that each estimator found.

        From mixup samples, and from agreement with a usable second opinion.
        """
        return {name: effect.temperature for name, effect in self.effects.items() if name != "none"}

    def doubted(self, reason: Reason) -> Trust:
        """The same with a reason for which the verdict is at best "caution".

        >>> trust = Trust("apply", (), AccuracyEstimate(0.58, 0.46, 0.7), {})
        >>> trust.doubted(Reason(ReasonCode.PREPROCESSING_ASSUMED)).verdict
        'caution'

        Args:
            reason: The reason. It stands first, unless the verdict is worse than "caution".

        """
        if self.verdict == "do not apply":
            return replace(self, reasons=(*self.reasons, reason))
        return replace(self, verdict="caution", reasons=(reason, *self.reasons))

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return asdict(self) | {"reasons": [reason.to_dict() for reason in self.reasons]}

    @classmethod
    def from_dict(cls, content: Any) -> Trust:
        """Read what `to_dict` returned.

        Args:
            content: The JSON values.

        """
        try:
            if content["verdict"] not in VERDICTS:
                raise ValueError
            return cls(
                content["verdict"],
                tuple(Reason.from_dict(reason) for reason in content["reasons"]),
                AccuracyEstimate(**_floats(content["estimated_accuracy"])),
                _floats(content["evidence"]),
                None if content["score"] is None else float(content["score"]),
                {
                    str(name): Effect(**_floats(effect))
                    for name, effect in content.get("effects", {}).items()
                },
            )
        except InputError:  # a reason says what is wrong with it
            raise
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(f"expected a record of trust, got {brief(content)}") from error


def judge(
    real: Labelled,
    found: Mapping[str, TemperatureScaling],
    used: str,
    *,
    mixup_samples: int,
    agreements: Sequence[Agreement] = (),
    consensus: Consensus | None = None,
) -> Trust:
    """Judge a temperature by the logits of real inputs, and by second opinions if there are any.

    Two models agree on half of the inputs and share no mistakes; the first has a confidence of
    100%, which both temperatures reduce to about a half:

    >>> logits = np.tile(np.eye(10) * 30, (100, 1))
    >>> real = Labelled(logits, logits.argmax(axis=1))
    >>> agreement = Agreement(classes=10, rows=1000, rate=0.5, shared=0.0, mistakes=100.0)
    >>> found = {
    ...     "mixup": TemperatureScaling(13.2, log_se=0.02),
    ...     "agreement": TemperatureScaling(13.7),
    ... }
    >>> opinions = {"agreements": [agreement], "consensus": Consensus((agreement,))}
    >>> trust = judge(real, found, "agreement", mixup_samples=900, **opinions)
    >>> trust.verdict, round(trust.estimated_accuracy.value, 2)
    ('apply', 0.5)
    >>> [str(reason.code) for reason in trust.reasons]
    ['second_model_agrees', 'lowers_confidence', 'expected_gain', 'mixup_agrees']

    If the rows have groups, they are pixels of images, for which the reasons differ.

    Args:
        real: The logits of real inputs.
        found: The temperature of each estimator.
        used: The estimator whose temperature is judged.
        mixup_samples: The number of mixup samples.
        agreements: The agreement with each second opinion.
        consensus: What the usable ones say together; None if there are none.

    """
    classes = real.logits.shape[1]
    pixels = real.groups is not None
    temperatures = {"none": 1.0} | {name: fitted.temperature for name, fitted in found.items()}
    confidence = {name: mean_confidence(real, t) for name, t in temperatures.items()}
    models = [agreement for agreement in agreements if not agreement.surrogate]
    surrogates = [each for each in agreements if each.surrogate and not each.from_second]
    evidence = {
        "confidence before": confidence["none"],
        "confidence after": confidence[used],
        "mixup_samples": float(mixup_samples),
    }
    evidence |= _class_evidence(real)
    largest = evidence["largest class"]
    findings = [*_basics(found[used], largest, classes, pixels=pixels)]
    score = None
    if consensus is None:
        asked = models or surrogates  # none is usable; if there are models, they are reported
        evidence |= _agreement_evidence(asked)
        estimate = estimate_alone(confidence[used], asked)
        if used == "none":
            why = _why_uncalibrated(models, surrogates, found["mixup"].temperature)
            estimate = AccuracyEstimate(estimate.value, 0.0, 1.0)  # the plain confidence: unknown
        else:
            why = _why_alone(models, surrogates, classes, pixels=pixels)
        findings += [("caution", reason) for reason in why]
    else:
        evidence |= _agreement_evidence(consensus.agreements)
        estimate = estimate_together(consensus)
        weighed = Weighed.of(real, found, used, consensus, confidence)
        if used != "mixup" and lowers_clearly(consensus, confidence["none"]):
            # the estimate may be too high, but a lower one would move the confidence the same way
            findings = [("apply" if v == "caution" else v, reason) for v, reason in findings]
        findings += _with_consensus(weighed, models, estimate)
        if consensus.surrogate_beside is not None:
            evidence["surrogate accuracy"] = consensus.surrogate_beside.accuracy
        dominance = min(1.0, (largest - 1 / classes) / (2 * DOMINANT))
        score = max(weighed.doubt, dominance) - 0.5  # 0: even odds of doing harm
    findings = [*_extreme(found[used]), *findings]
    findings.sort(key=_place)
    effects = {
        name: Effect(t, confidence[name], confidence[name] - estimate.value)
        for name, t in temperatures.items()
    }
    verdict = findings[0][0]
    reasons = tuple(reason for _, reason in findings)
    trust = Trust(verdict, reasons, estimate, evidence, score, effects)
    inputs = len(real.labels)
    if verdict != "do not apply" and used != "none" and inputs < FEWEST_INPUTS:
        numbers = {"inputs": float(inputs), "enough": float(FEWEST_INPUTS)}
        return trust.doubted(Reason(ReasonCode.FEW_INPUTS, numbers))
    return trust


def _with_consensus(
    weighed: Weighed, models: Sequence[Agreement], estimate: AccuracyEstimate
) -> Iterator[Finding]:
    """What usable second opinions say of a temperature and of the accuracy."""
    consensus = weighed.consensus
    if consensus.estimator == "surrogate" and models:
        yield "caution", _why_unusable(models)
    yield from weighed.findings()
    if consensus.surrogate_beside is not None:
        yield _on_surrogate(consensus, consensus.surrogate_beside, weighed.confidence["none"])
    chance = 1 / consensus.agreements[0].classes
    if estimate.low <= chance and not consensus.at_chance:
        # no reason against T: on the development families such temperatures helped most
        yield "apply", Reason(ReasonCode.MAY_BE_AT_CHANCE, {"chance": chance})


def _place(finding: Finding) -> tuple[int, int]:
    """Where a reason stands: the worst verdict first, and then as `LATER_REASONS` says."""
    verdict, reason = finding
    worst = -VERDICTS.index(verdict)
    if verdict == "apply":  # what speaks for T stays in the order in which it was found
        return worst, 0
    for place, codes in enumerate(LATER_REASONS, 1):
        if reason.code in codes:
            return worst, place
    return worst, 0


def lowers_clearly(consensus: Consensus, confidence: float) -> bool:
    """Whether the estimate is far below the mean confidence."""
    return confidence - consensus.accuracy >= CLEAR


def _on_surrogate(consensus: Consensus, surrogate: Agreement, confidence: float) -> Finding:
    """What a surrogate beside second models says of the accuracy."""
    numbers = {"surrogate": surrogate.accuracy, "accuracy": consensus.accuracy}
    if consensus.difference <= DIFFERENT:
        return "apply", Reason(ReasonCode.SURROGATE_CONFIRMS, numbers | {"limit": DIFFERENT})
    numbers |= {
        "agreement": consensus.of_agreements,
        "weight": consensus.own_weight,
        "before": confidence,
    }
    verdict: Verdict = "apply" if lowers_clearly(consensus, confidence) else "caution"
    return verdict, Reason(ReasonCode.SURROGATE_DIFFERS, numbers)


def _basics(
    scaling: TemperatureScaling, largest: float, classes: int, *, pixels: bool
) -> Iterator[Finding]:
    """Problems that do not depend on a second opinion."""
    if scaling.bound:
        numbers = {"temperature": scaling.temperature}
        yield "do not apply", Reason(ReasonCode.TEMPERATURE_AT_BOUND, numbers)
    if pixels:  # most of an image may be road, but only pixels with two classes are mixed
        if largest > COLLAPSED:
            yield "caution", Reason(ReasonCode.DOMINANT_PIXEL_CLASS, {"fraction": largest})
        return
    numbers = {"classes": float(classes), "fraction": largest}
    if largest > (COLLAPSED if classes > 2 else (1 + COLLAPSED) / 2):
        yield "do not apply", Reason(ReasonCode.ONE_CLASS, numbers)
    elif largest > 1 / classes + DOMINANT:
        yield "caution", Reason(ReasonCode.DOMINANT_CLASS, numbers)


def _extreme(scaling: TemperatureScaling) -> Iterator[Finding]:
    """A temperature that is never applied without labels, whatever second opinions say."""
    if not scaling.bound and abs(math.log(scaling.temperature)) > math.log(EXTREME):
        numbers = {"temperature": scaling.temperature}
        yield "caution", Reason(ReasonCode.EXTREME_TEMPERATURE, numbers)


def _why_alone(
    models: Sequence[Agreement], surrogates: Sequence[Agreement], classes: int, *, pixels: bool
) -> Iterator[Reason]:
    """Why nothing is taken from a second opinion, and what the estimate is then."""
    yield from (_why_unusable(given) for given in (models, surrogates) if given)
    if pixels:
        if not models and not surrogates:
            yield Reason(ReasonCode.SEGMENTATION)
        return
    if not models and not surrogates:
        yield Reason(ReasonCode.NO_SECOND_OPINION)
    yield Reason(ReasonCode.MIXUP_ONLY)
    if classes == 2:
        yield Reason(ReasonCode.MIXUP_TWO_CLASSES)


def _why_uncalibrated(
    models: Sequence[Agreement], surrogates: Sequence[Agreement], mixup: float
) -> Iterator[Reason]:
    """Why a model of two classes stays as it is, and what its second opinions say."""
    yield Reason(ReasonCode.TWO_CLASSES, {"mixup": mixup})
    yield from (_why_unusable(given) for given in (models, surrogates) if given)


def _why_unusable(agreements: Sequence[Agreement]) -> Reason:
    """Why nothing is taken from second opinions of one kind."""
    first = agreements[0]
    agreement = min(each.rate for each in agreements)
    shared = min(each.shared for each in agreements)
    if first.is_binary and first.surrogate:
        return Reason(ReasonCode.SURROGATE_TWO_CLASSES, {"agreement": agreement})
    if first.is_binary:
        numbers = {"agreement": agreement, "highest": (1 + agreement) / 2}
        return Reason(ReasonCode.SECOND_MODEL_TWO_CLASSES, numbers)
    if not first.surrogate and all(each.unrelated for each in agreements):
        return Reason(ReasonCode.SECOND_MODEL_UNRELATED, {"agreement": agreement})
    if not first.surrogate:
        return Reason(ReasonCode.SECOND_MODEL_TOO_SIMILAR, {"shared": shared})
    if first.too_similar:
        return Reason(ReasonCode.SURROGATE_TOO_SIMILAR, {"shared": shared})
    return Reason(ReasonCode.SURROGATE_AT_CHANCE, {"agreement": agreement, "shared": shared})


@dataclass(frozen=True)
class Weighed:
    """What second opinions say of a temperature.

    Attributes:
        consensus: What they say together.
        used: The estimator whose temperature is weighed.
        confidence: The mean confidence with each temperature.
        temperatures: The temperature of each estimator.
        better: The probability that the accuracy is nearer to the confidence after than to that
            before.
        backed: The probability that the mixup estimate is on the same side of 1 as the estimate.
        doubt: The probability that the temperature does harm, or leaves the confidence far off.

    """

    consensus: Consensus
    used: str
    confidence: dict[str, float]
    temperatures: dict[str, float]
    better: float
    backed: float
    doubt: float

    @classmethod
    def of(
        cls,
        real: Labelled,
        found: Mapping[str, TemperatureScaling],
        used: str,
        consensus: Consensus,
        confidence: dict[str, float],
    ) -> Weighed:
        """Weigh a temperature by the error of the estimate, and by that of the mixup samples."""
        before = confidence["none"]
        after = confidence[used]
        overconfident = consensus.accuracy < before
        below, above = estimate_errors(consensus)
        error = above if overconfident else below
        from_mixup = found["mixup"].temperature
        log_se = max(1e-6, min(MOST_LOG_SE, found["mixup"].log_se))
        side = 1 if overconfident else -1  # the sign of log T that the estimate asks for
        backed = normal(side * math.log(from_mixup) / log_se)
        if used == "mixup":
            # the error of the confidence after counts half, since the midpoint decides
            moved = mean_confidence(real, from_mixup * math.exp(log_se))
            error = math.hypot(error, (moved - after) / 2)
        better = nearer(consensus.accuracy, before, after, error)
        far = normal((abs(after - consensus.accuracy) - LARGE_GAP) / error)
        harmless = better if used == "mixup" else better * backed
        temperatures = {name: fitted.temperature for name, fitted in found.items()}
        doubt = max(1 - harmless, far)
        return cls(consensus, used, confidence, temperatures, better, backed, doubt)

    def findings(self) -> Iterator[Finding]:
        """The verdict on the temperature."""
        surrogate = self.consensus.estimator == "surrogate"
        verdict, reasons = self._on_mixup() if self.used == "mixup" else self._on_agreement()
        if surrogate and verdict == "apply":
            verdict = "caution"
        for reason in (self._opinion(), *self._own_part(), *reasons):
            yield verdict, reason
        if surrogate:
            yield "caution", Reason(ReasonCode.SURROGATE_ONLY)
        before = self.confidence["none"]
        second = float(np.mean([each.second_confidence for each in self.consensus.agreements]))
        if second < before - LESS_CONFIDENT:
            numbers = {"second_confidence": second, "before": before}
            yield "caution", Reason(ReasonCode.SECOND_MODEL_LESS_CONFIDENT, numbers)

    def _opinion(self) -> Reason:
        """What the second opinions say of the accuracy."""
        given = self.consensus.agreements
        rates = [agreement.rate for agreement in given]
        fractions = [agreement.shared for agreement in given]
        agreed = {"agreement_low": min(rates), "agreement_high": max(rates)}
        shared = {"shared_low": min(fractions), "shared_high": max(fractions)}
        accuracy = {"accuracy": self.consensus.of_agreements}
        surrogate = self.consensus.estimator == "surrogate"
        if self.used != "mixup" and self.consensus.at_chance:
            return Reason(ReasonCode.SECOND_MODEL_AT_CHANCE, agreed | shared | accuracy)
        if min(agreement.mistakes for agreement in given) == 0:
            code = ReasonCode.SHARED_ERRORS_UNKNOWN
            if surrogate:
                code = ReasonCode.SURROGATE_ERRORS_UNKNOWN
            return Reason(code, agreed | accuracy)
        numbers = agreed | shared | accuracy
        if surrogate:
            return Reason(ReasonCode.SURROGATE_AGREES, numbers)
        if len(given) == 1:
            return Reason(ReasonCode.SECOND_MODEL_AGREES, numbers)
        return Reason(ReasonCode.SECOND_MODELS_AGREE, numbers | {"models": float(len(given))})

    def _own_part(self) -> Iterator[Reason]:
        """How the estimate follows from the opinions, unless `_on_surrogate` says so."""
        if not self.consensus.own_weight or self.consensus.difference > DIFFERENT:
            return
        numbers = {
            "before": self.confidence["none"],
            "weight": self.consensus.own_weight,
            "accuracy": self.consensus.accuracy,
        }
        yield Reason(ReasonCode.CONFIDENCE_COUNTS, numbers)

    def _on_agreement(self) -> tuple[Verdict, tuple[Reason, ...]]:
        """Judge a temperature from the agreement by how far it moves the confidence.

        That is what told harmful temperatures from helpful ones on the development families; whether
        the mixup estimate points the same way did not.
        """
        before = self.confidence["none"]
        temperature = self.temperatures[self.consensus.estimator]
        numbers = {"temperature": temperature, "before": before}
        accuracy = {"accuracy": self.consensus.accuracy}
        if self.used == "none":
            return "caution", (Reason(ReasonCode.NO_CLEAR_GAIN, numbers | accuracy),)
        code = ReasonCode.RAISES_CONFIDENCE if temperature < 1 else ReasonCode.LOWERS_CONFIDENCE
        moves = Reason(code, numbers | accuracy)
        clear = lowers_clearly(self.consensus, before)
        verdict: Verdict = "apply" if clear and not self.consensus.at_chance else "caution"
        doubts = [] if clear else [*self._doubts()]
        if too_close(self.consensus, before):  # applied on request only
            return "caution", (moves, *doubts, self._mixup_side())
        fell = FELL_CLEAR if clear else FELL_OTHERS
        risk = Reason(ReasonCode.EXPECTED_GAIN, {"fell": float(fell)})
        return verdict, (moves, *doubts, risk, self._mixup_side())

    def _doubts(self) -> Iterator[Reason]:
        """Why it is not clear that a temperature from the agreement helps."""
        before = self.confidence["none"]
        accuracy = self.consensus.accuracy
        given = self.consensus.agreements
        shared = max(agreement.shared for agreement in given)
        known = min(agreement.mistakes for agreement in given) > 0
        if known and shared > MANY_SHARED and self.consensus.estimator != "surrogate":
            yield Reason(ReasonCode.MANY_SHARED_ERRORS, {"shared": shared})
        if accuracy > before:
            yield Reason(ReasonCode.RARELY_UNDERCONFIDENT)
            return
        estimate = estimate_together(self.consensus)
        if estimate.high >= before:
            numbers = {"before": before, "low": estimate.low, "high": estimate.high}
            yield Reason(ReasonCode.WITHIN_INTERVAL, numbers)
        else:
            numbers = {"before": before, "accuracy": accuracy, "gap": before - accuracy}
            yield Reason(ReasonCode.SMALL_GAP, numbers)

    def _mixup_side(self) -> Reason:
        """Whether the mixup estimate points the same way."""
        mixup = {"mixup": self.temperatures["mixup"]}
        if self.backed >= LIKELY:
            return Reason(ReasonCode.MIXUP_AGREES, mixup)
        if self.backed > 1 - LIKELY:
            return Reason(ReasonCode.MIXUP_UNDECIDED, mixup)
        return Reason(ReasonCode.MIXUP_DISAGREES, mixup)

    def _on_mixup(self) -> tuple[Verdict, tuple[Reason, ...]]:
        """Judge a temperature from mixup samples by the estimated accuracy."""
        gap = self.confidence[self.used] - self.consensus.accuracy
        numbers = {"before": self.confidence["none"], "after": self.confidence[self.used]}
        if self.better >= LIKELY and abs(gap) <= LARGE_GAP:
            return "apply", (Reason(ReasonCode.CLOSER, numbers),)
        if self.better >= LIKELY:
            code = ReasonCode.CLOSER_BUT_HIGH if gap > 0 else ReasonCode.CLOSER_BUT_LOW
            return "caution", (Reason(code, numbers | {"gap": gap}), *self._closer_temperature())
        if self.better > 1 - LIKELY:
            return "caution", (Reason(ReasonCode.EITHER_MAY_BE_CLOSER, numbers),)
        return "do not apply", (Reason(ReasonCode.FURTHER, numbers), *self._closer_temperature())

    def _closer_temperature(self) -> Iterator[Reason]:
        """The temperature from the second opinion."""
        source = self.consensus.estimator
        code = ReasonCode.AGREEMENT_IS_CLOSER
        if source == "surrogate":
            code = ReasonCode.SURROGATE_IS_CLOSER
        yield Reason(code, {"temperature": self.temperatures[source]})


def _agreement_evidence(agreements: Sequence[Agreement]) -> dict[str, float]:
    if not agreements:
        return {}
    found = {
        "agreement": float(np.mean([agreement.rate for agreement in agreements])),
        "second confidence": float(np.mean([each.second_confidence for each in agreements])),
    }
    if not agreements[0].is_binary:
        found["shared mistakes"] = float(np.mean([agreement.shared for agreement in agreements]))
    # a surrogate has no confidence
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _class_evidence(real: Labelled) -> dict[str, float]:
    """How the predictions are distributed over the classes."""
    classes = real.logits.shape[1]
    counts = np.bincount(predictions(real.logits), weights=real.weights, minlength=classes)
    p = counts[counts > 0] / counts.sum()
    entropy = float(-(p * np.log(p)).sum() / math.log(classes))
    return {"largest class": float(p.max()), "entropy of classes": entropy}


def _floats(content: Any) -> dict[str, float]:
    return {str(key): float(value) for key, value in content.items()}
