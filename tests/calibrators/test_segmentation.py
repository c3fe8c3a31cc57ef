"""PseudoCal where every pixel is a sample.

One code path, clustered errors, sizes, thinning, ignored pixels.
"""

from __future__ import annotations

import numpy as np
import pytest

from pseudocal import InputError, PseudoCal, fit_temperature
from pseudocal.arrays import Labelled
from pseudocal.calibrators import Ensemble, ensemble, oracle, pixel_rows, tempscal
from pseudocal.maps import IGNORED, at_size, by_rows, labelled_pixels, predicted
from pseudocal.mixup import cutmix

CLASSES = 3
WEIGHT = 6 * np.eye(CLASSES) + np.random.default_rng(7).normal(size=(CLASSES, CLASSES))


def classifier(x):
    return x @ WEIGHT


def segmenter(x):
    return by_rows(classifier, x)


def images(n, size, rng, noise=0.5):
    """Images whose pixels go together: a colour for each image, and noise."""
    return rng.normal(size=(n, CLASSES, 1, 1)) + noise * rng.normal(size=(n, CLASSES, *size))


@pytest.mark.parametrize("labels", ["hard", "soft"])
@pytest.mark.parametrize("stream", [False, True])
def test_one_pixel_an_image_is_classification(labels, stream):
    x = np.random.default_rng(0).normal(size=(300, CLASSES))
    pixels = x[:, :, None, None]
    data = (x, pixels) if not stream else (np.split(x, 6), np.split(pixels, 6))
    method = PseudoCal(labels=labels, epochs=1)
    plain, mapped = method.fit(classifier, data[0]), method.fit(segmenter, data[1])
    assert mapped.scaling == plain.scaling
    assert mapped.counts == plain.counts


def test_batches_of_an_array_are_as_large_as_fit_into_memory():
    x = images(30, (32, 32), np.random.default_rng(16)).astype(np.float32)
    asked = []

    def watched(x):
        asked.append(len(x))
        return segmenter(x)

    whole = PseudoCal().fit(watched, x)
    assert max(asked) == 30
    asked.clear()
    fitted = PseudoCal(memory=2**20).fit(watched, x)  # eight copies of five images are 960 KiB
    assert asked.pop(0) == 1  # a trial, which is no part of the pass
    assert max(asked) == fitted.settings["batch_size"] == 5
    assert fitted.counts["forward_passes"] == sum(asked)
    assert fitted.counts["forward_passes"] == whole.counts["forward_passes"] == 60
    assert fitted.scaling == PseudoCal(memory=2**20).fit(segmenter, x, batch_size=5).scaling
    assert PseudoCal(memory=2**16).fit(segmenter, x).settings["batch_size"] == 2


def test_batches_of_a_classifier_stay_as_they_are():
    x = images(30, (32, 32), np.random.default_rng(17))
    seen = []
    model = lambda x: seen.append(len(x)) or classifier(x.mean(axis=(2, 3)))  # noqa: E731
    assert PseudoCal(memory=2**16).fit(model, x).settings["batch_size"] == 128
    assert seen[:2] == [1, 30]


def test_workers_have_the_batches_of_one_process():
    from pseudocal.distributed import LocalExecutor

    x = images(30, (32, 32), np.random.default_rng(18)).astype(np.float32)
    method = PseudoCal(memory=2**20, pixels_per_image=20)
    alone, spread = method.fit(segmenter, x), method.fit(segmenter, x, executor=LocalExecutor())
    assert spread.settings["batch_size"] == alone.settings["batch_size"] == 5
    assert spread.counts == alone.counts


def test_a_constant_image_tells_no_more_than_one_pixel_of_it():
    x = np.random.default_rng(1).normal(size=(200, CLASSES))
    one = PseudoCal(epochs=1).fit(classifier, x)
    many = PseudoCal().fit(
        segmenter, np.broadcast_to(x[:, :, None, None], (200, CLASSES, 12, 12)).copy()
    )
    assert many.temperature == pytest.approx(one.temperature, rel=1e-6)
    assert (
        0.9 < many.scaling.log_se / one.scaling.log_se < 1.1
    )  # a twelfth, were the 144 pixels independent
    width, deserved = (np.log(high / low) for low, high in (many.interval, one.interval))
    assert 0.9 < width / deserved < 1.2


def test_epochs_bring_no_new_images():
    x = 2 * np.random.default_rng(16).normal(size=(6, CLASSES, 5, 5))
    once, often = PseudoCal().fit(segmenter, x), PseudoCal(epochs=10).fit(segmenter, x)
    assert often.scaling.groups < 6.5 < 10 * once.scaling.groups
    assert PseudoCal(epochs=10).fit(segmenter, x[:2]).interval == (0.0, np.inf)


