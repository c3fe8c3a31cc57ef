"""Every sentence of a report that is not in a template.

A decision is data: `findings.py` gives codes and numbers. The sentences for them are here. The
reasons of the verdict are worded in `calibrators/wording.py`.
"""

from __future__ import annotations

import math
import shlex
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pseudocal.app.thresholds import RunThreshold
from pseudocal.arrays import InputError
from pseudocal.calibrators.wording import Reason, count
from pseudocal.files import brief

Values = dict[str, float | str]
Level = Literal["caution", "note"]
Tone = Literal["good", "caution", "bad"]


# ------------------------------------------------------------------------------ the first sentence


INTERVAL_90 = "(90% interval {low:confidence} to {high:confidence}; "

HEADLINES: dict[str, str] = {
    "ground_truth": (
        "Measured accuracy: {accuracy:confidence} (95% interval {low:confidence} to "
        "{high:confidence}; ground truth of {inputs})."
    ),
    "labels": (
        "Measured accuracy: {accuracy:confidence} " + INTERVAL_90 + "{labels:labels}, {inputs})."
    ),
    "estimated": (
        "Estimated accuracy: {accuracy:confidence} " + INTERVAL_90 + "{inputs}, no labels used)."
    ),
    "unknown": (
        "Accuracy unknown: it cannot be estimated without labels. "
        "Mean confidence: {before:confidence} ({inputs})."
    ),
}


class Sentence:
    """A sentence as data: a code and its values; `str` words it by the table of its kind."""

    sentences: ClassVar[dict[str, str]]
    code: str
    values: Values

    def __post_init__(self) -> None:
        str(self)

    def __str__(self) -> str:
        if self.code not in self.sentences:
            raise InputError(f"there is no sentence for the code {brief(self.code)}")
        return _worded(self.sentences[self.code], self.code, self.values)


@dataclass(frozen=True)
class Headline(Sentence):
    """The first sentence of a report, the accuracy.

    >>> values = {"accuracy": 0.46, "low": 0.33, "high": 0.59, "inputs": "1,600 inputs"}
    >>> print(Headline("estimated", values))
    Estimated accuracy: 46% (90% interval 33% to 59%; 1,600 inputs, no labels used).
    """

    sentences = HEADLINES
    code: str
    values: Values = field(default_factory=dict)  # fractions are from 0 to 1


# ------------------------------------------------------------------------------ the recommendation


Decision = Literal["deploy", "keep", "label"]
INSTEAD = "Deploy the calibrated {file} instead of the original"
WITH_MODEL = "Deploy {file} with the model you have"
OR_LABEL = ", or first label {n:count} {unit} to measure accuracy"
KEEP = "Keep the model you have"
APPLY = "pseudocal apply {path:path} logits.npy -o probabilities.npy"
LABEL = "pseudocal label {out:path} -n {n:.0f}"

# for each code: what is recommended, and the command for it or the file to use, if there is one
ACTIONS: dict[str, tuple[Decision, str, str]] = {
    "deploy": ("deploy", INSTEAD, "{path:path}"),
    "deploy_or_label": ("deploy", INSTEAD + OR_LABEL, LABEL),
    "deploy_calibration": ("deploy", WITH_MODEL, APPLY),
    "deploy_calibration_or_label": ("deploy", WITH_MODEL + OR_LABEL, APPLY),
    "deploy_in_python": ("deploy", WITH_MODEL + ", in Python", "{code}"),
    "deploy_in_python_or_label": ("deploy", WITH_MODEL + ", in Python" + OR_LABEL, "{code}"),
    "deploy_for_outputs": ("deploy", WITH_MODEL, "{command}"),
    "keep": ("keep", KEEP, ""),
    "keep_or_label": ("keep", KEEP + ", or label {n:count} {unit} to calibrate it", LABEL),
    "keep_or_label_more": ("keep", KEEP + ", or check with {more:count} more labels", LABEL),
    "label": ("label", "Label {n:count} {unit} before you deploy", LABEL),
    "specify_or_label": (
        "label",
        "Specify the preprocessing and calibrate again, or label {n:count} {unit}",
        LABEL,
    ),
    "label_more": ("label", "Label {more:count} more {unit} before you deploy", LABEL),
    "label_more_at_random": (
        "label",
        "Label {more:count} more {unit}, drawn at random, before you deploy",
        "pseudocal refine {out:path} labels.csv --sampling random",
    ),
    "label_again": (
        "label",
        "Calibrate again without --no-logits, then label {n:count} {unit}",
        LABEL,
    ),
    "check_or_label": (
        "keep",
        "Check the model and its inputs, or label {n:count} {unit} to measure the accuracy",
        LABEL,
    ),
    "check_labels": ("keep", "Do not deploy: check the classes and the labels", ""),
}


