"""Each code has a sentence, and each sentence reads as it should."""

from __future__ import annotations

import pytest

from pseudocal import InputError
from pseudocal.app.report.wording import (
    ACTIONS,
    FACTS,
    HEADLINES,
    Fact,
    Headline,
    Recommendation,
    Values,
)
from pseudocal.calibrators import Reason, ReasonCode

ACCURACY: Values = {"accuracy": 0.58, "low": 0.46, "high": 0.7, "inputs": "1,600 inputs"}
HEADLINE_SENTENCES: dict[str, tuple[Values, str]] = {
    "ground_truth": (
        ACCURACY,
        "Measured accuracy: 58% (95% interval 46% to 70%; ground truth of 1,600 inputs).",
    ),
    "labels": (
        ACCURACY | {"labels": 50},
        "Measured accuracy: 58% (90% interval 46% to 70%; 50 labels, 1,600 inputs).",
    ),
    "estimated": (
        ACCURACY | {"accuracy": 0.998, "high": 1.0},
        "Estimated accuracy: more than 99% (90% interval 46% to 100%; 1,600 inputs, no labels "
        "used).",
    ),
    "unknown": (
        {"before": 0.83, "inputs": "12 images"},
        "Accuracy unknown: it cannot be estimated without labels. Mean confidence: 83% (12 "
        "images).",
    ),
}
RUN: Values = {"out": "my runs/out", "n": 50, "unit": "inputs", "more": 30}
LABEL = "pseudocal label 'my runs/out' -n 50"
ADVICE: dict[str, tuple[Values, str, str]] = {
    "deploy": (
        {"file": "model.onnx", "path": "out/model.onnx"},
        "deploy",
        "Deploy the calibrated model.onnx instead of the original: out/model.onnx",
    ),
    "deploy_calibration": (
        {"file": "calibration.json", "path": "out/calibration.json"},
        "deploy",
        "Deploy calibration.json with the model you have: pseudocal apply out/calibration.json "
        "logits.npy -o probabilities.npy",
    ),
    "deploy_or_label": (
        RUN | {"file": "model.onnx", "path": "out/model.onnx"},
        "deploy",
        "Deploy the calibrated model.onnx instead of the original, or first label 50 inputs to "
        f"measure accuracy: {LABEL}",
    ),
    "deploy_calibration_or_label": (
        RUN | {"file": "calibration.json", "path": "out/calibration.json"},
        "deploy",
        "Deploy calibration.json with the model you have, or first label 50 inputs to measure accuracy: "
        "pseudocal apply out/calibration.json logits.npy -o probabilities.npy",
    ),
    "deploy_for_outputs": (
        {"file": "calibration.json", "command": "pseudocal apply c.json p.csv -o q.csv"},
        "deploy",
        "Deploy calibration.json with the model you have: pseudocal apply c.json p.csv -o q.csv",
    ),
    "deploy_in_python": (
        {"file": "calibration.json", "code": "f(x)"},
        "deploy",
        "Deploy calibration.json with the model you have, in Python: f(x)",
    ),
    "deploy_in_python_or_label": (
        RUN | {"file": "calibration.json", "code": "f(x)"},
        "deploy",
        "Deploy calibration.json with the model you have, in Python, or first label 50 inputs "
        "to measure accuracy: f(x)",
    ),
    "keep": ({}, "keep", "Keep the model you have."),
    "keep_or_label": (
        RUN,
        "keep",
        f"Keep the model you have, or label 50 inputs to calibrate it: {LABEL}",
    ),
    "keep_or_label_more": (
        RUN,
        "keep",
        f"Keep the model you have, or check with 30 more labels: {LABEL}",
    ),
    "label": (RUN, "label", f"Label 50 inputs before you deploy: {LABEL}"),
    "specify_or_label": (
        RUN,
        "label",
        f"Specify the preprocessing and calibrate again, or label 50 inputs: {LABEL}",
    ),
    "label_more": (RUN, "label", f"Label 30 more inputs before you deploy: {LABEL}"),
    "label_more_at_random": (
        RUN,
        "label",
        "Label 30 more inputs, drawn at random, before you deploy: pseudocal refine 'my runs/out' "
        "labels.csv --sampling random",
    ),
    "label_again": (
        RUN,
        "label",
        f"Calibrate again without --no-logits, then label 50 inputs: {LABEL}",
    ),
    "check_or_label": (
        RUN,
        "keep",
        f"Check the model and its inputs, or label 50 inputs to measure the accuracy: {LABEL}",
    ),
    "check_labels": ({}, "keep", "Do not deploy: check the classes and the labels."),
}
INTERVAL = (
    "The interval of T covers sampling error only: how much T would change with other inputs from "
    "the same source. "
)
FACT_SENTENCES: dict[str, tuple[Values, str]] = {
    "ece_rises": (
        {"before": 0.0512, "after": 0.12},
        "On the ground truth, calibration raises ECE from 5.12% to 12.00%.",
    ),
    "rejected_lowers_ece": (
        {"before": 0.12, "after": 0.05},
        "On the ground truth, the rejected temperature lowers ECE from 12.00% to 5.00%. The "
        "verdict does not use the ground truth and is too strict here.",
    ),
    "rejected_at_chance": (
        {"before": 0.84, "after": 0.082},
        "On the ground truth, the rejected temperature lowers ECE from 84.00% to 8.20%, only because "
        "it lowers the confidence of predictions that are right no more often than by chance.",
    ),
    "rejected_lowers_ece_little": (
        {"before": 0.85, "after": 0.672},
        "On the ground truth, the rejected temperature lowers ECE from 85.00% to 67.20%. The model "
        "would still be far from calibrated.",
    ),
    "rejected_raises_ece": (
        {"before": 0.05, "after": 0.12},
        "On the ground truth, the rejected temperature raises ECE from 5.00% to 12.00%. The "
        "rejection was right.",
    ),
    "estimate_missed": (
        {"accuracy": 0.553, "low": 0.6, "high": 0.8},
        "The accuracy on the ground truth is 55.3%, outside the estimated interval (60.0% to "
        "80.0%).",
    ),
    "labels_stratified": (
        {"labels": 49, "rows": 1600, "unit": "inputs"},
        "49 of 1,600 inputs were labelled, chosen by pseudocal label. T was fitted on these "
        "labels.",
    ),
    "labels_random": (
        {"labels": 49, "rows": 1600, "unit": "sampled pixels"},
        "49 of 1,600 sampled pixels were labelled, drawn at random. T was fitted on these labels.",
    ),
    "label_priors": (
        {"priors": "mixup 2.90, agreement 3.10"},
        "The prior of T comes from the label-free estimates (mixup 2.90, agreement 3.10).",
    ),
    "none_of_these": (
        {"n": 1, "labels": 49},
        '1 of 49 labels was "none of these". The model does not know the classes of such inputs, '
        "so it is always wrong on them.",
    ),
    "cannot_tell": ({"n": 1}, 'Skipped: 1 (labelled "cannot tell" or not labelled).'),
    "few_labels": ({}, "There are too few labels to measure the calibration error itself."),
    "preprocessing_assumed": (
        {"assumed": "resize", "preparation": "resized to 224 x 224"},
        "Preprocessing was not specified; assumed: resize (resized to 224 x 224). If training "
        "differed, accuracy and every number here are off.",
    ),
    "unreadable": (
        {"n": 2, "inputs": 1602},
        "2 of 1,602 inputs could not be read; they are listed below.",
    ),
    "skipped": (
        {"n": 1, "blocks": "30 files"},
        "1 of 30 files were skipped; they are listed below.",
    ),
    "few_images": (
        {"pairs": 12, "enough": 50},
        "T was fitted on only 12 pairs of images; use 50 or more. Pixels of one image carry "
        "nearly the same information.",
    ),
    "pixels_mixed": (
        {"mixup_samples": 4000, "pairs": 12},
        "4,000 pixels of 12 pairs of images were mixed: those with two different predicted "
        "classes.",
    ),
    "pairs_mixed": (
        {"mixup_samples": 580, "pairs": 600, "fraction": 580 / 600},
        "97% of the pairs of inputs (580 of 600) have two different predicted classes. Only these "
        "are mixed.",
    ),
    "not_measured": (
        {},
        "No labels and no ground truth were given, so nothing here was measured on real inputs.",
    ),
    "interval_of_mixup": (
        {},
        INTERVAL + "It does not cover how well mixup samples represent real inputs.",
    ),
    "interval_of_second_opinion": (
        {},
        INTERVAL + "It does not cover errors of the second opinion.",
    ),
}