def test_one_group_says_nothing_and_groups_of_one_row_are_none():
    rng = np.random.default_rng(2)
    z = 2 * rng.normal(size=(100, CLASSES))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    plain = fit_temperature(z, y)
    assert fit_temperature(z, y, groups=np.arange(100)) == plain
    assert (
        fit_temperature(z, y, groups=np.stack([np.arange(100), np.arange(100) + 1], axis=1))
        == plain
    )
    alone = fit_temperature(z, y, groups=np.zeros(100, dtype=int))
    assert alone.temperature == plain.temperature
    assert alone.interval() == (0.0, np.inf)
    with pytest.raises(InputError, match="expected groups as 100 integers"):
        fit_temperature(z, y, groups=np.zeros(99, dtype=int))


def test_copies_of_rows_in_one_group_leave_the_error_as_it_was():
    rng = np.random.default_rng(3)
    z = 2 * rng.normal(size=(400, CLASSES))
    y = (z / 1.5 + rng.gumbel(size=z.shape)).argmax(axis=1)
    plain = fit_temperature(z, y)
    copied = fit_temperature(
        np.repeat(z, 9, axis=0), np.repeat(y, 9), groups=np.repeat(np.arange(400), 9)
    )
    assert copied.log_se == pytest.approx(plain.log_se, rel=0.01)
    assert copied.groups == pytest.approx(400)
    is_binary = fit_temperature(np.repeat(z, 9, axis=0), np.repeat(y, 9))
    assert is_binary.log_se == pytest.approx(plain.log_se / 3, rel=0.01)


def test_intervals_of_clustered_pixels_hold_the_truth():
    """120 sets of 40 images of 5 x 5 pixels.

    `benchmarks/clusters.py` draws more and larger ones.
    """
    method = PseudoCal(pairing="batch")
    truth = method.fit(segmenter, images(6000, (5, 5), np.random.default_rng(4))).temperature
    held, is_binary = 0, 0
    for seed in range(120):
        found = PseudoCal(seed=seed).fit(
            segmenter, images(40, (5, 5), np.random.default_rng(1000 + seed))
        )
        held += found.interval[0] <= truth <= found.interval[1]
        alone = found.scaling.log_se / 3  # about what pixels that were independent would have
        is_binary += abs(np.log(found.temperature / truth)) <= 1.96 * alone
    assert 0.90 <= held / 120 <= 0.99
    assert is_binary / 120 < 0.75


def test_thinning_estimates_what_all_pixels_say():
    x = images(300, (9, 9), np.random.default_rng(5))
    whole, some = (
        PseudoCal(pixels_per_image=None).fit(segmenter, x),
        PseudoCal(pixels_per_image=10).fit(segmenter, x),
    )
    assert some.scaling.rows <= 3000 < whole.scaling.rows == whole.counts["mixup_samples"]
    assert abs(np.log(some.temperature / whole.temperature)) < 0.5 * whole.scaling.log_se
    assert PseudoCal().fit(segmenter, x).scaling == whole.scaling  # 81 pixels are fewer than 20,000


def test_all_pixels_go_through_the_reservoir():
    x = images(200, (16, 16), np.random.default_rng(6))
    small = PseudoCal(pixels_per_image=None, memory=2**18).fit(segmenter, x, batch_size=2)
    whole = PseudoCal(pixels_per_image=None).fit(
        segmenter, x, batch_size=2
    )  # of the same mixup samples
    assert small.scaling.rows < 1000 < small.counts["mixup_samples"]
    assert small.interval[0] < whole.temperature < small.interval[1]


def test_frames_of_several_sizes_are_paired_with_their_own():
    rng = np.random.default_rng(8)
    sizes = [(6, 8), (8, 6), (5, 5)]
    stream = [images(1, sizes[i % 3], rng) for i in range(60)]
    shapes = []

    def model(x):
        shapes.append(x.shape[2:])
        return segmenter(x)

    found = PseudoCal().fit(model, stream)
    assert set(shapes) == set(sizes)
    assert found.counts["pairs"] == 57  # the first of each size has nobody
    with pytest.raises(InputError, match="at least two target inputs"):
        PseudoCal().fit(segmenter, stream[:1])
    alone = [images(1, (4, 4 + i), rng) for i in range(5)]
    with pytest.raises(
        InputError,
        match=r"no two of the 5 inputs have the same shape \(3 x 4 x 4, 3 x 4 x 5, 3 x 4 x 6, \.\.\.\)",
    ):
        PseudoCal().fit(segmenter, alone)
    with pytest.raises(InputError, match="got 5 inputs in batches of one"):
        PseudoCal(pairing="batch").fit(segmenter, alone[:1] * 5)


