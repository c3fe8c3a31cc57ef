"""What a report says, decided as codes and numbers; `wording.py` has the sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from pseudocal.app.report.record import Fit, Report
from pseudocal.app.report.wording import (
    EffectCode,
    Fact,
    FactCode,
    Headline,
    HeadlineCode,
    Level,
    Values,
)
from pseudocal.calibrators.measured import Measured
from pseudocal.metrics import Interval

LEAST = 20  # predictions in a bin of confidence, to state their accuracy
FEW_IMAGES = 50
FEW_MIXED = 0.1  # a fraction of pairs
CONFIRMED = ("apply", "already calibrated")  # verdicts

EstimateSource = Literal["agreement", "surrogate", "mixup"]


# ------------------------------------------------------------------------------ the accuracy


@dataclass(frozen=True)
class KnownAccuracy:
    """The accuracy from a person's labels, or estimated, with its 90% interval."""

    how: Literal["measured", "estimated"]
    interval: Interval


def known_accuracy(report: Report) -> KnownAccuracy | None:
    """The accuracy by labels or, without labels, as estimated; None if neither tells it."""
    if report.labels is not None:
        return KnownAccuracy("measured", report.labels.accuracy)
    if report.trust is None or not report.trust.estimated_accuracy.known:
        return None
    estimate = report.trust.estimated_accuracy
    return KnownAccuracy("estimated", Interval(estimate.value, estimate.low, estimate.high))


def estimate_source(report: Report) -> EstimateSource:
    """Where the estimated accuracy comes from: mixup samples without a usable second opinion."""
    found = () if report.trust is None else report.trust.temperatures
    if "agreement" in found:
        return "agreement"
    return "surrogate" if "surrogate" in found else "mixup"


# ------------------------------------------------------------------------------ the headline


def headline_of(report: Report) -> Headline:
    """The first sentence: how often predictions near 90% confidence are right."""
    if report.reliability.source != "mixup":
        bins = report.reliability.before
        k = _near_90(bins.count, bins.confidence, LEAST)
        if k is not None:
            return _measured_headline(report, k)
    before = report.confidence.mean_before
    if report.refused or (report.unfitted and report.calibration.mixup_samples):
        return _rejected_headline(report)
    if report.unfitted:
        return Headline(HeadlineCode.UNFITTED, {"before": before})
    estimated = _estimated_headline(report)
    if estimated is not None:
        return estimated
    after = report.confidence.mean_after
    return Headline(HeadlineCode.MEAN_CONFIDENCE, {"before": before, "after": after})


def _measured_headline(report: Report, k: int) -> Headline:
    """The accuracy of the predictions in bin k, and their confidence after calibration."""
    bins = report.reliability.before
    level = bins.confidence[k]
    accuracy = bins.accuracy[k]
    assert level is not None
    assert accuracy is not None
    values: Values = {"level": level, "accuracy": accuracy, "n": bins.count[k], "unit": report.unit}
    low = bins.low[k]
    high = bins.high[k]
    after = None
    if report.calibration.temperature != 1 and report.confidence.edges == bins.edges:
        after = report.confidence.confidence_after[k]
    if after is not None:
        values["after"] = after
    if report.reliability.source == "labels" and low is not None and high is not None:
        values |= {"low": low, "high": high}  # labels are few
        code = HeadlineCode.LABELLED_UNCHANGED if after is None else HeadlineCode.LABELLED
    else:
        code = HeadlineCode.MEASURED_UNCHANGED if after is None else HeadlineCode.MEASURED
    return Headline(code, values)


def _rejected_headline(report: Report) -> Headline:
    """The mean confidence next to the accuracy."""
    values: Values = {"before": report.confidence.mean_before}
    known = known_accuracy(report)
    if known is None:
        return Headline(HeadlineCode.REJECTED, values)
    interval = known.interval
    values |= {"accuracy": interval.value, "low": interval.low, "high": interval.high}
    if report.labels is None:
        return Headline(HeadlineCode.REJECTED_ESTIMATED, values)
    return Headline(HeadlineCode.REJECTED_MEASURED, values | {"labels": report.labels.labels})