@dataclass(frozen=True)
class Recommendation:
    """What to do, as data: the action and the reason of the verdict that decides.

    >>> from pseudocal.calibrators import ReasonCode
    >>> why = Reason(ReasonCode.NOTHING_FITTED)
    >>> advice = Recommendation("label", {"n": 50, "unit": "inputs", "out": "out"}, why)
    >>> advice.decision, advice.action, advice.command
    ('label', 'Label 50 inputs before you deploy', 'pseudocal label out -n 50')
    >>> print(advice.because)
    Nothing was fitted (T = 1), and nothing could be checked without labels.
    """

    code: str  # a key of `ACTIONS`
    values: Values
    reason: Reason

    def __post_init__(self) -> None:
        str(self)

    def __str__(self) -> str:
        return f"{self.action}: {self.command}" if self.command else f"{self.action}."

    @property
    def decision(self) -> Decision:
        """Which of the three recommendations it is."""
        return self._row[0]

    @property
    def action(self) -> str:
        """What to do, without a full stop."""
        return _worded(self._row[1], self.code, self.values)

    @property
    def command(self) -> str:
        """The command that does it, or the file to use; empty if there is nothing to do."""
        return _worded(self._row[2], self.code, self.values)

    @property
    def because(self) -> str:
        """The first sentence of the reason."""
        first, end, _ = str(self.reason).partition(". ")
        return first + end.rstrip()

    @property
    def _row(self) -> tuple[Decision, str, str]:
        if self.code not in ACTIONS:
            raise InputError(f"there is no recommendation for the code {brief(self.code)}")
        return ACTIONS[self.code]


# ------------------------------------------------------------------------------ the essentials


MOVES = "from {before:confidence} to {after:confidence}"
SAME_CLASSES = "Predicted classes stay the same. Their mean confidence "
ACCEPTED = "{coverage:.0%} of the {unit}: those with {rule}. "
REACHED = "{coverage:.0%} of the {unit} reach {threshold:.0%} confidence"

PREPROCESSING_ASSUMED = "preprocessing_assumed"  # stands above the verdict
QUESTIONS = (
    "What changes for users",
    "Which predictions to trust",
    "What was assumed",
    "What could be wrong",
)
SAME = "New inputs come from the same source. "
HIDDEN_FROM_BOTH = "Errors that both models make only on real inputs remain undetected."
HIDDEN = "Consistent errors of the model remain undetected."
TESTED = " In our tests, such a calibration helped in about {fell:.0f} of 10 cases."

ESSENTIALS: dict[str, str] = {
    # what changes
    "changes_lower": SAME_CLASSES + "falls " + MOVES + ".",
    "changes_higher": SAME_CLASSES + "rises " + MOVES + ".",
    "changes_later": (
        "Nothing yet: keep the model you have. {what} would move the mean confidence "
        + MOVES
        + " and change no predicted class."
    ),
    "changes_nothing": "Nothing. The mean confidence stays at {before:confidence}.",
    # which predictions to trust
    "trust_guaranteed": (
        ACCEPTED + "At most {most} of them are wrong, with a probability of {about}{level:.0%}."
    ),
    "trust_estimated": (
        ACCEPTED + "An estimated {most} of them are wrong. In our tests, the true error was "
        "higher for {broken:.0%} of models."
    ),
    "trust_none": "{promise}",
    "trust_measured": REACHED + "{after}. {error:.1%} of them are wrong (ground truth).",
    "trust_expected": REACHED + "{after}. An estimated {error:.1%} of them are wrong.",
    "trust_unconfirmed": (
        REACHED + " after calibration. If T is right, {error:.1%} of them are wrong."
    ),
    "trust_unchecked": (
        REACHED + "{after}. These are the most confident predictions, but their accuracy was not "
        "checked."
    ),
    "trust_contradicted": "None: the labels contradict the model.",
    "trust_unknown": "Unknown: these confidences were not checked.",
    # what was assumed
    "assumed_preprocessing": (
        SAME + "The model was trained with the assumed preprocessing ({assumed})."
    ),
    "assumed_labels": SAME + "The labels are right.",
    "assumed_agreement": (
        SAME + "The models share errors on real inputs as often as on mixup samples (blends of two "
        "inputs)."
    ),
    "assumed_surrogate": (
        SAME
        + "The surrogate repeats the model's errors on real inputs as often as on mixup samples "
        "(blends of two inputs)."
    ),
    "assumed_mixup": (
        SAME
        + "The relation between confidence and accuracy is the same on real inputs as on mixup "
        "samples (blends of two inputs)."
    ),
    "assumed_confidence": SAME + "The accuracy is close to the mean confidence.",
    "assumed_nothing": SAME + "Nothing else was assumed.",
    # what could be wrong
    "risk_measured": "On the ground truth, the confidence is off by {ece:.1%} on average (ECE).",
    "risk_labels": (
        "In about one of ten samples of {labels:labels}, the accuracy lies outside the interval."
    ),
    "risk_contradicted": "The labels may use other classes, or the same classes in another order.",
    "risk_agreement": HIDDEN_FROM_BOTH,
    "risk_agreement_tested": HIDDEN_FROM_BOTH + TESTED,
    "risk_surrogate": HIDDEN,
    "risk_surrogate_tested": HIDDEN + TESTED,
    "risk_mixup": HIDDEN,
    "risk_confidence": HIDDEN,
    "risk_nothing": "The confidences may be far too high or too low.",
}


