import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import norm

from pseudocal.arrays import InputError
from pseudocal.metrics import (
    METRICS,
    Interval,
    Outcomes,
    Segmented,
    accuracy,
    bootstrap,
    brier,
    debiased_l2,
    ece,
    nll,
    overconfidence,
    paired,
)


def before_and_after(draw, n: int, T: float, seed: int) -> tuple[Outcomes, Outcomes]:
    logits, labels = draw(n, T=T, seed=seed)
    return Outcomes.from_logits(logits, labels), Outcomes.from_logits(logits / T, labels)


def covered(
    draw,
    metric,
    T: float,
    *,
    n: int,
    sets: int,
    resamples: int = 200,
    paired_with_truth: bool = False,
) -> float:
    """How often the interval holds the value of many rows (after scaling by T, an ECE of exactly zero)."""
    large = before_and_after(draw, 200_000, T, seed=10**6)
    before, after = (
        0.0 if metric is ece and true else metric(big)
        for big, true in zip(large, (T == 1, True), strict=True)
    )
    hits = 0
    for seed in range(sets):
        old, new = before_and_after(draw, n, T, seed)
        if paired_with_truth:
            interval, truth = (
                paired(metric, old, new, resamples=resamples, seed=seed),
                after - before,
            )
        else:
            interval, truth = bootstrap(metric, old, resamples=resamples, seed=seed), before
        hits += interval.low <= truth <= interval.high
    return hits / sets


@pytest.mark.slow
@pytest.mark.parametrize("T", [1.0, 1.2, 2.0])
@pytest.mark.parametrize("metric", [accuracy, nll, ece])
def test_coverage(draw, metric, T):
    assert 0.90 <= covered(draw, metric, T, n=1000, sets=400) <= 0.995


@pytest.mark.slow
@pytest.mark.parametrize("T", [1.2, 2.0])
@pytest.mark.parametrize("metric", [nll, ece])
def test_coverage_of_a_change(draw, metric, T):
    assert covered(draw, metric, T, n=1000, sets=400, paired_with_truth=True) >= 0.90


@pytest.mark.parametrize("metric", [accuracy, nll, ece])
def test_coverage_in_brief(draw, metric):
    """Of a calibrated model.

    Here a plain percentile interval never holds the true ECE, which is zero.
    """
    assert covered(draw, metric, T=1.0, n=300, sets=40) >= 0.85


def test_coverage_of_a_change_in_brief(draw):
    """The scaled model is calibrated, and chance gives it some ECE.

    The change looks smaller than it is.
    """
    assert covered(draw, ece, T=1.2, n=300, sets=40, resamples=100, paired_with_truth=True) >= 0.85


def test_the_interval_of_a_mean_is_the_textbook_one(overconfident):
    for metric, column in (
        (accuracy, overconfident.correct),
        (nll, overconfident.nll),
        (brier, overconfident.brier),
    ):
        half = norm.ppf(0.95) * column.std() / math.sqrt(len(column))
        interval = bootstrap(metric, overconfident, level=0.9)
        assert interval.value == pytest.approx(column.mean())
        assert (interval.low, interval.high) == pytest.approx(
            (interval.value - half, interval.value + half), rel=0.02
        )


def test_a_calibrated_model_may_have_no_error_and_an_overconfident_one_has(draw, overconfident):
    calibrated = Outcomes.from_logits(*draw(2000))
    for metric in (ece, partial(ece, bins=10), debiased_l2):
        assert bootstrap(metric, calibrated, resamples=200).low == 0
        assert bootstrap(metric, overconfident, resamples=200).low > 0.1


def test_every_interval_holds_its_value(draw):
    for T in (1.0, 1.2, 0.5):
        outcomes = Outcomes.from_logits(*draw(80, T=T))
        for name, metric in METRICS.items():
            interval = bootstrap(metric, outcomes, resamples=50)
            assert interval.low <= interval.value <= interval.high, name


def test_intervals_stay_within_what_is_possible():
    one_wrong = Outcomes.from_probabilities([[0.98, 0.02]] * 30, [0] * 29 + [1])
    for name, metric in METRICS.items():
        interval = bootstrap(metric, one_wrong, resamples=100)
        hint = f"{name}: see CALIBRATION_ERRORS and LIMITS in metrics/intervals.py"
        assert interval.low >= (-1 if name == "overconfidence" else 0), hint
        assert name in ("nll", "brier") or interval.high <= 1, hint


