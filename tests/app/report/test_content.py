"""The report states what the numbers are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from pseudocal import Calibration, InputError, TemperatureScaling, softmax
from pseudocal.app.report import page
from pseudocal.app.report.figures import accuracy_and_confidence
from pseudocal.app.report.findings import is_contradicted
from pseudocal.app.report.page import card_of
from pseudocal.app.report.record import Estimate
from pseudocal.metrics import Outcomes, ece


def fact(report, code):
    return next((one for one in report.facts if one.code == code), None)


def test_the_histograms_count_every_input(made):
    run, report = made.make_run(), made.make_report()
    assert sum(report.confidence.before) == sum(report.confidence.after) == 600
    after = softmax(run.logits / 2.9).max(axis=1)
    assert report.confidence.mean_after == pytest.approx(after.mean())


def test_reliability_is_of_mixup_samples_or_of_the_ground_truth(made):
    without, report = made.make_report(), made.make_report(labelled=True)
    run = made.make_run(labelled=True)
    assert without.reliability.source == "mixup"
    assert sum(without.reliability.before.count) == 580
    assert report.reliability.source == "ground truth"
    outcomes = Outcomes.from_logits(run.logits / 2.9, run.ground_truth)
    assert report.reliability.after.ece == ece(outcomes)
    assert [row.metric for row in report.metrics] == ["ece", "nll", "brier", "accuracy"]


def test_examples_are_the_most_changed_and_the_least_confident(made):
    run, report = made.make_run(), made.make_report()
    before = softmax(run.logits).max(axis=1)
    after = softmax(run.logits / 2.9).max(axis=1)
    assert report.examples.least_confident[0].name == run.names[after.argmin()]
    assert report.examples.changed[0].name == run.names[np.abs(before - after).argmax()]


def test_few_mixed_pairs_call_for_caution(made):
    assert {one.level for one in made.make_report().facts} == {"note"}
    counts = {"pairs": 600, "mixup_samples": 40, "forward_passes": 640}
    scaling = TemperatureScaling(1e6, rows=40, bound="upper")
    report = made.make_report(calibration=Calibration("pseudocal", scaling, {}, counts))
    [caution] = [one for one in report.facts if one.level == "caution"]
    assert caution.code == "pairs_mixed"
    assert caution.values == {"pairs": 600, "mixup_samples": 40, "fraction": 40 / 600}
    assert "unbounded" in page(report)


def test_the_facts_about_the_inputs(made):
    run = made.make_run()
    skipped = replace(run.data, skipped=(("a.npz", "truncated"),), blocks="30 files")
    report = made.make_report(data=skipped)
    assert fact(report, "unreadable").values == {"n": 2, "inputs": 602}
    assert fact(report, "skipped").values == {"n": 1, "blocks": "30 files"}
    assert fact(report, "pairs_mixed").values["mixup_samples"] == 580
    assert "1 of 30 files" in page(report)
    assumed = replace(run.data, assumed=("resize",), preparation="resized to 224")
    report = made.make_report(data=assumed)
    assert report.facts[0].code == "preprocessing_assumed"
    assert report.facts[0].level == "caution"
    assert report.facts[0].values == {"assumed": "resize", "preparation": "resized to 224"}


def test_segmentation_of_few_images_calls_for_caution(made):
    report = made.make_segmented()
    assert fact(report, "few_images").values == {"pairs": 12, "enough": 50}
    assert fact(report, "pixels_mixed").values == {"pairs": 12, "mixup_samples": 400}
    assert fact(report, "pairs_mixed") is None


def test_labels_outrank_the_verdict_without_labels(made):
    report = made.make_refined()
    labels = report.labels
    assert (report.trust.verdict, labels.verdict, report.verdict) == (
        "do not apply",
        *["apply"] * 2,
    )
    first = next(accuracy_and_confidence(report))
    assert first.label == "Accuracy, 49 labels"
    assert first.text.startswith(f"{labels.accuracy.value:.0%} (")
    html = page(report)
    assert "Verdict, measured on 49 labels" in html
    assert str(labels.reasons[0]) in html
    gap = f"Mean confidence minus accuracy, in points: {100 * labels.gap_before.value:+.0f} ("
    assert gap in html
    assert "show the 49 labelled inputs" in html
    assert "T = 1 replaces" not in html


def test_the_facts_about_labels(made):
    report = made.make_refined()
    assert report.facts[0].code == "none_of_these"
    assert report.facts[0].level == "caution"
    assert report.facts[0].values == {"n": 1, "labels": 49}
    chosen = fact(report, "labels_stratified")
    assert chosen.values == {"labels": 49, "rows": 600, "unit": "inputs"}
    assert fact(report, "cannot_tell").values == {"n": 1}
    assert fact(report, "not_measured") is None
    assert fact(report, "interval_of_mixup") is None


def test_harm_on_the_ground_truth_is_the_first_fact(made):
    # few mixup samples call for caution too
    counts = {"pairs": 600, "mixup_samples": 40, "forward_passes": 640}
    trust = made.make_run(verdict="caution").calibration.trust
    harmful = Calibration("pseudocal", TemperatureScaling(0.3, rows=40), {}, counts, trust=trust)
    of_rows = made.make_report(labelled=True, calibration=harmful)
    for report in (of_rows, made.make_segmented(labelled=True, temperature=0.2)):
        row = report.metrics[0]
        assert report.facts[0].code == "ece_rises"
        assert report.facts[0].level == "caution"
        assert report.facts[0].values == {"before": row.before.value, "after": row.after.value}
        assert is_contradicted(report)
        assert report.verdict == "caution"
    unlabelled = made.make_report(calibration=harmful)
    for report in (unlabelled, made.make_report(labelled=True), made.make_segmented(labelled=True)):
        assert fact(report, "ece_rises") is None
        assert not is_contradicted(report)


def test_the_page_states_the_verdict_and_its_reasons_once(made):
    headings = {
        "apply": "Apply",
        "caution": "Caution",
        "do not apply": "Do not apply",
    }
    for verdict, heading in headings.items():
        html = page(made.make_report(verdict=verdict)).partition('id="verdict"')[2]
        assert f"<strong>{heading}</strong>" in html
        assert html.count("T was fitted on mixup samples only") == 1


def test_the_estimated_accuracy_is_drawn_to_scale(made):
    report = made.make_report(labelled=True)
    estimated, before, after, measured = accuracy_and_confidence(report)
    html = page(report)
    interval = html.partition('<rect class="interval" ')[2].partition("/>")[0]
    x, width = (float(re.search(rf'{name}="(.*?)"', interval)[1]) for name in ("x", "width"))
    assert (x, width) == pytest.approx((14 + 0.46 * 332, 0.24 * 332), abs=0.01)
    mark = float(re.search(r'<path class="before" d="M(\S+)', html)[1])
    assert mark == pytest.approx(14 + report.confidence.mean_before * 332, abs=0.01)
    assert (estimated.text, before.kind) == ("58% (46% to 70%)", "before")
    assert after.text == f"{report.confidence.mean_after:.1%}"
    assert measured.text == f"{report.metrics[-1].before.value:.1%}"
    assert len(list(accuracy_and_confidence(made.make_report()))) == 3


def test_a_report_without_a_verdict_is_drawn(made):
    html = page(replace(made.make_report(), trust=None))
    assert 'id="verdict"' not in html
    assert "T = 2.900" in html


def test_the_numbers_of_a_row_have_the_same_digits(made):
    report = made.make_report(labelled=True)
    first, second, *rest = report.metrics
    first = replace(
        first,
        before=Estimate(0.07434, 0.04819, 0.1),
        after=Estimate(0.059, 0.01, 0.2),
        change=Estimate(-0.0146, -0.029, -9.517e-06),
    )
    second = replace(second, after=Estimate(None, None, None))
    report = replace(report, metrics=(first, second, *rest))
    table = page(report).partition('id="metrics"')[2].partition("</table>")[0]
    rows = [re.findall(r"-?\d+\.\d+%?|unbounded", row) for row in table.split("<tr>")[2:]]
    assert [len(row) for row in rows] == [9] * 4
    assert rows[0] == ["7.4%", "4.8%", "10.0%", "5.9%", "1.0%", "20.0%", "-1.5", "-2.9", "0.0"]
    for row in rows:
        numbers = [number.rstrip("%") for number in row if number != "unbounded"]
        assert len({len(number.partition(".")[2]) for number in numbers}) == 1
    assert rows[1].count("unbounded") == 3


def test_the_page_escapes_all_that_comes_from_outside(made):
    html = page(made.make_report())
    assert made.NASTY not in html
    assert "onerror" in html
    assert "<script" not in html
    assert "http://" not in html
    assert "https://" not in html


def test_a_calibration_that_does_not_count_its_pairs_is_refused(made):
    with pytest.raises(InputError, match="the calibration does not count its pairs"):
        made.make_report(calibration=Calibration("tempscal", TemperatureScaling(2.0)))


def test_a_model_card_states_the_temperature_and_its_source(made):
    text = card_of(made.make_report(labelled=True))
    assert text.startswith('---\nmodel-index: [{"name": "')
    assert "divided by 2.9.\n" in text
    assert "on 600 inputs without labels.\n" in text
    assert "\n- Verdict: apply. The temperature from mixup samples" in text
    assert "on 600 inputs with 49 labels.\n" in card_of(made.make_refined())
