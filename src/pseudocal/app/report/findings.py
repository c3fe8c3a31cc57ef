"""What a report says, decided as codes and numbers; `wording.py` has the sentences."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from pseudocal.app.report.record import Fit, Report, Threshold
from pseudocal.app.report.wording import (
    PREPROCESSING_ASSUMED,
    QUESTIONS,
    Essential,
    Fact,
    Headline,
    Level,
    Recommendation,
    Values,
    rule_of,
)
from pseudocal.app.run import CALIBRATION
from pseudocal.app.thresholds import ESTIMATES_BROKEN, RunThreshold, in_percent
from pseudocal.calibrators import Reason, ReasonCode
from pseudocal.calibrators.measured import Measured
from pseudocal.calibrators.wording import IMPROVES, OPINIONS
from pseudocal.metrics import Interval

TO_LABEL = 50  # inputs that are recommended to be labelled
FEW_IMAGES = 50
FEW_MIXED = 0.1  # a fraction of pairs
HALVED = 0.5  # a rejected temperature that lowers ECE to this fraction was rejected wrongly
# reasons that say why there are no mixup samples
NOT_MIXED = (
    ReasonCode.TEXTS_NOT_MIXED,
    ReasonCode.TOKEN_IDS_NOT_MIXED,
    ReasonCode.TABLES_NOT_MIXED,
)
# how to apply a calibration to models of tables: their files cannot hold T
IN_PYTHON = {
    "sklearn": "pseudocal.sklearn.calibrated(model, {}).predict_proba(x)",
    "xgboost": "{}.probabilities(margins)",
    "lightgbm": "{}.probabilities(raw_scores)",
    "catboost": "{}.probabilities(raw_scores)",
}
# reasons for which the estimated accuracy is no more than the mean confidence
CONFIDENCE_ONLY = (ReasonCode.ONE_CLASS, ReasonCode.TWO_CLASSES)
# reasons for which no temperature helps
USELESS = (ReasonCode.LABELS_AT_CHANCE, ReasonCode.LABELS_CONTRADICT)
UNCORRECTABLE = (ReasonCode.LABELS_CONFIDENCE_HIGH, ReasonCode.LABELS_CONFIDENCE_LOW)


# ------------------------------------------------------------------------------ the accuracy


def known_accuracy(report: Report) -> Interval | None:
    """The accuracy by labels or, without labels, as estimated, with its 90% interval."""
    if report.labels is not None:
        return report.labels.accuracy
    if report.trust is None or not report.trust.estimated_accuracy.known:
        return None
    if any(reason.code in CONFIDENCE_ONLY for reason in report.trust.reasons):
        return None
    estimate = report.trust.estimated_accuracy
    return Interval(estimate.value, estimate.low, estimate.high)


def estimate_source(report: Report) -> str:
    """Where the estimated accuracy comes from: mixup samples without a usable second opinion."""
    found = () if report.trust is None else report.trust.temperatures
    return next((name for name in ("agreement", "surrogate") if name in found), "mixup")


def is_fitted_on_mixup(report: Report) -> bool:
    """Whether the temperature that applies was fitted on mixup samples."""
    return not report.unchanged and report.settings.get("estimator", "mixup") == "mixup"


# ------------------------------------------------------------------------------ the headline


def headline_of(report: Report) -> Headline:
    """The first sentence: the accuracy, measured if possible, else estimated."""
    images = "images" if report.unit == "pixels" else "inputs"
    inputs: Values = {"inputs": f"{report.data.used:,} {images}"}
    row = report.metric("accuracy")
    if row is not None and row.before.value is not None:
        low = row.before.value if row.before.low is None else row.before.low
        high = row.before.value if row.before.high is None else row.before.high
        values: Values = {"accuracy": row.before.value, "low": low, "high": high}
        return Headline("ground_truth", inputs | values)
    known = known_accuracy(report)
    if known is None:
        return Headline("unknown", inputs | {"before": report.confidence.mean_before})
    values = inputs | {"accuracy": known.value, "low": known.low, "high": known.high}
    if report.labels is not None:
        return Headline("labels", values | {"labels": report.labels.labels})
    return Headline("estimated", values)


# ------------------------------------------------------------------------------ the recommendation


def recommendation_of(
    report: Report, out: Path, *, kept: bool, outputs: Sequence[str] = ()
) -> Recommendation:
    """What to do: deploy the calibrated model, keep the model, or label inputs.

    Args:
        report: the report.
        out: the run folder as the user named it.
        kept: whether the run is kept there, which `label` needs.
        outputs: of saved outputs, the words of `pseudocal apply` that name their file.

    """
    reason = deciding_reason(report)
    values: Values = {"out": str(out), "unit": report.unit}
    if report.labels is not None and report.verdict != "apply":
        return _after_labels(report.labels, values, reason)
    n = TO_LABEL
    if report.unit == "inputs":
        n = min(n, report.data.used)
    values["n"] = n
    if report.verdict == "apply":
        file = next(iter(report.model.files), CALIBRATION)
        code = "deploy" if report.model.files else "deploy_calibration"
        if report.model.kind in IN_PYTHON:
            code = "deploy_in_python"
            load = f"Calibration.load({str(out / file)!r})"
            values["code"] = IN_PYTHON[report.model.kind].format(load)
        measured = report.labels is not None or report.metrics is not None
        if outputs and measured:
            words = ("pseudocal", "apply", str(out / file), *outputs)
            values |= {"file": file, "command": shlex.join(words)}
            return Recommendation("deploy_for_outputs", values, reason)
        if kept and not measured:
            code += "_or_label"
        return Recommendation(code, values | {"file": file, "path": str(out / file)}, reason)
    if not kept:
        return Recommendation("label_again", values, reason)
    code = "label"
    if reason.code == ReasonCode.PREPROCESSING_ASSUMED:
        code = "specify_or_label"
    if report.verdict == "do not apply":
        code = "check_or_label" if reason.code == ReasonCode.ONE_CLASS else "keep_or_label"
    return Recommendation(code, values, reason)


def _after_labels(labels: Measured, values: Values, reason: Reason) -> Recommendation:
    """What to do after labels that do not say "apply"."""
    at_chance = reason.code == ReasonCode.LABELS_AT_CHANCE
    useless = at_chance and reason.numbers["accuracy"] <= reason.numbers["chance"]
    if useless or reason.code == ReasonCode.LABELS_CONTRADICT:
        return Recommendation("check_labels", values, reason)
    done = labels.labels + labels.cannot_tell
    more = min(labels.more_labels or max(labels.labels, TO_LABEL), labels.rows - done)
    stop = any(each.code == ReasonCode.LABELS_ENOUGH for each in labels.reasons)
    if labels.verdict != "caution" or more <= 0 or stop:
        return Recommendation("keep", values, reason)
    values = values | {"more": more, "n": done + more}
    if reason.code in UNCORRECTABLE:
        return Recommendation("keep_or_label_more", values, reason)
    if labels.sampling == "random":
        return Recommendation("label_more_at_random", values, reason)
    return Recommendation("label_more", values, reason)


def deciding_reason(report: Report) -> Reason:
    """The reason that decided the verdict: what T does if it is good, else what speaks against it."""
    reasons = () if report.judged is None else report.judged.reasons
    if report.verdict == "apply":
        wanted = [reason for reason in reasons if reason.code in IMPROVES]
    else:
        skipped = (*OPINIONS, *IMPROVES, *NOT_MIXED)
        wanted = [reason for reason in reasons if reason.code not in skipped]
    return (*wanted, *reasons, Reason(ReasonCode.NOTHING_FITTED))[0]


# ------------------------------------------------------------------------------ the essentials


def essentials_of(report: Report) -> dict[str, Essential | Fact]:
    """What readers ask first, in the order of `QUESTIONS`."""
    found = (_changes(report), _trusted(report), _assumed(report), _risk(report))
    return dict(zip(QUESTIONS, found, strict=True))


def _changes(report: Report) -> Essential:
    before = report.confidence.mean_before
    after = report.confidence.mean_after
    temperature = report.calibration.temperature
    if report.unchanged or temperature == 1:
        return Essential("changes_nothing", {"before": before})
    if report.verdict == "apply":
        code = "changes_lower" if after < before else "changes_higher"
        return Essential(code, {"before": before, "after": after})
    what = next(iter(report.model.files), f"T = {temperature:.3g}")
    return Essential("changes_later", {"before": before, "after": after, "what": what})


def _trusted(report: Report) -> Essential:
    """How many predictions are confident, and how many of these are wrong."""
    if _contradicted_by_labels(report):
        return Essential("trust_contradicted")
    if report.threshold is not None:
        return _accepted(report.threshold, report.unit)
    row = shown_threshold(report)
    values: Values = {
        "coverage": row.coverage,
        "threshold": row.threshold,
        "unit": report.unit,
        "error": row.expected_error if row.error is None else row.error,
        "after": "" if report.calibration.temperature == 1 else " after calibration",
    }
    if row.error is not None:
        return Essential("trust_measured", values)
    if report.unchanged:
        return Essential("trust_unknown")
    if is_unchecked(report):
        return Essential("trust_unchecked", values)
    if report.verdict in ("apply", "already calibrated"):
        return Essential("trust_expected", values)
    return Essential("trust_unconfirmed", values)


def is_unchecked(report: Report) -> bool:
    """Whether nothing but the model itself says how often confident predictions are wrong."""
    return report.labels is None and estimate_source(report) == "mixup"


def _accepted(threshold: RunThreshold, unit: str) -> Essential:
    """What a threshold promises that was asked for."""
    values: Values = {
        "coverage": threshold.coverage,
        "unit": unit,
        "rule": rule_of(threshold),
        "most": in_percent(threshold.max_error),
        "level": threshold.level,
        "about": "" if threshold.exact else "about ",
        "broken": ESTIMATES_BROKEN,
        "promise": threshold.promise,
    }
    basis = "guaranteed" if threshold.passed else threshold.basis  # "about" tells them apart
    return Essential(f"trust_{basis}", values)


def _contradicted_by_labels(report: Report) -> bool:
    return deciding_reason(report).code == ReasonCode.LABELS_CONTRADICT


def shown_threshold(report: Report) -> Threshold:
    """The threshold to give as an example: at most 90%, reached by at least 5% of the inputs."""
    enough = [row for row in report.selection if row.threshold <= 0.9 and row.coverage >= 0.05]
    return (enough or report.selection)[-1]


def _source(report: Report) -> str:
    """What the result rests on: labels, agreement, surrogate, mixup, the confidence or nothing."""
    if report.labels is not None:
        return "labels"
    if report.unchanged and known_accuracy(report) is None:
        return "nothing"
    source = estimate_source(report)
    if report.unfitted and source == "mixup":
        return "confidence"
    return source


def _assumed(report: Report) -> Essential:
    if report.data.assumed:
        return Essential("assumed_preprocessing", {"assumed": ", ".join(report.data.assumed)})
    return Essential(f"assumed_{_source(report)}")


def _risk(report: Report) -> Essential | Fact:
    """The first caution, a measurement or, if there is none, what the method cannot see."""
    elsewhere = [PREPROCESSING_ASSUMED]
    if report.unchanged:
        elsewhere.append("pairs_mixed")
    for fact in report.facts:
        if fact.level == "caution" and fact.code not in elsewhere:
            return fact
    row = report.metric("ece")
    if row is not None:
        measured = row.before if report.unchanged or row.after is None else row.after
        if measured.value is not None:
            return Essential("risk_measured", {"ece": measured.value})
    if _contradicted_by_labels(report):
        return Essential("risk_contradicted")
    if report.labels is not None:
        return Essential("risk_labels", {"labels": report.labels.labels})
    source = _source(report)
    for reason in () if report.trust is None else report.trust.reasons:
        if reason.code == ReasonCode.EXPECTED_GAIN:
            return Essential(f"risk_{source}_tested", dict(reason.numbers))
    return Essential(f"risk_{source}")


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
    elif falls and report.refused and deciding_reason(report).code in USELESS:
        yield Fact("note", "rejected_at_chance", values)
    elif falls and report.refused and row.after.value <= HALVED * row.before.value:
        yield Fact("caution", "rejected_lowers_ece", values)
    elif falls and report.refused:
        yield Fact("note", "rejected_lowers_ece_little", values)
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
        yield Fact("caution", PREPROCESSING_ASSUMED, values)
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
    if fit.bound:
        return "at_bound"
    if fit.temperature == 1 and fit.low is None:
        return "unfitted"
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
