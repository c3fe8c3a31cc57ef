"""The reasons of a verdict, and the sentence for each of them.

A decision is data: `trust.py` and `measured.py` give a `ReasonCode` and numbers. All wording is in
`TEMPLATES`.
"""

from __future__ import annotations

import math
import string
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any

from pseudocal.arrays import InputError
from pseudocal.files import brief


class ReasonCode(StrEnum):
    """Why a verdict is what it is."""

    # the temperature and the predictions
    TEMPERATURE_AT_BOUND = auto()
    EXTREME_TEMPERATURE = auto()
    FEW_INPUTS = auto()
    ONE_CLASS = auto()
    DOMINANT_CLASS = auto()
    DOMINANT_PIXEL_CLASS = auto()
    PREPROCESSING_ASSUMED = auto()
    # there is no usable second opinion
    NO_SECOND_OPINION = auto()
    SEGMENTATION = auto()
    SECOND_MODEL_TOO_SIMILAR = auto()
    SECOND_MODEL_UNRELATED = auto()
    SECOND_MODEL_TWO_CLASSES = auto()
    SURROGATE_TOO_SIMILAR = auto()
    SURROGATE_TWO_CLASSES = auto()
    SURROGATE_AT_CHANCE = auto()
    MIXUP_ONLY = auto()
    MIXUP_TWO_CLASSES = auto()
    TWO_CLASSES = auto()
    # what the second opinion says
    SECOND_MODEL_AGREES = auto()
    SECOND_MODELS_AGREE = auto()
    SHARED_ERRORS_UNKNOWN = auto()
    SECOND_MODEL_AT_CHANCE = auto()
    SECOND_MODEL_LESS_CONFIDENT = auto()
    SURROGATE_AGREES = auto()
    SURROGATE_ERRORS_UNKNOWN = auto()
    SURROGATE_ONLY = auto()
    SURROGATE_CONFIRMS = auto()
    SURROGATE_DIFFERS = auto()
    CONFIDENCE_COUNTS = auto()
    MAY_BE_AT_CHANCE = auto()
    # a temperature from the second opinion
    LOWERS_CONFIDENCE = auto()
    RAISES_CONFIDENCE = auto()
    NO_CLEAR_GAIN = auto()
    WITHIN_INTERVAL = auto()
    SMALL_GAP = auto()
    RARELY_UNDERCONFIDENT = auto()
    MANY_SHARED_ERRORS = auto()
    EXPECTED_GAIN = auto()
    MIXUP_AGREES = auto()
    MIXUP_UNDECIDED = auto()
    MIXUP_DISAGREES = auto()
    # a temperature from mixup samples
    CLOSER = auto()
    CLOSER_BUT_HIGH = auto()
    CLOSER_BUT_LOW = auto()
    EITHER_MAY_BE_CLOSER = auto()
    FURTHER = auto()
    AGREEMENT_IS_CLOSER = auto()
    SURROGATE_IS_CLOSER = auto()
    # inputs without mixup samples
    TEXTS_NOT_MIXED = auto()
    TOKEN_IDS_NOT_MIXED = auto()
    TABLES_NOT_MIXED = auto()
    NOTHING_FITTED = auto()
    # two saved outputs
    SAVED_OUTPUTS_AGREE = auto()
    SAVED_OUTPUTS_ALIKE = auto()
    SAVED_OUTPUTS_LABEL = auto()
    # a person's labels
    LABELS_OVERCONFIDENT = auto()
    LABELS_UNDERCONFIDENT = auto()
    LABELS_ALREADY_CALIBRATED = auto()
    LABELS_CONFIDENCE_HIGH = auto()
    LABELS_CONFIDENCE_LOW = auto()
    LABELS_UNDECIDED = auto()
    LABELS_CLOSE_TO_ONE = auto()
    LABELS_MOVED_AWAY = auto()
    LABELS_HELD_BACK = auto()
    LABELS_KEEP_T = auto()
    LABELS_ENOUGH = auto()
    LABELS_OUTSIDE_INTERVAL = auto()
    LABELS_FURTHER = auto()
    LABELS_CONTRADICT = auto()
    LABELS_AT_CHANCE = auto()