def test_copies_of_one_image_are_told_so():
    copies = np.repeat(images(1, (6, 6), np.random.default_rng(0)), 40, axis=0)
    assert len(np.unique(predicted(segmenter(copies)))) > 1
    with pytest.raises(
        InputError, match="got 40 of which no two that were paired differ in any pixel"
    ):
        PseudoCal().fit(segmenter, copies)


def test_output_smaller_than_the_input_is_calibrated_as_it_is():
    x = images(100, (8, 8), np.random.default_rng(9))
    quarter = PseudoCal().fit(lambda x: segmenter(x[:, :, ::4, ::4]), x)
    cut = PseudoCal().fit(segmenter, x[:, :, ::4, ::4])
    assert quarter.temperature == pytest.approx(cut.temperature)


def test_pixels_without_any_class_do_not_count():
    x = images(80, (4, 4), np.random.default_rng(10))

    def padded(x):
        z = segmenter(x)
        return np.concatenate([z, np.full((len(z), CLASSES, 4, 2), -np.inf)], axis=3)

    assert PseudoCal().fit(padded, x).scaling == PseudoCal().fit(segmenter, x).scaling


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_pixel_that_is_no_number_is_named(bad):
    def broken(x):
        z = segmenter(x)
        z[1, 0, 2, 3] = bad
        return z

    with pytest.raises(InputError, match=r"below \+inf, got (NaN|\+inf) in image 1 at \(2, 3\)"):
        PseudoCal().fit(broken, images(4, (4, 4), np.random.default_rng(0)))


def test_binary_masks_and_other_strategies():
    x = images(60, (3, 3), np.random.default_rng(11))
    one = PseudoCal(binary=True).fit(lambda x: segmenter(x)[:, :1], x)
    two = PseudoCal().fit(
        lambda x: np.concatenate([np.zeros((len(x), 1, 3, 3)), segmenter(x)[:, :1]], axis=1), x
    )
    assert one.scaling == two.scaling
    with pytest.raises(InputError, match="expected mixup for a segmentation model, got cutmix"):
        PseudoCal().fit(segmenter, x, strategy=cutmix)
    for bad in (0, 2.5, True, "all"):
        with pytest.raises(
            InputError, match=f"at least one pixel of each image, a whole number.*got {bad!r}"
        ):
            PseudoCal(pixels_per_image=bad)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="at least one pixel of each image"):
            pixel_rows(segmenter, [(x, np.zeros((60, 3, 3), dtype=int))], pixels_per_image=bad)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one pixel that is not ignored"):
        pixel_rows(segmenter, [(x, np.full((60, 3, 3), IGNORED))])


def test_parts_merge_and_their_images_stay_apart():
    x = images(80, (4, 4), np.random.default_rng(12))
    method = PseudoCal()
    first, second = (
        method.collect(segmenter, x[:40], part=0),
        method.collect(segmenter, x[40:], part=1),
    )
    first.merge(second.pack())
    merged = method.conclude(first)
    assert 60 < merged.scaling.groups < 80  # 40, had they been mistaken for each other
    assert merged.scaling.rows == merged.counts["mixup_samples"]


def test_labelled_pixels_for_tempscal_and_oracle():
    rng = np.random.default_rng(13)
    z = 3 * rng.normal(size=(40, CLASSES, 6, 6))
    masks = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    masks[:, 0] = IGNORED
    rows = pixel_rows(lambda x: x, [(z[:20], masks[:20]), (z[20:], masks[20:])])
    assert len(rows.labels) == 40 * 30
    assert len(np.unique(rows.groups)) == 40
    found = tempscal(rows)
    assert found.interval[0] < 2 < found.interval[1]
    best = oracle(rows)
    assert best.scaling == found.scaling
    assert (
        best.scaling
        == oracle(rows.logits, rows.labels, groups=rows.groups, weights=rows.weights).scaling
    )
    assert best.interval != oracle(rows.logits, rows.labels).interval
    thin = pixel_rows(lambda x: x, [(z, masks)], pixels_per_image=5)
    assert len(thin.labels) == 200
    np.testing.assert_allclose(thin.weights, 6)
    with pytest.raises(InputError, match="labels from 0 to 2 or the ignored one, got 7 at"):
        pixel_rows(lambda x: x, [(z, np.where(masks == IGNORED, 7, masks))])


