"""What answers say: equivalences, known truths, coverage, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

from pseudocal import (
    Answers,
    Calibration,
    InputError,
    TemperatureScaling,
    ask,
    fit_temperature,
    softmax,
)
from pseudocal.calibrators import CANNOT_TELL, NONE_OF_THESE, Prior, measure_temperature, refine
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.measures import FEWEST_FOR_ECE
from pseudocal.calibrators.posterior import LOG_T, log_likelihood, posterior
from pseudocal.calibrators.refinement import priors_of


def model(
    rows: int = 2000, classes: int = 5, temperature: float = 2.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels that are calibrated at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 3
    p = softmax(logits / temperature)
    return logits, (p.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=classes - 1)


def answered(logits: np.ndarray, labels: np.ndarray, n: int, seed: int = 0) -> Answers:
    rows = ask(logits, n, seed=seed)
    return Answers(rows, labels[rows], seed=seed)


def test_a_prior_of_infinite_width_is_labels_alone() -> None:
    logits, labels = model()
    answers = answered(logits, labels, 60)
    alone, _ = refine(logits, answers)
    flat, measured = refine(logits, answers, priors=[Prior("mixup", 7.0, math.inf)])
    assert flat == alone
    assert measured.priors == (Prior("mixup", 7.0, math.inf),)


@pytest.mark.parametrize("width", [0.1, 1.0, math.inf])
def test_answers_for_all_rows_are_fit_temperature(width: float) -> None:
    logits, labels = model(rows=300)
    answers = Answers(np.arange(300), labels, drawn_by="random")
    scaling, measured = refine(logits, answers, priors=[Prior("mixup", 0.3, width)])
    assert scaling.temperature == pytest.approx(
        fit_temperature(logits, labels).temperature, rel=1e-4
    )
    accuracy = float((logits.argmax(axis=1) == labels).mean())
    assert measured.accuracy.low == measured.accuracy.high == pytest.approx(accuracy)


def test_many_answers_outweigh_a_wrong_prior_and_few_do_not() -> None:
    logits, labels = model(rows=5000)
    wrong = [Prior("mixup", 0.2, 0.2, doubt=0.0)]
    few, many = (
        refine(logits, answered(logits, labels, n), priors=wrong)[0].temperature for n in (2, 500)
    )
    assert few < 1 < 1.6 < many < 2.4


def test_a_narrow_prior_alone_has_the_quantiles_of_surrogates_density() -> None:
    found = posterior(lambda g: np.zeros((1, len(g))), [Prior("mixup", 2.0, 0.01, doubt=0.0)])
    assert found.mean == pytest.approx(math.log(2), abs=1e-4)
    assert found.quantile(0.95) == pytest.approx(math.log(2) + 0.01 * 2.3534, abs=5e-4)


@pytest.mark.parametrize("width", [0.05, 0.5])
def test_the_posterior_against_an_integral(width: float) -> None:
    """Three right answers of four at gap 2, whose likelihood peaks at T = 2 / log 3."""
    logits, labels = np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1])
    found = posterior(
        lambda g: log_likelihood(logits, labels, g), [Prior("mixup", 0.5, width, doubt=0.0)]
    )

    def density(g: float) -> float:
        p = 1 / (1 + math.exp(-2 * math.exp(-g)))
        return p**3 * (1 - p) * (1 + ((g - math.log(0.5)) / width) ** 2 / 3) ** -2

    total, first = (
        quad(lambda g, k=k: g**k * density(g), *LOG_T, points=[math.log(0.5), 0.6], limit=500)[0]
        for k in (0, 1)
    )
    assert found.mean == pytest.approx(first / total, abs=2e-3)


def test_the_order_of_answers_does_not_matter() -> None:
    logits, labels = model()
    answers = answered(logits, labels, 40)
    turned = Answers(answers.rows[::-1], answers.labels[::-1])
    assert refine(logits, answers) == refine(logits, turned)


def test_none_of_these_is_wrong_and_cannot_tell_is_skipped() -> None:
    logits, labels = model()
    rows = ask(logits, 40)
    said = labels[rows].copy()
    said[:5], said[5:10] = CANNOT_TELL, NONE_OF_THESE
    _, measured = refine(logits, Answers(rows, said))
    assert (measured.answers, measured.cannot_tell, measured.none_of_these) == (35, 5, 5)
    right = (logits[rows[10:]].argmax(axis=1) == said[10:]).sum()
    assert measured.accuracy.value == pytest.approx(right / 35, abs=0.05)


@pytest.mark.parametrize("right", [True, False])
def test_all_right_or_all_wrong_is_no_point(right: bool) -> None:
    logits, _ = model()
    rows = ask(logits, 20)
    labels = logits[rows].argmax(axis=1) if right else logits[rows].argmin(axis=1)
    scaling, measured = refine(logits, Answers(rows, labels), priors=[Prior("mixup", 1.5, 0.5)])
    assert math.isfinite(scaling.temperature)
    assert 0.05 < measured.accuracy.high - measured.accuracy.low < 0.3
    assert (measured.accuracy.high if right else 1 - measured.accuracy.low) == 1


@pytest.mark.parametrize("right", [True, False])
def test_if_all_are_right_or_wrong_the_interval_of_t_reaches_as_far_as_that_of_the_accuracy(
    right: bool,
) -> None:
    logits = np.tile(6 * np.eye(20), (500, 1))
    guess = logits.argmax(axis=1)
    sure = Prior("mixup", 0.3 if right else 20.0, 0.05, doubt=0.0)
    answers = answered(logits, guess if right else (guess + 1) % 20, 20)
    measured = refine(logits, answers, priors=[sure])[1]
    end = measured.temperature.high if right else measured.temperature.low
    assert float(confidences(logits, end).mean()) == pytest.approx(
        measured.accuracy.low if right else measured.accuracy.high, abs=0.002
    )
    few = refine(
        logits / 2, answered(logits / 2, (guess + 1) % 20, 2), priors=priors_of({}, logits)
    )[1]
    assert (
        few.verdict == "caution"
    )  # a model with a confidence of 51% makes two mistakes in 24% of draws


def test_the_gap_is_confidence_minus_accuracy() -> None:
    logits, labels = model()
    scaling, measured = refine(logits, answered(logits, labels, 50))
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
            logits, answered(logits, labels, 30, seed), priors=[Prior("mixup", 1.5, 0.5)]
        )
        truth = {
            "temperature": fit_temperature(logits, labels).temperature,
            "accuracy": (logits.argmax(axis=1) == labels).mean(),
        }
        for name, value in truth.items():
            interval = getattr(measured, name)
            held[name] += interval.low <= value <= interval.high
    assert all(0.82 <= count / 150 <= 0.98 for count in held.values()), held


def test_the_verdict_by_answers() -> None:
    logits, labels = model(rows=20_000, temperature=2.5)
    _, off = refine(logits, answered(logits, labels, 100))
    assert (off.verdict, off.more) == ("apply", None)
    logits, labels = model(rows=20_000, temperature=1.0)
    _, few = refine(logits, answered(logits, labels, 20))
    assert few.verdict == "caution"
    assert few.more
    _, many = refine(logits, answered(logits, labels, 3000))
    assert many.verdict == "already calibrated"


def test_nothing_is_applied_to_a_model_that_is_calibrated_already() -> None:
    logits, labels = model(rows=20_000, temperature=1.0)
    calibration = Calibration("pseudocal", TemperatureScaling(1.4)).refined(
        logits, answered(logits, labels, 3000)
    )
    assert (calibration.verdict, calibration.temperature) == ("already calibrated", 1.0)
    assert (
        calibration.measured.temperature.value != 1.0
    )  # what the answers ask for is kept for the record
    assert calibration.measured.gap_after == calibration.measured.gap_before


def test_answers_contradict_a_temperature_from_elsewhere() -> None:
    logits, labels = model(rows=5000, temperature=2.5)
    answers = answered(logits, labels, 100)
    assert measure_temperature(logits, answers, 0.5).verdict == "do not apply"
    assert measure_temperature(logits, answers, 2.5).verdict == "apply"
    assert measure_temperature(logits, answers, 1.2).verdict == "caution"
    with pytest.raises(InputError, match=r"positive temperature .* got -1"):
        measure_temperature(logits, answers, -1.0)


def test_the_calibration_error_needs_answers_and_is_cross_fitted() -> None:
    logits, labels = model(rows=5000, temperature=3.0)
    _, few = refine(logits, answered(logits, labels, FEWEST_FOR_ECE - 1))
    assert (few.error_before, few.error_after) == (None, None)
    _, enough = refine(logits, answered(logits, labels, 300))
    assert enough.error_before
    assert enough.error_after
    assert enough.error_after.low == 0 < enough.error_before.low


def test_rows_that_ask_did_not_draw_are_refused_unless_random() -> None:
    logits, labels = model(rows=100)
    rows = np.arange(10)
    with pytest.raises(InputError, match="first 10 questions of ask with seed 0, got row"):
        refine(logits, Answers(rows, labels[rows]))
    _, measured = refine(logits, Answers(rows, labels[rows], drawn_by="random"))
    assert measured.drawn_by == "random"


def test_bad_answers_are_named() -> None:
    logits, _ = model(rows=50)
    with pytest.raises(InputError, match="several for row 3"):
        Answers([3, 3], [0, 1])
    with pytest.raises(InputError, match="integers, got dtype float64"):
        Answers([3, 4], [0.5, 1.0])
    with pytest.raises(InputError, match=r"shapes \(2,\) and \(1,\)"):
        Answers([3, 4], [0])
    with pytest.raises(InputError, match="'ask' or 'random', got 'lucky'"):
        Answers([3], [0], drawn_by="lucky")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"from 0 to 4, .* got 5 for row 3"):
        refine(logits, Answers([3], [5], drawn_by="random"))
    with pytest.raises(InputError, match="from 0 to 49, got 50"):
        refine(logits, Answers([50], [0], drawn_by="random"))
    with pytest.raises(InputError, match="at least one answer, got 1 questions"):
        refine(logits, Answers([3], [CANNOT_TELL], drawn_by="random"))


def test_pixels_of_one_image_go_together() -> None:
    """Fifty images of which each is all right or all wrong: 200 pixels tell as much as 50."""
    rng = np.random.default_rng(0)
    images = np.repeat(np.arange(50), 40)
    logits = rng.normal(size=(2000, 3)) * 2
    right = (rng.random(50) < 0.6)[images]
    labels = np.where(right, logits.argmax(axis=1), logits.argmin(axis=1))
    rows = ask(logits, 200, groups=images)
    assert np.bincount(images[rows], minlength=50).max() <= 6
    _, together = refine(logits, Answers(rows, labels[rows]), groups=images)
    _, with_different_classes = refine(logits, Answers(rows, labels[rows], drawn_by="random"))
    for name in ("accuracy", "temperature"):
        wide, narrow = getattr(together, name), getattr(with_different_classes, name)
        assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_a_refined_calibration_remembers_its_estimates() -> None:
    logits, labels = model()
    found = Calibration(
        "pseudocal", TemperatureScaling(1.7), estimates={"mixup": 1.7, "agreement": 2.1}
    )
    once = found.refined(logits, answered(logits, labels, 30))
    twice = once.refined(logits, answered(logits, labels, 120))
    assert twice == found.refined(logits, answered(logits, labels, 120))
    assert [prior.estimator for prior in twice.measured.priors] == ["mixup", "agreement"]
    assert twice.verdict == twice.measured.verdict
    wide = found.refined(logits, answered(logits, labels, 30), widths={"mixup": 2.0})
    assert wide.measured.priors[0].width == 2.0
    assert wide.temperature != once.temperature


def test_the_prior_of_agreement_is_as_wide_as_an_error_of_five_points() -> None:
    logits, _ = model(classes=10)
    both = {"mixup": 2.0, "agreement": 1.5}
    mixup_samples, agreement = priors_of(both, logits)
    at = [
        confidences(logits, 1.5 * math.exp(step * agreement.width)).mean() for step in (-0.5, 0.5)
    ]
    assert at[0] - at[1] == pytest.approx(0.05, rel=0.02)
    assert (mixup_samples.width, agreement.width < 0.3) == (0.7, True)
    assert [prior.width for prior in priors_of(both, logits, {"agreement": 0.2})] == [0.7, 0.2]
    assert priors_of({"agreement": 1.5}, logits[:, :2]) == priors_of(
        {}, logits
    )  # two classes: agreement says nothing
    with pytest.raises(InputError, match="positive width of the prior, got 0"):
        priors_of(both, logits, {"mixup": 0.0})


def test_a_calibration_without_estimates_is_its_own_prior() -> None:
    logits, labels = model()
    answers = answered(logits, labels, 30)
    once = Calibration("tempscal", TemperatureScaling(1.7)).refined(logits, answers)
    assert once.estimates == {"tempscal": 1.7}
    assert once.refined(logits, answers) == once


def test_what_was_measured_survives_a_file(tmp_path: Path) -> None:
    logits, labels = model()
    answers = answered(logits, labels, 150)
    found = Calibration("pseudocal", TemperatureScaling(1.7), estimates={"mixup": 1.7})
    for widths in ({}, {"mixup": math.inf}):
        refined = found.refined(logits, answers, widths=widths)
        refined.save(tmp_path / "calibration.json")
        assert Calibration.load(tmp_path / "calibration.json") == refined
    content = json.loads((tmp_path / "calibration.json").read_text())
    content["measured"]["verdict"] = "surely"
    (tmp_path / "calibration.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="record of what was measured"):
        Calibration.load(tmp_path / "calibration.json")
    assert replace(found, measured=None).verdict is None


def test_a_gap_that_no_temperature_mends_is_not_called_calibrated():
    logits = np.random.default_rng(0).normal(
        scale=0.01, size=(400, 2)
    )  # about 50% sure of everything
    rows = ask(logits, 40)
    wrong, right = logits[rows].argmin(axis=1), logits[rows].argmax(axis=1)
    _, measured = refine(logits, Answers(rows, np.where(np.arange(40) % 8, wrong, right)))
    assert measured.verdict == "caution"
    assert "points above the accuracy, and no temperature mends that" in measured.reasons[0]
    _, measured = refine(logits, Answers(rows, np.where(np.arange(40) % 2, wrong, right)))
    assert measured.verdict == "already calibrated"


def test_a_model_that_is_always_wrong_is_overconfident():
    """The temperatures that answers ask for are so high that they hardly differ, but they do differ from none."""
    logits = 9 * np.random.default_rng(0).normal(size=(400, 10))
    rows = ask(logits, 20)
    _, measured = refine(logits, Answers(rows, logits[rows].argmin(axis=1)))
    assert measured.temperature.low > 5
    assert measured.verdict == "apply"
    assert "the model is overconfident" in measured.reasons[0]
