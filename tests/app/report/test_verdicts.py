"""Every sentence that the report adds about a verdict is said where it is true, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from pseudocal import softmax
from pseudocal.app.cli.printing import summary, summary_lines
from pseudocal.app.report import page
from pseudocal.app.report.advice import panel
from pseudocal.app.report.measured import facts_of_estimate
from pseudocal.calibrators.trust import AccuracyEstimate

OUT = Path("out")


def text(report) -> str:
    return " ".join(unescape(page(report)).split())


def section(report, name: str) -> str:
    return text(report).partition(f'id="{name}"')[2].partition("</section>")[0]


def facts(report) -> str:
    return " ".join(f"{fact.level}: {fact.text}" for fact in report.facts)


def test_a_refusal_is_one_everywhere_in_the_report(made):
    report = made.make_report(verdict="do not apply")
    html = text(report)
    assert (report.calibration.temperature, report.calibration.refused, report.verdict) == (
        1.0,
        2.9,
        "do not apply",
    )
    assert 'T = 1 <span class="range">in place of 2.900, which is refused' in html
    assert (
        "A temperature of 2.900 was fitted, which would lower them; the verdict is not to apply it."
        in html
    )
    assert (
        "T = 1 takes the place of the temperature that was fitted: the confidences do not change"
        in html
    )
    assert "Use the model as it is, with T = 1. No calibrated model was written" in section(
        report, "usage"
    )
    assert "the temperature that was fitted, 2.900, should not be applied" in section(
        report, "usage"
    )
    assert "softmax(logits, axis=1) # T = 1: the model as it is" in section(report, "usage")
    assert "95% interval 1" not in html
    assert "covers sampling error" not in html
    assert report.examples.changed == ()
    assert "→" not in section(report, "unsure")
    assert report.confidence.before == report.confidence.after


def test_a_refusal_shows_what_the_temperature_would_have_done(made):
    report = made.make_report(verdict="do not apply", labelled=True)
    run = made.make_run(verdict="do not apply", labelled=True)
    assert [track.label for track in panel(report).tracks] == [
        "Accuracy, estimated", "Mean confidence", "With the refused T = 2.9", "Accuracy, measured"
    ]  # fmt: skip
    assert "With the refused T</th>" in section(report, "measured")
    assert "Reliability of the inputs with the refused T" in section(report, "charts")
    nll = next(row for row in report.measured if row.metric == "nll")
    correct = softmax(run.logits / 2.9)[range(600), run.labels]
    assert nll.after.value == pytest.approx(-np.log(correct).mean())
    other = made.make_report(labelled=True)
    assert report.measured == other.measured
    assert "refused" not in text(other)
    assert "Reliability of the inputs after" in section(other, "charts")


def test_labels_that_contradict_a_refusal_or_bear_it_out(made):
    better = facts(made.make_report(verdict="do not apply", labelled=True))
    assert better.startswith(
        "caution: On the labels that were given, the refused temperature makes the ECE better: "
    )
    assert "with it. The verdict does not see these labels, and is too strict here." in better
    worse = facts(made.make_report(verdict="do not apply", labelled=True, temperature=0.2))
    assert (
        "note: On the labels that were given, the refused temperature makes the ECE worse, as the verdict"
        in worse
    )
    for report in (
        made.make_report(verdict="do not apply"),
        made.make_report(labelled=True),
        made.make_report(labelled=True, temperature=0.2),
    ):
        assert "the refused temperature makes" not in facts(report)


def test_labels_show_where_the_estimate_missed(made):
    report = made.make_report(labelled=True)
    [row] = [row.before for row in report.measured if row.metric == "accuracy"]

    def said(low: float, high: float) -> list[str]:
        estimated_accuracy = AccuracyEstimate((low + high) / 2, low, high)
        found = facts_of_estimate(
            replace(report, trust=replace(report.trust, estimated_accuracy=estimated_accuracy))
        )
        return [f"{fact.level}: {fact.text}" for fact in found]

    right = f"By the labels the model is right on {row.value:.1%}"
    assert said(row.value - 0.1, row.value + 0.1) == []
    [near] = said(row.value + 0.001, 1.0)  # within the error of the labels
    assert near.startswith(f"note: {right}")
    [far] = said(0.0, row.low - 0.01)
    assert (
        far
        == f"caution: {right}: the interval of the estimate, 0.0% to {row.low - 0.01:.1%}, missed that."
    )
    assert list(facts_of_estimate(made.make_report())) == []


def test_an_opinion_that_is_not_used_is_said_to_be(made):
    run = made.make_run()
    settings = run.calibration.settings | {"second_opinion": ["other.onnx", "surrogate:enc.onnx"]}
    report = made.make_report(calibration=replace(run.calibration, settings=settings))
    surrogate = "a surrogate of the model's own predictions, by enc.onnx (nothing is taken from it)"
    assert f"Second opinion: other.onnx; {surrogate}." in panel(report).models
    alone = replace(
        report.trust, effects={name: report.trust.effects[name] for name in ("none", "mixup")}
    )
    assert "other.onnx (nothing is taken from it)" in panel(replace(report, trust=alone)).models
    assert (
        "the estimate is the mean confidence after calibration"
        in panel(replace(report, trust=alone)).caption
    )
    assert "the estimate is the mean confidence" not in panel(report).caption


def test_the_direction_is_that_of_the_temperature(made):
    for verdict, temperature, said in (
        (
            "apply",
            2.9,
            "On this data the model is overconfident: dividing its logits by T lowers its confidences.",
        ),
        (
            "apply",
            0.7,
            "On this data the model is underconfident: dividing its logits by T raises its confidences.",
        ),
        ("caution", 2.9, "Dividing the logits by T lowers the confidences."),
        ("caution", 0.7, "Dividing the logits by T raises the confidences."),
        (
            "caution",
            1.01,
            "T is not significantly different from 1: the confidences may stay as they are.",
        ),
        ("do not apply", 0.7, "A temperature of 0.700 was fitted, which would raise them"),
    ):
        html = text(made.make_report(verdict=verdict, temperature=temperature))
        assert said in html
        assert ("overconfident" in html) == (verdict == "apply" and temperature > 1)
        assert ("underconfident" in html) == (verdict == "apply" and temperature < 1)
        assert "too sure" not in html


def test_both_temperatures_are_shown_with_what_they_do(made):
    report = made.make_report(verdict="caution")
    shown = section(report, "temperature")
    for name, t, confidence, gap in (
        ("nothing", "1.000", "83.0%", "+25"),
        ('mixup <span class="range">(used)</span>', "2.900", "60.0%", "+2"),
        ("agreement", "3.100", "58.0%", "0"),
    ):
        assert f"{name}</th> <td>{t}</td><td>{confidence}</td><td>{gap}</td>" in shown
    assert "minus the estimated accuracy, 58.0%, in points" in shown
    lines = list(summary_lines(report, OUT))
    assert "no calibration: T = 1.000, mean confidence 83.0%, 25 points above the estimate" in lines
    assert (
        "from mixup: T = 2.900, mean confidence 60.0%, 2 points above the estimate: used" in lines
    )
    assert "from agreement: T = 3.100, mean confidence 58.0%, as estimated" in lines
    assert [one["use"] for one in summary(report, OUT)["effects"].values()] == ["", "used", ""]
    refused = made.make_report(verdict="do not apply")
    assert list(refused.uses.values()) == ["used", "refused", ""]
    assert "2 points above the estimate: refused" in "\n".join(summary_lines(refused, OUT))


def test_one_temperature_is_not_compared_with_itself(made):
    trust = made.make_run().calibration.trust
    alone = replace(trust, effects={name: trust.effects[name] for name in ("none", "mixup")})
    for report in (replace(made.make_report(), trust=alone), made.make_refined()):
        assert "Temperatures found without labels" not in text(report)
        assert not any("the estimate" in line for line in summary_lines(report, OUT))


def test_a_refusal_is_printed(made):
    report = made.make_report(verdict="do not apply")
    _, first, _, third, verdict, *_ = lines = list(summary_lines(report, OUT))
    assert (
        first
        == "T = 1: the temperature that was fitted, 2.9000, should not be applied; nothing changes"
    )
    assert third == f"mean confidence {report.confidence.mean_before:.1%}"
    assert verdict == "verdict: do not apply"
    assert not any("calibrated model" in line for line in lines)


def test_a_refused_segmenter_is_shown_as_it_is(made):
    report = made.make_segmented(labelled=True, verdict="do not apply")
    assert report.segmentation.header[2:4] == ("confidence", "IoU")
    assert report.segmentation.header[-2:] == ("ECE before", "ECE with the refused T")
    html = text(report)
    assert "confidence after" not in html
    assert 'alt="confidence"' in html
    assert report.calibration.refused == 3.0
