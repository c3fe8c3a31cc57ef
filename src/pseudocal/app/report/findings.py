"""What a report says, decided as codes and numbers; `wording.py` has the sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from pseudocal.app.report.record import Fit, Report
from pseudocal.app.report.wording import Fact, Headline, Level, Values
from pseudocal.metrics import Interval

LEAST = 20  # predictions in a bin of confidence, to state their accuracy
FEW_IMAGES = 50
FEW_MIXED = 0.1  # a fraction of pairs
CONFIRMED = ("apply", "already calibrated")  # verdicts


# ------------------------------------------------------------------------------ the accuracy


def known_accuracy(report: Report) -> Interval | None:
    """The accuracy by labels or, without labels, as estimated, with its 90% interval."""
    if report.labels is not None:
        return report.labels.accuracy
    if report.trust is None or not report.trust.estimated_accuracy.known:
        return None
    estimate = report.trust.estimated_accuracy
    return Interval(estimate.value, estimate.low, estimate.high)


def estimate_source(report: Report) -> str:
    """Where the estimated accuracy comes from: mixup samples without a usable second opinion."""
    found = () if report.trust is None else report.trust.temperatures
    return next((name for name in ("agreement", "surrogate") if name in found), "mixup")


# ------------------------------------------------------------------------------ the headline


def headline_of(report: Report) -> Headline:
    """The first sentence: how often predictions near 90% confidence are right."""
    if report.reliability.source != "mixup":
        bins = report.reliability.before
        k = _near_90(bins.count, bins.confidence, LEAST)
        if k is not None:
            return _measured_headline(report, k)
    confidence = report.confidence
    mean: Values = {"before": confidence.mean_before}
    if report.refused:
        return _rejected_headline(report, mean)
    if report.unfitted:
        return Headline("unfitted", mean)
    k = _near_90(confidence.before, confidence.confidence_before, least=1)
    level = None if k is None else confidence.confidence_before[k]
    after = None if k is None else confidence.confidence_after[k]
    if level is None or after is None:
        return Headline("mean_confidence", mean | {"after": confidence.mean_after})
    values: Values = {"level": level, "after": after}
    if report.labels is not None:
        return Headline("estimated_from_labels", values | {"labels": report.labels.labels})
    if report.verdict in CONFIRMED:
        return Headline("estimated", values)
    return Headline("estimated_unconfirmed", values)


def _measured_headline(report: Report, k: int) -> Headline:
    """The accuracy of the predictions in bin k, and their confidence after calibration."""
    bins = report.reliability.before
    level = bins.confidence[k]
    accuracy = bins.accuracy[k]
    assert level is not None
    assert accuracy is not None
    values: Values = {"level": level, "accuracy": accuracy, "n": bins.count[k], "unit": report.unit}
    after = None
    if report.calibration.temperature != 1 and report.confidence.edges == bins.edges:
        after = report.confidence.confidence_after[k]
    unchanged = "_unchanged"
    if after is not None:
        values["after"] = after
        unchanged = ""
    low = bins.low[k]
    high = bins.high[k]
    if report.reliability.source == "labels" and low is not None and high is not None:
        return Headline("labelled" + unchanged, values | {"low": low, "high": high})
    return Headline("measured" + unchanged, values)


def _rejected_headline(report: Report, mean: Values) -> Headline:
    """The mean confidence next to the accuracy."""
    known = known_accuracy(report)
    if known is None:
        return Headline("rejected", mean)
    values = mean | {"accuracy": known.value, "low": known.low, "high": known.high}
    if report.labels is None:
        return Headline("rejected_estimated", values)
    return Headline("rejected_measured", values | {"labels": report.labels.labels})


def _near_90(count: Sequence[int], confidence: Sequence[float | None], least: int) -> int | None:
    """The bin with enough predictions whose mean confidence is nearest to 90%.

    >>> _near_90([500, 30, 3], [0.5, 0.8, 0.9], 20), _near_90([3], [0.9], 20)
    (1, None)
    """
    far = {
        k: abs(mean - 0.9)
        for k, mean in enumerate(confidence)
        if mean is not None and count[k] >= least
    }
    return min(far, key=far.__getitem__, default=None)


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
    if rises and not report.refused:
        yield Fact("caution", "ece_rises", values)
    elif falls and report.refused:
        yield Fact("caution", "rejected_lowers_ece", values)
    elif rises:
        yield Fact("note", "rejected_raises_ece", values)


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
    yield Fact(level, "estimate_missed", values)


def _labels(report: Report) -> Iterator[Fact]:
    """What the labels are, beyond what the verdict says of them."""
    labels = report.labels
    if labels is None:
        return
    unit = "inputs" if report.unit == "inputs" else "sampled pixels"
    values: Values = {"labels": labels.labels, "rows": labels.rows, "unit": unit}
    yield Fact("note", f"labels_{labels.sampling}", values)
    found = [prior for prior in labels.priors if prior.estimator != "none"]
    if found:
        priors = ", ".join(f"{prior.estimator} {prior.temperature:.2f}" for prior in found)
        yield Fact("note", "label_priors", {"priors": priors})
    if labels.none_of_these:
        values = {"n": labels.none_of_these, "labels": labels.labels}
        yield Fact("caution", "none_of_these", values)
    if labels.cannot_tell:
        yield Fact("note", "cannot_tell", {"n": labels.cannot_tell})
    if labels.error_after is None:
        yield Fact("note", "few_labels")


def _inputs(report: Report) -> Iterator[Fact]:
    """Assumed preprocessing, unreadable inputs and skipped blocks."""
    data = report.data
    if data.assumed:
        assumed = ", ".join(data.assumed)
        values: Values = {"assumed": assumed, "preparation": data.preparation}
        yield Fact("caution", "preprocessing_assumed", values)
    if data.unreadable:
        values = {"n": len(data.unreadable), "inputs": data.inputs}
        yield Fact("note", "unreadable", values)
    if data.skipped:
        yield Fact("note", "skipped", {"n": len(data.skipped), "blocks": str(data.blocks)})


def _mixup(report: Report) -> Iterator[Fact]:
    """How many pairs were mixed; none of saved outputs or texts."""
    pairs = report.calibration.pairs
    mixed = report.calibration.mixup_samples
    if report.unit == "pixels" and report.labels is None and pairs < FEW_IMAGES:
        yield Fact("caution", "few_images", {"pairs": pairs, "enough": FEW_IMAGES})
    if pairs == 0:
        return
    values: Values = {"mixup_samples": mixed, "pairs": pairs}
    if report.unit == "pixels":
        yield Fact("note", "pixels_mixed", values)
        return
    fraction = mixed / pairs
    level: Level = "caution" if fraction < FEW_MIXED else "note"
    yield Fact(level, "pairs_mixed", values | {"fraction": fraction})


def _limits(report: Report) -> Iterator[Fact]:
    """What was not measured, and what the interval of T does not cover."""
    if report.labels is not None:
        return
    if report.metrics is None:
        yield Fact("note", "not_measured")
    if report.unchanged:
        return
    if report.settings.get("estimator") in ("agreement", "surrogate"):
        yield Fact("note", "interval_of_second_opinion")
    else:
        yield Fact("note", "interval_of_mixup")


# ------------------------------------------------------------------------------ the temperature


def effect_of(fit: Fit, verdict: str | None = None) -> str:
    """What the temperature does, a key of `EFFECTS`; only a verdict for it judges the model.

    >>> fit = Fit("pseudocal", 1.8, 1.7, 1.9, None, None, 600, 580, 1180)
    >>> effect_of(fit), effect_of(fit, "apply")
    ('lowers', 'overconfident')
    """
    if fit.refused is not None:
        return "rejected_lowers" if fit.refused > 1 else "rejected_raises"
    if fit.mixup_samples == 0 and fit.low is None:
        return "unfitted"
    if fit.bound:
        return "at_bound"
    high = math.inf if fit.high is None else fit.high
    if (fit.low or 0) <= 1 <= high:
        return "near_one"
    if verdict == "apply":
        return "overconfident" if fit.temperature > 1 else "underconfident"
    return "lowers" if fit.temperature > 1 else "raises"


# ------------------------------------------------------------------------------ second opinions


@dataclass(frozen=True)
class SecondOpinion:
    """A second opinion: its kind, its name, and whether the result uses it."""

    kind: str  # "model", "surrogate" or "zero-shot"
    name: str
    used: bool


def second_opinions(report: Report) -> list[SecondOpinion] | None:
    """The second opinions of a run; None if it is not recorded whether there were any."""
    names = report.settings.get("second_opinion")
    if not isinstance(names, list | tuple):
        return None
    temperatures = () if report.trust is None else report.trust.temperatures
    found = []
    for given in map(str, names):
        kind, _, name = given.partition(":")
        if kind not in ("surrogate", "zero-shot"):
            kind = "model"
            name = given
        estimator = "surrogate" if kind == "surrogate" else "agreement"
        found.append(SecondOpinion(kind, PurePath(name).name, estimator in temperatures))
    return found
