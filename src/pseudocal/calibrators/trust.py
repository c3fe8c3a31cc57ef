"""A label-free verdict on a calibration.

A narrow interval around T does not mean that the model is calibrated: mixes are harder than real inputs, and the
model's own mistakes count as right, but neither shows in the sampling error. A second opinion does show it: if two
models agree less often than the first is confident, the first is overconfident, and the difference says by how much.
The thresholds below were chosen on the development tasks only; `docs/trust.md` reports the test on other tasks.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from pseudocal.arrays import InputError, Labelled
from pseudocal.calibrators.agreement import Agreement, Consensus, consensus_of
from pseudocal.calibrators.confidence import confidences
from pseudocal.files import brief
from pseudocal.scaling import TemperatureScaling

Verdict = Literal["apply", "caution", "do not apply"]
VERDICTS: tuple[Verdict, ...] = ("apply", "caution", "do not apply")  # from good to bad

FEW_MIXES = 500  # with fewer mixes the standard error of log T is above about 5%
DOMINANT = 0.5  # a fraction of predictions of one class that calls for caution
COLLAPSED = 0.9  # a fraction of predictions of one class at which the model is useless
FEW_MISTAKES = 30
ALIKE = 0.5  # two models that share more of their mistakes than this are too similar
GAIN = 0.02  # the smallest gain in calibration error that is worth a temperature
LARGE_GAP = 0.10  # a calibration error that is still large
NORMAL_90 = 1.645  # the normal quantile of a 90% interval
# on 90% of the development tasks the accuracy was at most this far below and above the calibrated confidence
ALONE_BELOW_AND_ABOVE = (0.52, 0.15)
TOGETHER = 0.115  # and at most this far from the forecast of two models


class DistrustWarning(UserWarning):
    """A calibration was fitted that should not be applied."""


def warn_of_distrust(trust: Trust | None) -> None:
    """Warn if there is a verdict against a calibration."""
    if trust is not None and trust.verdict == "do not apply":
        warnings.warn(f"this calibration should not be applied: {trust.reasons[0]}", DistrustWarning, stacklevel=3)


@dataclass(frozen=True)
class Forecast:
    """The accuracy on the target, with a 90% interval that includes the error of the method.

    >>> forecast = Forecast(0.58, 0.46, 0.7)
    >>> forecast.low <= forecast.accuracy <= forecast.high
    True

    Attributes:
        accuracy: The expected accuracy.
        low: The lower end of the interval.
        high: The upper end of the interval.

    """

    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """What a temperature does to the confidence.

    >>> Effect(temperature=2.0, confidence=0.7, gap=0.12)
    Effect(temperature=2.0, confidence=0.7, gap=0.12)

    Attributes:
        temperature: The temperature.
        confidence: The mean confidence on the target with it.
        gap: That confidence minus the accuracy of the forecast: above zero the model is too sure.

    """

    temperature: float
    confidence: float
    gap: float


@dataclass(frozen=True)
class Trust:
    """Whether a calibration should be applied, and why.

    >>> trust = Trust("caution", ("There were few mixes.",), Forecast(0.58, 0.46, 0.7), {"mixes": 12.0})
    >>> Trust.from_dict(trust.to_dict()) == trust
    True

    Attributes:
        verdict: `"apply"`, `"caution"` or `"do not apply"`.
        reasons: The reasons for the verdict, as sentences.
        forecast: The accuracy expected on the target.
        evidence: The numbers that the verdict is based on, by name.
        score: How far the calibrated confidence is expected to be off; above zero it is too far. None without a second
            opinion.
        effects: What each temperature that was found would do, by estimator, and what T = 1 does, as "none".

    """

    verdict: Verdict
    reasons: tuple[str, ...]
    forecast: Forecast
    evidence: dict[str, float]
    score: float | None = None
    effects: dict[str, Effect] = field(default_factory=dict)

    @property
    def temperatures(self) -> dict[str, float]:
        """The temperature that each estimator found: from mixes, and from agreement with a usable second opinion."""
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
                Forecast(**_floats(content["forecast"])),
                _floats(content["evidence"]),
                None if content["score"] is None else float(content["score"]),
                {str(name): Effect(**_floats(effect)) for name, effect in content.get("effects", {}).items()},
            )
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(f"expected a record of trust, got {brief(content)}") from error


def judge(
    real: Labelled,
    found: Mapping[str, TemperatureScaling],
    used: str,
    *,
    mixes: int,
    agreements: Sequence[Agreement] = (),
) -> Trust:
    """Judge a temperature by the logits of real inputs, and by second opinions if there are any.

    Two models agree on 90% of the inputs and never share a mistake; the first has a confidence of 100%, which the
    temperature reduces to 90%:

    >>> logits = np.tile(np.eye(10) * 50, (100, 1))
    >>> agreement = Agreement(classes=10, rows=1000, rate=0.9, shared=0.0, mistakes=100.0)
    >>> real = Labelled(logits, logits.argmax(axis=1))
    >>> trust = judge(real, {"mixes": TemperatureScaling(11.36)}, "mixes", mixes=900, agreements=[agreement])
    >>> trust.verdict, round(trust.forecast.accuracy, 2)
    ('apply', 0.91)

    If the rows have groups, they are pixels of images, for which the reasons differ.

    Args:
        real: The logits of real inputs.
        found: The temperature of each estimator.
        used: The estimator whose temperature is judged.
        mixes: The number of mixes.
        agreements: The agreement with each second opinion.

    """
    scaling, pixels = found[used], real.groups is not None
    before, after = (
        float(np.average(confidences(real.logits, t), weights=real.weights)) for t in (1.0, scaling.temperature)
    )
    shares = np.bincount(real.logits.argmax(axis=1), weights=real.weights, minlength=real.logits.shape[1])
    evidence = {"confidence before": before, "confidence after": after, "mixes": float(mixes), **_marginal(shares)}
    findings = [*_basics(scaling, mixes, evidence["largest class"], pixels=pixels)]
    consensus = consensus_of(agreements)
    if agreements:
        evidence |= {"agreement": agreements[0].rate, "shared mistakes": agreements[0].shared}
    if consensus is None:
        alone = PIXELS_TEXT if pixels else ALONE_TEXT
        findings.append(("caution", EMPTY_TEXT.format(agreements[0].shared) if agreements else alone))
        forecast, score = _clipped(after, *ALONE_BELOW_AND_ABOVE), None
    else:
        findings += _second(consensus, before, after)
        forecast = _clipped(consensus.accuracy, *[math.hypot(TOGETHER, NORMAL_90 * consensus.error)] * 2)
        score = _score(consensus.accuracy, before, after)
    findings.sort(key=lambda finding: -VERDICTS.index(finding[0]))
    temperatures = {"none": 1.0} | {name: fitted.temperature for name, fitted in found.items()}
    effects = {name: _effect(real, t, forecast.accuracy) for name, t in temperatures.items()}
    return Trust(findings[0][0], tuple(text for _, text in findings), forecast, evidence, score, effects)


def _effect(real: Labelled, temperature: float, accuracy: float) -> Effect:
    confidence = float(np.average(confidences(real.logits, temperature), weights=real.weights))
    return Effect(temperature, confidence, confidence - accuracy)


def _floats(content: Any) -> dict[str, float]:
    return {str(key): float(value) for key, value in content.items()}


ALONE_TEXT = (
    "There was no second opinion. A model that is consistently wrong looks the same from within as one that is right: "
    "only another model, trained from another seed or on other features, can tell."
)
EMPTY_TEXT = (
    "The second model makes {:.0%} of the first one's mistakes as well: it is no opinion of its own, and neither the "
    "temperature nor the forecast is taken from it. Train another from another seed or on other features."
)
PIXELS_TEXT = (
    "For models that label every pixel no second opinion is supported, so the verdict is caution at best. A model that "
    "is consistently wrong looks the same from within as one that is right: masks of a few images can tell."
)


def _basics(scaling: TemperatureScaling, mixes: int, largest: float, *, pixels: bool) -> list[tuple[Verdict, str]]:
    """Problems that do not depend on a second opinion."""
    found: list[tuple[Verdict, str]] = []
    if scaling.bound:
        found.append(
            (
                "do not apply",
                f"The temperature lies at the {scaling.bound} end of the range that was searched: "
                "the data do not determine it.",
            )
        )
    if mixes < FEW_MIXES:
        what = "mixed pixels" if pixels else "mixes"
        found.append(
            ("caution", f"The temperature rests on {mixes:,} {what} only; from {FEW_MIXES:,} on it is pinned down.")
        )
    if pixels and largest > COLLAPSED:  # most of an image may be road, but only pixels with two classes are mixed
        found.append(("caution", f"One class takes {largest:.0%} of all pixels: the mixes say little of most of them."))
    elif not pixels and largest > DOMINANT:
        level: Verdict = "do not apply" if largest > COLLAPSED else "caution"
        found.append((level, f"One class takes {largest:.0%} of all predictions: the model hardly tells inputs apart."))
    return found


def _second(consensus: Consensus, before: float, after: float) -> list[tuple[Verdict, str]]:
    """The verdict of the second opinion on the confidence before and after calibration."""
    agreement = consensus.agreements[0]
    accuracy, found = consensus.accuracy, list[tuple[Verdict, str]]()
    gap_before, gap_after = abs(before - accuracy), abs(after - accuracy)
    story = (
        f"Two models agree on {agreement.rate:.0%} of the inputs, and on {agreement.shared:.0%} of the first one's "
        f"mistakes: it is right on about {accuracy:.0%}. Its mean confidence is {before:.0%} before and {after:.0%} "
        "after calibration"
    )
    if gap_after > gap_before + GAIN:
        found.append(("do not apply", f"{story}, which is further off."))
    elif gap_after > gap_before - GAIN:
        found.append(("caution", f"{story}, which is about as far off."))
    else:
        rest = f", but still {100 * gap_after:.0f} points off" if gap_after > LARGE_GAP else ""
        found.append(("apply", f"{story}, which is nearer{rest}."))
    if agreement.shared > ALIKE:
        found.append(
            ("caution", "The two models make mostly the same mistakes: the second is hardly an opinion of its own.")
        )
    if agreement.mistakes < FEW_MISTAKES:
        found.append(("caution", "There were too few sure mistakes to see how many the two models share."))
    return found


def _score(accuracy: float, before: float, after: float) -> float:
    """Above zero if the confidence after calibration is expected to be far off, or further off than before."""
    gap_before, gap_after = abs(before - accuracy), abs(after - accuracy)
    return max(gap_after - LARGE_GAP, gap_after - gap_before - 0.01)


def _marginal(shares: Any) -> dict[str, float]:
    p = shares[shares > 0] / shares.sum()
    return {
        "largest class": float(p.max()),
        "entropy of classes": float(-(p * np.log(p)).sum() / math.log(len(shares))),
    }


def _clipped(accuracy: float, below: float, above: float) -> Forecast:
    return Forecast(accuracy, max(0.0, accuracy - below), min(1.0, accuracy + above))