def _estimated_headline(report: Report) -> Headline | None:
    """The calibrated confidence of the predictions near 90%; None if there is no such bin."""
    confidence = report.confidence
    k = _near_90(confidence.before, confidence.confidence_before, least=1)
    level = None if k is None else confidence.confidence_before[k]
    after = None if k is None else confidence.confidence_after[k]
    if level is None or after is None:
        return None
    values: Values = {"level": level, "after": after}
    if report.labels is not None:
        values |= {"labels": report.labels.labels}
        return Headline(HeadlineCode.ESTIMATED_FROM_LABELS, values)
    if report.verdict in CONFIRMED:
        return Headline(HeadlineCode.ESTIMATED, values)
    return Headline(HeadlineCode.ESTIMATED_UNCONFIRMED, values)


def _near_90(count: Sequence[int], confidence: Sequence[float | None], least: int) -> int | None:
    """The bin with enough predictions whose mean confidence is nearest to 90%.

    >>> _near_90([500, 30, 3], [0.5, 0.8, 0.9], 20), _near_90([3], [0.9], 20)
    (1, None)
    """
    best = None
    nearest = math.inf
    for k, mean in enumerate(confidence):
        if mean is not None and count[k] >= least and abs(mean - 0.9) < nearest:
            nearest = abs(mean - 0.9)
            best = k
    return best


# ------------------------------------------------------------------------------ the facts


def facts_of(report: Report) -> tuple[Fact, ...]:
    """What the reader should know, cautions first."""
    found = [
        *_ground_truth(report),
        *_estimate(report),
        *_labels(report),
        *_inputs(report),
        *_mixup(report),
        *_limits(report),
    ]
    return tuple(sorted(found, key=lambda fact: fact.level != "caution"))


def is_contradicted(report: Report) -> bool:
    """Whether the ground truth clearly contradicts the verdict, which has not seen it."""
    return any(fact.level == "caution" for fact in _ground_truth(report))


def _ground_truth(report: Report) -> Iterator[Fact]:
    """A clear change of the ECE that does not go with the verdict, or confirms a rejection."""
    row = report.metric("ece")
    if row is None or row.change is None or row.after is None or not row.change.value:
        return
    if row.before.value is None or row.after.value is None:
        return
    rises = (row.change.low or 0) > 0
    falls = (row.change.high or 0) < 0
    values: Values = {"before": row.before.value, "after": row.after.value}
    if not report.refused:
        if rises:
            yield Fact("caution", FactCode.ECE_RISES, values)
    elif falls:
        yield Fact("caution", FactCode.REJECTED_LOWERS_ECE, values)
    elif rises:
        yield Fact("note", FactCode.REJECTED_RAISES_ECE, values)


def _estimate(report: Report) -> Iterator[Fact]:
    """An estimated accuracy whose interval does not cover the measured one."""
    row = report.metric("accuracy")
    if report.trust is None or row is None or row.before.value is None:
        return
    estimate = report.trust.estimated_accuracy
    accuracy = row.before.value
    if not estimate.known or estimate.low <= accuracy <= estimate.high:
        return
    below = row.before.high is not None and row.before.high < estimate.low
    above = row.before.low is not None and row.before.low > estimate.high
    level: Level = "caution" if below or above else "note"
    values: Values = {"accuracy": accuracy, "low": estimate.low, "high": estimate.high}
    yield Fact(level, FactCode.ESTIMATE_MISSED, values)


def _labels(report: Report) -> Iterator[Fact]:
    """What the labels are, beyond what the verdict says of them."""
    labels = report.labels
    if labels is None:
        return
    unit = "inputs" if report.unit == "inputs" else "sampled pixels"
    code = FactCode.LABELS_RANDOM
    if labels.sampling == "stratified":
        code = FactCode.LABELS_STRATIFIED
    yield Fact("note", code, {"labels": labels.labels, "rows": labels.rows, "unit": unit})
    priors = _priors(labels)
    if priors:
        yield Fact("note", FactCode.LABEL_PRIORS, {"priors": priors})
    if labels.none_of_these:
        values: Values = {"n": labels.none_of_these, "labels": labels.labels}
        yield Fact("caution", FactCode.NONE_OF_THESE, values)
    if labels.cannot_tell:
        yield Fact("note", FactCode.CANNOT_TELL, {"n": labels.cannot_tell})
    if labels.error_after is None:
        yield Fact("note", FactCode.FEW_LABELS)


def _priors(labels: Measured) -> str:
    """The label-free temperatures that the prior of T comes from."""
    found = [prior for prior in labels.priors if prior.estimator != "none"]
    return ", ".join(f"{prior.estimator} {prior.temperature:.2f}" for prior in found)