# reasons that say what second opinions found, and not what speaks for or against T
OPINIONS = (
    ReasonCode.SECOND_MODEL_AGREES,
    ReasonCode.SECOND_MODELS_AGREE,
    ReasonCode.SHARED_ERRORS_UNKNOWN,
    ReasonCode.SURROGATE_AGREES,
    ReasonCode.SURROGATE_ERRORS_UNKNOWN,
    ReasonCode.SURROGATE_CONFIRMS,
    ReasonCode.CONFIDENCE_COUNTS,
    ReasonCode.SAVED_OUTPUTS_AGREE,
)
# reasons that speak for T
IMPROVES = (
    ReasonCode.LOWERS_CONFIDENCE,
    ReasonCode.RAISES_CONFIDENCE,
    ReasonCode.CLOSER,
    ReasonCode.MIXUP_AGREES,
    ReasonCode.LABELS_OVERCONFIDENT,
    ReasonCode.LABELS_UNDERCONFIDENT,
)


@dataclass(frozen=True)
class Reason:
    """One reason of a verdict, as data; `str` gives its sentence.

    >>> print(Reason(ReasonCode.MIXUP_AGREES, {"mixup": 1.2149}))
    The temperature from mixup samples points the same way (T = 1.21).

    Attributes:
        code: Which reason it is.
        numbers: The numbers of its sentence, by name. Fractions are from 0 to 1.

    """

    code: ReasonCode
    numbers: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            sentence(self)
        except KeyError as error:
            raise InputError(
                f"expected the numbers of the reason {self.code}, got {brief(self.numbers)}"
            ) from error

    def __str__(self) -> str:
        return sentence(self)

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return {"code": str(self.code), "numbers": dict(self.numbers)}

    @classmethod
    def from_dict(cls, content: Any) -> Reason:
        """Read what `to_dict` returned.

        Args:
            content: The JSON values.

        """
        try:
            code = ReasonCode(content["code"])
            numbers = {str(name): float(value) for name, value in content["numbers"].items()}
            if not all(math.isfinite(value) for value in numbers.values()):
                raise ValueError
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(
                f"expected a reason with a known code and its numbers, got {brief(content)}"
            ) from error
        return cls(code, numbers)


MOVES = "Calibration moves the mean confidence from {before:.0%} to {after:.0%}"
IMPLIES = "That implies an accuracy of about {accuracy:.0%}."
UNKNOWN_ERRORS = (
    "No mixup sample was certainly misclassified, so the fraction of {of} errors is unknown. "
    "The agreement implies an accuracy of about {{accuracy:.0%}}."
)
FROM_LABELS = (
    "With {labels:labels}, T is between {low:.3g} and {high:temperature} (90% interval, valid "
    "however many labels you add)"
)
LITTLE_CHANGE = ": no temperature in this range changes the confidence much."

