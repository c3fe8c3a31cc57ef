"""What labels say: equivalences, known truths, coverage, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from pseudocal import (
    Calibration,
    InputError,
    LabelSample,
    TemperatureScaling,
    UnreliableCalibrationWarning,
    fit_temperature,
    rows_to_label,
    softmax,
)
from pseudocal.calibrators import (
    CANNOT_TELL,
    NONE_OF_THESE,
    Prior,
    Reason,
    ReasonCode,
    measure_temperature,
    refine,
)
from pseudocal.calibrators.anytime import GRID, LabelHistory
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.labelled_accuracy import FEWEST_FOR_ECE
from pseudocal.calibrators.measured import MeasuredEvidence, judge_temperature
from pseudocal.calibrators.posterior import LOG_T, Likelihood, log_likelihood, posterior
from pseudocal.calibrators.refinement import TWO_CLASSES, priors_of
from pseudocal.calibrators.trust import AccuracyEstimate
from pseudocal.metrics import Interval


def model(
    rows: int = 2000, classes: int = 5, temperature: float = 2.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels that are calibrated at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 3
    p = softmax(logits / temperature)
    return logits, (p.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=classes - 1)


def labelled(logits: np.ndarray, labels: np.ndarray, n: int, seed: int = 0) -> LabelSample:
    rows = rows_to_label(logits, n, seed=seed)
    return LabelSample(rows, labels[rows], seed=seed)


def test_a_prior_of_infinite_width_is_labels_alone() -> None:
    logits, labels = model()
    sample = labelled(logits, labels, 60)
    alone, _ = refine(logits, sample)
    flat, measured = refine(logits, sample, priors=[Prior("mixup", 7.0, math.inf)])
    assert flat == alone
    assert measured.priors == (Prior("mixup", 7.0, math.inf),)


@pytest.mark.parametrize("width", [0.1, 1.0, math.inf])
def test_two_class_labels_for_all_rows_are_fit_temperature(width: float) -> None:
    """With more classes, half of the likelihood is that of right and wrong predictions."""
    logits, labels = model(rows=300, classes=2)
    sample = LabelSample(np.arange(300), labels, sampling="random")
    scaling, measured = refine(logits, sample, priors=[Prior("mixup", 0.3, width)])
    assert scaling.temperature == pytest.approx(
        fit_temperature(logits, labels).temperature, rel=1e-4
    )
    accuracy = float((logits.argmax(axis=1) == labels).mean())
    assert measured.accuracy.low == measured.accuracy.high == pytest.approx(accuracy)


def test_many_labels_outweigh_a_wrong_prior_and_few_do_not() -> None:
    logits, labels = model(rows=5000)
    wrong = [Prior("mixup", 0.2, 0.2, doubt=0.0)]
    few, many = (
        refine(logits, labelled(logits, labels, n), priors=wrong)[0].temperature for n in (2, 500)
    )
    assert few < 1 < 1.6 < many < 2.4


def test_a_narrow_prior_alone_has_the_quantiles_of_students_t() -> None:
    found = posterior(lambda g: np.zeros((1, len(g))), [Prior("mixup", 2.0, 0.01, doubt=0.0)])
    assert found.median == pytest.approx(math.log(2), abs=1e-4)
    assert found.quantile(0.95) == pytest.approx(math.log(2) + 0.01 * 2.3534, abs=5e-4)


@pytest.mark.parametrize("width", [0.05, 0.5])
def test_the_posterior_against_an_integral(width: float) -> None:
    """Three right sample of four at gap 2, whose likelihood peaks at T = 2 / log 3."""
    logits, labels = np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1])
    found = posterior(
        lambda g: log_likelihood(logits, labels, g), [Prior("mixup", 0.5, width, doubt=0.0)]
    )

    def density(g: float) -> float:
        p = 1 / (1 + math.exp(-2 * math.exp(-g)))
        return p**3 * (1 - p) * (1 + ((g - math.log(0.5)) / width) ** 2 / 3) ** -2

    below, above = (
        quad(density, *ends, points=[math.log(0.5), 0.6], limit=500)[0]
        for ends in ((LOG_T[0], found.median), (found.median, LOG_T[1]))
    )
    assert below / (below + above) == pytest.approx(0.5, abs=4e-3)


def test_the_order_of_labels_does_not_matter() -> None:
    logits, labels = model()
    sample = labelled(logits, labels, 40)
    turned = LabelSample(sample.rows[::-1], sample.labels[::-1])
    assert refine(logits, sample) == refine(logits, turned)


def test_none_of_these_is_wrong_and_cannot_tell_is_skipped() -> None:
    logits, labels = model()
    rows = rows_to_label(logits, 40)
    said = labels[rows].copy()
    said[:5] = CANNOT_TELL
    said[5:10] = NONE_OF_THESE
    _, measured = refine(logits, LabelSample(rows, said))
    assert (measured.labels, measured.cannot_tell, measured.none_of_these) == (35, 5, 5)
    right = (logits[rows[10:]].argmax(axis=1) == said[10:]).sum()
    assert measured.accuracy.value == pytest.approx(right / 35, abs=0.05)


@pytest.mark.parametrize("right", [True, False])
def test_all_right_or_all_wrong_is_no_point(right: bool) -> None:
    logits, _ = model()
    rows = rows_to_label(logits, 20)
    labels = logits[rows].argmax(axis=1) if right else logits[rows].argmin(axis=1)
    scaling, measured = refine(logits, LabelSample(rows, labels), priors=[Prior("mixup", 1.5, 0.5)])
    assert math.isfinite(scaling.temperature)
    assert 0.05 < measured.accuracy.high - measured.accuracy.low < 0.3
    assert (measured.accuracy.high if right else 1 - measured.accuracy.low) == 1


@pytest.mark.parametrize("right", [True, False])
def test_if_all_are_right_or_wrong_the_interval_of_t_reaches_as_far_as_that_of_the_accuracy(
    right: bool,
) -> None:
    logits = np.tile(6 * np.eye(20), (500, 1))
    guess = logits.argmax(axis=1)
    narrow = Prior("mixup", 0.3 if right else 20.0, 0.05, doubt=0.0)
    sample = labelled(logits, guess if right else (guess + 1) % 20, 20)
    measured = refine(logits, sample, priors=[narrow])[1]
    end = measured.temperature.high if right else measured.temperature.low
    assert float(confidences(logits, end).mean()) == pytest.approx(
        measured.accuracy.low if right else measured.accuracy.high, abs=0.002
    )
    few = refine(
        logits / 2, labelled(logits / 2, (guess + 1) % 20, 2), priors=priors_of({}, logits)
    )[1]
    assert (
        few.verdict == "caution"
    )  # a model with a confidence of 51% makes two mistakes in 24% of draws


def test_the_gap_is_confidence_minus_accuracy() -> None:
    logits, labels = model()
    scaling, measured = refine(logits, labelled(logits, labels, 50))
    for gap, t in ((measured.gap_before, 1.0), (measured.gap_after, scaling.temperature)):
        mean = softmax(logits / t).max(axis=1).mean()
        ends = (measured.accuracy.value, measured.accuracy.high, measured.accuracy.low)
        assert (gap.value, gap.low, gap.high) == pytest.approx([mean - end for end in ends])


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of 150 draws 90% are 135.

    86 and 96% are the limits, with two standard errors of 150 draws beyond.
    """
    held = {"temperature": 0, "accuracy": 0}
    for seed in range(150):
        logits, labels = model(rows=1500, seed=seed)
        _, measured = refine(
            logits, labelled(logits, labels, 30, seed), priors=[Prior("mixup", 1.5, 0.5)]
        )
        truth = {
            "temperature": fit_temperature(logits, labels).temperature,
            "accuracy": (logits.argmax(axis=1) == labels).mean(),
        }
        for name, value in truth.items():
            interval = getattr(measured, name)
            held[name] += interval.low <= value <= interval.high
    assert all(0.82 <= count / 150 <= 0.98 for count in held.values()), held


