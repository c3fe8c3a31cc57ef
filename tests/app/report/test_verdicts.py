"""What the report adds about a verdict appears where it is true, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from pseudocal import softmax
from pseudocal.app.progress import summary_lines
from pseudocal.app.render import Result
from pseudocal.app.report import page
from pseudocal.app.report.figures import accuracy_and_confidence
from pseudocal.app.report.findings import (
    SecondOpinion,
    effect_of,
    facts_of,
    is_contradicted,
    second_opinions,
)
from pseudocal.calibrators import Reason, ReasonCode
from pseudocal.calibrators.trust import AccuracyEstimate


def text(report) -> str:
    return " ".join(unescape(page(report)).split())


def section(report, name: str) -> str:
    return text(report).partition(f'id="{name}"')[2].partition("</section>")[0]


def codes(report) -> list[str]:
    return [fact.code for fact in report.facts]


def test_a_rejected_temperature_is_one_everywhere(made):
    report = made.make_report(verdict="do not apply")
    html = text(report)
    assert report.refused
    assert report.unchanged
    assert (report.calibration.temperature, report.calibration.refused) == (1.0, 2.9)
    assert 'T = 1 <span class="range">fitted 2.900, rejected' in html
    assert "T = 1 replaces the fitted temperature: the confidences are unchanged" in html
    assert "The fitted temperature (2.900) was rejected" in section(report, "usage")
    assert "softmax(logits, axis=1) # T = 1: the original model" in section(report, "usage")
    assert "95% interval 1" not in html
    assert "interval_of_mixup" not in codes(report)
    assert report.examples.changed == ()
    assert "→" not in section(report, "least_confident")
    assert report.confidence.before == report.confidence.after


def test_a_rejection_shows_what_the_temperature_would_have_done(made):
    report = made.make_report(verdict="do not apply", labelled=True)
    run = made.make_run(verdict="do not apply", labelled=True)
    assert [track.label for track in accuracy_and_confidence(report)] == [
        "Estimated accuracy",
        "Mean confidence",
        "With the rejected T = 2.9",
        "Accuracy, ground truth",
    ]
    assert "With the rejected T</th>" in section(report, "metrics")
    assert "Reliability with the rejected T (inputs)" in section(report, "charts")
    nll = report.metric("nll")
    correct = softmax(run.logits / 2.9)[range(600), run.ground_truth]
    assert nll.after.value == pytest.approx(-np.log(correct).mean())
    lines = list(summary_lines(Result(run.calibration, report, Path("out"), Path("out"))))
    [titles] = [line for line in lines if line.startswith("metric ")]
    assert titles.split("  ")[-1].strip() == "change"
    assert "with the rejected T" in titles
    assert "after" not in titles
    other = made.make_report(labelled=True)
    assert report.metrics == other.metrics
    assert "rejected" not in text(other)
    assert "Reliability after calibration (inputs)" in section(other, "charts")


def test_ground_truth_that_contradicts_a_rejection_or_confirms_it(made):
    better = made.make_report(verdict="do not apply", labelled=True)
    assert better.facts[0].code == "rejected_lowers_ece"
    assert better.facts[0].level == "caution"
    assert is_contradicted(better)
    assert "The ground truth contradicts this recommendation" in text(better)
    row = better.metric("ece")
    little = replace(
        row, before=replace(row.before, value=0.6), after=replace(row.after, value=0.4)
    )
    metrics = tuple(little if one.metric == "ece" else one for one in better.metrics)
    still_bad = replace(better, metrics=metrics)
    assert not is_contradicted(still_bad)
    assert "rejected_lowers_ece_little" in [fact.code for fact in facts_of(still_bad)]
    numbers = {
        "labels": 50.0,
        "accuracy": 0.03,
        "accuracy_low": 0.01,
        "accuracy_high": 0.12,
        "chance": 0.1,
    }
    at_chance = Reason(ReasonCode.LABELS_AT_CHANCE, numbers)
    useless = replace(better, trust=replace(better.trust, reasons=(at_chance,)))
    assert not is_contradicted(useless)
    assert "rejected_at_chance" in [fact.code for fact in facts_of(useless)]
    worse = made.make_report(verdict="do not apply", labelled=True, temperature=0.2)
    [confirmed] = [one for one in worse.facts if one.code == "rejected_raises_ece"]
    assert confirmed.level == "note"
    for report in (worse, made.make_report(labelled=True), made.make_report(verdict="caution")):
        assert not is_contradicted(report)
        assert "The ground truth contradicts this recommendation" not in text(report)
        assert "rejected_lowers_ece" not in codes(report)


def test_ground_truth_shows_where_the_estimate_missed(made):
    report = made.make_report(labelled=True)
    row = report.metric("accuracy").before

    def missed(low: float, high: float):
        estimate = AccuracyEstimate((low + high) / 2, low, high)
        trust = replace(report.trust, estimated_accuracy=estimate)
        found = facts_of(replace(report, trust=trust))
        return [fact for fact in found if fact.code == "estimate_missed"]

    assert missed(row.value - 0.1, row.value + 0.1) == []
    [near] = missed(row.value + 0.001, 1.0)  # within the error of the ground truth
    assert near.level == "note"
    [far] = missed(0.0, row.low - 0.01)
    assert far.level == "caution"
    assert far.values == {"accuracy": row.value, "low": 0.0, "high": row.low - 0.01}
    assert "estimate_missed" not in codes(made.make_report())


def test_second_opinions_are_named_and_marked_if_unused(made):
    run = made.make_run()
    settings = run.calibration.settings | {
        "second_opinion": ["models/other.onnx", "surrogate:enc.onnx", "zero-shot:clip"]
    }
    report = made.make_report(calibration=replace(run.calibration, settings=settings))
    assert second_opinions(report) == [
        SecondOpinion("model", "other.onnx", used=True),
        SecondOpinion("surrogate", "enc.onnx", used=False),
        SecondOpinion("zero-shot", "clip", used=True),
    ]
    assert (
        "Second opinion: other.onnx; a surrogate of the model's own predictions, from enc.onnx "
        "(not used); a zero-shot model (untested), clip." in text(report)
    )
    effects = {name: report.trust.effects[name] for name in ("none", "mixup")}
    alone = replace(report, trust=replace(report.trust, effects=effects))
    assert not second_opinions(alone)[0].used
    assert "estimated accuracy is the calibrated mean confidence" in text(alone)
    assert "estimated accuracy is the calibrated mean confidence" not in text(report)


def test_no_second_opinion_is_said_to_be_none(made):
    run = made.make_run()
    settings = run.calibration.settings | {"second_opinion": []}
    report = made.make_report(calibration=replace(run.calibration, settings=settings))
    assert second_opinions(report) == []
    assert "No second opinion." in text(report)
    assert second_opinions(made.make_report()) is None
    assert "No second opinion." not in text(made.make_report())


@pytest.mark.parametrize(
    ("verdict", "temperature", "code"),
    [
        ("apply", 2.9, "overconfident"),
        ("apply", 0.7, "underconfident"),
        ("caution", 2.9, "lowers"),
        ("caution", 0.7, "raises"),
        ("caution", 1.01, "near_one"),
        ("do not apply", 2.9, "rejected_lowers"),
        ("do not apply", 0.7, "rejected_raises"),
    ],
)
def test_the_effect_of_the_temperature(made, verdict, temperature, code):
    report = made.make_report(verdict=verdict, temperature=temperature)
    assert effect_of(report.calibration, report.verdict) == code
    fit = report.calibration
    at_bound = replace(fit, bound="upper", refused=None)
    assert effect_of(at_bound) == "at_bound"
    unfitted = replace(fit, temperature=1.0, low=None, refused=None)
    assert effect_of(unfitted) == "unfitted"


def test_all_temperatures_are_shown_with_what_they_do(made):
    report = made.make_report(verdict="caution")
    shown = section(report, "temperature")
    for name, t, confidence, gap in (
        ("no calibration", "1.000", "83.0%", "+25"),
        ('mixup <span class="range">(used)</span>', "2.900", "60.0%", "+2"),
        ("agreement", "3.100", "58.0%", "0"),
    ):
        assert f"{name}</th> <td>{t}</td><td>{confidence}</td><td>{gap}</td>" in shown
    assert "minus estimated accuracy (58.0%), in points" in shown
    assert list(report.uses.values()) == ["", "used", ""]
    refused = made.make_report(verdict="do not apply")
    assert list(refused.uses.values()) == ["used", "rejected", ""]


def test_one_temperature_is_not_compared_with_itself(made):
    trust = made.make_run().calibration.trust
    alone = replace(trust, effects={name: trust.effects[name] for name in ("none", "mixup")})
    for report in (replace(made.make_report(), trust=alone), made.make_refined()):
        assert "Temperatures found without labels" not in text(report)


def test_a_rejected_segmentation_model_is_unchanged(made):
    report = made.make_segmented(labelled=True, verdict="do not apply")
    assert report.calibration.refused == 3.0
    assert 'ECE before</th><th scope="col">ECE with the rejected T</th>' in text(report)
    assert "onfidence after" not in text(report)
    assert 'alt="confidence"' in text(report)
