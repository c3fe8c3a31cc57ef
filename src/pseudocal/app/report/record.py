"""The content of a report as a typed, versioned record.

It is saved as `report.json`, and the page is drawn from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pseudocal.app.records import decode_json, encode_json, to_plain
from pseudocal.app.report.sections import (
    AboutFit,
    Bins,
    ClassFraction,
    Diagrams,
    Examples,
    Fact,
    Histogram,
    Measurement,
    Segmentation,
    Threshold,
)
from pseudocal.app.report.shapes import FilledBin
from pseudocal.app.run import AboutData, AboutModel, Timing
from pseudocal.arrays import InputError
from pseudocal.calibrators.measured import Measured
from pseudocal.calibrators.trust import Trust


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        model: the model that was calibrated.
        data: the data that it was calibrated on.
        calibration: the temperature and what it was fitted on.
        trust: the verdict without labels; None if there is none.
        answers: what a person's answers say, which outranks it; None without answers.
        confidence: the histogram of the confidences of inputs or pixels.
        classes: the classes that are predicted most often, at most 60.
        selection: what is left, and wrong, above thresholds of confidence.
        reliability: the reliability diagrams before and after.
        measured: metrics on labels; None without labels.
        examples: a few inputs.
        segmentation: maps and a table of classes; None for a classifier.
        usage: Python code that applies the result.
        settings: all settings needed to repeat the calibration.
        versions: the versions of the packages that were used.
        timing: when the job finished, and how long it took.
        facts: what to know before using the result, cautions first.

    """

    model: AboutModel
    data: AboutData
    calibration: AboutFit
    trust: Trust | None
    answers: Measured | None
    confidence: Histogram
    classes: tuple[ClassFraction, ...]
    selection: tuple[Threshold, ...]
    reliability: Diagrams
    measured: tuple[Measurement, ...] | None
    examples: Examples
    segmentation: Segmentation | None
    usage: str
    settings: dict[str, Any]
    versions: dict[str, str]
    timing: Timing
    facts: tuple[Fact, ...] = ()
    format: Literal["pseudocal-report"] = "pseudocal-report"
    format_version: Literal[5] = 5

    def __repr__(self) -> str:
        return f"Report({self.model.title} on {self.data.name}: {self.verdict}, T = {self.calibration.temperature:.3f})"

    @property
    def verdict(self) -> str | None:
        """The verdict.

        That of the answers if there are any, which outranks the one without labels.
        """
        judged = self.answers or self.trust
        return None if judged is None else judged.verdict

    @property
    def uses(self) -> dict[str, str]:
        """What became of each temperature that was found without labels, by estimator.

        Used, refused or neither.
        """
        estimator = self.settings.get("estimator")
        used = estimator if self.calibration.refused is None else "none"
        effects = {} if self.trust is None else self.trust.effects
        return {
            name: "used" if name == used else "refused" if name == estimator else ""
            for name in effects
        }

    @property
    def unit(self) -> Literal["inputs", "pixels"]:
        """What a prediction is made for."""
        return "inputs" if self.segmentation is None else "pixels"

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
        """Read what `save` wrote."""
        if not path.exists():
            raise InputError(f"{path.parent} has no {path.name}: it is no folder of a calibration")
        report = decode_json(path, cls, "a report")
        try:
            check_consistent(report)
        except InputError as error:
            raise InputError(f"{error} in {path}") from error
        return report


def check_consistent(report: Report) -> None:
    """Refuse a report whose parts do not fit together, because it was edited by hand or damaged."""
    for row in report.measured or ():
        if row.after is None or row.change is None:
            raise InputError(f"expected the {row.metric} before and after calibration, got {row}")
    if report.reliability.of == "answers" and report.answers is None:
        raise InputError("expected what the answers of the diagrams say, got no answers")
    histogram = report.confidence
    shown = (*report.examples.changed, *report.examples.unsure)
    moved = (histogram.sure_before, histogram.sure_after)
    _check_lengths("histogram", len(histogram.edges) - 1, histogram.before, histogram.after, *moved)
    if min(*histogram.before, *histogram.after) < 0 or sum(histogram.before) == 0:
        got = f"{histogram.before} and {histogram.after}"
        raise InputError(f"expected counts that are neither negative nor all zero, got {got}")
    if not report.classes or not report.selection or report.selection[0].threshold != 0:
        raise InputError(
            f"expected classes and thresholds from 0, got {report.classes[:1]}, {report.selection[:1]}"
        )
    for fraction in report.classes:
        if not 0 < fraction.fraction <= 1:
            raise InputError(
                f"expected a share above 0 and up to 1, got {fraction.fraction} for {fraction.name!r}"
            )
    for bins in (report.reliability.before, report.reliability.after):
        columns = (bins.count, bins.confidence, bins.accuracy, bins.low, bins.high)
        _check_lengths("diagram", len(bins.edges) - 1, *columns)
        if len({one.interval is None for one in filled_bins(bins)}) > 1:
            raise InputError(f"expected an interval for each bin or for none, got {bins.low}")
    _check_images(*(one.thumbnail for one in shown))
    if (segments := report.segmentation) is not None:
        _check_lengths("table of classes", max(1, len(segments.header)), *segments.rows)
        for one in segments.maps:
            _check_images(one.image_file, one.before, one.after, one.correct)


def filled_bins(bins: Bins) -> list[FilledBin]:
    """Return the bins of a diagram that have predictions."""
    found = []
    for k, count in enumerate(bins.count):
        confidence = bins.confidence[k]
        accuracy = bins.accuracy[k]
        low = bins.low[k]
        high = bins.high[k]
        if count == 0:
            continue
        if count < 0 or confidence is None or accuracy is None or (low is None) != (high is None):
            got = (count, confidence, accuracy, low, high)
            raise InputError(
                f"expected a count, two means and both ends of an interval in bin {k}, got {got}"
            )
        interval = None if low is None or high is None else (low, high)
        found.append(
            FilledBin(bins.edges[k], bins.edges[k + 1], count, confidence, accuracy, interval)
        )
    return found


def _check_lengths(what: str, length: int, *columns: tuple[Any, ...]) -> None:
    found = [len(column) for column in columns]
    if length < 1 or set(found) - {length}:
        raise InputError(f"expected a {what} of {max(1, length)} columns, got lengths {found}")


def _check_images(*addresses: str | None) -> None:
    """Refuse images that are not embedded in the file."""
    for address in addresses:
        if address is not None and not address.startswith("data:image/"):
            raise InputError(f"expected an image as a data URL, got {address[:80]!r}")