def _inputs(report: Report) -> Iterator[Fact]:
    """Assumed preprocessing, unreadable inputs and skipped blocks."""
    data = report.data
    if data.assumed:
        assumed = ", ".join(data.assumed)
        values: Values = {"assumed": assumed, "preparation": data.preparation}
        yield Fact("caution", FactCode.PREPROCESSING_ASSUMED, values)
    if data.unreadable:
        values = {"n": len(data.unreadable), "inputs": data.inputs}
        yield Fact("note", FactCode.UNREADABLE, values)
    if data.skipped:
        yield Fact("note", FactCode.SKIPPED, {"n": len(data.skipped), "blocks": str(data.blocks)})


def _mixup(report: Report) -> Iterator[Fact]:
    """How many pairs were mixed; none of saved outputs or texts."""
    pairs = report.calibration.pairs
    mixed = report.calibration.mixup_samples
    if report.unit == "pixels" and report.labels is None and pairs < FEW_IMAGES:
        yield Fact("caution", FactCode.FEW_IMAGES, {"pairs": pairs, "enough": FEW_IMAGES})
    if pairs == 0:
        return
    values: Values = {"mixup_samples": mixed, "pairs": pairs}
    if report.unit == "pixels":
        yield Fact("note", FactCode.PIXELS_MIXED, values)
        return
    fraction = mixed / pairs
    level: Level = "caution" if fraction < FEW_MIXED else "note"
    yield Fact(level, FactCode.PAIRS_MIXED, values | {"fraction": fraction})


def _limits(report: Report) -> Iterator[Fact]:
    """What was not measured, and what the interval of T does not cover."""
    if report.labels is not None:
        return
    if report.metrics is None:
        yield Fact("note", FactCode.NOT_MEASURED)
    if report.unchanged:
        return
    if report.settings.get("estimator") in ("agreement", "surrogate"):
        yield Fact("note", FactCode.INTERVAL_OF_SECOND_OPINION)
    else:
        yield Fact("note", FactCode.INTERVAL_OF_MIXUP)


# ------------------------------------------------------------------------------ the temperature


def effect_of(fit: Fit, verdict: str | None = None) -> EffectCode:
    """What the temperature does; only a verdict for it says what is wrong with the model.

    >>> fit = Fit("pseudocal", 1.8, 1.7, 1.9, None, None, 600, 580, 1180)
    >>> str(effect_of(fit)), str(effect_of(fit, "apply"))
    ('lowers', 'overconfident')
    """
    if fit.refused is not None:
        return EffectCode.REJECTED_LOWERS if fit.refused > 1 else EffectCode.REJECTED_RAISES
    if fit.bound:
        return EffectCode.AT_BOUND
    if fit.temperature == 1 and fit.low is None:
        return EffectCode.UNFITTED
    high = math.inf if fit.high is None else fit.high
    if (fit.low or 0) <= 1 <= high:
        return EffectCode.NEAR_ONE
    lowers = fit.temperature > 1
    if verdict != "apply":
        return EffectCode.LOWERS if lowers else EffectCode.RAISES
    return EffectCode.OVERCONFIDENT if lowers else EffectCode.UNDERCONFIDENT


# ------------------------------------------------------------------------------ second opinions


@dataclass(frozen=True)
class SecondOpinion:
    """A second opinion: its kind, its name, and whether the result uses it."""

    kind: Literal["model", "surrogate", "zero-shot"]
    name: str
    used: bool


def second_opinions(report: Report) -> list[SecondOpinion] | None:
    """The second opinions of a run; None if it is not recorded whether there were any."""
    names = report.settings.get("second_opinion")
    if not isinstance(names, list | tuple):
        return None
    return [_second_opinion(report, str(name)) for name in names]


def _second_opinion(report: Report, given: str) -> SecondOpinion:
    prefix, _, rest = given.partition(":")
    kind: Literal["model", "surrogate", "zero-shot"] = "model"
    name = given
    if prefix == "surrogate":
        kind = "surrogate"
        name = rest
    elif prefix == "zero-shot":
        kind = "zero-shot"
        name = rest
    estimator = "surrogate" if kind == "surrogate" else "agreement"
    temperatures = () if report.trust is None else report.trust.temperatures
    return SecondOpinion(kind, PurePath(name).name, estimator in temperatures)
