"""The content of a report as a typed, versioned record.

It is saved as `report.json`, and the page is drawn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pseudocal.app.records import decode_json, encode_json, to_plain
from pseudocal.app.report.wording import Fact, Headline
from pseudocal.app.run import AboutData, AboutModel, Timing
from pseudocal.arrays import InputError
from pseudocal.calibrators.measured import Measured
from pseudocal.calibrators.trust import Trust

Metric = Literal["ece", "nll", "brier", "accuracy", "miou"]
Unit = Literal["inputs", "pixels"]
Use = Literal["used", "rejected", ""]


@dataclass(frozen=True)
class Fit:
    """The temperature and what it was fitted on.

    Attributes:
        method: the name of the calibrator.
        temperature: the number that logits are divided by.
        low: the lower end of the interval (95%, or 90% with labels); None if unknown.
        high: the upper end of the interval; None if unbounded.
        bound: the limit of the search range that the temperature is at; None if it is inside.
        refused: the fitted temperature if it was rejected and T = 1 applies.
        pairs: the number of pairs of inputs.
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
        after: the number of predictions in each bin after calibration.
        confidence_before: the mean confidence before calibration of the predictions in each bin
            of `before`; None for an empty bin.
        confidence_after: the mean confidence after calibration of the same predictions.
        mean_before: the mean confidence before calibration.
        mean_after: the mean confidence after calibration.

    """

    edges: tuple[float, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    confidence_before: tuple[float | None, ...]
    confidence_after: tuple[float | None, ...]
    mean_before: float
    mean_after: float


@dataclass(frozen=True)
class ClassRow:
    """A predicted class.

    Attributes:
        name: the name of the class.
        fraction: its fraction of the predictions.
        before: the mean confidence of its predictions before calibration.
        after: the mean confidence of its predictions after calibration.
        precision: the fraction of its predictions that are right; None without ground truth.
        iou: its intersection over union, for a segmentation model with ground truth.
        ece_before: the ECE of its pixels before calibration, in the same case.
        ece_after: the ECE of its pixels after calibration, or with the rejected temperature.

    """

    name: str
    fraction: float
    before: float
    after: float
    precision: float | None = None
    iou: float | None = None
    ece_before: float | None = None
    ece_after: float | None = None


@dataclass(frozen=True)
class Threshold:
    """The predictions whose calibrated confidence reaches a threshold.

    Attributes:
        threshold: the least confidence.
        coverage: the fraction of the predictions that reach it.
        expected_error: the fraction of these that are wrong according to their confidence.
        error: the fraction of these that are wrong; None without ground truth.

    """

    threshold: float
    coverage: float
    expected_error: float
    error: float | None


@dataclass(frozen=True)
class FilledBin:
    """A bin of a reliability diagram that has predictions.

    Attributes:
        left: its lower edge.
        right: its upper edge.
        count: the number of predictions.
        confidence: their mean confidence.
        accuracy: their accuracy.
        interval: the 95% interval of the accuracy, if there is one.

    """

    left: float
    right: float
    count: int
    confidence: float
    accuracy: float
    interval: tuple[float, float] | None


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

    def filled(self) -> list[FilledBin]:
        """The bins that have predictions."""
        found = []
        for k, count in enumerate(self.count):
            if count:
                found.append(self._filled_bin(k))
        return found

    def _filled_bin(self, k: int) -> FilledBin:
        count = self.count[k]
        confidence = self.confidence[k]
        accuracy = self.accuracy[k]
        low = self.low[k]
        high = self.high[k]
        if count < 0 or confidence is None or accuracy is None or (low is None) != (high is None):
            raise InputError(
                f"bin {k} of a reliability diagram needs a count, two means and both ends of its "
                f"interval or none, got {(count, confidence, accuracy, low, high)}"
            )
        interval = None if low is None or high is None else (low, high)
        left = self.edges[k]
        right = self.edges[k + 1]
        return FilledBin(left, right, count, confidence, accuracy, interval)


@dataclass(frozen=True)
class Diagrams:
    """Reliability before and after calibration.

    Attributes:
        source: where the true classes come from: the ground truth, a person's labels, or the mixup
            samples, whose labels are the model's own predictions.
        before: the diagram before calibration.
        after: the diagram after calibration, or with the rejected temperature.
        noise: the ECE that a perfectly calibrated model with the confidences of `after` would show
            by chance; None without ground truth.

    """

    source: Literal["ground truth", "labels", "mixup"]
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
        after: the metric after calibration, or with the rejected temperature; None if measured
            once.
        change: the paired change; None if measured once.

    """

    metric: Metric
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
        true_class: the true class; None without ground truth.
        text: the beginning of the input, if it is a text.

    """

    name: str
    class_name: str
    before: float
    after: float
    thumbnail: str | None = None
    true_class: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Examples:
    """A few inputs.

    Attributes:
        changed: those whose confidence changed most.
        least_confident: those with the lowest confidence after calibration.

    """

    changed: tuple[Example, ...]
    least_confident: tuple[Example, ...]


@dataclass(frozen=True)
class MapImages:
    """One image of a segmentation model pixel by pixel, as data URLs.

    Attributes:
        name: the name of the image.
        image: the image itself; None if there is no file.
        before: the confidence before calibration.
        after: the confidence after calibration.
        correct: where the model is right; None without ground truth.

    """

    name: str
    image: str | None
    before: str
    after: str
    correct: str | None


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        headline: the first sentence, as a code and numbers.
        model: the model that was calibrated.
        data: the data that it was calibrated on.
        unit: what a prediction is made for: inputs, or the pixels of a segmentation model.
        calibration: the temperature and what it was fitted on.
        trust: the verdict without labels; None if there is none.
        labels: what a person's labels say, which outranks `trust`; None without labels.
        confidence: the histogram of the confidences.
        classes: the classes that are predicted most often, at most 60; of a segmentation model, all
            predicted classes.
        selection: coverage and errors above thresholds of confidence.
        reliability: the reliability diagrams before and after calibration.
        metrics: metrics on the ground truth; None without it.
        examples: a few inputs.
        maps: a few images of a segmentation model, pixel by pixel.
        usage: Python code that applies the result.
        settings: all settings needed to repeat the calibration.
        versions: the versions of the packages that were used.
        timing: when the run finished, and how long it took.
        facts: what to know before using the result, cautions first.

    """

    headline: Headline
    model: AboutModel
    data: AboutData
    unit: Unit
    calibration: Fit
    trust: Trust | None
    labels: Measured | None
    confidence: Histogram
    classes: tuple[ClassRow, ...]
    selection: tuple[Threshold, ...]
    reliability: Diagrams
    metrics: tuple[Measurement, ...] | None
    examples: Examples
    maps: tuple[MapImages, ...]
    usage: str
    settings: dict[str, Any]
    versions: dict[str, str]
    timing: Timing
    facts: tuple[Fact, ...] = ()
    format: Literal["pseudocal-report"] = "pseudocal-report"
    format_version: Literal[6] = 6

    def __repr__(self) -> str:
        title = f"{self.model.title} on {self.data.name}"
        return f"Report({title}: {self.verdict}, T = {self.calibration.temperature:.3f})"

    @property
    def verdict(self) -> str | None:
        """The verdict from labels or, if there are none, the verdict without labels."""
        judged = self.labels or self.trust
        return None if judged is None else judged.verdict

    @property
    def refused(self) -> bool:
        """Whether the fitted temperature was rejected."""
        return self.calibration.refused is not None

    @property
    def unfitted(self) -> bool:
        """Whether T = 1 without labels: inputs that cannot be mixed, like texts, or two classes."""
        fitted = self.calibration.mixup_samples > 0 and self.settings.get("estimator") != "none"
        return not fitted and self.labels is None

    @property
    def unchanged(self) -> bool:
        """Whether the confidences are those of the model: T = 1."""
        return self.refused or self.unfitted

    @property
    def uses(self) -> dict[str, Use]:
        """What became of each label-free temperature, by estimator."""
        estimator = self.settings.get("estimator")
        applied = "none" if self.refused else estimator
        found: dict[str, Use] = {}
        for name in () if self.trust is None else self.trust.effects:
            found[name] = ""
            if name == applied:
                found[name] = "used"
            elif name == estimator:
                found[name] = "rejected"
        return found

    def metric(self, name: Metric) -> Measurement | None:
        """A metric on the ground truth; None if it was not measured."""
        for row in self.metrics or ():
            if row.metric == name:
                return row
        return None

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        content: dict[str, Any] = to_plain(self)
        return content

    def save(self, path: Path) -> None:
        """Write the report as JSON, under a temporary name that is then renamed.

        Args:
            path: the file.

        """
        encode_json(path, self)

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read what `save` wrote, and refuse damaged files and other versions."""
        if not path.exists():
            raise InputError(f"{path.parent} has no {path.name}: it is not a run folder")
        report = decode_json(path, cls, "a report")
        try:
            check_consistent(report)
        except InputError as error:
            raise InputError(f"{path} is not a report: {error}") from error
        return report


def check_consistent(report: Report) -> None:
    """Refuse a report whose parts do not fit together: it was edited by hand or damaged."""
    for row in report.metrics or ():
        if row.after is None or row.change is None:
            raise InputError(f"the metric {row.metric} is missing after calibration")
    if report.reliability.source == "labels" and report.labels is None:
        raise InputError("the reliability diagrams are of labels, but there are none")
    _check_histogram(report.confidence)
    if not report.classes:
        raise InputError("there are no classes")
    for one in report.classes:
        if not 0 < one.fraction <= 1:
            raise InputError(f"the fraction of class {one.name!r} is {one.fraction}")
    if not report.selection or report.selection[0].threshold != 0:
        raise InputError("the thresholds of confidence do not begin with 0")
    for bins in (report.reliability.before, report.reliability.after):
        _check_bins(bins)
    for example in (*report.examples.changed, *report.examples.least_confident):
        _check_images(example.thumbnail)
    for shown in report.maps:
        _check_images(shown.image, shown.before, shown.after, shown.correct)


def _check_histogram(histogram: Histogram) -> None:
    columns = (
        histogram.before,
        histogram.after,
        histogram.confidence_before,
        histogram.confidence_after,
    )
    _check_lengths("histogram", len(histogram.edges) - 1, columns)
    if min(*histogram.before, *histogram.after) < 0 or sum(histogram.before) == 0:
        raise InputError("the counts of the histogram are negative or all zero")


def _check_bins(bins: Bins) -> None:
    columns = (bins.count, bins.confidence, bins.accuracy, bins.low, bins.high)
    _check_lengths("reliability diagram", len(bins.edges) - 1, columns)
    if len({one.interval is None for one in bins.filled()}) > 1:
        raise InputError("only some bins of a reliability diagram have an interval")


def _check_lengths(what: str, length: int, columns: Sequence[tuple[Any, ...]]) -> None:
    found = [len(column) for column in columns]
    if length < 1 or set(found) != {length}:
        raise InputError(f"the {what} has {length} bins, but columns of lengths {found}")


def _check_images(*addresses: str | None) -> None:
    """Refuse images that are not embedded in the file."""
    for address in addresses:
        if address is not None and not address.startswith("data:image/"):
            raise InputError(f"an image must be a data URL, not {address[:80]!r}")
