"""The first lines of a report: the accuracy, the recommendation, and the reason."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pseudocal import softmax
from pseudocal.app import Result
from pseudocal.app.progress import summary_lines
from pseudocal.app.report import page
from pseudocal.app.report.findings import essentials_of, headline_of, recommendation_of
from pseudocal.app.thresholds import RunThreshold
from pseudocal.calibrators import Reason, ReasonCode
from pseudocal.calibrators.trust import AccuracyEstimate
from pseudocal.metrics import Interval, Outcomes, ece

OUT = Path("out")


def shown(report) -> str:
    return " ".join(unescape(page(report)).split())


def advice(report, *, kept: bool = True):
    return recommendation_of(report, OUT, kept=kept)


# ------------------------------------------------------------------------------ the accuracy


def test_with_ground_truth_the_accuracy_is_measured(made):
    run, report = made.make_run(labelled=True), made.make_report(labelled=True)
    right = run.logits.argmax(axis=1) == run.ground_truth
    values = report.headline.values
    assert report.headline.code == "ground_truth"
    assert values["accuracy"] == pytest.approx(right.mean())
    assert values["low"] < values["accuracy"] < values["high"]
    assert values["inputs"] == "600 inputs"
    pixels = made.make_segmented(labelled=True).headline
    assert pixels.values["inputs"] == "600 images"


def test_without_labels_it_is_estimated_or_unknown(made):
    report = made.make_report()
    assert str(report.headline) == (
        "Estimated accuracy: 58% (90% interval 46% to 70%; 600 inputs, no labels used)."
    )
    unknown = headline_of(replace(report, trust=None))
    assert unknown.code == "unknown"
    assert unknown.values["before"] == report.confidence.mean_before


def test_labels_measure_it(made):
    report = made.make_refined()
    assert report.headline.code == "labels"
    assert report.headline.values["labels"] == 49
    assert report.headline.values["accuracy"] == report.labels.accuracy.value


# ------------------------------------------------------------------------------ what to do


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            "apply",
            "Deploy the calibrated model.onnx instead of the original, or first label 50 inputs to "
            "measure accuracy: pseudocal label out -n 50",
        ),
        ("caution", "Label 50 inputs before you deploy: pseudocal label out -n 50"),
        (
            "do not apply",
            "Keep the model you have, or label 50 inputs to calibrate it: "
            "pseudocal label out -n 50",
        ),
    ],
)
def test_each_verdict_has_one_recommendation(made, verdict, text):
    report = made.make_report(verdict=verdict)
    assert str(report.recommendation) == text
    html = shown(report)
    first = [
        str(report.headline),
        report.recommendation.action,
        report.recommendation.command,
        report.recommendation.because,
        'id="verdict"',
    ]
    places = [html.index(each) for each in first]
    assert places == sorted(places)


def test_a_measured_calibration_asks_for_no_labels(made):
    measured = made.make_report(verdict="apply", labelled=True)
    assert (
        str(measured.recommendation)
        == "Deploy the calibrated model.onnx instead of the original: out/model.onnx"
    )


def test_only_a_recommended_model_is_called_model(made):
    for verdict in made.VERDICTS:
        report = made.make_report(verdict=verdict)
        deployed = report.recommendation.decision == "deploy"
        assert ("model.onnx" in report.model.files) == deployed
        assert ('InferenceSession("model.onnx")' in report.usage) == deployed
    caution = made.make_report(verdict="caution")
    assert "unconfirmed-model.onnx" in caution.usage
    assert "not confirmed" in caution.usage


def test_a_model_that_cannot_be_exported_goes_with_its_calibration(made):
    report = made.make_report()
    bare = replace(report, model=replace(report.model, files=()))
    assert advice(bare).command.startswith("pseudocal apply out/calibration.json ")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (
            "sklearn",
            "pseudocal.sklearn.calibrated(model, Calibration.load('out/calibration.json'))"
            ".predict_proba(x)",
        ),
        ("xgboost", "Calibration.load('out/calibration.json').probabilities(margins)"),
    ],
)
def test_a_classifier_of_tables_is_calibrated_in_python(made, kind, code):
    report = made.make_report()
    bare = replace(report, model=replace(report.model, files=(), kind=kind))
    assert advice(bare).command == code


def test_few_inputs_are_all_labelled_and_a_run_that_was_not_kept_is_collected_again(made):
    report = made.make_report(verdict="caution")
    few = replace(report, data=replace(report.data, used=20))
    assert advice(few).command == "pseudocal label out -n 20"
    assert advice(report, kept=False).action.startswith("Calibrate again without --no-logits")
    assert made.make_segmented().recommendation.action == "Label 50 pixels before you deploy"


UNDECIDED = Reason(
    ReasonCode.LABELS_UNDECIDED, {"labels": 49.0, "low": 0.8, "high": 1.5, "more": 70.0}
)
TOO_HIGH = Reason(
    ReasonCode.LABELS_CONFIDENCE_HIGH, {"labels": 49.0, "low": 0.8, "high": 1.5, "gap": 0.2}
)
CLOSE = Reason(ReasonCode.LABELS_CLOSE_TO_ONE, {"labels": 49.0, "low": 0.9, "high": 1.2})
ENOUGH = Reason(ReasonCode.LABELS_ENOUGH)
ALREADY = Reason(ReasonCode.LABELS_ALREADY_CALIBRATED, {"labels": 49.0, "low": 0.9, "high": 1.1})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"verdict": "caution", "reasons": (UNDECIDED,), "more_labels": 70},
            "Label 70 more inputs before you deploy: pseudocal label out -n 120",
        ),
        (
            {"verdict": "caution", "reasons": (UNDECIDED,), "sampling": "random"},
            "Label 50 more inputs, drawn at random, before you deploy: pseudocal refine out "
            "labels.csv --sampling random",
        ),
        (
            {"verdict": "caution", "reasons": (CLOSE,)},
            "Label 50 more inputs before you deploy: pseudocal label out -n 100",
        ),
        ({"verdict": "caution", "reasons": (CLOSE, ENOUGH)}, "Keep the model you have."),
        (
            {"verdict": "caution", "reasons": (TOO_HIGH,)},
            "Keep the model you have, or check with 50 more labels: pseudocal label out -n 100",
        ),
        ({"verdict": "caution", "reasons": (TOO_HIGH,), "rows": 50}, "Keep the model you have."),
        ({"verdict": "already calibrated", "reasons": (ALREADY,)}, "Keep the model you have."),
    ],
)
def test_what_labels_recommend(made, changes, text):
    report = made.make_refined()  # 49 labels and one "cannot tell"
    assert report.recommendation.decision == "deploy"
    changed: Any = replace(report.labels, **changes)
    found = advice(replace(report, labels=changed))
    assert str(found) == text
    assert found.reason == changed.reasons[0]
    assert found.because.endswith(".")
    assert ". " not in found.because


def test_the_reason_is_what_decided(made):
    report = made.make_report(verdict="caution")
    agrees = Reason(
        ReasonCode.SECOND_MODEL_AGREES,
        {
            "agreement_low": 0.6,
            "agreement_high": 0.6,
            "shared_low": 0.3,
            "shared_high": 0.3,
            "accuracy": 0.5,
        },
    )
    lowers = Reason(ReasonCode.CLOSER, {"before": 0.8, "after": 0.6})
    against = Reason(ReasonCode.MIXUP_DISAGREES, {"mixup": 0.9})
    reasons = (agrees, lowers, against)
    for verdict, expected in (("apply", lowers), ("caution", against), ("do not apply", against)):
        trust = replace(report.trust, verdict=verdict, reasons=reasons)
        assert advice(replace(report, trust=trust)).reason == expected
    assert advice(replace(report, trust=None)).reason.code == ReasonCode.NOTHING_FITTED


# ------------------------------------------------------------------------------ the terminal


def test_the_terminal_begins_with_accuracy_recommendation_and_reason(made):
    for verdict in made.VERDICTS:
        run, report = made.make_run(verdict=verdict), made.make_report(verdict=verdict)
        lines = list(summary_lines(Result(run.calibration, report, OUT, OUT)))
        assert lines[:3] == [
            str(report.headline),
            f"Recommendation: {report.recommendation}",
            f"Reason: {report.recommendation.because}",
        ]


def test_a_temperature_that_is_used_with_caution_is_called_unconfirmed(made):
    for verdict, end in (("apply", ": used"), ("caution", ": used, unconfirmed")):
        run, report = made.make_run(verdict=verdict), made.make_report(verdict=verdict)
        report = replace(report, settings=report.settings | {"estimator": "agreement"})
        lines = list(summary_lines(Result(run.calibration, report, OUT, OUT)))
        [line] = [line for line in lines if line.startswith("from agreement")]
        assert line.endswith(end)


def test_no_gap_is_minus_zero_points(made):
    run, report = made.make_run(), made.make_refined()
    gaps = {"gap_before": Interval(0.012, 0.0, 0.1), "gap_after": Interval(-0.001, -0.1, 0.1)}
    calibration = replace(run.calibration, measured=replace(report.labels, **gaps))
    lines = list(summary_lines(Result(calibration, report, OUT, OUT)))
    assert "mean confidence minus accuracy, in points: +1 before, 0 after" in lines


def test_a_model_that_stays_as_it_is_has_no_after(made):
    report = made.make_refined()
    rejected = replace(report, calibration=replace(report.calibration, temperature=1, refused=3))
    calibration = replace(made.make_run().calibration, measured=report.labels)
    lines = list(summary_lines(Result(calibration, rejected, OUT, OUT)))
    [mean] = [line for line in lines if line.startswith("mean confidence ") and "%" in line]
    [gap] = [line for line in lines if line.startswith("mean confidence minus accuracy")]
    assert "after" not in mean + gap
    assert " after" in page(report).partition("Mean confidence minus accuracy")[2][:100]
    assert " after" not in page(rejected).partition("Mean confidence minus accuracy")[2][:60]


# ------------------------------------------------------------------------------ the essentials

NOTHING_KNOWN = AccuracyEstimate(0.5, 0.0, 1.0)


def test_the_risk_in_numbers_stands_in_the_first_screen(made):
    report = made.make_report(verdict="caution")
    risk = Reason(ReasonCode.EXPECTED_GAIN, {"fell": 6.0})
    cause = Reason(ReasonCode.WITHIN_INTERVAL, {"before": 0.9, "low": 0.7, "high": 1.0})
    trust = replace(report.trust, reasons=(cause, risk))
    tested = replace(report, trust=trust)
    assert essentials_of(tested)["What could be wrong"].code == "risk_agreement_tested"
    assert "in about 6 of 10 cases." in shown(tested)
    assert advice(tested).because == str(cause)


def test_a_threshold_says_which_predictions_to_trust(made):
    report = made.make_report()
    found = RunThreshold(0.05, "guaranteed", 0.9, None, False, 0.3, 0.02, 60)
    essential = essentials_of(replace(report, threshold=found))["Which predictions to trust"]
    assert str(essential) == (
        "30% of the inputs: those with a confidence of at least 90%. At most 5% of them are "
        "wrong, with a probability of 90%."
    )
    stratified = replace(found, sampling="stratified", coverage=1.0)
    text = str(essentials_of(replace(report, threshold=stratified))["Which predictions to trust"])
    assert "100% of the inputs: those with any confidence." in text
    assert "with a probability of about 90%" in text
    both = replace(found, basis="estimated", agreement=True)
    text = str(essentials_of(replace(report, threshold=both))["Which predictions to trust"])
    assert "at least 90% where both models agree. An estimated 5% of them are wrong" in text
    assert "are wrong. In our tests, the true error was higher for 74% of models." in text
    more = replace(both, confidence=0.0, if_disagree=0.7)
    text = str(essentials_of(replace(report, threshold=more))["Which predictions to trust"])
    assert "at least 70%, and all where both models agree" in text
    none = replace(found, basis="none", confidence=None, promise="60 labels guarantee nothing.")
    text = str(essentials_of(replace(report, threshold=none))["Which predictions to trust"])
    assert text == none.promise


def test_nothing_is_estimated_for_a_model_that_predicts_one_class(made):
    report = made.make_report(verdict="do not apply")
    one_class = Reason(ReasonCode.ONE_CLASS, {"classes": 6.0, "fraction": 0.96})
    collapsed = replace(report, trust=replace(report.trust, reasons=(one_class,)))
    assert headline_of(collapsed).code == "unknown"
    assert codes(collapsed)[2:] == ["assumed_nothing", "risk_nothing"]
    assert advice(collapsed).code == "check_or_label"


def test_nothing_is_estimated_for_two_classes(made):
    report = made.make_report(verdict="caution")
    two_classes = Reason(ReasonCode.TWO_CLASSES, {"mixup": 1.2})
    report = replace(report, trust=replace(report.trust, reasons=(two_classes,)))
    assert headline_of(report).code == "unknown"
    calibration = replace(made.make_run(verdict="caution").calibration, trust=report.trust)
    lines = list(summary_lines(Result(calibration, report, OUT, OUT)))
    assert "no estimated accuracy" in lines
    assert not [line for line in lines if line.startswith("estimated accuracy")]


def test_labels_that_contradict_the_model_say_what_to_check(made):
    report = made.make_refined()
    why = Reason(ReasonCode.LABELS_CONTRADICT, {"labels": 49.0, "right": 0.0})
    labels = replace(report.labels, verdict="do not apply", reasons=(why,))
    contradicted = replace(report, labels=labels, facts=())
    assert codes(contradicted)[1::2] == ["trust_contradicted", "risk_contradicted"]
    found = advice(contradicted)
    assert (found.decision, found.code, found.command) == ("keep", "check_labels", "")
    assert found.because == (
        "0 of 49 labels confirm the model's predictions, so no temperature makes the model usable "
        "here."
    )


@pytest.mark.parametrize(
    ("accuracy", "code"), [((0.12, 0.06, 0.21), "check_labels"), ((0.2, 0.1, 0.3), "label_more")]
)
def test_labels_that_agree_by_chance_say_what_to_check(made, accuracy, code):
    report = made.make_refined()
    names = ("accuracy", "accuracy_low", "accuracy_high")
    numbers = dict(zip(names, accuracy, strict=True)) | {"labels": 50.0, "chance": 1 / 6}
    why = Reason(ReasonCode.LABELS_AT_CHANCE, numbers)
    labels = replace(report.labels, verdict="caution", reasons=(why,))
    found = advice(replace(report, labels=labels))
    assert found.code == code
    assert found.because.startswith("The labels may agree with the predictions no more often than")
    assert found.because.endswith(", and chance is 17%.")


def codes(report) -> list[str]:
    return [answer.code for answer in essentials_of(report).values()]


def test_the_first_answers_say_what_is_known(made):
    after = made.make_report()
    assert codes(after) == [
        "changes_lower",
        "trust_expected",
        "assumed_agreement",
        "risk_agreement",
    ]
    assert codes(made.make_report(verdict="caution"))[:2] == ["changes_later", "trust_unconfirmed"]
    refused = codes(made.make_report(verdict="do not apply"))
    assert refused[:2] == ["changes_nothing", "trust_unknown"]
    assert codes(made.make_report(labelled=True))[1::2] == ["trust_measured", "risk_measured"]
    assert codes(made.make_refined())[2:] == ["assumed_labels", "none_of_these"]
    assumed = replace(after, data=replace(after.data, assumed=("resize", "crop")))
    answers = essentials_of(assumed)["What was assumed"]
    assert "The model was trained with the assumed preprocessing (resize, crop)." in str(answers)
    nothing = replace(after.calibration, mixup_samples=0, temperature=1.0)
    unfitted = replace(after, calibration=nothing)
    assert codes(unfitted)[2:] == ["assumed_agreement", "risk_agreement"]
    alone = replace(after.trust, effects={"none": after.trust.effects["none"]})
    of_confidence = replace(unfitted, trust=alone)
    assert codes(of_confidence)[2:] == ["assumed_confidence", "risk_confidence"]
    unknown = replace(unfitted, trust=replace(alone, estimated_accuracy=NOTHING_KNOWN))
    assert codes(unknown)[2:] == ["assumed_nothing", "risk_nothing"]
    assert "Nothing was applied: the confidences are unchanged." in shown(unfitted)
    for report in (after, made.make_segmented(), made.make_refined(), unfitted):
        assert all(str(answer).endswith(".") for answer in essentials_of(report).values())


@pytest.mark.parametrize("verdict", ["apply", "caution"])
def test_one_model_without_labels_states_no_fraction_of_errors(made, verdict):
    """The errors that follow from T were 4.5%, and 56% were wrong."""
    report = made.make_report(verdict=verdict)
    effects = {name: report.trust.effects[name] for name in ("none", "mixup")}
    alone = replace(report, trust=replace(report.trust, effects=effects))
    answer = essentials_of(alone)["Which predictions to trust"]
    assert answer.code == "trust_unchecked"
    assert str(answer).endswith(
        "confidence after calibration. These are the most confident predictions, but their "
        "accuracy was not checked."
    )
    assert "are wrong" not in shown(alone)
    assert "expected to be wrong" not in shown(alone)
    assert "expected to be wrong" in shown(report)
    labelled = made.make_report(labelled=True, verdict=verdict)
    measured = replace(labelled, trust=alone.trust)
    assert essentials_of(measured)["Which predictions to trust"].code == "trust_measured"


def test_a_model_that_is_already_calibrated_is_trusted_as_it_is(made):
    report = made.make_refined()
    labels = replace(report.labels, verdict="already calibrated", reasons=(ALREADY,))
    fit = replace(report.calibration, temperature=1.0)
    trusted = essentials_of(replace(report, labels=labels, calibration=fit))[
        "Which predictions to trust"
    ]
    assert trusted.code == "trust_expected"
    assert "after calibration" not in str(trusted)
    assert "after calibration" in str(essentials_of(report)["Which predictions to trust"])


def test_ground_truth_that_contradicts_the_recommendation_is_the_first_risk(made):
    report = made.make_report(verdict="do not apply", labelled=True)
    assert essentials_of(report)["What could be wrong"].code == "rejected_lowers_ece"
    assert "The ground truth contradicts this recommendation" in shown(report)


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
    assert "Accept only confident predictions" in shown(report)
    assert "were expected" in shown(report)
    refused = made.make_report(verdict="do not apply")
    assert "Accept only confident predictions" not in shown(
        refused
    )  # a rejected T promises nothing


def test_the_noise_floor_is_what_chance_gives(made):
    run, report = made.make_run(labelled=True), made.make_report(labelled=True)
    rng, scaled = np.random.default_rng(1), run.logits / 2.9
    chance = [
        ece(Outcomes.from_logits(scaled, (scaled + rng.gumbel(size=scaled.shape)).argmax(axis=1)))
        for _ in range(50)
    ]
    noise = report.reliability.noise
    assert noise == pytest.approx(np.mean(chance), rel=0.1)
    sentence = "Even a perfectly calibrated model with these confidences would show an ECE of about"
    assert f"{sentence} {noise:.2%} on this many inputs, by chance." in shown(report)
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
