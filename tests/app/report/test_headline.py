"""The first sentence of a report says what was measured, or estimated, or what little is known."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest

from pseudocal import softmax
from pseudocal.app.report import page
from pseudocal.app.report.findings import headline_of
from pseudocal.metrics import Outcomes, ece


def shown(report) -> str:
    return " ".join(unescape(page(report)).split())


def near_90(logits) -> np.ndarray:
    confidence = softmax(logits).max(axis=1)
    return (confidence > 13 / 15) & (confidence <= 14 / 15)


def test_with_ground_truth_it_is_the_measured_accuracy(made):
    run, report = made.make_run(labelled=True), made.make_report(labelled=True)
    right = run.logits.argmax(axis=1) == run.ground_truth
    chosen = near_90(run.logits)
    headline = report.headline
    assert headline.code == "measured"
    assert headline.values["n"] == chosen.sum()
    assert headline.values["accuracy"] == pytest.approx(right[chosen].mean())
    after = softmax(run.logits / 2.9).max(axis=1)[chosen].mean()
    assert headline.values["after"] == pytest.approx(after)
    assert shown(report).index(str(headline)) < shown(report).index('id="verdict"')


def test_without_labels_it_is_the_calibrated_confidence(made):
    run = made.make_run()
    expected = softmax(run.logits / 2.9).max(axis=1)[near_90(run.logits)].mean()
    headline = made.make_report().headline
    assert headline.code == "estimated"
    assert headline.values["after"] == pytest.approx(expected)
    doubted = made.make_report(verdict="caution").headline
    assert doubted.code == "estimated_unconfirmed"
    assert doubted.values == headline.values


def test_a_rejected_temperature_leaves_what_is_known(made):
    report = made.make_report(verdict="do not apply")
    before = report.confidence.mean_before
    assert report.headline.code == "rejected_estimated"
    assert report.headline.values == {"before": before, "accuracy": 0.58, "low": 0.46, "high": 0.7}
    unknown = headline_of(replace(report, trust=None))
    assert unknown.code == "rejected"
    assert unknown.values == {"before": before}
    measured = made.make_report(verdict="do not apply", labelled=True).headline
    assert measured.code == "measured_unchanged"


def test_few_labels_give_an_estimate_and_many_a_measurement(made):
    report = made.make_refined()
    assert report.headline.code == "estimated_from_labels"
    assert report.headline.values["labels"] == 49
    bins = report.reliability.before
    many = replace(bins, count=tuple(50 * count for count in bins.count))
    counted = headline_of(replace(report, reliability=replace(report.reliability, before=many)))
    assert counted.code == "labelled"
    values: dict[str, Any] = counted.values
    assert values["low"] < values["accuracy"] < values["high"]


def test_rejected_with_labels_it_is_their_accuracy(made):
    report = made.make_refined()
    rejected = replace(report, calibration=replace(report.calibration, refused=2.0))
    headline = headline_of(rejected)
    assert headline.code == "rejected_measured"
    assert headline.values["accuracy"] == report.labels.accuracy.value


def test_a_model_that_is_never_near_90_is_described_where_it_is(made):
    run = made.make_run()
    report = made.make_report(logits=run.logits / 30)
    k = max(i for i, count in enumerate(report.confidence.before) if count)
    assert report.headline.values["level"] == report.confidence.confidence_before[k]
    confident = made.make_report(logits=run.logits * 100).headline
    assert confident.code == "estimated"


def test_nothing_fitted_and_no_histogram(made):
    report = made.make_report()
    calibration = replace(report.calibration, mixup_samples=0, temperature=1.0)
    estimated = headline_of(replace(report, calibration=calibration))
    assert estimated.code == "rejected_estimated"
    unfitted = headline_of(replace(report, calibration=calibration, trust=None))
    assert unfitted.code == "unfitted"
    html = shown(replace(report, calibration=calibration))
    assert "Nothing was fitted: the confidences are those of the model." in html
    none = (None,) * len(report.confidence.before)
    empty = replace(report.confidence, confidence_before=none)
    assert headline_of(replace(report, confidence=empty)).code == "mean_confidence"


def test_pixels_are_pixels(made):
    headline = made.make_segmented(labelled=True).headline
    assert headline.code == "measured"
    assert headline.values["unit"] == "pixels"
    assert round(headline.values["accuracy"], 2) == 0.64


def test_the_predictions_above_a_threshold_are_counted_and_scored(made):
    run, report = made.make_run(labelled=True), made.make_report(labelled=True)
    confidence = softmax(run.logits / 2.9).max(axis=1)
    wrong = run.logits.argmax(axis=1) != run.ground_truth
    thresholds = [row.threshold for row in report.selection]
    assert thresholds == sorted(set(thresholds))
    for row in report.selection:
        kept = confidence >= row.threshold
        assert row.coverage == pytest.approx(kept.mean())
        assert row.expected_error == pytest.approx(1 - confidence[kept].mean())
        assert row.error == pytest.approx(wrong[kept].mean())
    assert all(row.error is None for row in made.make_report().selection)
    assert "Answer only when confident" in shown(report)
    assert "were expected" in shown(report)
    refused = made.make_report(verdict="do not apply")
    assert "Answer only when confident" not in shown(refused)  # a rejected T promises nothing


def test_the_noise_floor_is_what_chance_gives(made):
    run, report = made.make_run(labelled=True), made.make_report(labelled=True)
    rng, scaled = np.random.default_rng(1), run.logits / 2.9
    chance = [
        ece(Outcomes.from_logits(scaled, (scaled + rng.gumbel(size=scaled.shape)).argmax(axis=1)))
        for _ in range(50)
    ]
    noise = report.reliability.noise
    assert noise == pytest.approx(np.mean(chance), rel=0.1)
    assert f"an ECE of about {noise:.2%} on as many inputs" in shown(report)
    assert made.make_report().reliability.noise is None


def test_classes_are_a_table_with_bars_only_where_they_say_something(made):
    report = made.make_report(labelled=True)
    run = made.make_run(labelled=True)
    predicted = run.logits.argmax(axis=1)
    right = predicted == run.ground_truth
    for row in report.classes:
        k = predicted == run.classes.index(row.name)
        assert row.fraction == pytest.approx(k.mean())
        assert row.precision == pytest.approx(right[k].mean())
        assert row.after == pytest.approx(softmax(run.logits / 2.9).max(axis=1)[k].mean())
    rng = np.random.default_rng(0)
    many = made.make_report(logits=rng.normal(size=(600, 1000)), classes=[])
    assert len(many.classes) == 60
    assert 'class="fraction"' not in page(many)
    assert 'class="fraction"' in page(report)
