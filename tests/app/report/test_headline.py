"""The first sentence of a report is true.

It says what was measured, what is expected, or what little is known.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

from pseudocal import Calibration, TemperatureScaling, softmax
from pseudocal.app.report import page
from pseudocal.app.report.advice import panel
from pseudocal.app.report.headline import headline
from pseudocal.metrics import Outcomes, ece


def shown(report) -> str:
    return " ".join(unescape(page(report)).split())


def near_90(logits) -> np.ndarray:
    confidence = softmax(logits).max(axis=1)
    return (confidence > 13 / 15) & (confidence <= 14 / 15)


def test_with_labels_it_counts_those_that_are_right(made):
    run, report = made.make_run(labelled=True), made.make_report(labelled=True)
    right = run.logits.argmax(axis=1) == run.labels
    before, after = (100 * right[near_90(z)].mean() for z in (run.logits, run.logits / 2.9))
    assert near_90(run.logits / 2.9).sum() >= 20
    assert headline(report) == (
        f"Of 100 answers that the model gives with about 90% confidence, about {before:.0f} are right; "
        f"of those that have this confidence after calibration, about {after:.0f} are."
    )
    assert shown(report).index(headline(report)) < shown(report).index('id="verdict"')


def test_without_labels_it_is_the_calibrated_confidence_and_says_so(made):
    run = made.make_run()
    expected = softmax(run.logits / 2.9).max(axis=1)[near_90(run.logits)].mean()
    said = headline(made.make_report())
    assert f"about {100 * expected:.0f} should be right, by an estimate without labels" in said
    assert said.endswith(
        f"after calibration the model gives them with about {expected:.0%} confidence."
    )
    doubted = headline(made.make_report(verdict="caution"))
    assert f"about {100 * expected:.0f} would be right if the calibration can be trusted" in doubted


def test_the_same_number_is_not_called_by_two_names(made):
    """About 88 that would be right are not given about 90% confidence."""
    for temperature in np.linspace(1.0, 1.2, 9):
        said = headline(made.make_report(temperature=float(temperature)))
        right = said.partition("confidence, about ")[2].split()[0]
        assert said.endswith(f"with about {right}% confidence.")


def test_a_refusal_says_only_what_is_known(made):
    report = made.make_report(verdict="do not apply")
    mean = report.confidence.mean_before
    assert headline(report) == (
        f"The mean confidence is {mean:.0%}; by the estimate, 46 to 70 of 100 answers are right. Nothing was changed."
    )
    assert headline(replace(report, trust=None)) == f"The mean confidence is {mean:.0%}."
    labelled = made.make_report(verdict="do not apply", labelled=True)
    assert "of those that have this confidence with the refused temperature, about" in headline(
        labelled
    )


def test_with_few_answers_it_is_an_estimate_and_with_many_a_count(made):
    report = made.make_refined()
    assert "by an estimate from the answers of a person" in headline(report)
    bins = report.reliability.before
    many = replace(bins, count=tuple(50 * count for count in bins.count))
    counted = headline(replace(report, reliability=replace(report.reliability, before=many)))
    assert re.search(r"about \d+ \(\d+ to \d+\) are right, by a person's answers;", counted)


def test_a_model_that_is_never_near_90_is_described_where_it_is(made):
    run = made.make_run()
    unsure = made.make_report(logits=run.logits / 30)
    level = unsure.confidence
    k = max(i for i, count in enumerate(level.before) if count)
    assert f"with about {level.sure_before[k]:.0%} confidence" in headline(unsure)
    sure = made.make_report(logits=run.logits * 100)
    assert "with about" in headline(sure) or "with more than 99% confidence" in headline(sure)


def test_pixels_are_pixels(made):
    said = headline(made.make_segmented(labelled=True))
    assert said.startswith(
        "Of 100 pixels that the model labels with about 90% confidence, about 64 are right"
    )


def test_a_verdict_that_labels_contradict_says_so_itself(made):
    harmful = Calibration(
        "pseudocal", TemperatureScaling(0.3, rows=40), {}, {"pairs": 600, "mixup_samples": 40, "forward_passes": 640},
        trust=made.make_run().calibration.trust,
    )  # fmt: skip
    otherwise = "But the labels that were given say otherwise"
    for report in (
        made.make_report(verdict="do not apply", labelled=True),
        made.make_report(calibration=harmful, labelled=True),
    ):
        assert panel(report).contradicted
        assert otherwise in shown(report)
    for report in (made.make_report(labelled=True), made.make_report(verdict="do not apply")):
        assert otherwise not in shown(report)


def test_both_models_are_named_with_the_verdict(made):
    run = made.make_run()
    names = replace(
        run.calibration,
        settings=run.calibration.settings | {"second_opinion": ["models/lite2.onnx"]},
    )
    assert "Second opinion: lite2.onnx." in panel(made.make_report(calibration=names)).models
    none = replace(run.calibration, settings=run.calibration.settings | {"second_opinion": []})
    assert panel(made.make_report(calibration=none)).models.endswith("No second opinion.")


def test_what_is_sure_enough_is_counted_and_scored(made):
    run, report = made.make_run(labelled=True), made.make_report(labelled=True)
    confidence = softmax(run.logits / 2.9).max(axis=1)
    wrong = run.logits.argmax(axis=1) != run.labels
    thresholds = [row.threshold for row in report.selection]
    assert thresholds == sorted(set(thresholds))
    for row in report.selection:
        kept = confidence >= row.threshold
        assert row.coverage == pytest.approx(kept.mean())
        assert row.expected == pytest.approx(1 - confidence[kept].mean())
        assert row.wrong == pytest.approx(wrong[kept].mean())
    assert all(row.wrong is None for row in made.make_report().selection)
    assert "Answer only when sure" in shown(report)
    refused = made.make_report(verdict="do not apply")
    assert "Answer only when sure" not in shown(refused)  # what was refused promises nothing


def test_the_noise_floor_is_what_chance_gives(made):
    run, report = made.make_run(labelled=True), made.make_report(labelled=True)
    rng, scaled = np.random.default_rng(1), run.logits / 2.9
    chance = [
        ece(Outcomes.from_logits(scaled, (scaled + rng.gumbel(size=scaled.shape)).argmax(axis=1)))
        for _ in range(50)
    ]
    assert report.reliability.noise == pytest.approx(np.mean(chance), rel=0.1)
    assert f"an ECE of about {report.reliability.noise:.3f} on as many inputs" in shown(report)
    assert made.make_report().reliability.noise is None


def test_classes_are_a_table_with_bars_only_where_they_say_something(made):
    report = made.make_report(labelled=True)
    run = made.make_run(labelled=True)
    predicted = run.logits.argmax(axis=1)
    for row in report.classes:
        k = predicted == run.classes.index(row.name)
        assert (row.fraction, row.right) == pytest.approx(
            (k.mean(), (run.labels == predicted)[k].mean())
        )
        assert row.after == pytest.approx(softmax(run.logits / 2.9).max(axis=1)[k].mean())
    rng = np.random.default_rng(0)
    many = made.make_report(logits=rng.normal(size=(600, 1000)), classes=[])
    assert len(many.classes) == 60
    assert 'class="share"' not in page(many)
    assert 'class="share"' in page(report)
