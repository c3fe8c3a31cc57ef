"""Each code has a sentence, and each sentence reads as it should."""

from __future__ import annotations

import pytest

from pseudocal import InputError
from pseudocal.app.report.wording import (
    FACTS,
    HEADLINES,
    Fact,
    Headline,
    Values,
)

HEADLINE_SENTENCES: dict[str, tuple[Values, str]] = {
    "measured": (
        {"level": 0.9, "accuracy": 0.772, "n": 1075, "unit": "pixels", "after": 0.75},
        "Predictions made at 90% confidence are right 77% of the time (measured on 1,075 pixels). "
        "After calibration they read 75%.",
    ),
    "measured_unchanged": (
        {"level": 0.9, "accuracy": 0.772, "n": 85, "unit": "inputs"},
        "Predictions made at 90% confidence are right 77% of the time (measured on 85 inputs).",
    ),
    "labelled": (
        {"level": 0.9, "accuracy": 0.8, "n": 30, "low": 0.6, "high": 0.9, "after": 0.81},
        "Predictions made at 90% confidence are right 80% of the time (95% interval 60% to 90%, "
        "30 labels). After calibration they read 81%.",
    ),
    "labelled_unchanged": (
        {"level": 0.9, "accuracy": 0.8, "n": 30, "low": 0.6, "high": 0.9},
        "Predictions made at 90% confidence are right 80% of the time (95% interval 60% to 90%, "
        "30 labels).",
    ),
    "estimated": (
        {"level": 0.9, "after": 0.77},
        "Predictions made at 90% confidence are right an estimated 77% of the time (no labels "
        "used). After calibration they read 77%.",
    ),
    "estimated_unconfirmed": (
        {"level": 0.9992, "after": 0.77},
        "Predictions made at more than 99% confidence may be right 77% of the time (an "
        "unconfirmed estimate, no labels used). After calibration they read 77%.",
    ),
    "estimated_from_labels": (
        {"level": 0.9, "after": 0.77, "labels": 50},
        "Predictions made at 90% confidence are right an estimated 77% of the time (from 50 "
        "labels). After calibration they read 77%.",
    ),
    "rejected": ({"before": 0.83}, "The mean confidence is 83%. The model is unchanged."),
    "rejected_estimated": (
        {"before": 0.83, "accuracy": 0.58, "low": 0.46, "high": 0.7},
        "The mean confidence is 83%. The estimated accuracy is 58% (90% interval 46% to 70%, no "
        "labels used). The model is unchanged.",
    ),
    "rejected_measured": (
        {"before": 0.83, "accuracy": 0.58, "low": 0.46, "high": 0.7, "labels": 50},
        "The mean confidence is 83%. The accuracy is 58% (90% interval 46% to 70%, 50 labels). "
        "The model is unchanged.",
    ),
    "unfitted": (
        {"before": 0.83},
        "The mean confidence is 83%. Nothing was fitted, and nothing was checked without labels.",
    ),
    "mean_confidence": (
        {"before": 0.83, "after": 0.6},
        "The mean confidence is 83% before calibration and 60% after.",
    ),
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
        "49 of 1,600 sampled pixels were labelled, given as a random sample. T was fitted on "
        "these labels.",
    ),
    "label_priors": (
        {"priors": "mixup 2.90, agreement 3.10"},
        "The prior of T comes from the label-free estimates (mixup 2.90, agreement 3.10).",
    ),
    "none_of_these": (
        {"n": 1, "labels": 49},
        '1 of 49 labels said "none of these": the data contain classes that the model does not '
        "know. It is always wrong on them.",
    ),
    "cannot_tell": ({"n": 1}, 'Labelled "cannot tell" and skipped: 1.'),
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


@pytest.mark.parametrize("code", FACTS)
def test_the_sentence_of_each_fact(code):
    values, sentence = FACT_SENTENCES[code]
    assert str(Fact("note", code, values)) == sentence


def test_no_sentence_of_a_test_has_lost_its_code():
    assert set(HEADLINES) == set(HEADLINE_SENTENCES)
    assert set(FACTS) == set(FACT_SENTENCES)


def test_an_unknown_code_is_refused():
    with pytest.raises(InputError, match="no sentence for the code 'rumour'"):
        Fact("note", "rumour")
    with pytest.raises(InputError, match="no sentence for the code 'rumour'"):
        Headline("rumour")


@pytest.mark.parametrize("values", [{}, {"n": "two", "inputs": 1}, {"n": 2}])
def test_values_that_do_not_fit_the_sentence_are_refused(values):
    with pytest.raises(InputError, match="unreadable does not go with the values"):
        Fact("note", "unreadable", values)