def test_the_verdict_by_labels() -> None:
    logits, labels = model(rows=20_000, temperature=2.5)
    _, off = refine(logits, labelled(logits, labels, 100))
    assert (off.verdict, off.more_labels) == ("apply", None)
    logits, labels = model(rows=20_000, temperature=1.0)
    _, few = refine(logits, labelled(logits, labels, 20))
    assert few.verdict == "caution"
    _, many = refine(logits, labelled(logits, labels, 3000))
    assert many.verdict == "already calibrated"


def test_nothing_is_applied_to_a_model_that_is_calibrated_already() -> None:
    logits, labels = model(rows=20_000, temperature=1.0)
    calibration = Calibration("pseudocal", TemperatureScaling(1.4)).refined(
        logits, labelled(logits, labels, 3000)
    )
    assert (calibration.verdict, calibration.temperature) == ("already calibrated", 1.0)
    assert (
        calibration.measured.temperature.value != 1.0
    )  # what the labels support is kept for the record
    assert calibration.measured.gap_after == calibration.measured.gap_before


def test_labels_contradict_a_temperature_from_elsewhere() -> None:
    logits, labels = model(rows=5000, temperature=2.5)
    sample = labelled(logits, labels, 100)
    assert measure_temperature(logits, sample, 0.5).verdict == "do not apply"
    assert measure_temperature(logits, sample, 2.5).verdict == "apply"
    assert measure_temperature(logits, sample, 1.2).verdict == "caution"
    with pytest.raises(InputError, match=r"positive temperature .* got -1"):
        measure_temperature(logits, sample, -1.0)