@pytest.mark.parametrize("code", HEADLINES)
def test_the_sentence_of_each_headline(code):
    values, sentence = HEADLINE_SENTENCES[code]
    assert str(Headline(code, values)) == sentence


@pytest.mark.parametrize("code", ACTIONS)
def test_the_words_of_each_recommendation(code):
    values, decision, text = ADVICE[code]
    advice = Recommendation(code, values, Reason(ReasonCode.NOTHING_FITTED))
    assert (advice.decision, str(advice)) == (decision, text)
    assert advice.because == (
        "Nothing was fitted (T = 1), and nothing could be checked without labels."
    )


def test_a_reason_of_one_sentence_stays_whole():
    advice = Recommendation("keep", {}, Reason(ReasonCode.MIXUP_AGREES, {"mixup": 1.21}))
    assert advice.because == "The temperature from mixup samples points the same way (T = 1.21)."


def test_a_folder_from_somebody_else_cannot_add_to_the_command():
    values: Values = {"out": "out; rm -r ~", "n": 50, "unit": "inputs"}
    advice = Recommendation("label", values, Reason(ReasonCode.NOTHING_FITTED))
    assert advice.command == "pseudocal label 'out; rm -r ~' -n 50"


@pytest.mark.parametrize("code", FACTS)
def test_the_sentence_of_each_fact(code):
    values, sentence = FACT_SENTENCES[code]
    assert str(Fact("note", code, values)) == sentence


def test_no_sentence_of_a_test_has_lost_its_code():
    assert set(HEADLINES) == set(HEADLINE_SENTENCES)
    assert set(FACTS) == set(FACT_SENTENCES)
    assert set(ACTIONS) == set(ADVICE)


def test_an_unknown_code_is_refused():
    with pytest.raises(InputError, match="no sentence for the code 'rumour'"):
        Fact("note", "rumour")
    with pytest.raises(InputError, match="no sentence for the code 'rumour'"):
        Headline("rumour")
    with pytest.raises(InputError, match="no recommendation for the code 'rumour'"):
        Recommendation("rumour", {}, Reason(ReasonCode.NOTHING_FITTED))


@pytest.mark.parametrize("values", [{}, {"n": "two", "inputs": 1}, {"n": 2}])
def test_values_that_do_not_fit_the_sentence_are_refused(values):
    with pytest.raises(InputError, match="unreadable does not go with the values"):
        Fact("note", "unreadable", values)