def rule_of(threshold: RunThreshold) -> str:
    """Which predictions a threshold accepts."""
    if threshold.coverage == 1:
        return "any confidence"
    if threshold.confidence is None:
        return "no confidence"
    if not threshold.agreement:
        return f"a confidence of at least {100 * threshold.confidence:.4g}%"
    if threshold.if_disagree is None:
        least = f"{100 * threshold.confidence:.4g}%"
        return f"a confidence of at least {least} where both models agree"
    least = f"{100 * threshold.if_disagree:.4g}%"
    return f"a confidence of at least {least}, and all where both models agree"


@dataclass(frozen=True)
class Essential(Sentence):
    """One of the things that readers ask first."""

    sentences = ESSENTIALS
    code: str
    values: Values = field(default_factory=dict)


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
    "rejected_at_chance": (
        "On the ground truth, the rejected temperature lowers ECE from {before:.2%} to "
        "{after:.2%}, only because it lowers the confidence of predictions that are right no more "
        "often than by chance."
    ),
    "rejected_lowers_ece_little": (
        "On the ground truth, the rejected temperature lowers ECE from {before:.2%} to "
        "{after:.2%}. The model would still be far from calibrated."
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
        "{labels:count} of {rows:count} {unit} were labelled, drawn at random. T was fitted on "
        "these labels."
    ),
    "label_priors": "The prior of T comes from the label-free estimates ({priors}).",
    "none_of_these": (
        '{n:count} of {labels:labels} {n:were} "none of these". The model does not know the '
        "classes of such inputs, so it is always wrong on them."
    ),
    "cannot_tell": 'Skipped: {n:count} (labelled "cannot tell" or not labelled).',
    "few_labels": "There are too few labels to measure the calibration error itself.",
    PREPROCESSING_ASSUMED: (
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
class Fact(Sentence):
    """Something to know before using a calibration.

    >>> print(Fact("note", "unreadable", {"n": 2, "inputs": 1600}))
    2 of 1,600 inputs could not be read; they are listed below.
    """

    sentences = FACTS
    level: Level
    code: str
    values: Values = field(default_factory=dict)  # fractions are from 0 to 1


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
    "unfitted": "Nothing was applied: the confidences are unchanged.",
    "at_bound": "The search ended at the limit of its range, so T is undetermined.",
    "near_one": "The interval of T includes 1: the direction of the correction is unclear.",
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
        "caution", "Caution", "Calibration may help, but the evidence is not conclusive."
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


# ------------------------------------------------------------------------------ filling sentences


def _worded(text: str, code: str, values: Values) -> str:
    """A text with the values of its code; refuses others, which a damaged file may have."""
    try:
        return _FORMATTER.vformat(text, (), values)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{code} does not go with the values {brief(values)}") from error


class _Formatter(string.Formatter):
    """Has more ways to show a value: a count, labels, a verb, a confidence, a path in a command."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in FORMS:
            return FORMS[format_spec](value)
        return str(super().format_field(value, format_spec))


FORMS: dict[str, Callable[[Any], str]] = {
    "count": "{:,.0f}".format,
    "labels": lambda n: count(n, "label"),
    "were": lambda n: "was" if n == 1 else "were",
    "confidence": confidence,
    "path": lambda path: shlex.quote(str(path)),  # from somebody else; people copy commands
}
_FORMATTER = _Formatter()