def test_the_calibration_error_needs_labels_and_is_cross_fitted() -> None:
    logits, labels = model(rows=5000, temperature=3.0)
    _, few = refine(logits, labelled(logits, labels, FEWEST_FOR_ECE - 1))
    assert (few.error_before, few.error_after) == (None, None)
    _, enough = refine(logits, labelled(logits, labels, 300))
    assert enough.error_before
    assert enough.error_after
    assert enough.error_after.low == 0 < enough.error_before.low


def test_rows_that_ask_did_not_draw_are_refused_unless_random() -> None:
    logits, labels = model(rows=100)
    rows = np.arange(10)
    with pytest.raises(InputError, match="first 10 rows of rows_to_label with seed 0, got row"):
        refine(logits, LabelSample(rows, labels[rows]))
    _, measured = refine(logits, LabelSample(rows, labels[rows], sampling="random"))
    assert measured.sampling == "random"


def test_bad_labels_are_named() -> None:
    logits, _ = model(rows=50)
    with pytest.raises(InputError, match="several for row 3"):
        LabelSample([3, 3], [0, 1])
    with pytest.raises(InputError, match="integers, got dtype float64"):
        LabelSample([3, 4], [0.5, 1.0])
    for odd in ([np.nan, 1.0], [np.inf, 1.0]):
        with pytest.raises(InputError, match="integers, got dtype float64"):
            LabelSample([3, 4], odd)
    with pytest.raises(InputError, match=r"got dtype bool: pass labels\.astype\(int\) if True is"):
        LabelSample([3, 4], [True, False])
    with pytest.raises(InputError, match="expected rows that are integers, got dtype float64"):
        LabelSample([3.0, 4.0], [0, 1])
    whole = LabelSample([3, 4], [2.0, CANNOT_TELL * 1.0])
    assert whole.labels.tolist() == [2, CANNOT_TELL]
    with pytest.raises(InputError, match=r"shapes \(2,\) and \(1,\)"):
        LabelSample([3, 4], [0])
    with pytest.raises(InputError, match="'stratified' or 'random', got 'lucky'"):
        LabelSample([3], [0], sampling="lucky")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"from 0 to 4, .* got 5 for row 3"):
        refine(logits, LabelSample([3], [5], sampling="random"))
    with pytest.raises(InputError, match="from 0 to 49, got 50"):
        refine(logits, LabelSample([50], [0], sampling="random"))
    with pytest.raises(InputError, match="at least one label, got 1 rows"):
        refine(logits, LabelSample([3], [CANNOT_TELL], sampling="random"))


