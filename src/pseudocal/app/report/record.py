"""The content of a report as a typed, versioned record.

It is saved as `report.json`, and the page is drawn from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pseudocal.app.records import decode_json, encode_json
from pseudocal.app.report.wording import Fact, Headline, Recommendation
from pseudocal.app.run import AboutData, AboutModel, Timing
from pseudocal.app.thresholds import RunThreshold
from pseudocal.arrays import InputError
from pseudocal.calibrators.measured import Measured
from pseudocal.calibrators.trust import Trust

Metric = Literal["ece", "nll", "brier", "accuracy", "miou"]
Unit = Literal["inputs", "pixels"]
Use = Literal["used", "rejected", ""]


@dataclass(frozen=True)
class Fit:
    """The temperature and what it was fitted on."""

    method: str
    temperature: float
    low: float | None  # the interval is 95%, or 90% with labels; None if unknown
    high: float | None  # None if unbounded
    bound: str | None  # the limit of the search range, if the temperature is at it
    refused: float | None  # the fitted temperature if it was rejected and T = 1 applies
    pairs: int
    mixup_samples: int  # pairs, or their pixels, that were mixed
    forward_passes: int


@dataclass(frozen=True)
class Histogram:
    """The distribution of the confidence before and after calibration, in bins."""

    edges: tuple[float, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    mean_before: float
    mean_after: float


@dataclass(frozen=True)
class ClassRow:
    """A predicted class: its fraction of the predictions, and their mean confidences."""

    name: str
    fraction: float
    before: float
    after: float
    precision: float | None = None  # None without ground truth
    # of a segmentation model with ground truth; after calibration, or with the rejected T
    iou: float | None = None
    ece_before: float | None = None
    ece_after: float | None = None


@dataclass(frozen=True)
class Threshold:
    """The fraction of the predictions whose calibrated confidence reaches a threshold."""

    threshold: float
    coverage: float
    expected_error: float  # according to their confidence
    error: float | None  # None without ground truth


@dataclass(frozen=True)
class FilledBin:
    """A bin of a reliability diagram that has predictions."""

    left: float
    right: float
    count: int
    confidence: float
    accuracy: float
    interval: tuple[float, float] | None  # of the accuracy, 95%


@dataclass(frozen=True)
class Bins:
    """A reliability diagram; means are None for an empty bin."""

    edges: tuple[float, ...]
    count: tuple[int, ...]
    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]
    low: tuple[float | None, ...]  # the 95% interval of the accuracy, if there is one
    high: tuple[float | None, ...]
    ece: float

    def filled(self) -> list[FilledBin]:
        """The bins that have predictions."""
        return [self._filled_bin(k) for k, count in enumerate(self.count) if count]

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
        return FilledBin(self.edges[k], self.edges[k + 1], count, confidence, accuracy, interval)


@dataclass(frozen=True)
class Diagrams:
    """Reliability before and after calibration, or with the rejected temperature.

    The true classes come from the ground truth, from a person's labels or from the mixup samples,
    whose labels are the model's own predictions. `noise` is the ECE that a perfectly calibrated
    model with the confidences of `after` would show by chance; None without ground truth.
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
    """A metric before and after calibration, or with the rejected T, and the paired change."""

    metric: Metric
    before: Estimate
    after: Estimate | None = None  # None if measured once
    change: Estimate | None = None


@dataclass(frozen=True)
class Example:
    """One input that is shown in the report, with its predicted class and its confidence."""

    name: str
    class_name: str
    before: float
    after: float
    thumbnail: str | None = None  # a data URL
    true_class: str | None = None
    text: str | None = None  # the beginning of the input, if it is a text


@dataclass(frozen=True)
class Examples:
    """Inputs whose confidence changed most, and those with the lowest after calibration."""

    changed: tuple[Example, ...]
    least_confident: tuple[Example, ...]


@dataclass(frozen=True)
class MapImages:
    """One image of a segmentation model, its confidences and errors pixel by pixel, as data URLs."""

    name: str
    image: str | None
    before: str
    after: str
    correct: str | None  # None without ground truth


