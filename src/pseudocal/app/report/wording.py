"""Every sentence of a report that is not in a template.

A decision is data: `findings.py` gives codes and numbers. The sentences for them are here. The
reasons of the verdict are worded in `calibrators/wording.py`.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pseudocal.arrays import InputError
from pseudocal.calibrators.wording import count
from pseudocal.files import brief

Values = dict[str, float | str]
Level = Literal["caution", "note"]
Tone = Literal["good", "caution", "bad"]


# ------------------------------------------------------------------------------ the first sentence


AT = "Predictions made at {level:confidence} confidence are right "
MEASURED = AT + "{accuracy:confidence} of the time (measured on {n:count} {unit})."
LABELLED = (
    AT + "{accuracy:confidence} of the time (95% interval {low:.0%} to {high:.0%}, {n:labels})."
)
THEY_READ = " After calibration they read {after:confidence}."
MEAN = "The mean confidence is {before:.0%}."

HEADLINES: dict[str, str] = {
    "measured": MEASURED + THEY_READ,
    "measured_unchanged": MEASURED,
    "labelled": LABELLED + THEY_READ,
    "labelled_unchanged": LABELLED,
    "estimated": (AT + "an estimated {after:confidence} of the time (no labels used)." + THEY_READ),
    "estimated_unconfirmed": (
        "Predictions made at {level:confidence} confidence may be right {after:confidence} "
        "of the time (an unconfirmed estimate, no labels used)." + THEY_READ
    ),
    "estimated_from_labels": (
        AT + "an estimated {after:confidence} of the time (from {labels:labels})." + THEY_READ
    ),
    "rejected": MEAN + " The model is unchanged.",
    "rejected_estimated": (
        MEAN + " The estimated accuracy is {accuracy:.0%} (90% interval {low:.0%} to {high:.0%}, "
        "no labels used). The model is unchanged."
    ),
    "rejected_measured": (
        MEAN + " The accuracy is {accuracy:.0%} (90% interval {low:.0%} to {high:.0%}, "
        "{labels:labels}). The model is unchanged."
    ),
    "unfitted": MEAN + " Nothing was fitted, and nothing was checked without labels.",
    "mean_confidence": (
        "The mean confidence is {before:.0%} before calibration and {after:.0%} after."
    ),
}


@dataclass(frozen=True)
class Headline:
    """The first sentence of a report, as data; `str` gives the sentence.

    >>> print(Headline("estimated", {"level": 0.9, "after": 0.772}))
    Predictions made at 90% confidence are right an estimated 77% of the time (no labels used).
    After calibration they read 77%.
    """

    code: str  # a key of `HEADLINES`
    values: Values = field(default_factory=dict)  # fractions are from 0 to 1

    def __post_init__(self) -> None:
        str(self)

    def __str__(self) -> str:
        return _sentence(HEADLINES, self.code, self.values)


# ------------------------------------------------------------------------------ what to know


INTERVAL = (
    "The interval of T covers sampling error only: how much T would change with other inputs from "
    "the same source. "
)

FACTS: dict[str, str] = {
    "ece_rises": ("On the ground truth, calibration raises ECE from {before:.2%} to {after:.2%}."),
    "rejected_lowers_ece": (
        "On the ground truth, the rejected temperature lowers ECE from {before:.2%} to "
        "{after:.2%}. The verdict does not use the ground truth and is too strict here."
    ),
    "rejected_raises_ece": (
        "On the ground truth, the rejected temperature raises ECE from {before:.2%} to "
        "{after:.2%}. The rejection was right."
    ),
    "estimate_missed": (
        "The accuracy on the ground truth is {accuracy:.1%}, outside the estimated interval "
        "({low:.1%} to {high:.1%})."
    ),
    "labels_stratified": (
        "{labels:count} of {rows:count} {unit} were labelled, chosen by pseudocal label. T was "
        "fitted on these labels."
    ),
    "labels_random": (
        "{labels:count} of {rows:count} {unit} were labelled, given as a random sample. T was "
        "fitted on these labels."
    ),
    "label_priors": "The prior of T comes from the label-free estimates ({priors}).",
    "none_of_these": (
        '{n:count} of {labels:labels} said "none of these": the data contain classes that the '
        "model does not know. It is always wrong on them."
    ),
    "cannot_tell": 'Labelled "cannot tell" and skipped: {n:count}.',
    "few_labels": "There are too few labels to measure the calibration error itself.",
    "preprocessing_assumed": (
        "Preprocessing was not specified; assumed: {assumed} ({preparation}). If training "
        "differed, accuracy and every number here are off."
    ),
    "unreadable": ("{n:count} of {inputs:count} inputs could not be read; they are listed below."),
    "skipped": "{n:count} of {blocks} were skipped; they are listed below.",
    "few_images": (
        "T was fitted on only {pairs:count} pairs of images; use {enough:count} or more. Pixels "
        "of one image carry nearly the same information."
    ),
    "pixels_mixed": (
        "{mixup_samples:count} pixels of {pairs:count} pairs of images were mixed: those with two "
        "different predicted classes."
    ),
    "pairs_mixed": (
        "{fraction:.0%} of the pairs of inputs ({mixup_samples:count} of {pairs:count}) have two "
        "different predicted classes. Only these are mixed."
    ),
    "not_measured": (
        "No labels and no ground truth were given, so nothing here was measured on real inputs."
    ),
    "interval_of_mixup": (
        INTERVAL + "It does not cover how well mixup samples represent real inputs."
    ),
    "interval_of_second_opinion": (INTERVAL + "It does not cover errors of the second opinion."),
}


@dataclass(frozen=True)
class Fact:
    """Something to know before using a calibration, as data; `str` gives its sentence.

    >>> print(Fact("note", "unreadable", {"n": 2, "inputs": 1600}))
    2 of 1,600 inputs could not be read; they are listed below.
    """

    level: Level
    code: str  # a key of `FACTS`
    values: Values = field(default_factory=dict)  # fractions are from 0 to 1

    def __post_init__(self) -> None:
        str(self)

    def __str__(self) -> str:
        return _sentence(FACTS, self.code, self.values)


def _sentence(table: dict[str, str], code: str, values: Values) -> str:
    """The sentence of a code with its values; refuses others, which a damaged file may have."""
    if code not in table:
        raise InputError(f"there is no sentence for the code {brief(code)}")
    try:
        return _FORMATTER.vformat(table[code], (), values)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{code} does not go with the values {brief(values)}") from error


# ------------------------------------------------------------------------------ the temperature


EFFECTS: dict[str, str] = {
    "rejected_lowers": (
        "The fitted temperature would lower the confidences. It was rejected, so they are "
        "unchanged."
    ),
    "rejected_raises": (
        "The fitted temperature would raise the confidences. It was rejected, so they are "
        "unchanged."
    ),
    "unfitted": "Nothing was fitted: the confidences are unchanged.",
    "at_bound": "The search ended at the limit of its range, so T is undetermined.",
    "near_one": "T is not significantly different from 1: you can skip calibration.",
    "lowers": "Dividing the logits by T lowers the confidences.",
    "raises": "Dividing the logits by T raises the confidences.",
    "overconfident": (
        "The model is overconfident on this data. Dividing its logits by T lowers the confidences."
    ),
    "underconfident": (
        "The model is underconfident on this data. Dividing its logits by T raises the confidences."
    ),
}


# ------------------------------------------------------------------------------ the verdict


@dataclass(frozen=True)
class VerdictWords:
    """How a verdict is shown: its colour, its heading, and its meaning in one sentence."""

    tone: Tone
    heading: str
    meaning: str


VERDICTS: dict[str, VerdictWords] = {
    "already calibrated": VerdictWords(
        "good",
        "Already calibrated: nothing to apply",
        "The model's confidence already matches its accuracy.",
    ),
    "apply": VerdictWords(
        "good", "Apply", "Calibration should bring the confidence closer to the accuracy."
    ),
    "caution": VerdictWords(
        "caution", "Use with caution", "Calibration may help, but the evidence is not conclusive."
    ),
    "do not apply": VerdictWords(
        "bad",
        "Do not apply",
        "This temperature is not expected to help. The confidences are unchanged.",
    ),
}


# ------------------------------------------------------------------------------ numbers


def percent(value: float) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{value:.1%}"


def confidence(value: float) -> str:
    """A fraction as a whole percentage that is never 0% or 100% by rounding.

    >>> confidence(0.772), confidence(0.9991), confidence(0.002), confidence(1.0)
    ('77%', 'more than 99%', 'less than 1%', '100%')
    """
    if 0.995 <= value < 1:
        return "more than 99%"
    if 0 < value < 0.005:
        return "less than 1%"
    return f"{value:.0%}"


def points(fraction: float) -> str:
    """A difference of fractions in percentage points: +12, -3 or 0."""
    text = f"{100 * fraction:+.0f}"
    return "0" if text in ("+0", "-0") else text


def number(value: Any) -> str:
    """A number with three decimals from 0.01 to 1000, else with four significant digits.

    >>> number(1.8412), number(1e6), number(None), number(1200), number("text")
    ('1.841', '1e+06', 'unbounded', '1,200', 'text')
    """
    if value is None:
        return "unbounded"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or 0.01 <= abs(value) < 1000 or not math.isfinite(value):
        return f"{value:.3f}"
    return f"{value:.4g}"


def seconds(value: float) -> str:
    """A duration as seconds, or as minutes and seconds.

    >>> seconds(12.34), seconds(125)
    ('12.3 s', '2 min 5 s')
    """
    if value < 60:
        return f"{value:.1f} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


METRIC_TITLES = {
    "accuracy": "Accuracy",
    "brier": "Brier",
    "ece": "ECE",
    "miou": "mIoU",
    "nll": "NLL",
}
PERCENTAGES = ("accuracy", "ece", "miou")  # metrics that are shown in percent
LEAST_GAP = 1e-6  # a narrower interval is rounding error

Numbers = tuple[float | None, float | None, float | None]  # a value and its interval


def metric_cells(metric: str, parts: Sequence[Numbers]) -> list[tuple[str, str, str]]:
    """Format a metric before, after and its change, with two digits of the narrowest interval.

    ECE, accuracy and mIoU are in percent, their changes in percentage points.

    >>> ece = [(0.0741, 0.048, 0.1), (0.0715, 0.05, 0.09), (-0.0026, -0.016, -1e-9)]
    >>> metric_cells("ece", ece)
    [('7.41%', '4.80%', '10.00%'), ('7.15%', '5.00%', '9.00%'), ('-0.26', '-1.60', '0.00')]
    >>> metric_cells("nll", [(0.5, 0.25, None)])
    [('0.500', '0.250', 'unbounded')]
    """
    scale = 100 if metric in PERCENTAGES else 1
    gaps = [
        scale * abs(end - value)
        for value, low, high in parts
        for end in (low, high)
        if value is not None and end is not None
    ]
    finest = min((gap for gap in gaps if gap > LEAST_GAP), default=1.0)
    digits = max(1 if metric in PERCENTAGES else 3, 1 - math.floor(math.log10(finest)))
    found = []
    for i, part in enumerate(parts):
        sign = "%" if metric in PERCENTAGES and i < 2 else ""
        cells = ["unbounded" if v is None else f"{scale * v:z.{digits}f}{sign}" for v in part]
        found.append((cells[0], cells[1], cells[2]))
    return found


class _Formatter(string.Formatter):
    """Has three more ways to show a number: a count, labels and a confidence."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "count":
            return f"{value:,.0f}"
        if format_spec == "labels":
            return count(value, "label")
        if format_spec == "confidence":
            return confidence(value)
        return str(super().format_field(value, format_spec))


_FORMATTER = _Formatter()