def test_pixels_of_one_image_go_together() -> None:
    """Fifty images of which each is all right or all wrong: 200 pixels tell as much as 50."""
    rng = np.random.default_rng(0)
    images = np.repeat(np.arange(50), 40)
    logits = rng.normal(size=(2000, 3)) * 2
    right = (rng.random(50) < 0.6)[images]
    labels = np.where(right, logits.argmax(axis=1), logits.argmin(axis=1))
    rows = rows_to_label(logits, 200, groups=images)
    assert np.bincount(images[rows], minlength=50).max() <= 6
    _, together = refine(logits, LabelSample(rows, labels[rows]), groups=images)
    _, independent = refine(logits, LabelSample(rows, labels[rows], sampling="random"))
    for name in ("accuracy", "temperature"):
        wide, narrow = getattr(together, name), getattr(independent, name)
        assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_a_refined_calibration_remembers_its_estimates() -> None:
    logits, labels = model()
    found = Calibration(
        "pseudocal", TemperatureScaling(1.7), estimates={"mixup": 1.7, "agreement": 2.1}
    )
    once = found.refined(logits, labelled(logits, labels, 30))
    twice = once.refined(logits, labelled(logits, labels, 120))
    assert twice == found.refined(logits, labelled(logits, labels, 120))
    assert [prior.estimator for prior in twice.measured.priors] == ["mixup", "agreement"]
    assert twice.verdict == twice.measured.verdict
    wide = found.refined(logits, labelled(logits, labels, 30), widths={"agreement": 2.0})
    assert wide.measured.priors[1].width == 2.0
    assert wide.temperature != once.temperature


@pytest.mark.parametrize(
    "found",
    [
        Calibration("pseudocal", TemperatureScaling(1.7), {"epochs": 2}, {"pairs": 3000}),
        Calibration("none", TemperatureScaling(1.0), {}, {"pairs": 0, "forward_passes": 1500}),
    ],
)
def test_logits_of_the_labelled_rows_only_are_refused(found: Calibration) -> None:
    logits, labels = model(rows=1500)
    rows = rows_to_label(logits, 50)
    alone = LabelSample(np.arange(50), labels[rows])
    with pytest.raises(InputError, match=r"got 50 rows, all of them labelled, .* fitted on 1,500"):
        found.refined(logits[rows], alone)
    of_all = found.refined(logits, LabelSample(rows, labels[rows]))
    assert of_all.measured.accuracy.low < of_all.measured.accuracy.high
    # other rows of the same environment
    assert found.refined(logits[:500], labelled(logits[:500], labels, 50)).measured.rows == 500
    every = LabelSample(np.arange(1500), labels)
    assert found.refined(logits, every).measured.labels == 1500


def test_labels_that_contradict_the_model_are_warned_of() -> None:
    logits, labels = model(classes=5)
    rows = rows_to_label(logits, 50)
    other = LabelSample(rows, (logits[rows].argmax(axis=1) + 1) % 5)
    found = Calibration("pseudocal", TemperatureScaling(1.7))
    with pytest.warns(
        UnreliableCalibrationWarning, match=r"should not be applied: 0 of 50 labels confirm"
    ):
        warned = found.refined(logits, other)
    assert (warned.verdict, warned.refused) == ("do not apply", None)
    assert warned.temperature > 1
    identity = replace(found, settings={"on_unreliable": "identity"})
    replaced = identity.refined(logits, other)  # without a warning
    assert (replaced.temperature, replaced.refused) == (1, warned.temperature)
    labelled_again = LabelSample(rows, labels[rows])
    assert found.refined(logits, labelled_again).verdict != "do not apply"


def test_the_prior_of_agreement_has_the_interval_of_its_accuracy() -> None:
    logits, _ = model(classes=10)
    both = {"mixup": 2.0, "agreement": 1.5}
    estimate = AccuracyEstimate(0.6, 0.55, 0.65)
    mixup_samples, agreement = priors_of(both, logits, accuracy=estimate)
    ends = [math.log(1.5) + sign * 2.3534 * agreement.width for sign in (-1, 1)]  # 90% of its mass
    at = [confidences(logits, math.exp(end)).mean() for end in ends]
    assert at[0] - at[1] == pytest.approx(0.1, rel=0.02)
    assert (mixup_samples.width, mixup_samples.doubt, agreement.doubt) == (0.5, 0.3, 0.1)
    assert priors_of(both, logits)[1].width == 1.0  # without an interval it counts little
    given = priors_of(both, logits, {"agreement": 0.2}, accuracy=estimate)
    assert [prior.width for prior in given] == [0.5, 0.2]
    # with two classes, label-free estimates say nothing, and T is probably not far from 1
    assert priors_of(both, logits[:, :2]) == priors_of({}, logits[:, :2]) == [TWO_CLASSES]
    assert (TWO_CLASSES.temperature, TWO_CLASSES.width) == (1.0, 0.4)
    assert priors_of({"tempscal": 1.7}, logits[:, :2])[0].temperature == 1.7
    with pytest.raises(InputError, match="positive width of the prior, got 0"):
        priors_of(both, logits, {"mixup": 0.0})