def test_pairing_shows_what_two_intervals_hide(draw):
    before, after = before_and_after(draw, 1000, T=1.3, seed=3)
    change = paired(nll, before, after)
    assert change.value == pytest.approx(nll(after) - nll(before))
    assert change.high < 0
    assert bootstrap(nll, after).high > bootstrap(nll, before).low  # taken apart, they overlap
    half = norm.ppf(0.975) * (after.nll - before.nll).std() / math.sqrt(1000)
    assert change.high - change.low == pytest.approx(2 * half, rel=0.1)


def test_no_change_is_no_change(overconfident):
    assert paired(accuracy, overconfident, overconfident, resamples=20) == Interval(0.0, 0.0, 0.0)


def test_the_seed_decides(overconfident):
    first = bootstrap(ece, overconfident, resamples=50, seed=1)
    assert bootstrap(ece, overconfident, resamples=50, seed=1) == first
    assert bootstrap(ece, overconfident, resamples=50, seed=2) != first


def test_more_level_is_wider(overconfident):
    narrow, wide = (
        bootstrap(overconfidence, overconfident, resamples=200, level=level)
        for level in (0.5, 0.99)
    )
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_an_impossible_label_makes_the_loss_infinite():
    impossible = Outcomes.from_logits([[0.0, -np.inf], [0.0, 0.0]], [1, 1])
    possible = Outcomes.from_logits([[0.0, 0.0], [0.0, 0.0]], [1, 1])
    assert bootstrap(nll, impossible, resamples=20) == Interval(math.inf, math.inf, math.inf)
    assert paired(nll, impossible, possible, resamples=20) == Interval(
        -math.inf, -math.inf, -math.inf
    )
    assert math.isnan(paired(nll, impossible, impossible, resamples=20).value)


def test_what_cannot_be_right_is_refused(overconfident):
    with pytest.raises(InputError, match="same rows before and after, got 10 rows and 9 rows"):
        paired(ece, overconfident[:10], overconfident[:9])
    with pytest.raises(InputError, match="two resamples, got 1"):
        bootstrap(ece, overconfident, resamples=1)
    for level in (0, 1, 95):
        with pytest.raises(InputError, match=f"between 0 and 1, got {level}"):
            bootstrap(ece, overconfident, level=level)


def test_of_one_row_nothing_is_known():
    one = Outcomes.from_probabilities([[0.7, 0.3]], labels=[1])
    group = Outcomes.from_probabilities([[0.7, 0.3]] * 3, labels=[1, 0, 0])
    for outcomes, groups in ((one, None), (group, [4, 4, 4])):
        for metric, least, most in (
            (accuracy, 0, 1),
            (ece, 0, 1),
            (nll, 0, math.inf),
            (len, -math.inf, math.inf),
        ):
            known = bootstrap(metric, outcomes, groups=groups)
            change = paired(metric, outcomes, outcomes, groups=groups)
            assert (known.value, known.low, known.high) == (metric(outcomes), least, most)
            assert (change.value, change.low, change.high) == (0, least - most, most - least)


def test_rows_and_images_are_not_compared(overconfident):
    images = Segmented.of(np.zeros((2, 2, 3, 3)), np.zeros((2, 3, 3), int))
    with pytest.raises(
        InputError, match="expected the same rows before and after, got 2000 rows and 2 images"
    ):
        paired("ece", overconfident, images)
    with pytest.raises(
        InputError,
        match=r"expected no groups with images, since each image is a unit, got \[0, 1\]",
    ):
        bootstrap("ece", images, groups=[0, 1])
    with pytest.raises(
        InputError,
        match="expected a metric among accuracy, nll, brier, ece, miou, got <function ece",
    ):
        bootstrap(ece, images)
    with pytest.raises(InputError, match=r"expected a metric among accuracy, nll, .*, got 'miou'"):
        bootstrap("miou", overconfident)


def test_a_metric_by_name_is_the_metric(overconfident):
    few = overconfident[:200]
    for name, metric in METRICS.items():
        assert bootstrap(name, few, resamples=20) == bootstrap(metric, few, resamples=20)
        assert paired(name, few, few, resamples=20) == paired(metric, few, few, resamples=20)
