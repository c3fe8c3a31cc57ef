"""Running sums over the predictions of a classifier and of a segmentation model."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from pseudocal import Calibration, TemperatureScaling
from pseudocal.app.report import Summary, page
from pseudocal.app.report import content as module
from pseudocal.app.report.content import class_rows, selection_of
from pseudocal.app.report.predictions import Confidences
from pseudocal.app.report.record import Example


def test_thin_lines_are_by_image_or_not_there(made):
    labelled, mixed = made.make_segmented(labelled=True), made.make_segmented()
    bins = labelled.reliability.before
    last = bins.high[-1] - bins.low[-1]
    assert 0.1 < last < 0.9  # of 12 images
    assert 1.96 * np.sqrt(1 / bins.count[-1]) < 0.05  # of so many pixels it would be narrow
    html = page(labelled)
    assert "Thin lines are 95% intervals, computed by image" in html
    assert html.count('class="whisker"') > 5
    html = page(mixed)
    assert "Thin lines" not in html
    assert "whisker" not in html.partition("</style>")[2]
    assert "95% interval</th>" not in html
    assert "None" not in html
    assert "Thin lines are 95% intervals." in page(made.make_report())


def test_maps_have_names_and_a_image_of_their_size(made, tmp_path):
    from PIL import Image

    Image.fromarray(np.zeros((400, 800, 3), np.uint8)).save(tmp_path / "wide.jpg")
    report = made.make_segmented([tmp_path / "wide.jpg"], labelled=True)
    for item in report.maps:
        for key in ("image", "before", "after", "correct"):
            shown = Image.open(io.BytesIO(base64.b64decode(getattr(item, key).partition(",")[2])))
            assert shown.size == (320, 160)
    html = page(report)
    for title in ("image", "confidence before", "confidence after", "right or wrong"):
        assert html.count(f"<figcaption>{title}</figcaption>") == 6
    assert "black means no ground truth" in html
    assert "Precision</th>" in html
    assert "black means no ground truth" not in page(made.make_segmented())


def test_the_scores_of_each_class_by_hand(made):
    """Predicted are 0, 0, 1, 1 with 90% confidence; the second is wrong."""
    summary = segmentation()
    image = np.log(9.0) * np.array([[[1, 1, 0, 0]], [[0, 0, 1, 1]]])
    made.add_image(summary, image, "a", mask=np.array([[0, 1, 1, 1]]))
    first, second = class_rows(summary)
    assert (first.precision, second.precision) == (1 / 2, 1)
    assert (first.iou, second.iou) == (1 / 2, 2 / 3)
    assert first.ece_before == pytest.approx(0.9 - 0.5)
    assert second.ece_after == pytest.approx(1 - 0.75)  # T = 2: 9 to 1 becomes 3 to 1


def test_only_ground_truth_gives_scores_of_classes(made):
    report = made.make_segmented(labelled=True)
    assert [row.name for row in report.classes][1:] == ["yellow", "traffic light", "road"]
    assert all(row.iou is not None for row in report.classes)
    assert sum(row.fraction for row in report.classes) == pytest.approx(1)
    assert {row.iou for row in made.make_segmented().classes} == {None}


def test_chunks_do_not_show(monkeypatch, made):
    whole = made.make_report(labelled=True)
    monkeypatch.setattr("pseudocal.app.report.predictions.CHUNK", 60)
    monkeypatch.setattr(
        "pseudocal.app.report.predictions.block_starts", lambda shape: range(0, shape[0], 7)
    )
    parts = made.make_report(labelled=True)
    assert len(made.make_summary(made.make_run())[1]) == -(-600 // 7)
    assert parts.examples == whole.examples
    for part, one in zip(parts.classes, whole.classes, strict=True):
        assert (part.name, part.fraction, part.precision) == (one.name, one.fraction, one.precision)
        assert (part.before, part.after) == pytest.approx((one.before, one.after))
    assert [row.error for row in parts.selection] == [row.error for row in whole.selection]
    assert parts.confidence.before == whole.confidence.before
    assert abs(parts.confidence.mean_after - whole.confidence.mean_after) < 1e-14
    for old, new in zip(whole.metrics, parts.metrics, strict=True):
        np.testing.assert_allclose(new.change.low, old.change.low, rtol=1e-9)


def test_the_size_of_the_evidence_does_not_grow_with_the_inputs(made):
    run = made.make_run(names=["a.png"] * 600)
    summary, _ = made.make_summary(run)
    for _ in range(3):
        summary.add_rows(run.logits, Confidences.of(run.logits, run.calibration), run.names)
    assert summary.histogram.sum() == 2 * 4 * 600
    assert [len(shown) for shown in summary.shown.values()] == [12, 12]


def segmentation() -> Summary:
    return Summary(Calibration("pseudocal", TemperatureScaling(2.0)), ["sky", "road"], "pixels")


def test_sums_of_many_images_are_joined_on_the_way(monkeypatch, made):
    rng = np.random.default_rng(0)
    images = [(rng.normal(size=(2, 3, 4)), rng.integers(0, 2, size=(3, 4))) for _ in range(10)]
    plain, joined = segmentation(), segmentation()
    for summary, every in ((plain, 256), (joined, 3)):
        monkeypatch.setattr(module, "JOINED", every)
        for i, (image, mask) in enumerate(images):
            made.add_image(summary, image, str(i), mask=mask)
    assert joined.seen()[0].images == 10
    assert joined.seen()[1].score() == plain.seen()[1].score()
    assert class_rows(joined) == class_rows(plain)


def test_a_sample_of_pixels_with_weights_stands_for_all():
    summary = segmentation()
    seen = Confidences.of(np.array([[2.0, 0.0], [0.0, 2.0]]), summary.calibration)
    summary.add_predictions(seen, 2, weights=np.array([3.0, 1.0]))
    np.testing.assert_array_equal(summary.by_class[0], [3.0, 1.0])
    assert summary.histogram.sum(axis=1).tolist() == [4.0, 4.0]


def test_an_image_that_is_all_padding_is_no_example(made):
    summary = segmentation()
    summary.consider(Example("padding", "mostly sky", np.nan, np.nan))
    made.add_image(summary, np.zeros((2, 3, 4)), "guess")
    assert [one.name for one, _ in summary.shown["least_confident"]] == ["guess"]


def test_coverage_and_error_by_hand():
    """The first of two is right; 90% reaches the last threshold, 60% does not."""
    summary = Summary(Calibration("none", TemperatureScaling(1.0)))
    confidence = np.array([[0.9], [0.6]])
    seen = Confidences(np.array([[0], [1]]), confidence, confidence)
    summary.add_predictions(seen, 2, right=np.array([True, False]))
    first, *_, last = selection_of(summary)
    assert (first.coverage, round(first.expected_error, 3), first.error) == (1.0, 0.25, 0.5)
    assert (last.threshold, last.coverage) == (0.9, 0.5)
    assert (round(last.expected_error, 3), last.error) == (0.1, 0.0)
