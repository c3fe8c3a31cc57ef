"""What the report says is what the numbers say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pseudocal import Calibration, InputError, TemperatureScaling, softmax
from pseudocal.app.cli.printing import summary_lines
from pseudocal.app.report import page
from pseudocal.app.report.advice import panel
from pseudocal.app.report.headline import headline
from pseudocal.app.report.sections import Estimate
from pseudocal.metrics import Outcomes, ece


def test_the_histograms_count_every_input(made):
    run, report = made.make_run(), made.make_report()
    assert sum(report.confidence.before) == sum(report.confidence.after) == 600
    assert report.confidence.mean_after == pytest.approx(
        softmax(run.logits / 2.9).max(axis=1).mean()
    )


def test_reliability_is_of_the_mixup_without_labels_and_of_the_inputs_with(made):
    without, with_labels = made.make_report(), made.make_report(labelled=True)
    run = made.make_run(labelled=True)
    assert without.reliability.of == "mixup"
    assert sum(without.reliability.before.count) == 580
    assert with_labels.reliability.of == "inputs"
    assert with_labels.reliability.after.ece == ece(
        Outcomes.from_logits(run.logits / 2.9, run.labels)
    )
    assert [row.metric for row in with_labels.measured] == ["ece", "nll", "brier", "accuracy"]


def test_examples_are_those_that_changed_most_and_those_least_sure(made):
    run, report = made.make_run(), made.make_report()
    before, after = softmax(run.logits).max(axis=1), softmax(run.logits / 2.9).max(axis=1)
    assert report.examples.unsure[0].name == run.names[after.argmin()]
    assert report.examples.changed[0].name == run.names[np.abs(before - after).argmax()]


def test_facts_speak_up_when_they_should(made):
    assert {fact.level for fact in made.make_report().facts} == {"note"}
    counts = {"pairs": 600, "mixup_samples": 40, "forward_passes": 640}
    scaling = TemperatureScaling(1e6, rows=40, bound="upper")
    report = made.make_report(calibration=Calibration("pseudocal", scaling, {}, counts))
    [caution] = [fact.text for fact in report.facts if fact.level == "caution"]
    assert "40 of 600" in caution
    assert "unbounded" in page(report)


def test_answers_outrank_the_verdict_without_labels(made):
    report = made.make_refined()
    answers, shown = report.answers, panel(report)
    assert (report.trust.verdict, answers.verdict, shown.kind) == ("do not apply", "apply", "apply")
    assert shown.kicker == "Verdict, measured on 49 answers"
    assert shown.tracks[0].label == "Accuracy, measured"
    assert shown.tracks[0].value.startswith(f"{answers.accuracy.value:.0%} (")
    assert shown.reasons[0] == str(answers.reasons[0])
    assert shown.reasons[-1].startswith(
        f"Mean confidence minus accuracy, in points: {100 * answers.gap_before.value:+.0f}"
    )
    assert "of the 49 inputs that a person has answered" in page(report)
    texts = {fact.level: fact.text for fact in reversed(report.facts)}
    assert texts["caution"].startswith('One answer is "none of these"')
    assert any('1 question was answered "cannot tell"' in fact.text for fact in report.facts)
    assert not any("has not been measured" in fact.text for fact in report.facts)
    assert "T = 1 takes the place" not in page(report)


def test_harm_that_labels_show_is_the_first_thing_to_know(made):
    counts = {
        "pairs": 600,
        "mixup_samples": 40,
        "forward_passes": 640,
    }  # few mixup samples are a caution too
    trust = made.make_run(verdict="caution").calibration.trust
    harmful = Calibration("pseudocal", TemperatureScaling(0.3, rows=40), {}, counts, trust=trust)
    of_rows = made.make_report(labelled=True, calibration=harmful)
    for report in (of_rows, made.make_segmented(labelled=True, temperature=0.2)):
        before, after = (
            part.value for part in (report.measured[0].before, report.measured[0].after)
        )
        text = report.facts[0].text
        numbers = [float(number) for number in re.findall(r"\d\.\d+", text)]
        assert text.startswith("On the labels that were given, calibration makes the ECE worse: ")
        assert numbers == pytest.approx([before, after], abs=6e-4)
        assert len(report.facts) > 3
        assert report.trust.verdict == "caution"
        first, *lines = summary_lines(report, Path("out"))
        assert first == headline(report)
        assert f"warning: {text}" in lines
    unlabelled = made.make_report(calibration=harmful)
    for report in (unlabelled, made.make_report(labelled=True), made.make_segmented(labelled=True)):
        assert not any("worse" in fact.text for fact in report.facts)


def test_the_panel_says_the_verdict_and_its_reasons_once(made):
    for verdict, heading in (
        ("apply", "Apply"),
        ("caution", "Use with caution"),
        ("do not apply", "Do not apply"),
    ):
        report = made.make_report(verdict=verdict)
        html = page(report)
        assert f"<strong>{heading}</strong>" in html
        assert html.count("T was fitted on mixup samples only") == 1


def test_the_estimate_is_drawn_to_scale(made):
    report = made.make_report(labelled=True)
    estimated_accuracy, before, after, measured = panel(report).tracks
    assert estimated_accuracy.bar == pytest.approx((14 + 0.46 * 332, 0.24 * 332), abs=0.01)
    assert before.x == pytest.approx(14 + report.confidence.mean_before * 332, abs=0.01)
    assert after.value == f"{report.confidence.mean_after:.1%}"
    assert measured.value == f"{report.measured[-1].before.value:.1%}"
    assert len(panel(made.make_report()).tracks) == 3


def test_a_report_without_a_verdict_is_drawn(made):
    html = page(replace(made.make_report(), trust=None))
    assert 'id="verdict"' not in html
    assert "T = 2.900" in html


def test_the_numbers_of_a_row_have_the_same_digits(made):
    report = made.make_report(labelled=True)
    first, second, *rest = report.measured
    first = replace(
        first,
        before=Estimate(0.007434, 0.004819, 0.01),
        after=Estimate(0.0059, 0.001, 0.02),
        change=Estimate(-0.00146, -0.0029, -9.517e-06),
    )
    second = replace(second, after=Estimate(None, None, None))
    report = replace(report, measured=(first, second, *rest))
    table = page(report).partition('id="measured"')[2].partition("</table>")[0]
    rows = [re.findall(r"-?\d+\.[\de.+-]*\d|unbounded", row) for row in table.split("<tr>")[2:]]
    assert [len(row) for row in rows] == [9] * 4
    assert rows[0] == [
        "0.0074",
        "0.0048",
        "0.0100",
        "0.0059",
        "0.0010",
        "0.0200",
        "-0.0015",
        "-0.0029",
        "0.0000",
    ]
    for row in rows:
        [digits] = {len(number.partition(".")[2]) for number in row if number != "unbounded"}
        assert digits >= 3
    assert rows[1].count("unbounded") == 3


def test_the_page_escapes_all_that_comes_from_outside(made):
    html = page(made.make_report())
    assert made.NASTY not in html
    assert "onerror" in html
    assert "<script" not in html
    assert "http://" not in html
    assert "https://" not in html


def test_the_differing_pairs_and_what_was_skipped_are_counted(made):
    run = made.make_run()
    data = replace(run.data, skipped=(("a.npz", "truncated"),), blocks="30 files")
    texts = [fact.text for fact in made.make_report(data=data).facts]
    assert (
        "97% of the pairs of inputs (580 of 600) have two different predicted classes; only these are mixed."
        in texts
    )
    assert "1 of 30 files were left out; they are listed below." in texts
    assert "30 files" in page(made.make_report(data=data))


def test_a_calibration_that_does_not_say_what_it_rests_on_is_refused(made):
    with pytest.raises(InputError, match=r"expected a calibration that counts its pairs, got \{\}"):
        made.make_report(calibration=Calibration("tempscal", TemperatureScaling(2.0)))


def test_no_curve_is_drawn_of_a_single_point(made):
    flat = np.tile([0.1, 0.0, 0.0], (600, 1))  # one confidence for all
    assert "Answer only when sure" not in page(
        made.make_report(logits=flat, classes=["a", "b", "c"])
    )
    assert "Answer only when sure" in page(made.make_report())