TEMPLATES: dict[ReasonCode, str] = {
    ReasonCode.TEMPERATURE_AT_BOUND: (
        "The fitted temperature lies at the end of the search range (T = {temperature:.3g}), "
        "so the data does not determine it."
    ),
    ReasonCode.EXTREME_TEMPERATURE: (
        "T = {temperature:.3g} is extreme. Check the preprocessing and whether the outputs are "
        "logits."
    ),
    ReasonCode.FEW_INPUTS: (
        "There are only {inputs:.0f} inputs. Below {enough:.0f}, a temperature without labels may be "
        "far off: use more inputs."
    ),
    ReasonCode.ONE_CLASS: (
        "One of {classes:.0f} classes gets {fraction:.0%} of predictions: the model hardly "
        "distinguishes inputs."
    ),
    ReasonCode.DOMINANT_CLASS: (
        "One of {classes:.0f} classes gets {fraction:.0%} of predictions. Unless that class really "
        "is this common here, it is over-predicted."
    ),
    ReasonCode.DOMINANT_PIXEL_CLASS: (
        "{fraction:.0%} of pixels have the same predicted class. Pixels are mixed only if their "
        "predicted classes differ, so most pixels did not contribute to T."
    ),
    ReasonCode.PREPROCESSING_ASSUMED: (
        "The preprocessing was assumed: neither the model file nor a setting specifies it. Pass "
        "the one used in training (--resize, --preprocess) and calibrate again, or label about 50 "
        "inputs."
    ),
    ReasonCode.NO_SECOND_OPINION: (
        "There was no second opinion, and a model's own outputs cannot reveal consistent errors. "
        "Label about 50 inputs, or, with more than two classes, add a second model trained with "
        "another seed or on other features."
    ),
    ReasonCode.SEGMENTATION: (
        "Without labels, consistent errors of a segmentation model cannot be detected. A second "
        "model does not help: in our tests, two models shared far more errors on real pixels than "
        "on mixup samples. Label pixels of a few images to measure the accuracy."
    ),
    ReasonCode.SECOND_MODEL_TOO_SIMILAR: (
        "The second model shares {shared:.0%} of the first model's errors on mixup samples, so it "
        "is not independent and was not used. Use another kind of model, or one trained with "
        "another seed or on other features."
    ),
    ReasonCode.SECOND_MODEL_UNRELATED: (
        "The models agree on {agreement:.0%} of inputs, no more often than by chance, so the "
        "second model was not used. Check that both have the same classes in the same order."
    ),
    ReasonCode.SECOND_MODEL_TWO_CLASSES: (
        "With two classes, mixup samples cannot reveal shared errors. The models agree on "
        "{agreement:.0%} of inputs, so the accuracy is at most {highest:.0%} if the second model "
        "is as accurate. Label about 50 inputs to measure the accuracy."
    ),
    ReasonCode.SURROGATE_TOO_SIMILAR: (
        "The surrogate repeats {shared:.0%} of the model's errors on mixup samples, so it is not "
        "independent and was not used. Try other features or a second model."
    ),
    ReasonCode.SURROGATE_TWO_CLASSES: (
        "With two classes, mixup samples cannot reveal errors that the surrogate repeats, so its "
        "agreement ({agreement:.0%}) was not used. Label about 50 inputs to measure the accuracy."
    ),
    ReasonCode.SURROGATE_AT_CHANCE: (
        "The surrogate agrees with the model on {agreement:.0%} of inputs and repeats "
        "{shared:.0%} of its errors on mixup samples, so it was not used. Its features or the "
        "model may not separate the classes, or there are too few inputs. Try other features, or "
        "label about 50 inputs."
    ),
    ReasonCode.MIXUP_ONLY: (
        "T was fitted on mixup samples only; the accuracy estimate is just the calibrated mean "
        "confidence."
    ),
    ReasonCode.MIXUP_TWO_CLASSES: (
        "With two classes, temperatures from mixup samples made calibration worse on average in "
        "our tests."
    ),
    ReasonCode.TWO_CLASSES: (
        "With two classes, nothing can be checked without labels, so nothing was applied (T = 1). "
        "Mixup samples give T = {mixup:.3g}, but such temperatures made calibration worse on "
        "average in our tests. Label about 50 inputs to calibrate."
    ),
    ReasonCode.SECOND_MODEL_AGREES: (
        "The models agree on {agreement} of inputs and share {shared} of the first model's errors "
        "on mixup samples. " + IMPLIES
    ),
    ReasonCode.SECOND_MODELS_AGREE: (
        "{models:.0f} other models agree with the model on {agreement} of inputs and share "
        "{shared} of its errors on mixup samples. " + IMPLIES
    ),
    ReasonCode.SHARED_ERRORS_UNKNOWN: (
        "The models agree on {agreement} of inputs. " + UNKNOWN_ERRORS.format(of="shared")
    ),
    ReasonCode.SECOND_MODEL_AT_CHANCE: (
        "The models agree on {agreement} of inputs, hardly more often than on the first model's "
        "errors on mixup samples ({shared}), so the accuracy is probably low. An accuracy below "
        "{accuracy:.0%} cannot be distinguished from chance. Label about 50 inputs to "
        "measure the accuracy."
    ),
    ReasonCode.SECOND_MODEL_LESS_CONFIDENT: (
        "The mean confidence is {second_confidence:.0%} for the second model and {before:.0%} for "
        "the first. If the second model is also less accurate, the estimated accuracy is too low."
    ),
    ReasonCode.SURROGATE_AGREES: (
        "The surrogate agrees with the model on {agreement} of inputs and repeats {shared} of its "
        "errors on mixup samples. " + IMPLIES
    ),
    ReasonCode.SURROGATE_ERRORS_UNKNOWN: (
        "The surrogate agrees with the model on {agreement} of inputs. "
        + UNKNOWN_ERRORS.format(of="repeated")
    ),
    ReasonCode.SURROGATE_ONLY: (
        "The only usable second opinion is a surrogate of the model's own predictions. It repeats "
        "consistent errors of the model, and with poor features the estimated accuracy is too low. "
        "Add a second model, or label about 50 inputs."
    ),
    ReasonCode.SURROGATE_CONFIRMS: (
        "A surrogate of the model's predictions estimates an accuracy of {surrogate:.0%}. The "
        "difference from the other estimate is below {limit:points} points, so it only widens the "
        "interval."
    ),
    ReasonCode.SURROGATE_DIFFERS: (
        "The estimates disagree: the models' agreement implies an accuracy of {agreement:.0%}, a "
        "surrogate of the model's predictions {surrogate:.0%}. The estimated accuracy, "
        "{accuracy:.0%}, averages the two and the mean confidence ({before:.0%}, weight "
        "{weight:.0%}). Label about 50 inputs to find out which is right."
    ),
    ReasonCode.CONFIDENCE_COUNTS: (
        "With the mean confidence ({before:.0%}) at a weight of {weight:.0%}, the estimated accuracy "
        "is {accuracy:.0%}."
    ),
    ReasonCode.MAY_BE_AT_CHANCE: (
        "The interval of the estimated accuracy includes chance ({chance:.0%}), so the "
        "predictions may be no better than guessing. Label about 50 inputs to measure the accuracy."
    ),
    ReasonCode.LOWERS_CONFIDENCE: (
        "T = {temperature:.3g} lowers the mean confidence from {before:.0%} to {accuracy:.0%}, the "
        "accuracy estimated without labels."
    ),
    ReasonCode.RAISES_CONFIDENCE: (
        "T = {temperature:.3g} raises the mean confidence from {before:.0%} to {accuracy:.0%}, the "
        "accuracy estimated without labels."
    ),
    ReasonCode.NO_CLEAR_GAIN: (
        "The estimated accuracy ({accuracy:.0%}) is too uncertain to justify changing the mean "
        "confidence ({before:.0%}), so nothing was applied (T = 1 instead of {temperature:.3g}). "
        "Label about 50 inputs to measure the accuracy."
    ),
    ReasonCode.WITHIN_INTERVAL: (
        "The mean confidence ({before:.0%}) lies within the interval of the estimated accuracy "
        "({low:.0%} to {high:.0%}), so the model may need no calibration."
    ),
    ReasonCode.SMALL_GAP: (
        "The estimated accuracy ({accuracy:.0%}) is only {gap:points} points below the mean "
        "confidence ({before:.0%}). The error of the estimate may be as large."
    ),
    ReasonCode.RARELY_UNDERCONFIDENT: (
        "T would raise the confidence, but few models are underconfident on data that differs "
        "from their training set."
    ),
    ReasonCode.MANY_SHARED_ERRORS: (
        "The models share {shared:.0%} of the first model's errors on mixup samples, so their "
        "agreement says little about the accuracy."
    ),
    ReasonCode.EXPECTED_GAIN: (
        "In our tests, such temperatures lowered the calibration error in about {fell:.0f} of 10 "
        "cases."
    ),
    ReasonCode.MIXUP_AGREES: (
        "The temperature from mixup samples points the same way (T = {mixup:.3g})."
    ),
    ReasonCode.MIXUP_UNDECIDED: (
        "The temperature from mixup samples (T = {mixup:.3g}) is too close to 1 to confirm this."
    ),
    ReasonCode.MIXUP_DISAGREES: (
        "The temperature from mixup samples points the other way (T = {mixup:.3g})."
    ),
    ReasonCode.CLOSER: MOVES + ", closer to the estimated accuracy.",
    ReasonCode.CLOSER_BUT_HIGH: (
        MOVES + ", closer to the estimated accuracy but still {gap:points} points too high."
    ),
    ReasonCode.CLOSER_BUT_LOW: (
        MOVES + ", closer to the estimated accuracy but still {gap:points} points too low."
    ),
    ReasonCode.EITHER_MAY_BE_CLOSER: (
        MOVES + ". The estimated accuracy is too uncertain to tell whether this is an improvement."
    ),
    ReasonCode.FURTHER: MOVES + ", further from the estimated accuracy.",
    ReasonCode.AGREEMENT_IS_CLOSER: (
        "T = {temperature:.3g}, fitted to the models' agreement, would bring the mean confidence "
        "closer to the estimated accuracy."
    ),
    ReasonCode.SURROGATE_IS_CLOSER: (
        "T = {temperature:.3g}, fitted to the agreement with the surrogate, would bring the mean "
        "confidence closer to the estimated accuracy."
    ),
    ReasonCode.TEXTS_NOT_MIXED: (
        "Texts are not mixed: temperatures from mixed texts often made calibration worse in our "
        "tests."
    ),
    ReasonCode.TOKEN_IDS_NOT_MIXED: (
        "Token ids are not mixed: a number between two token ids stands for an unrelated token."
    ),
    ReasonCode.TABLES_NOT_MIXED: (
        "Tables with text, dates or missing values are not mixed, because such columns cannot be "
        "interpolated."
    ),
    ReasonCode.NOTHING_FITTED: (
        "Nothing was fitted (T = 1), and nothing could be checked without labels. Label about 50 "
        "inputs to calibrate."
    ),
    ReasonCode.SAVED_OUTPUTS_AGREE: (
        "The two outputs agree on {agreement:.0%} of inputs. Corrected for chance, that implies an "
        "accuracy of about {accuracy:.0%}."
    ),
    ReasonCode.SAVED_OUTPUTS_ALIKE: (
        "The two outputs agree on {agreement:.0%} of inputs, which is rare for independent models "
        "with a mean confidence of {before:.0%}. They may come from one model (two prompts, two "
        "checkpoints), or the first model may be underconfident, as random forests often are. "
        "Their agreement was therefore not used."
    ),
    ReasonCode.SAVED_OUTPUTS_LABEL: (
        "Without the inputs, errors that both models make cannot be detected. Label about 50 "
        "inputs to measure the accuracy."
    ),
    ReasonCode.LABELS_OVERCONFIDENT: FROM_LABELS + ": the model is overconfident.",
    ReasonCode.LABELS_UNDERCONFIDENT: FROM_LABELS + ": the model is underconfident.",
    ReasonCode.LABELS_ALREADY_CALIBRATED: (
        FROM_LABELS + LITTLE_CHANGE + " You can skip calibration."
    ),
    ReasonCode.LABELS_CONFIDENCE_HIGH: (
        "The mean confidence is {gap:points} points above the accuracy, and no temperature "
        "corrects that. " + FROM_LABELS + LITTLE_CHANGE
    ),
    ReasonCode.LABELS_CONFIDENCE_LOW: (
        "The mean confidence is {gap:points} points below the accuracy, and no temperature "
        "corrects that. " + FROM_LABELS + LITTLE_CHANGE
    ),
    ReasonCode.LABELS_UNDECIDED: (
        FROM_LABELS + ", which includes T = 1 (no calibration). About {more:more labels} would "
        "probably decide the verdict."
    ),
    ReasonCode.LABELS_CLOSE_TO_ONE: (
        FROM_LABELS + ", which includes T = 1 (no calibration). Deciding the verdict may take "
        "more than 200 further labels."
    ),
    ReasonCode.LABELS_MOVED_AWAY: (
        "On the labelled inputs, T widens the gap between mean confidence and accuracy from "
        "{gap_before:points} to {gap_after:points} points, which is within the sampling error."
    ),
    ReasonCode.LABELS_HELD_BACK: (
        "T was limited to {temperature:.3g}. Beyond that, the measured gap between mean confidence "
        "and accuracy would grow by more than half of its standard error."
    ),
    ReasonCode.LABELS_KEEP_T: (
        "T = {temperature:.3g} stays in use: the labels do not contradict it, and the fitted "
        "T = {fitted:.3g} would not bring the mean confidence closer to the accuracy."
    ),
    ReasonCode.LABELS_ENOUGH: (
        "You can stop labelling: more labels would narrow the interval of T but hardly change this "
        "verdict."
    ),
    ReasonCode.LABELS_OUTSIDE_INTERVAL: (
        FROM_LABELS + ", but the given T = {temperature:.3g} lies outside this interval. T = 1 (no "
        "calibration) lies further from it."
    ),
    ReasonCode.LABELS_FURTHER: (
        FROM_LABELS + ", but the given T = {temperature:.3g} lies further from this interval than "
        "T = 1 (no calibration)."
    ),
    ReasonCode.LABELS_CONTRADICT: (
        "{right:.0f} of {labels:labels} confirm the model's predictions, so no temperature makes "
        "the model usable here. Check that the model and the labels have the same classes in the "
        "same order."
    ),
    ReasonCode.LABELS_AT_CHANCE: (
        "The labels may agree with the predictions no more often than by chance: on "
        "{labels:labels}, the accuracy is {accuracy:.0%} ({accuracy_low:.0%} to "
        "{accuracy_high:.0%}), and chance is {chance:.0%}. Check that the model and the labels "
        "have the same classes in the same order."
    ),
}