def test_padding_is_skipped_of_the_rows_whatever_its_label():
    rng = np.random.default_rng(19)
    z, masks = rng.normal(size=(4, CLASSES, 5, 6)), rng.integers(0, CLASSES, (4, 5, 6))
    z[:, :, 3:] = -np.inf
    rows = pixel_rows(lambda x: x, [(z, masks)])
    assert len(rows) == 4 * 3 * 6
    assert np.isfinite(tempscal(rows).temperature)
    with pytest.raises(InputError, match="at least one pixel that is not ignored"):
        pixel_rows(lambda x: x, [(np.full_like(z, -np.inf), masks)])


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("by", ["nll", "ece"])
def test_a_row_of_weight_three_is_three_rows_to_the_oracle(by, reference):
    rng = np.random.default_rng(15)
    z = 3 * rng.normal(size=(50, CLASSES))
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    weights = np.where(z.argmax(axis=1) == y, 1, 3)
    often = oracle(z.repeat(weights, axis=0), y.repeat(weights), by=by, reference=reference)
    weighted = oracle(Labelled(z, y, weights.astype(float)), by=by, reference=reference)
    assert weighted.temperature == pytest.approx(often.temperature, rel=1e-3)
    assert weighted.temperature != pytest.approx(
        oracle(z, y, by=by, reference=reference).temperature, rel=1e-3
    )


def test_the_oracle_takes_logits_with_labels_or_both_in_one():
    rows = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))
    with pytest.raises(InputError, match="expected logits and labels, or a Labelled"):
        oracle(rows.logits)
    with pytest.raises(InputError, match="expected a Labelled without further arguments"):
        oracle(rows, rows.labels)


def test_masks_denser_than_the_logits_are_looked_up():
    masks = np.arange(16).reshape(1, 4, 4) % 2
    np.testing.assert_array_equal(at_size(masks, (2, 2))[0], masks[0, 1::2, 1::2])
    rows = labelled_pixels(np.zeros((1, 2, 2, 2)), masks, rng=np.random.default_rng(0))
    assert rows.labels.tolist() == [1, 1, 1, 1]


def test_maps_in_ensembles_and_calibrations():
    rng = np.random.default_rng(14)
    a, b = rng.normal(size=(2, 3, CLASSES, 4, 5))
    rows = [np.moveaxis(z, 1, -1).reshape(-1, CLASSES) for z in (a, b)]
    expected = np.moveaxis(ensemble(rows).reshape(3, 4, 5, CLASSES), -1, 1)
    np.testing.assert_allclose(ensemble([a, b]), expected, atol=1e-6)
    together = Ensemble((lambda x: a, lambda x: b))
    np.testing.assert_array_equal(together(None), ensemble([a, b]))
    calibration = PseudoCal().fit(segmenter, images(40, (3, 3), rng))
    np.testing.assert_allclose(calibration(a), a / calibration.temperature)
    np.testing.assert_allclose(calibration.probabilities(a).sum(axis=1), 1)
    for use in (calibration, calibration.probabilities):
        with pytest.raises(
            InputError, match=r"height, width\), got shape \(3, 4, 5\); .* logits\[None\]"
        ):
            use(a[0])
    np.testing.assert_array_equal(by_rows(lambda z: z, a), a)
    np.testing.assert_array_equal(predicted(a), a.argmax(axis=1))


def test_members_that_do_not_agree_are_told_so():
    x = np.zeros((2, 4, 24, 24))
    for other in (lambda x: x[:, :, ::2, ::2], lambda x: x[:, :3], lambda x: x[:, :, 0, 0]):
        with pytest.raises(InputError, match="two members or more, all of one shape, got") as error:
            Ensemble((lambda x: x, other))(x)
        assert f"{x.shape} and {other(x).shape}" in str(error.value)
    for members in ((), (lambda x: x,)):
        with pytest.raises(InputError, match=f"expected two members or more, got {len(members)}"):
            Ensemble(members)


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_changes_the_size_of_its_maps_is_refused(stream):
    x = images(40, (8, 8), np.random.default_rng(20))
    calls = []

    def moody(x):
        calls.append(x)
        return segmenter(x)[:, :, :: 1 + (len(calls) > 2)]

    with pytest.raises(
        InputError,
        match=r"maps of one size for inputs of one size, got \(4, 8\) after \(8, 8\) for",
    ):
        PseudoCal().fit(moody, np.split(x, 10) if stream else x, batch_size=10)


@pytest.mark.parametrize("n", [2, 3])
def test_batches_without_masks_are_refused(n):
    x = images(n, (4, 4), np.random.default_rng(21))
    with pytest.raises(
        InputError, match=rf"batches of \(images, masks\), got ndarray of shape \({n}, 3, 4, 4\)"
    ):
        pixel_rows(segmenter, [x, x])
    with pytest.raises(InputError, match=r"batches of \(images, masks\), got dict"):
        pixel_rows(segmenter, [{"x": x}])  # type: ignore[list-item]
