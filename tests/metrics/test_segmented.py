"""Metrics of segmentation against those of rows, against torch's resizing, and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from pseudocal import InputError, Outcomes
from pseudocal.metrics import (
    Segmented,
    accuracy,
    bootstrap,
    brier,
    confidence_image,
    confidence_map,
    correct_image,
    ece,
    nll,
    paired,
)
from pseudocal.metrics.images import independent_pixels, resized_rows
from pseudocal.metrics.outcomes import clopper_pearson


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(6, 5, 20, 30)).astype(np.float32)
    masks = (z / 1.5 + rng.gumbel(size=z.shape)).argmax(axis=1).astype(np.uint8)
    masks[:, :2] = 255
    return z, masks


def rows(z, masks, temperature=1.0):
    return Outcomes.from_logits(
        np.moveaxis(z, 1, -1)[masks != 255] / temperature, masks[masks != 255]
    )


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_sums_give_the_metrics_of_the_pixels(frames, temperature):
    z, masks = frames
    seen, pixels = Segmented.of(z, masks, temperature=temperature), rows(z, masks, temperature)
    assert seen.pixels == len(pixels)
    for name, metric in (("ece", ece), ("nll", nll), ("brier", brier), ("accuracy", accuracy)):
        assert seen.score()[name] == pytest.approx(metric(pixels), abs=1e-6)


def test_parts_add_up_to_the_whole(frames):
    z, masks = frames
    whole = Segmented.of(z, masks)
    parts = sum(Segmented.of(z[i : i + 2], masks[i : i + 2]) for i in range(0, 6, 2))
    assert parts.score() == pytest.approx(whole.score(), abs=1e-12)
    assert parts.images == whole.images == 6
    np.testing.assert_allclose(parts.each()["ece"][3], Segmented.of(z[3], masks[3]).ece)


def test_iou_and_the_table_of_classes_by_hand():
    z = np.zeros((1, 3, 2, 3))
    said, truth = np.array([[0, 0, 1], [1, 1, 2]]), np.array([[[0, 1, 1], [1, 255, 0]]])
    np.put_along_axis(z, said[None, None], 4.0, axis=1)
    seen = Segmented.of(z, truth)
    assert seen.miou == pytest.approx(
        (1 / 3 + 2 / 3 + 0) / 3
    )  # of 0: 1 of 3; of 1: 2 of 3; 2 is said once, wrongly
    table = seen.classes(["road", "car"])
    assert [row["class"] for row in table] == ["road", "car", "2"]
    assert table[1]["precision"] == 1
    assert table[1]["recall"] == pytest.approx(2 / 3)
    assert table[0]["ece"] == pytest.approx(table[0]["confidence"] - 0.5)
    assert np.isnan(table[2]["recall"])


@pytest.mark.parametrize("corners", [False, True])
def test_resizing_is_torchs(corners):
    torch = pytest.importorskip("torch")
    z = np.random.default_rng(1).normal(size=(3, 7, 9))
    theirs = torch.nn.functional.interpolate(
        torch.tensor(z)[None], (25, 31), mode="bilinear", align_corners=corners
    )
    ours = resized_rows(z, (25, 31), slice(4, 20), align_corners=corners)
    np.testing.assert_allclose(ours, theirs[0, :, 4:20].numpy(), atol=1e-5)


def test_small_maps_are_scored_at_the_size_of_the_labels(frames):
    torch = pytest.importorskip("torch")
    z, _ = frames
    masks = np.random.default_rng(2).integers(0, 5, (6, 40, 55)).astype(np.uint8)
    large = torch.nn.functional.interpolate(torch.tensor(z), (40, 55), mode="bilinear").numpy()
    assert Segmented.of(z, masks).score() == pytest.approx(
        Segmented.of(large, masks).score(), abs=1e-5
    )


def test_an_impossible_class_is_so_between_pixels_too(frames):
    z, _ = (part.copy() for part in frames)
    masks = np.random.default_rng(3).integers(0, 4, (6, 40, 60)).astype(np.uint8)
    z[:, 4] = -np.inf
    gone, small = Segmented.of(z, masks).score(), Segmented.of(z[:, :4], masks).score()
    assert gone == pytest.approx(small, abs=1e-6)
    z[:, 4, 5, 7] = (
        0.0  # possible in one place, whose neighbours have a fraction everywhere but at its centre
    )
    wide = resized_rows(z[0], (60, 90), slice(0, 60))
    assert np.isfinite(wide[4]).sum() == 1
    assert wide[4, 16, 22] == 0


@pytest.mark.parametrize("corners", [False, True])
def test_padding_is_nothing_to_what_lies_beside_it(frames, corners):
    z, _ = frames
    masks = np.random.default_rng(4).integers(0, 5, (6, 60, 90)).astype(np.uint8)
    padded = np.pad(z, ((0, 0), (0, 0), (0, 5), (0, 5)), constant_values=-np.inf)
    around = np.pad(masks, ((0, 0), (0, 15), (0, 15)), constant_values=255)
    seen = Segmented.of(padded, around, align_corners=corners)
    assert seen.pixels == masks.size
    if not corners:  # else the two are not resized by the same factor
        assert seen.score() == pytest.approx(Segmented.of(z, masks).score(), abs=1e-6)
    with pytest.raises(InputError, match="one of them finite"):
        Segmented.of(padded, np.zeros_like(around))
    assert (confidence_image(padded[0])[20:] == 0).all()
    np.testing.assert_array_equal(confidence_image(padded[0])[:20, :30], confidence_image(z[0]))


def test_what_cannot_be_right_is_refused(frames):
    z, masks = frames
    with pytest.raises(InputError, match="labels from 0 to 4 or the ignored one, got 9"):
        Segmented.of(z, np.where(masks == 255, 9, masks))
    large = np.zeros((1, 512, 1024), np.uint8)
    large[0, 500, 77] = 30
    with pytest.raises(
        InputError, match=r"got 30 at \(500, 77\)"
    ):  # though it is read in bands of rows
        Segmented.of(np.zeros((1, 5, 64, 128), np.float32), large)
    with pytest.raises(InputError, match=r"labels of shape \(6, height, width\)"):
        Segmented.of(z, masks[:5])
    with pytest.raises(InputError, match="one of them finite"):
        Segmented.of(np.where(z > 5, np.nan, z), masks)
    for large in (z, z[:, :, ::2, ::2]):
        with pytest.raises(InputError, match="one of them finite"):
            Segmented.of(np.where(large > 5, np.inf, large), masks)
    with pytest.raises(
        InputError,
        match="same bins and classes, got 15 bins and 5 classes and 3 bins and 5 classes",
    ):
        Segmented.of(z, masks) + Segmented.of(z, masks, bins=3)
    with pytest.raises(InputError, match="expected a metric among"):
        bootstrap("mce", Segmented.of(z, masks))


@pytest.mark.parametrize("temperature", [-1.0, 0.0, np.nan, np.inf])
def test_a_temperature_that_cannot_be_divided_by_is_refused(frames, temperature):
    z, masks = frames
    for use in (
        lambda t: Segmented.of(z, masks, temperature=t),
        lambda t: confidence_image(z[0], t),
    ):
        with pytest.raises(
            InputError, match=f"expected a positive temperature .* got {temperature}"
        ):
            use(temperature)


def test_images_are_of_one_image(frames):
    z, masks = frames
    np.testing.assert_array_equal(confidence_image(z[:1]), confidence_image(z[0]))
    for image_file in (confidence_map, confidence_image, lambda x: correct_image(x, masks)):
        with pytest.raises(
            InputError, match=r"one image \(classes, height, width\), got a batch of 6"
        ):
            image_file(z)
    with pytest.raises(InputError, match="expected maps of logits"):
        confidence_image(z[0, 0])


@pytest.mark.parametrize("metric", ["ece", "nll", "accuracy", "miou"])
def test_of_one_image_nothing_is_known(frames, metric):
    z, masks = frames
    one, ignored = Segmented.of(z[:1], masks[:1]), Segmented.of(z[1:], np.full_like(masks[1:], 255))
    most = np.inf if metric == "nll" else 1
    for seen in (one, one + ignored):  # images without a pixel that counts are no others
        interval, change = bootstrap(metric, seen), paired(metric, seen, seen)
        assert (interval.value, interval.low, interval.high) == (getattr(one, metric), 0, most)
        assert (change.value, change.low, change.high) == (0, -most, most)


def test_images_that_are_ignored_tell_nothing(frames):
    z, masks = frames
    some = masks.copy()
    some[3:] = 255
    seen = Segmented.of(z, some)
    for metric in ("accuracy", "ece"):
        assert bootstrap(metric, seen) == bootstrap(metric, Segmented.of(z[:3], masks[:3]))
    with pytest.raises(
        InputError, match="expected at least one pixel that is not ignored, got none in 6 images"
    ):
        Segmented.of(z, np.full_like(masks, 255)).score()
    for metric in ("accuracy", "nll", "brier", "ece", "miou"):
        with pytest.raises(InputError, match="at least one pixel that is not ignored"):
            bootstrap(metric, Segmented.of(z, np.full_like(masks, 255)))


def clustered(n, rng):
    """Images that are right or wrong as a whole, mostly."""
    z = np.zeros((n, 2, 6, 6), dtype=np.float32)
    z[:, 1] = rng.normal(size=(n, 1, 1)) + 0.3 * rng.normal(size=(n, 6, 6))
    up = 2 * rng.random((n, 1, 1)) < 1 + np.tanh(
        z[:, 1] / 2
    )  # calibrated, but one draw for all pixels of an image
    return z, up.astype(np.uint8)


def test_intervals_are_as_wide_as_images_deserve():
    truth = Segmented.of(*clustered(5_000, np.random.default_rng(3))).accuracy
    held, narrow = 0, 0
    for seed in range(60):
        z, masks = clustered(30, np.random.default_rng(1000 + seed))
        interval = bootstrap("accuracy", Segmented.of(z, masks), resamples=200)
        held += interval.low <= truth <= interval.high
        pixels = bootstrap(accuracy, rows(z, masks), resamples=20)
        narrow += pixels.low <= truth <= pixels.high
    assert 0.85 <= held / 60 <= 1
    assert narrow / 60 < 0.5


def test_a_calibrated_model_may_have_no_error_at_all():
    z, masks = clustered(60, np.random.default_rng(5))
    assert bootstrap("ece", Segmented.of(z, masks)).low == 0
    sure = bootstrap("ece", Segmented.of(20 * z, masks))
    assert sure.low > 0.05
    change = paired("ece", Segmented.of(20 * z, masks), Segmented.of(z, masks))
    assert change.high < 0
    assert bootstrap("miou", Segmented.of(z, masks)).low >= 0


def test_groups_in_the_bootstrap_of_rows_are_images():
    z, masks = clustered(40, np.random.default_rng(6))
    outcomes, groups = rows(z, masks), np.repeat(np.arange(40), 36)
    by_image = bootstrap("accuracy", Segmented.of(z, masks), resamples=400)
    by_group = bootstrap(accuracy, outcomes, resamples=400, groups=groups)
    assert by_group.high - by_group.low == pytest.approx(by_image.high - by_image.low, rel=0.15)
    alone = bootstrap(accuracy, outcomes, resamples=50, groups=np.arange(len(outcomes)))
    assert alone == bootstrap(accuracy, outcomes, resamples=50)
    assert bootstrap(ece, outcomes, resamples=50, groups=groups).low == 0
    change = paired(ece, rows(z, masks, 0.05), outcomes, resamples=50, groups=groups)
    assert change.high < 0
    with pytest.raises(InputError, match="expected groups of shape"):
        bootstrap(accuracy, outcomes, groups=[0, 1])


def test_images_of_confidence_and_correctness(frames):
    z, masks = frames
    shown = confidence_map(z[0], 2.0)
    expected = np.exp(z[0] / 2).max(axis=0) / np.exp(z[0] / 2).sum(axis=0)
    np.testing.assert_allclose(shown, expected, rtol=1e-5)
    image_file = correct_image(z[0], masks[0])
    assert (image_file[masks[0] == 255] == 0).all()
    right = (z[0].argmax(axis=0) == masks[0]) & (masks[0] != 255)
    assert (image_file[right] == (38, 139, 87)).all()


def test_intervals_of_bins_by_hand():
    count, right = (
        np.array([[9, 4], [9, 0], [9, 0], [9, 0]]),
        np.array([[9, 1], [9, 0], [0, 0], [0, 0]]),
    )
    few = (1.959964 / 3.182446) ** 2  # normal to t of 3 degrees of freedom
    # p = 1/2, residuals of 4.5: the variance is 4/3 * 4 * 4.5^2 / 36^2 = 1/12, so three coins
    assert independent_pixels(right[:, :1] * 10**6, count[:, :1] * 10**6) == pytest.approx(
        [3 * few], rel=1e-5
    )
    assert independent_pixels(right, count)[1] == 0  # one image
    half = np.full((4, 1), 50)
    assert independent_pixels(half, 2 * half) == [4]  # no image differs from another
    assert (
        independent_pixels(half * 2, np.array([[300], [100], [100], [100]])) < 600**2 / 120_000
    )  # unlike sizes


@pytest.mark.parametrize("scale", [1, 40])
def test_intervals_of_bins_hold_the_accuracy_of_images(scale):
    """Of images that are right or wrong as a whole, alike in size or not, and of pixels that are independent."""
    rng = np.random.default_rng(scale)
    held, sets = np.zeros(2), 150
    for _ in range(sets):
        count = rng.integers(1, 1 + scale, size=(60, 1)) * 100
        whole, alone = count * (rng.random((60, 1)) < 0.7), rng.binomial(count, 0.7)
        for k, right in enumerate((whole, alone)):
            n = independent_pixels(right, count)
            low, high = clopper_pearson(right.sum() / count.sum() * n, n)
            held[k] += low[0] <= 0.7 <= high[0]
    assert (held / sets > 0.9).all()
    assert held[1] / sets < 1


def test_reliability_diagrams_are_of_images():
    held, pixels = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        z = np.zeros((60, 2, 10, 10))
        z[:, 0] = 1
        seen = Segmented.of(
            z, np.broadcast_to(rng.random((60, 1, 1)) > 0.7, (60, 10, 10)).astype(np.uint8)
        )
        for k, (low, high) in enumerate(
            (seen.accuracy_interval(), seen.reliability.accuracy_interval())
        ):
            inside = np.nanmax(low) <= 0.7 <= np.nanmax(high)
            held, pixels = held + (inside and k == 0), pixels + (inside and k == 1)
    assert held >= 54
    assert pixels < 20
    low, high = Segmented.of(z[:1], np.zeros((1, 10, 10), int)).accuracy_interval()
    assert (np.nanmax(low), np.nanmax(high), np.isnan(low).sum()) == (0, 1, 14)