def sentence(reason: Reason) -> str:
    """The sentence of a reason.

    Numbers `name_low` and `name_high` are shown as `name`, a range of percentages.

    >>> numbers = {"labels": 20.0, "low": 0.8, "high": 1.5, "more": 1.0}
    >>> sentence(Reason(ReasonCode.LABELS_UNDECIDED, numbers))
    'With 20 labels, T is between 0.8 and 1.5 (90% interval, valid however many labels you add),
    which includes T = 1 (no calibration). About 1 more label would probably decide the verdict.'

    Args:
        reason: The reason.

    """
    words: dict[str, Any] = dict(reason.numbers)
    for name in ("agreement", "shared"):
        if f"{name}_low" in words:
            words[name] = percentages(words[f"{name}_low"], words[f"{name}_high"])
    return _FORMATTER.vformat(TEMPLATES[reason.code], (), words)


def percentages(low: float, high: float) -> str:
    """One percentage, or a range if the rounded ends differ.

    >>> percentages(0.501, 0.504), percentages(0.5, 0.56)
    ('50%', '50% to 56%')
    """
    first = f"{low:.0%}"
    last = f"{high:.0%}"
    return first if first == last else f"{first} to {last}"


def count(n: float, noun: str) -> str:
    """A number with its noun in the singular or plural.

    >>> count(1, "label"), count(2000, "more label")
    ('1 label', '2,000 more labels')
    """
    return f"{n:,.0f} {noun}" if n == 1 else f"{n:,.0f} {noun}s"


class _Formatter(string.Formatter):
    """Has more ways to show a number: as labels, more labels, percentage points, temperature."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "labels":
            return count(value, "label")
        if format_spec == "more labels":
            return count(value, "more label")
        if format_spec == "points":
            return f"{100 * abs(value):.0f}"
        if format_spec == "temperature":
            return "1,000 or more" if value >= 1000 else f"{value:.3g}"
        return str(super().format_field(value, format_spec))


_FORMATTER = _Formatter()
