"""The sections of a report as typed records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class AboutFit:
    """The temperature, its interval (95%, or 90% if it comes from answers), and what it was fitted on.

    Attributes:
        method: the name of the calibrator.
        temperature: the number that logits are divided by.
        low: the lower end of the interval; None if unknown.
        high: the upper end of the interval; None if unbounded.
        bound: the limit of the search range that the temperature is at; None if it is inside the
            range.
        refused: the temperature that was fitted and should not be applied, if T = 1 is in its
            place.
        pairs: the number of pairs of inputs that were drawn.
        mixup_samples: the number of pairs, or of their pixels, that were mixed.
        forward_passes: the number of inputs and mixup samples that the model predicted.

    """

    method: str
    temperature: float
    low: float | None
    high: float | None
    bound: str | None
    refused: float | None
    pairs: int
    mixup_samples: int
    forward_passes: int


@dataclass(frozen=True)
class Histogram:
    """The distribution of the confidence before and after calibration.

    Attributes:
        edges: the edges of the bins.
        before: the number of predictions in each bin before calibration.
        after: the same after calibration.
        sure_before: the mean confidence of the predictions in each bin before calibration; None for
            an empty bin.
        sure_after: the mean confidence of the same predictions after calibration.
        mean_before: the mean confidence before calibration.
        mean_after: the same after calibration.

    """

    edges: tuple[float, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    sure_before: tuple[float | None, ...]
    sure_after: tuple[float | None, ...]
    mean_before: float
    mean_after: float


@dataclass(frozen=True)
class ClassFraction:
    """A predicted class.

    Attributes:
        name: the name of the class.
        fraction: its fraction of the predictions.
        before: the mean confidence of its predictions before calibration.
        after: the same after calibration.
        right: the fraction of its predictions that are right; None without labels.

    """

    name: str
    fraction: float
    before: float
    after: float
    right: float | None


@dataclass(frozen=True)
class Threshold:
    """What becomes of the predictions if only those above a threshold of confidence are used.

    Attributes:
        threshold: the least confidence, after calibration.
        coverage: the fraction of the predictions that reach it.
        expected: the fraction of these that are wrong, by their confidence.
        wrong: the fraction of these that are wrong, by labels; None without labels.

    """

    threshold: float
    coverage: float
    expected: float
    wrong: float | None


@dataclass(frozen=True)
class Bins:
    """A reliability diagram.

    Attributes:
        edges: the edges of the bins of confidence.
        count: the number of predictions in each bin.
        confidence: the mean confidence in each bin; None for an empty bin.
        accuracy: the accuracy in each bin; None for an empty bin.
        low: the lower end of the 95% interval of the accuracy; None if there is none.
        high: the upper end of that interval; None if there is none.
        ece: the expected calibration error.

    """

    edges: tuple[float, ...]
    count: tuple[int, ...]
    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    ece: float


@dataclass(frozen=True)
class Diagrams:
    """Reliability before and after calibration.

    Attributes:
        of: what the predictions are of: labelled inputs, labelled pixels, mixup samples, or inputs
            that a person answered.
        before: the diagram before calibration.
        after: the diagram after calibration, or with the temperature that was refused.
        noise: the ECE that a perfectly calibrated model with the confidences of `after` would have
            by chance; None without labels.

    """

    of: Literal["inputs", "pixels", "mixup", "answers"]
    before: Bins
    after: Bins
    noise: float | None = None


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval; None stands for a number that is not finite."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Measurement:
    """A metric before and after calibration.

    Attributes:
        metric: the name of the metric.
        before: the metric before calibration.
        after: the metric after calibration, or with the temperature that was refused; None if
            measured once.
        change: the paired change; None if measured once.

    """

    metric: Literal["ece", "nll", "brier", "accuracy", "miou"]
    before: Estimate
    after: Estimate | None = None
    change: Estimate | None = None


@dataclass(frozen=True)
class Example:
    """One input that is shown in the report.

    Attributes:
        name: the name of the input.
        class_name: the predicted class.
        before: the confidence before calibration.
        after: the confidence after calibration.
        thumbnail: the image as a data URL; None if there is none.
        label: the true class; None without labels.
        text: the beginning of the input, if it is a text.

    """

    name: str
    class_name: str
    before: float
    after: float
    thumbnail: str | None = None
    label: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Examples:
    """The inputs whose confidence changed most, and those with the lowest confidence after calibration."""

    changed: tuple[Example, ...]
    unsure: tuple[Example, ...]


@dataclass(frozen=True)
class MapImages:
    """One image pixel by pixel, as data URLs.

    Attributes:
        name: the name of the image.
        image_file: the image itself; None if there is no file.
        before: the confidence before calibration.
        after: the confidence after calibration.
        correct: where the model is right; None without a mask.

    """

    name: str
    image_file: str | None
    before: str
    after: str
    correct: str | None


@dataclass(frozen=True)
class Segmentation:
    """The part of a report that only a segmenter has.

    A few images pixel by pixel, and a table of classes.
    """

    maps: tuple[MapImages, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Fact:
    """A sentence to read before using the calibration."""

    level: Literal["caution", "note"]
    text: str
