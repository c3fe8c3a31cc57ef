"""A label-free verdict on a calibration.

A narrow interval around T does not mean that the model is calibrated: mixup samples are harder than
real inputs, and the model's own mistakes count as right, but neither shows in the sampling error. A
second opinion does show it: if two models agree less often than the first is confident, the first
is overconfident. The constants were chosen on the development tasks only; `docs/trust_test.md`
reports the test on other families. `reasons.py` has the sentences.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators import reasons
from pseudocal.calibrators.accuracy_estimate import (
    AccuracyEstimate,
    estimate_alone,
    estimate_errors,
    estimate_together,
)
from pseudocal.calibrators.agreement import Agreement
from pseudocal.calibrators.confidence import Effect, mean_confidence, nearer, normal, predictions
from pseudocal.calibrators.consensus import Consensus, consensus_of
from pseudocal.files import brief
from pseudocal.scaling import TemperatureScaling

Verdict = Literal["apply", "caution", "do not apply"]
VERDICTS: tuple[Verdict, ...] = ("apply", "caution", "do not apply")  # from good to bad
Finding = tuple[Verdict, str]

LIKELY = (
    2 / 3
)  # the probability from which a temperature is taken to be nearer to the truth than T = 1
LARGE_GAP = 0.10  # a gap between confidence and accuracy that is large
DOMINANT = 0.25  # a fraction of predictions of one class above 1 / classes that calls for caution
# a fraction at which the model hardly tells inputs apart; of two classes, half as far from 1
COLLAPSED = 0.9
LESS_SURE = 0.2  # a second model whose mean confidence is this much lower may be much less accurate
MOST_LOG_SE = 1.0  # the standard error of log T if it is larger or not known


class UnreliableCalibrationWarning(UserWarning):
    """A calibration was fitted that should not be applied."""


def warn_if_unreliable(trust: Trust | None) -> None:
    """Warn if there is a verdict against a calibration."""
    if trust is not None and trust.verdict == "do not apply":
        warnings.warn(
            f"this calibration should not be applied: {trust.reasons[0]}",
            UnreliableCalibrationWarning,
            stacklevel=3,
        )


@dataclass(frozen=True)
class Trust:
    """Whether a calibration should be applied, and why.

    >>> trust = Trust("caution", ("There were few mixup samples.",), AccuracyEstimate(0.58, 0.46, 0.7), {"mixup": 12.0})
    >>> Trust.from_dict(trust.to_dict()) == trust
    True

    Attributes:
        verdict: `"apply"`, `"caution"` or `"do not apply"`.
        reasons: The reasons for the verdict, as sentences.
        estimated_accuracy: The accuracy expected on the target.
        evidence: The numbers that the verdict is based on, by name.
        score: How doubtful the temperature is, from -0.5 to 0.5: that it does harm, leaves the
            confidence far off, or rests on the predictions of one class. None without a usable
            second opinion.
        effects: What each temperature that was found would do, by estimator, and what T = 1 does,
            as "none".

    """

    verdict: Verdict
    reasons: tuple[str, ...]
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

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return asdict(self) | {"reasons": list(self.reasons)}

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
                tuple(str(reason) for reason in content["reasons"]),
                AccuracyEstimate(**_floats(content["estimated_accuracy"])),
                _floats(content["evidence"]),
                None if content["score"] is None else float(content["score"]),
                {
                    str(name): Effect(**_floats(effect))
                    for name, effect in content.get("effects", {}).items()
                },
            )
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(f"expected a record of trust, got {brief(content)}") from error


def judge(
    real: Labelled,
    found: Mapping[str, TemperatureScaling],
    used: str,
    *,
    mixup_samples: int,
    agreements: Sequence[Agreement] = (),
) -> Trust:
    """Judge a temperature by the logits of real inputs, and by second opinions if there are any.

    Two models agree on half of the inputs and share no mistakes; the first has a confidence of
    100%, which both temperatures reduce to about a half:

    >>> logits = np.tile(np.eye(10) * 50, (100, 1))
    >>> agreement = Agreement(classes=10, rows=1000, rate=0.5, shared=0.0, mistakes=100.0)
    >>> found = {"mixup": TemperatureScaling(22.0, log_se=0.02), "agreement": TemperatureScaling(22.8)}
    >>> trust = judge(Labelled(logits, logits.argmax(axis=1)), found, "agreement", mixup_samples=900, agreements=[agreement])
    >>> trust.verdict, round(trust.estimated_accuracy.accuracy, 2)
    ('apply', 0.5)

    If the rows have groups, they are pixels of images, for which the reasons differ.

    Args:
        real: The logits of real inputs.
        found: The temperature of each estimator.
        used: The estimator whose temperature is judged.
        mixup_samples: The number of mixup samples.
        agreements: The agreement with each second opinion.

    """
    classes = real.logits.shape[1]
    pixels = real.groups is not None
    consensus = consensus_of(agreements)
    temperatures = {"none": 1.0} | {name: fitted.temperature for name, fitted in found.items()}
    sure = {name: mean_confidence(real, t) for name, t in temperatures.items()}
    fractions = np.bincount(predictions(real.logits), weights=real.weights, minlength=classes)
    evidence = {
        "confidence before": sure["none"],
        "confidence after": sure[used],
        "mixup_samples": float(mixup_samples),
    }
    asked = [
        a for a in agreements if not a.surrogate
    ] or agreements  # beside a model nothing follows from a surrogate
    evidence |= _marginal(fractions) | _means(asked if consensus is None else consensus.agreements)
    largest = evidence["largest class"]
    findings = [*_basics(found[used], largest, classes, pixels=pixels)]
    if consensus is None:
        findings += (("caution", why) for why in _why_alone(agreements, classes, pixels=pixels))
        estimated_accuracy = estimate_alone(sure[used], asked)
        score = None
    else:
        if consensus.estimator == "surrogate" and (
            unusable := [a for a in agreements if not a.surrogate]
        ):
            findings += (("caution", why) for why in _unusable(unusable))
        weighed = _weigh(real, found, used, consensus, sure)
        findings += weighed.findings()
        if consensus.estimator == "agreement" and any(a.surrogate for a in agreements):
            findings.append(("apply", reasons.UNUSED_SURROGATE))
        dominance = min(1.0, (largest - 1 / classes) / (2 * DOMINANT))
        estimated_accuracy = estimate_together(consensus)
        score = max(weighed.doubt, dominance) - 0.5
    findings.sort(key=lambda finding: -VERDICTS.index(finding[0]))
    effects = {
        name: Effect(t, sure[name], sure[name] - estimated_accuracy.accuracy)
        for name, t in temperatures.items()
    }
    return Trust(
        findings[0][0],
        tuple(text for _, text in findings),
        estimated_accuracy,
        evidence,
        score,
        effects,
    )


def _basics(
    scaling: TemperatureScaling, largest: float, classes: int, *, pixels: bool
) -> Iterator[Finding]:
    """Problems that do not depend on a second opinion."""
    if scaling.bound:
        yield "do not apply", reasons.BOUND.format(end=scaling.bound)
    if pixels:  # most of an image may be road, but only pixels with two classes are mixed
        if largest > COLLAPSED:
            yield "caution", reasons.MOSTLY_ONE_CLASS.format(largest=largest)
    elif largest > (COLLAPSED if classes > 2 else (1 + COLLAPSED) / 2):
        yield "do not apply", reasons.ONE_CLASS.format(classes=classes, largest=largest)
    elif largest > 1 / classes + DOMINANT:
        yield "caution", reasons.MUCH_OF_ONE_CLASS.format(classes=classes, largest=largest)


def _why_alone(agreements: Sequence[Agreement], classes: int, *, pixels: bool) -> Iterator[str]:
    """Why nothing is taken from a second opinion, and what the estimate is then."""
    models, surrogates = (
        [a for a in agreements if a.surrogate == surrogate] for surrogate in (False, True)
    )
    if not agreements:
        yield reasons.PIXELS if pixels else reasons.ALONE
    for given in (models, surrogates):
        yield from _unusable(given)
    if not pixels:
        yield reasons.FROM_MIXUP + (f" {reasons.MIXUP_OF_TWO}" if classes == 2 else "")


def _unusable(agreements: Sequence[Agreement]) -> Iterator[str]:
    """Why nothing is taken from second opinions of one kind."""
    if not agreements:
        return
    first = agreements[0]
    said = reasons.TWO_CLASSES if first.is_binary else reasons.SAME_MODEL
    if first.surrogate:
        said = (
            reasons.OF_A_SURROGATE[said]
            if first.is_binary or first.too_similar
            else reasons.SURROGATE_AT_CHANCE
        )
    rate, shared = (
        min(getattr(agreement, name) for agreement in agreements) for name in ("rate", "shared")
    )
    yield said.format(rate=rate, most=(1 + rate) / 2, shared=shared)


def _weigh(
    real: Labelled,
    found: Mapping[str, TemperatureScaling],
    used: str,
    consensus: Consensus,
    sure: dict[str, float],
) -> _Weighed:
    """Weigh a temperature by the error of the estimate, and by that of the mixup samples."""
    overconfident, (below, above) = consensus.accuracy < sure["none"], estimate_errors(consensus)
    error = above if overconfident else below
    log_se = max(1e-6, min(MOST_LOG_SE, found["mixup"].log_se))
    from_mixup = found["mixup"].temperature
    backed = normal(math.log(from_mixup) / log_se * (1 if overconfident else -1))
    if used == "mixup":  # the error of the confidence after counts half, since the midpoint decides
        moved = mean_confidence(real, from_mixup * math.exp(log_se))
        error = math.hypot(error, (moved - sure["mixup"]) / 2)
    better = nearer(consensus.accuracy, sure["none"], sure[used], error)
    far = normal((abs(sure[used] - consensus.accuracy) - LARGE_GAP) / error)
    doubt = max(1 - better * (1 if used == "mixup" else backed), far)
    temperatures = {name: fitted.temperature for name, fitted in found.items()}
    return _Weighed(consensus, used, sure, temperatures, better, backed, doubt)


class _Weighed(NamedTuple):
    """What second opinions say of a temperature."""

    consensus: Consensus
    used: str
    sure: dict[str, float]  # the mean confidence with each temperature
    temperatures: dict[str, float]
    # the probability that the accuracy is nearer to the confidence after than to that before
    better: float
    # the probability that the temperature of the mixup samples is on the same side of 1 as the
    # estimate
    backed: float
    doubt: float  # the probability that it does harm, or leaves the confidence far off

    def findings(self) -> Iterator[Finding]:
        """The verdict on the temperature."""
        source = self.consensus.estimator
        verdict, said = self._on_mixup() if self.used == "mixup" else self._on_agreement()
        before = self.sure["none"]
        after = self.sure[self.used]
        gap = 100 * abs(after - self.consensus.accuracy)
        words: dict[str, Any] = {
            "before": before,
            "after": after,
            "gap": gap,
            "mixup": self.temperatures["mixup"],
        }
        words |= {"agreement": self.temperatures[source], "source": source}
        surrogate = source == "surrogate"
        yield (
            "caution" if surrogate and verdict == "apply" else verdict,
            " ".join([self._story(), *said]).format(**words),
        )
        if surrogate:
            yield "caution", reasons.BLIND_SURROGATE
        second = float(np.mean([agreement.sure for agreement in self.consensus.agreements]))
        if second < before - LESS_SURE:
            yield "caution", reasons.UNSURE.format(second=second, before=before)

    def _on_agreement(self) -> tuple[Verdict, tuple[str, ...]]:
        """By what it was not taken from.

        The mixup samples, and the error of the estimate on other families.
        """
        if self.consensus.at_chance:
            return "do not apply", ()
        if self.better < LIKELY:
            return "caution", (reasons.TOO_NEAR,)
        moved = reasons.RAISED if self.temperatures[self.used] < 1 else reasons.LOWERED
        if self.backed >= LIKELY:
            return "apply", (moved, reasons.BACKED)
        return "caution", (
            moved,
            reasons.UNDECIDED if self.backed > 1 - LIKELY else reasons.CONTRADICTED,
        )

    def _on_mixup(self) -> tuple[Verdict, tuple[str, ...]]:
        gap = self.sure[self.used] - self.consensus.accuracy
        if self.better >= LIKELY and abs(gap) <= LARGE_GAP:
            return "apply", (reasons.NEARER,)
        other = () if self.consensus.at_chance else (reasons.OTHER_TEMPERATURE,)
        if self.better >= LIKELY:
            return "caution", (reasons.STILL_HIGH if gap > 0 else reasons.STILL_LOW, *other)
        if self.better > 1 - LIKELY:
            return "caution", (reasons.NO_TELLING,)
        return "do not apply", (reasons.FURTHER, *other)

    def _story(self) -> str:
        given = self.consensus.agreements
        story = reasons.ONE_OPINION if len(given) == 1 else reasons.OPINIONS
        if self.used != "mixup" and self.consensus.at_chance:
            story = reasons.AT_CHANCE
        elif min(agreement.mistakes for agreement in given) == 0:
            story = reasons.NO_MISTAKES
        story = reasons.OF_A_SURROGATE[story] if given[0].surrogate else story
        rate, shared = (
            _span([getattr(agreement, name) for agreement in given]) for name in ("rate", "shared")
        )
        return story.format(
            others=len(given), rate=rate, shared=shared, accuracy=self.consensus.accuracy
        )


def _span(values: Sequence[float]) -> str:
    low, high = (f"{value:.0%}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _means(agreements: Sequence[Agreement]) -> dict[str, float]:
    names = {"agreement": "rate", "second confidence": "sure"} if agreements else {}
    names |= {"shared mistakes": "shared"} if agreements and not agreements[0].is_binary else {}
    found = {
        key: float(np.mean([getattr(a, name) for a in agreements])) for key, name in names.items()
    }
    return {
        key: value for key, value in found.items() if not math.isnan(value)
    }  # a surrogate has no confidence


def _marginal(fractions: Any) -> dict[str, float]:
    p = fractions[fractions > 0] / fractions.sum()
    entropy = float(-(p * np.log(p)).sum() / math.log(len(fractions)))
    return {"largest class": float(p.max()), "entropy of classes": entropy}


def _floats(content: Any) -> dict[str, float]:
    return {str(key): float(value) for key, value in content.items()}
