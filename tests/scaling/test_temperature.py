"""The temperature fit against known truths, hand-worked values, other libraries and every edge we could think of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_softmax

from pseudocal import InputError, TemperatureScaling, fit_temperature, passes
from pseudocal.scaling import slope as slope_module
from pseudocal.scaling import temperature as temperature_module


def exact(logits, labels, weights=None):
    """The optimum by a textbook root search in float64."""
    z = np.asarray(logits, dtype=np.float64)
    w = np.ones(len(z)) if weights is None else np.asarray(weights)
    at_label = z[np.arange(len(z)), labels]

    def slope(log_t):
        p = np.exp(log_softmax(z / math.exp(log_t), axis=1))
        return float(w @ ((p * z).sum(axis=1) - at_label))

    return math.exp(brentq(slope, -9, 13, xtol=1e-12))


# ------------------------------------------------------------------------------------------------
# known truth


@pytest.mark.parametrize("truth", [0.05, 0.3, 1.0, 2.0, 10.0, 20.0, 1000.0])
@pytest.mark.parametrize("n", [300, 40_000])
def test_finds_the_temperature_that_drew_the_labels(known, truth, n):
    scaling = fit_temperature(*known(n, 10, truth))
    assert abs(math.log(scaling.temperature / truth)) < 3 * scaling.log_se
    assert scaling.log_se < 2.5 / math.sqrt(n)
    assert scaling.bound is None
    assert scaling.rows == n


def test_interval_covers_the_truth_as_often_as_it_says(known):
    covered = 0
    for seed in range(1000):
        low, high = fit_temperature(*known(400, 5, 1.7, seed=seed)).interval()
        covered += low < 1.7 < high
    assert 930 <= covered <= 970


def test_interval_holds_for_a_misspecified_model():
    """Labels that no temperature explains.

    The model-based error would be wrong, the sandwich is not.
    """
    rng = np.random.default_rng(0)

    def sample(n):
        z = rng.standard_normal((n, 4)) * np.exp(rng.standard_normal((n, 1)))
        noisy = rng.random(n) < 0.3
        return z, np.where(noisy, rng.integers(0, 4, n), z.argmax(axis=1))

    truth = fit_temperature(*sample(400_000)).temperature
    covered = sum(
        low < truth < high
        for low, high in (fit_temperature(*sample(500)).interval() for _ in range(400))
    )
    assert 0.92 < covered / 400 < 0.98


def test_a_calibrated_model_is_left_alone(known):
    low, high = fit_temperature(*known(50_000, 20, 1.0)).interval()
    assert low < 1 < high
    assert high / low < 1.05


# ------------------------------------------------------------------------------------------- the
# stress table


def test_every_prediction_right(known):
    logits, _ = known(2000, 10, 1.0)
    scaling = fit_temperature(logits, logits.argmax(axis=1))
    assert scaling.bound == "lower"
    assert scaling.temperature == temperature_module.BOUNDS[0]
    assert scaling.interval() == (0.0, math.inf)


def test_right_beyond_doubt_is_still_the_lower_bound():
    logits = np.array(
        [[1e4, 0.0], [0.0, 1e4]] * 50
    )  # the likelihood is flat to the last digit at T = 1
    assert fit_temperature(logits, [0, 1] * 50).bound == "lower"


@pytest.mark.parametrize("seed", range(5))
def test_random_labels(known, seed):
    logits, _ = known(5000, 10, 1.0, seed=seed)
    scaling = fit_temperature(logits, np.random.default_rng(seed + 100).integers(0, 10, 5000))
    assert scaling.temperature > 30
    assert scaling.bound in (None, "upper")


def test_labels_that_are_the_least_likely_class(known):
    logits, _ = known(2000, 10, 1.0)
    scaling = fit_temperature(logits, logits.argmin(axis=1))
    assert scaling.bound == "upper"
    assert scaling.temperature == temperature_module.BOUNDS[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_class_at_minus_infinity_is_an_impossible_class(known, dtype):
    logits, labels = known(3000, 9, 2.0)
    expected = fit_temperature(logits.astype(dtype), labels)
    with_impossible = np.insert(logits, 4, -np.inf, axis=1).astype(dtype)
    scaling = fit_temperature(with_impossible, labels + (labels >= 4))
    assert scaling.temperature == pytest.approx(expected.temperature, rel=2e-6)
    assert scaling.log_se == pytest.approx(expected.log_se, rel=1e-4)


def test_impossible_classes_in_some_rows_and_wide_logits(known):
    logits, labels = known(3000, 200, 2.0)
    logits[5, (labels[5] + 1) % 200] = -np.inf
    assert fit_temperature(logits, labels).temperature == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, r"\+inf")])
@pytest.mark.parametrize("classes", [10, 300])
def test_what_is_not_a_number_is_named_by_its_row(known, value, name, classes):
    logits, labels = known(4000, classes, 2.0)
    logits[3210, 7] = value
    with pytest.raises(InputError, match=f"expected .* got {name} in row 3210"):
        fit_temperature(logits, labels)


def test_a_row_without_any_possible_class(known):
    logits, labels = known(100, 3, 2.0)
    logits[17] = -np.inf
    with pytest.raises(InputError, match="-inf for every class in row 17"):
        fit_temperature(logits, labels)


def test_an_impossible_label_is_an_error_that_names_the_row(known):
    logits, labels = known(1000, 10, 2.0)
    logits[321, labels[321]] = -np.inf
    with pytest.raises(InputError, match=r"-inf in row 321.*np\.log\(np\.maximum"):
        fit_temperature(logits, labels)


def test_logits_so_large_that_their_cube_overflows(known):
    logits, labels = known(2000, 5, 1.0)
    big = (logits * 1e15).astype(np.float32)  # T = 1e15 lies beyond the range
    assert fit_temperature(big, labels).bound == "upper"
    with np.errstate(over="raise"):
        assert fit_temperature(
            (logits * 1e5).astype(np.float32), labels
        ).temperature == pytest.approx(1e5, rel=0.1)


@pytest.mark.parametrize("offset", [-1e3, -200.0, -190.0, -50.0, 50.0, 190.0, 1e3])
def test_what_is_added_to_a_row_of_logits_does_not_matter(known, offset):
    """Also where exp of a row as it is would overflow, vanish, or be a few digits that are left of it."""
    logits, labels = known(5_000, 7, 2.0)
    logits = logits.astype(np.float32)
    moved = logits.copy()
    moved[::3] += np.float32(offset)
    assert fit_temperature(moved, labels).temperature == pytest.approx(
        exact(moved, labels), rel=1e-5
    )


@pytest.mark.parametrize("truth", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("accuracy", [0.8, 0.999])
def test_an_offset_of_ten_thousand_costs_no_digit(truth, accuracy):
    rng = np.random.default_rng(0)
    logits = (2 * truth * rng.standard_normal((3000, 6)) + 1e4).astype(np.float32)
    labels = np.where(rng.random(3000) < accuracy, logits.argmax(axis=1), rng.integers(0, 6, 3000))
    assert fit_temperature(logits, labels).temperature == pytest.approx(
        exact(logits - 1e4, labels), rel=2e-6
    )


def test_labels_may_be_unsigned_64_bit_integers(known):
    logits, labels = known(500, 5, 2.0)
    assert fit_temperature(logits, labels.astype(np.uint64)) == fit_temperature(logits, labels)


@pytest.mark.parametrize("unit", [1e308, 1e300, 1e-300, 1e-320])
def test_the_unit_of_weights_does_not_matter(known, unit):
    logits, labels = known(500, 5, 2.0)
    plain, scaled = (
        fit_temperature(logits, labels),
        fit_temperature(logits, labels, weights=np.full(500, unit)),
    )
    assert scaled.temperature == pytest.approx(plain.temperature, rel=1e-9)
    assert scaled.log_se == pytest.approx(plain.log_se, rel=1e-9)


def test_weights_so_small_that_whole_samples_of_rows_count_for_nothing(known):
    logits, labels = known(20_000, 5, 2.0)
    weights = np.full(20_000, 1e-320)
    weights[:500] = 1e300
    assert fit_temperature(logits, labels, weights=weights).temperature == pytest.approx(
        exact(logits[:500], labels[:500]), rel=1e-5
    )


def test_constant_logits_say_nothing():
    scaling = fit_temperature(np.zeros((50, 3)), np.zeros(50, dtype=int))
    assert scaling.temperature == 1.0
    assert scaling.interval() == (0.0, math.inf)


# ------------------------------------------------------------------------------------------
# exactness, references


@pytest.mark.parametrize("classes", [2, 10, 127, 128, 400])
@pytest.mark.parametrize("truth", [0.2, 3.0])
def test_is_the_exact_optimum(known, classes, truth):
    logits, labels = known(6000, classes, truth)
    assert fit_temperature(logits, labels).temperature == pytest.approx(
        exact(logits, labels), rel=3e-6
    )


@settings(max_examples=60)
@given(
    st.integers(0, 10_000),
    st.integers(2, 9),
    st.integers(4, 400),
    st.floats(-2, 5),
    st.floats(0.02, 0.5),
)
def test_is_the_exact_optimum_whatever_the_data(seed, classes, n, log_scale, noise):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((n, classes)) * math.exp(log_scale)
    labels = np.where(rng.random(n) < noise, rng.integers(0, classes, n), logits.argmax(axis=1))
    scaling = fit_temperature(logits, labels)
    assert scaling.temperature > 0
    if scaling.bound is None:
        assert scaling.temperature == pytest.approx(exact(logits, labels), rel=1e-5)


def test_agrees_with_other_libraries(known):
    calibration = pytest.importorskip("sklearn.calibration")
    logits, labels = known(5000, 10, 2.0)
    theirs = (
        calibration._TemperatureScaling()
    )  # behind CalibratedClassifierCV(method="temperature")
    expected = 1 / theirs.fit(logits, labels).beta_
    assert fit_temperature(logits, labels).temperature == pytest.approx(float(expected), rel=1e-3)


def test_the_temperature_of_the_released_code():
    """TempScal of the released code on a formula-made validation set; its search stops at 1e-4."""
    i, j = np.mgrid[:60, :5]
    logits = 4 * np.sin(1.3 * i + 0.7 * j + 0.11 * i * j + 0.2)
    row = np.arange(60)
    labels = logits.argmax(axis=1)
    labels = np.where((5 * row + 2) % 3 == 0, (labels + 1 + row % 3) % 5, labels)
    assert fit_temperature(logits, labels).temperature == pytest.approx(2.983887, abs=1e-4)


# ----------------------------------------------------------------------------------------------
# equivalences


def test_soft_targets_that_are_certain_are_labels(known):
    logits, labels = known(2000, 7, 2.0)
    hard, soft = fit_temperature(logits, labels), fit_temperature(logits, np.eye(7)[labels])
    assert soft.temperature == pytest.approx(hard.temperature, rel=1e-9)
    assert soft.log_se == pytest.approx(hard.log_se, rel=1e-9)


def test_soft_targets_are_the_mean_over_their_draws(known):
    """One row with target (1/4, 3/4) is as four rows of which three say the second class."""
    logits, _ = known(200, 2, 2.0)
    soft = fit_temperature(logits, np.tile([0.25, 0.75], (200, 1)))
    hard = fit_temperature(np.repeat(logits, 4, axis=0), np.tile([0, 1, 1, 1], 200))
    assert soft.temperature == pytest.approx(hard.temperature, rel=1e-6)


@pytest.mark.parametrize("classes", [6, 150])
def test_weights_are_repetitions(known, classes):
    logits, labels = known(400, classes, 2.0)
    times = np.random.default_rng(0).integers(0, 4, 400)
    weighted = fit_temperature(logits, labels, weights=times)
    repeated = fit_temperature(np.repeat(logits, times, axis=0), np.repeat(labels, times))
    assert weighted.temperature == pytest.approx(repeated.temperature, rel=1e-6)
    assert weighted.log_se > repeated.log_se  # copies are not new evidence


def test_the_error_of_equal_weights_is_that_of_none(known):
    logits, labels = known(400, 6, 2.0)
    plain, weighted = (
        fit_temperature(logits, labels),
        fit_temperature(logits, labels, weights=np.full(400, 7.0)),
    )
    assert weighted.log_se == pytest.approx(plain.log_se, rel=1e-9)


@given(st.floats(0.01, 100))
@settings(max_examples=20)
def test_scaling_the_logits_scales_the_temperature(factor):
    rng = np.random.default_rng(1)
    logits, labels = rng.standard_normal((300, 4)) * 3, rng.integers(0, 4, 300)
    labels[:200] = logits[:200].argmax(axis=1)
    one, other = fit_temperature(logits, labels), fit_temperature(factor * logits, labels)
    assert other.temperature == pytest.approx(factor * one.temperature, rel=1e-5)


@pytest.mark.parametrize("classes", [12, 200])
def test_dtypes_and_layouts(known, tmp_path, classes):
    logits, labels = known(5000, classes, 2.0)
    logits = logits.astype(np.float16)
    expected = fit_temperature(logits.astype(np.float64), labels).temperature
    on_disk = np.memmap(tmp_path / "logits", dtype=np.float16, mode="w+", shape=logits.shape)
    on_disk[:] = logits
    wide = np.zeros((5000, 2 * classes), dtype=np.float32)
    wide[:, ::2] = logits
    for same in (
        logits,
        logits.astype(np.float32),
        np.asfortranarray(logits),
        on_disk,
        wide[:, ::2],
    ):
        assert fit_temperature(same, labels).temperature == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("classes", [10, 500])
def test_the_number_of_cores_does_not_change_a_digit(known, monkeypatch, classes):
    logits, labels = known(20_000, classes, 2.0)
    monkeypatch.setattr(passes, "WORTHWHILE", 1)
    results = set()
    for cores in (1, 2, 7):
        monkeypatch.setattr(passes, "cores", lambda cores=cores: cores)
        results.add(fit_temperature(logits, labels))
    assert len(results) == 1


def test_the_full_data_is_read_at_most_three_times(known, monkeypatch):
    passes = []

    def counting(logits, targets, weights, rows, b):
        passes.append(rows is None)
        return slope_module.slope(logits, targets, weights, rows, b)

    monkeypatch.setattr(temperature_module, "slope", counting)
    for truth in (0.05, 0.7, 2.0, 40.0, 1000.0):
        passes.clear()
        fit_temperature(*known(50_000, 10, truth))
        assert 1 <= sum(passes) <= 3


def test_sorted_rows_are_sampled_fairly(known):
    logits, labels = known(40_000, 10, 2.0)
    order = np.argsort(logits.max(axis=1))
    assert fit_temperature(logits[order], labels[order]).temperature == pytest.approx(
        fit_temperature(logits, labels).temperature, rel=3e-6
    )


def test_allocates_nothing_of_the_size_of_the_input(known):
    import tracemalloc

    logits, labels = known(200_000, 40, 2.0)  # 64 MB
    tracemalloc.start()
    fit_temperature(logits, labels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (
            np.zeros(3),
            [0, 1, 0],
            r"expected logits of shape \(n, classes\), got shape \(3,\).*binary_logits",
        ),
        (np.zeros((0, 3)), [], "expected at least one row"),
        (np.zeros((3, 1)), [0, 0, 0], r"at least two classes, got shape \(3, 1\)"),
        (np.zeros((3, 2, 2)), [0, 0, 0], "got shape"),
        (np.zeros((3, 2)), [0, 1], r"expected labels of shape \(3,\).*got shape \(2,\)"),
        (np.zeros((3, 2)), [0, 1, 2], "expected labels from 0 to 1, got 2 in row 2"),
        (np.zeros((3, 2)), [0, -1, 1], "got -1 in row 1"),
        (np.zeros((3, 2)), [0.0, 1.0, 1.0], "integers, got dtype float64"),
        (np.zeros((2, 2)), [[1, 1], [0, 1]], "sum to one in each row, got .* in row 0"),
        (np.zeros((2, 3)), [[1, 0], [0, 1]], r"soft targets of shape \(2, 3\)"),
        (np.array([["a", "b"]]), [0], "real numbers, got dtype"),
    ],
)
def test_bad_input(logits, labels, message):
    with pytest.raises(InputError, match=message):
        fit_temperature(logits, labels)


@pytest.mark.parametrize("weights", [[1, 1], [0, 0, 0], [1, -1, 1], [1, np.nan, 1]])
def test_bad_weights(weights):
    with pytest.raises(InputError, match="expected weights"):
        fit_temperature(np.eye(3), [0, 1, 1], weights=weights)


def test_a_temperature_is_positive():
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="expected a positive temperature"):
            TemperatureScaling(bad)


def test_scaling_never_changes_the_prediction_and_widens_float16():
    logits = np.array([[3.0, 60.0, -60000.0]], dtype=np.float16)
    scaled = TemperatureScaling(1e-4)(logits)
    assert scaled.dtype == np.float32
    assert np.isfinite(scaled).all()
    assert scaled.argmax() == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("n", [4096, 5000, 100_000, 2_000_000])
def test_samples_are_rows_in_order_each_once(n, dtype):
    logits = np.random.default_rng(0).standard_normal((n, 2), dtype=np.float32).astype(dtype)
    *samples, last = temperature_module._samples(logits)
    assert last is None
    assert len(samples) == math.floor(math.log(n / 256, 16) + 1e-9)
    for size, rows in zip(
        sorted(n // 16**k for k in range(1, 1 + len(samples))), samples, strict=True
    ):
        assert rows[0] >= 0
        assert rows[-1] < n
        assert (np.diff(rows) > 0).all()
        assert size / 2 < len(rows) < 2 * size


@pytest.mark.parametrize("run", [1, 64])
@pytest.mark.parametrize(("n", "size"), [(4096, 256), (5000, 312), (10_000_000, 2**19)])
def test_rows_that_are_spread_evenly_are_in_order_hardly_any_twice(n, size, run):
    rows = temperature_module._spread_evenly(n, size, run)
    assert rows[0] >= 0
    assert rows[-1] < n
    assert (np.diff(rows) >= 0).all()
    assert len(np.unique(rows)) > 0.95 * len(rows)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 2e-6), (np.float16, 2e-6)]
)
@pytest.mark.parametrize(("n", "classes"), [(4096, 10), (5000, 2), (100_000, 50)])
def test_the_order_of_the_rows_makes_no_difference(known, n, classes, dtype, tolerance):
    """Sums of single precision depend on their order, so the last digits may differ there."""
    logits, labels = known(n, classes, 2.0)
    logits, rng = logits.astype(dtype), np.random.default_rng(0)
    first = fit_temperature(logits, labels)
    for _ in range(3):
        order = rng.permutation(n)
        again = fit_temperature(logits[order], labels[order])
        assert again.temperature == pytest.approx(first.temperature, rel=tolerance)
        assert again.log_se == pytest.approx(first.log_se, rel=tolerance)
        assert again.effective_rows == pytest.approx(first.effective_rows, rel=tolerance)


def test_equal_rows_are_sampled_by_position():
    logits = np.tile([[2.0, 0.0]], (20_000, 1))
    sample, _ = temperature_module._samples(logits)
    assert len(sample) == 20_000 // 16
    labels = np.arange(20_000) % 4 == 3
    assert fit_temperature(logits, labels.astype(int)).temperature == pytest.approx(
        2 / math.log(3), rel=1e-6
    )


def test_a_memory_map_gives_the_same_temperature(known, tmp_path):
    logits, labels = known(20_000, 10, 1.7)
    np.save(tmp_path / "z.npy", logits)
    mapped = np.load(tmp_path / "z.npy", mmap_mode="r")
    assert fit_temperature(mapped, labels).temperature == pytest.approx(
        fit_temperature(logits, labels).temperature, rel=2e-6
    )


def test_an_unknown_standard_error_equals_another():
    scaling = TemperatureScaling(2.0)
    assert scaling == TemperatureScaling(2.0, log_se=float("nan"))
    assert hash(scaling) == hash(TemperatureScaling(2.0))
    for other in (TemperatureScaling(2.0, log_se=0.1), TemperatureScaling(3.0), 2.0):
        assert scaling != other