@dataclass(frozen=True)
class Report:
    """The content of a report."""

    headline: Headline  # the first sentence: the accuracy
    recommendation: Recommendation  # what to do, and why
    model: AboutModel
    data: AboutData
    unit: Unit  # what a prediction is made for
    calibration: Fit
    trust: Trust | None  # the verdict without labels
    labels: Measured | None  # what a person's labels say, which outranks `trust`
    confidence: Histogram
    classes: tuple[ClassRow, ...]  # the 60 most predicted; of a segmentation model, all predicted
    selection: tuple[Threshold, ...]
    reliability: Diagrams
    metrics: tuple[Measurement, ...] | None  # None without ground truth
    examples: Examples
    maps: tuple[MapImages, ...]
    usage: str  # Python code that applies the result
    settings: dict[str, Any]  # all that is needed to repeat the calibration
    versions: dict[str, str]
    timing: Timing
    threshold: RunThreshold | None = None  # which predictions to accept, if it was asked for
    facts: tuple[Fact, ...] = ()  # what to know before using the result, cautions first
    format: Literal["pseudocal-report"] = "pseudocal-report"
    format_version: Literal[7] = 7

    def __repr__(self) -> str:
        title = f"{self.model.title} on {self.data.name}"
        return f"Report({title}: {self.verdict}, T = {self.calibration.temperature:.3f})"

    @property
    def judged(self) -> Measured | Trust | None:
        """The verdict and its reasons, from labels or, if there are none, without labels."""
        return self.labels or self.trust

    @property
    def verdict(self) -> str | None:
        """The verdict, from labels or, if there are none, without labels."""
        return None if self.judged is None else self.judged.verdict

    @property
    def refused(self) -> bool:
        """Whether the fitted temperature was rejected."""
        return self.calibration.refused is not None

    @property
    def unfitted(self) -> bool:
        """Whether T = 1 without labels: inputs that cannot be mixed, like texts, or two classes."""
        fit = self.calibration
        found = fit.mixup_samples > 0 or fit.temperature != 1
        fitted = found and self.settings.get("estimator") != "none"
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
        found: dict[str, Use] = dict.fromkeys(() if self.trust is None else self.trust.effects, "")
        if estimator in found:
            found[estimator] = "rejected"
        if applied in found:
            found[applied] = "used"
        return found

    def metric(self, name: Metric) -> Measurement | None:
        """A metric on the ground truth; None if it was not measured."""
        return next((row for row in self.metrics or () if row.metric == name), None)

    def save(self, path: Path) -> None:
        """Write the report as JSON; the file is complete or absent."""
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
    counts = (*report.confidence.before, *report.confidence.after)
    _check_lengths("histogram", report.confidence)
    if min(counts) < 0 or sum(report.confidence.before) == 0:
        raise InputError("the counts of the histogram are negative or all zero")
    if not report.classes:
        raise InputError("there are no classes")
    for one in report.classes:
        if not 0 < one.fraction <= 1:
            raise InputError(f"the fraction of class {one.name!r} is {one.fraction}")
    if not report.selection or report.selection[0].threshold != 0:
        raise InputError("the thresholds of confidence do not begin with 0")
    for bins in (report.reliability.before, report.reliability.after):
        _check_lengths("reliability diagram", bins)
        if len({one.interval is None for one in bins.filled()}) > 1:
            raise InputError("only some bins of a reliability diagram have an interval")
    examples = (*report.examples.changed, *report.examples.least_confident)
    images = [one.thumbnail for one in examples]
    for shown in report.maps:
        images += [shown.image, shown.before, shown.after, shown.correct]
    for address in images:
        if address is not None and not address.startswith("data:image/"):
            raise InputError(f"an image must be a data URL, not {address[:80]!r}")


def _check_lengths(what: str, bins: Histogram | Bins) -> None:
    """Refuse columns that are not as long as there are bins."""
    length = len(bins.edges) - 1
    columns = [part for name, part in vars(bins).items() if name != "edges"]
    found = [len(column) for column in columns if isinstance(column, tuple)]
    if length < 1 or set(found) != {length}:
        raise InputError(f"the {what} has {length} bins, but columns of lengths {found}")