def test_a_second_opinion_moves_t_but_does_not_narrow_its_interval() -> None:
    logits, labels = model()
    sample = labelled(logits, labels, 30)
    mixup = Prior("mixup", 1.5, 0.5)
    opinion = Prior("agreement", 3.0, 0.1)
    alone = refine(logits, sample, priors=[mixup])[1].temperature
    both = refine(logits, sample, priors=[mixup, opinion])[1].temperature
    opinion_alone = refine(logits, sample, priors=[opinion])[1].temperature
    assert alone.value < both.value == opinion_alone.value  # mixup samples do not count beside it
    assert (both.low, both.high) == (alone.low, max(alone.high, both.value))
    dropped = Prior("agreement", 3.0, math.inf)
    assert refine(logits, sample, priors=[mixup, dropped])[1].temperature == alone


def test_a_calibration_without_estimates_is_its_own_prior() -> None:
    logits, labels = model()
    sample = labelled(logits, labels, 30)
    once = Calibration("tempscal", TemperatureScaling(1.7)).refined(logits, sample)
    assert once.estimates == {"tempscal": 1.7}
    assert once.refined(logits, sample) == once


def test_what_was_measured_survives_a_file(tmp_path: Path) -> None:
    logits, labels = model()
    sample = labelled(logits, labels, 150)
    found = Calibration("pseudocal", TemperatureScaling(1.7), estimates={"mixup": 1.7})
    for widths in ({}, {"mixup": math.inf}):
        refined = found.refined(logits, sample, widths=widths)
        refined.save(tmp_path / "calibration.json")
        assert Calibration.load(tmp_path / "calibration.json") == refined
    content = json.loads((tmp_path / "calibration.json").read_text())
    content["measured"]["verdict"] = "certainly"
    (tmp_path / "calibration.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="record of what was measured"):
        Calibration.load(tmp_path / "calibration.json")
    assert replace(found, measured=None).verdict is None


def test_a_gap_that_no_temperature_corrects_is_not_called_calibrated():
    logits = np.random.default_rng(0).normal(
        scale=0.01, size=(400, 2)
    )  # a confidence of about 50% everywhere
    rows = rows_to_label(logits, 200)
    wrong, right = logits[rows].argmin(axis=1), logits[rows].argmax(axis=1)
    _, measured = refine(logits, LabelSample(rows, np.where(np.arange(200) % 8, wrong, right)))
    assert measured.verdict == "caution"
    [reason] = measured.reasons
    assert reason.code == ReasonCode.LABELS_CONFIDENCE_HIGH
    assert reason.numbers["gap"] == measured.gap_before.value > 0.05
    _, measured = refine(logits, LabelSample(rows, np.where(np.arange(200) % 9 < 5, wrong, right)))
    assert measured.verdict == "caution"  # it is calibrated, but no better than guessing
    assert [reason.code for reason in measured.reasons] == [ReasonCode.LABELS_AT_CHANCE]
    logits[:, 0] += 0.4  # a confidence of 60%, which is right three times out of five
    rows = rows_to_label(logits, 400)
    _, measured = refine(logits, LabelSample(rows, (np.arange(400) % 5 < 2).astype(int)))
    assert measured.verdict == "already calibrated"


def test_labels_in_another_order_of_the_classes_are_noticed():
    """A high T would fit labels that agree with one prediction in eight, but help nobody."""
    logits = 9 * np.random.default_rng(0).normal(size=(1000, 6))
    rows = rows_to_label(logits, 50)
    number = np.arange(50)
    off = np.where(number % 8 == 0, 0, 1 + number % 5)
    _, measured = refine(logits, LabelSample(rows, (logits[rows].argmax(axis=1) + off) % 6))
    assert measured.accuracy.value <= 1 / 6 <= measured.accuracy.high
    assert measured.verdict == "caution"
    [reason] = measured.reasons  # and none of them says that labelling may stop
    assert reason.code == ReasonCode.LABELS_AT_CHANCE
    assert reason.numbers["accuracy"] == measured.accuracy.value
    assert "Check that the model and the labels have the same classes" in str(reason)


def test_a_few_labels_of_a_poor_model_of_two_classes_may_calibrate_it() -> None:
    """Whose interval includes 50%: no order of the classes explains an accuracy above that."""
    logits = 9 * np.random.default_rng(0).normal(size=(1000, 2))
    rows = rows_to_label(logits, 20)
    labels = np.where(
        np.arange(20) % 5 < 3, logits[rows].argmax(axis=1), logits[rows].argmin(axis=1)
    )
    _, measured = refine(logits, LabelSample(rows, labels))
    assert measured.accuracy.low < 0.5 < measured.accuracy.value
    assert measured.verdict == "apply"


def test_a_poor_model_above_chance_is_calibrated() -> None:
    logits, labels = model(temperature=6.0)
    _, measured = refine(logits, labelled(logits, labels, 100))
    assert 0.2 < measured.accuracy.low < measured.accuracy.value < 0.6
    assert measured.verdict == "apply"


@pytest.mark.parametrize("classes", [3, 10, 52])
def test_labels_that_contradict_the_model_refuse_it_and_bound_the_temperature(classes):
    """Every temperature that is high enough fits such labels: T stops where confidence is flat."""
    logits = 9 * np.random.default_rng(0).normal(size=(400, classes))
    rows = rows_to_label(logits, 25)
    scaling, measured = refine(logits, LabelSample(rows, logits[rows].argmin(axis=1)))
    assert measured.verdict == "do not apply"
    assert measured.reasons == (
        Reason(ReasonCode.LABELS_CONTRADICT, {"labels": 25.0, "right": 0.0}),
    )
    assert scaling.temperature == measured.temperature.value
    assert softmax(logits / scaling.temperature).max(axis=1).mean() == pytest.approx(
        1 / classes + 0.01
    )


def test_a_few_wrong_labels_are_no_contradiction_and_a_model_below_chance_is_refused():
    many = 9 * np.random.default_rng(0).normal(size=(400, 10))
    rows = rows_to_label(many, 9)
    _, few = refine(many, LabelSample(rows, many[rows].argmin(axis=1)))
    assert few.reasons[0].code == ReasonCode.LABELS_AT_CHANCE
    logits = 9 * np.random.default_rng(0).normal(size=(400, 3))
    rows = rows_to_label(logits, 25)
    wrong, right = logits[rows].argmin(axis=1), logits[rows].argmax(axis=1)
    labels = np.where(np.arange(25) < 2, right, wrong)
    _, below = refine(logits, LabelSample(rows, labels))
    assert below.accuracy.high < 1 / 3
    assert below.reasons[0].numbers == {"labels": 25.0, "right": 2.0}
    assert below.verdict == "do not apply"


def evidence(low: float, high: float, **changes: Any) -> MeasuredEvidence:
    """An interval of log T; the mean confidence changes by half as much."""
    change = max(abs(low), abs(high)) / 2
    found = MeasuredEvidence(low, high, change=change, gap_before=0.2, labels=50)
    return found._replace(**changes)


BY_CHANCE: dict[str, Any] = {"accuracy": Interval(0.12, 0.06, 0.21), "chance": 0.2}
BY_CHANCE_NUMBERS = {
    "accuracy": 0.12,
    "accuracy_low": 0.06,
    "accuracy_high": 0.21,
    "chance": 0.2,
}
OF_LABELS: list[tuple[str, str, float, MeasuredEvidence, dict[str, float]]] = [
    ("labels_overconfident", "apply", 0.5, evidence(0.2, 0.8), {}),
    ("labels_underconfident", "apply", -0.5, evidence(-0.8, -0.2), {}),
    ("labels_already_calibrated", "already calibrated", 0.0, evidence(-0.1, 0.1), {}),
    (
        "labels_confidence_high",
        "caution",
        0.0,
        evidence(-0.1, 0.1, outside=0.06),
        {"gap": 0.2},
    ),
    (
        "labels_confidence_low",
        "caution",
        0.0,
        evidence(-0.1, 0.1, outside=0.06, gap_before=-0.2),
        {"gap": -0.2},
    ),
    ("labels_undecided", "caution", 0.2, evidence(-0.1, 0.5, more=70), {"more": 70.0}),
    ("labels_close_to_one", "caution", 0.2, evidence(-0.1, 0.5), {}),
    (
        "labels_outside_interval",
        "caution",
        0.1,
        evidence(0.2, 0.8),
        {"temperature": math.exp(0.1)},
    ),
    (
        "labels_further",
        "do not apply",
        -0.1,
        evidence(0.2, 0.8),
        {"temperature": math.exp(-0.1)},
    ),
    ("labels_contradict", "do not apply", 0.5, evidence(0.2, 0.8, contradicted=0), {"right": 0.0}),
    ("labels_at_chance", "caution", 0.5, evidence(0.2, 0.8, **BY_CHANCE), BY_CHANCE_NUMBERS),
    ("labels_at_chance", "caution", 0.0, evidence(-0.1, 0.1, **BY_CHANCE), BY_CHANCE_NUMBERS),
]


def test_a_temperature_that_would_make_the_measured_gap_larger_is_held_back() -> None:
    """The labels are right as often as the model is confident, and a narrow prior says otherwise."""
    logits, _ = model(rows=4000, temperature=1.0)
    rng = np.random.default_rng(1)
    p = softmax(logits)
    labels = (p.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1).clip(max=4)
    sample = labelled(logits, labels, 40)
    # several narrow priors outweigh the heavy tails of one
    priors = [Prior("agreement", 2.0, width=0.01, doubt=0.0)] * 5
    scaling, measured = refine(logits, sample, priors=priors)
    assert measured.temperature.value > 1.9
    slack = 0.25 / math.sqrt(40)
    assert abs(measured.gap_after.value) <= abs(measured.gap_before.value) + slack + 1e-9
    assert 0.5 < scaling.temperature < 1.8
    held = [reason for reason in measured.reasons if reason.code == ReasonCode.LABELS_HELD_BACK]
    assert [reason.numbers["temperature"] for reason in held] == [scaling.temperature]


def test_labelling_may_stop_once_the_verdict_is_clear() -> None:
    logits, labels = model(temperature=3.0)
    said = {}
    for n in (10, 400):
        _, measured = refine(logits, labelled(logits, labels, n), priors=[Prior("mixup", 1.0, 0.7)])
        said[n] = ReasonCode.LABELS_ENOUGH in [reason.code for reason in measured.reasons]
    assert said == {10: False, 400: True}
    assert "narrow the interval of T but hardly change this verdict" in str(measured.reasons[-1])


@pytest.mark.parametrize(("temperature", "seed"), [(1.4, 2), (1.0, 3)])
def test_the_verdict_is_stable_as_labels_are_added_one_by_one(
    temperature: float, seed: int
) -> None:
    """Where an interval made for one number of labels changes the verdict seven and eight times."""
    logits, labels = model(rows=1000, temperature=temperature, seed=seed)
    rows = rows_to_label(logits, 99)
    verdicts = []
    for n in range(10, 100):
        sample = LabelSample(rows[:n], labels[rows[:n]])
        measured = refine(logits, sample, priors=[Prior("mixup", 1.1, 0.3)])[1]
        verdicts.append(measured.verdict)
        assert measured.more_labels is None or measured.more_labels % 10 == 0
    assert sum(a != b for a, b in pairwise(verdicts)) <= 2


def test_the_file_order_of_chosen_rows_makes_no_difference() -> None:
    logits, labels = model()
    sample = labelled(logits, labels, 60)
    turned = LabelSample(sample.rows[::-1], sample.labels[::-1])
    assert refine(logits, turned) == refine(logits, sample)


def test_an_interval_valid_at_every_number_of_labels_rarely_excludes_the_truth() -> None:
    """At most 10 of 100 sequences of 200 labels; those made for one number exclude it in 30."""
    excluded = {"every": 0, "one": 0}
    for seed in range(100):
        logits, labels = model(rows=400, temperature=1.0, seed=seed)
        likelihood = Likelihood(logits[:200], GRID).of(labels[:200])
        history = LabelHistory.empty(10**9, 1.0, [Prior("none", 1.0, 0.4)])
        inside = []
        for label in likelihood:
            history = history.extended(label[None])
            inside.append(history.low <= 0 <= history.high)
        excluded["every"] += not all(inside)
        of_each = np.cumsum(likelihood, axis=0)
        at_one = of_each[:, np.argmin(np.abs(GRID))]
        excluded["one"] += bool((of_each.max(axis=1) - at_one > 1.35)[9:].any())
    assert excluded["every"] <= 10 < excluded["one"]


def test_recommended_labels_settle_the_verdict_as_often_as_promised() -> None:
    """In 80% of the cases; 55% is two standard errors below for ten cases."""
    settled = []
    for seed in range(20):
        logits, labels = model(rows=1000, temperature=2.5, seed=seed)
        prior = Prior("none", 2.0, 0.3)
        measured = refine(logits, labelled(logits, labels, 10), priors=[prior])[1]
        if measured.more_labels is None:
            continue
        later = labelled(logits, labels, 10 + measured.more_labels)
        settled.append(refine(logits, later, priors=[prior])[1].verdict)
    assert len(settled) >= 5
    assert np.mean([verdict != "caution" for verdict in settled]) >= 0.55


def test_a_verdict_out_of_reach_asks_for_no_number_of_labels() -> None:
    logits, labels = model(rows=1000, temperature=1.0, seed=2)
    _, few = refine(logits, labelled(logits, labels, 20), priors=[Prior("none", 1.1, 0.3)])
    assert (few.verdict, few.more_labels) == ("caution", None)
    assert few.reasons[0].code == ReasonCode.LABELS_CLOSE_TO_ONE


@pytest.mark.parametrize(("code", "verdict", "log_t", "given", "numbers"), OF_LABELS)
def test_each_reason_of_labels(
    code: str, verdict: str, log_t: float, given: MeasuredEvidence, numbers: dict[str, float]
) -> None:
    said, reason = judge_temperature(log_t, given)
    ends = {"labels": 50.0}
    if code not in ("labels_contradict", "labels_at_chance"):
        ends |= {"low": math.exp(given.low), "high": math.exp(given.high)}
    assert (said, reason.code, reason.numbers) == (verdict, code, ends | numbers)


def test_each_reason_of_labels_has_a_case() -> None:
    codes = {code for code in ReasonCode if code.startswith("labels_")}
    # which are given beside others, and have their own tests
    beside = {
        ReasonCode.LABELS_HELD_BACK,
        ReasonCode.LABELS_KEEP_T,
        ReasonCode.LABELS_MOVED_AWAY,
        ReasonCode.LABELS_ENOUGH,
    }
    assert {code for code, *_ in OF_LABELS} == codes - beside


def test_labels_minus_one_and_one_are_not_taken_for_cannot_tell_silently() -> None:
    with pytest.warns(UserWarning, match=r"2 of 3 labels are -1, .* pass their positions") as seen:
        sample = LabelSample([0, 1, 2], [-1, 1, -1])
    assert seen[0].filename == __file__
    assert sample.labels.tolist() == [CANNOT_TELL, 1, CANNOT_TELL]


@pytest.mark.parametrize(
    "labels", [[CANNOT_TELL, 1, 0], [CANNOT_TELL] * 3, [1] * 3, [CANNOT_TELL, 1, NONE_OF_THESE]]
)
def test_other_labels_with_cannot_tell_are_taken_without_a_warning(labels: list[int]) -> None:
    assert LabelSample([0, 1, 2], labels).labels.tolist() == labels


def test_labels_that_are_names_should_be_positions() -> None:
    names = np.array(["cat", "dog"])
    with pytest.raises(InputError, match=r"positions .* np.searchsorted\(model.classes_, labels\)"):
        LabelSample([0, 1], names)
    with pytest.raises(InputError, match=r"positions .* np.searchsorted\(model.classes_, labels\)"):
        fit_temperature([[2.0, 0.0], [0.0, 2.0]], names)
    with pytest.raises(InputError, match=r"rows that are integers, got dtype <U3$"):
        LabelSample(names, [0, 1])
