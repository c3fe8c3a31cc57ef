"""The content of a report as a typed, versioned record.

It is saved as `report.json`, and the page is drawn from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pseudocal.app.report.sections import (
    AboutData,
    AboutFit,
    AboutModel,
    Bins,
    ClassFraction,
    Diagrams,
    Examples,
    Fact,
    Histogram,
    Measurement,
    Segmentation,
    Threshold,
    Timing,
)
from pseudocal.app.report.shapes import FilledBin
from pseudocal.arrays import InputError
from pseudocal.calibrators.measured import Measured
from pseudocal.calibrators.trust import Trust
from pseudocal.files import brief, load_json, replacing

REPORT_FORMAT = "pseudocal-report"
REPORT_VERSION = 4
LARGEST_NUMBER, LARGEST_WHOLE = (
    1e300,
    2**63,
)  # the largest numbers that a report may hold; NaN and inf are refused
WORDS = {
    str: "text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    NoneType: "null",
}


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
        """Return the report as JSON values."""
        return {"format": REPORT_FORMAT, "format_version": REPORT_VERSION, **to_json(self)}

    @classmethod
    def from_dict(cls, content: Any) -> Report:
        """Rebuild a report from `to_dict`.

        Other formats or versions, and missing or mistyped fields, are refused.

        >>> Report.from_dict({"format": "pseudocal-report", "format_version": 99})
        Traceback (most recent call last):
        pseudocal.arrays.InputError: expected a report of format version 4, got 99

        Args:
            content: JSON values, as `to_dict` returned them.

        """
        if not isinstance(content, dict) or content.get("format") != REPORT_FORMAT:
            got = content.get("format") if isinstance(content, dict) else content
            raise InputError(f"expected a file of format {REPORT_FORMAT}, got {repr(got)[:80]}")
        version = content.get("format_version")
        if version != REPORT_VERSION or isinstance(version, bool):
            raise InputError(
                f"expected a report of format version {REPORT_VERSION}, got {repr(version)[:80]}"
            )
        rest = {
            key: value for key, value in content.items() if key not in ("format", "format_version")
        }
        report: Report = from_json(cls, rest, "report")
        check_consistent(report)
        return report

    def save(self, path: Path) -> None:
        """Write the report as JSON, under a temporary name that is then renamed.

        Args:
            path: the file.

        """
        with replacing(path) as aside:
            aside.write_text(
                json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
            )

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read what `save` wrote."""
        if not path.exists():
            raise InputError(
                f"expected the folder of a calibration, with {path.name}, got {path.parent}"
            )
        content = load_json(path, "a report file")
        try:
            return cls.from_dict(content)
        except InputError as error:
            raise InputError(f"{error} in {path}") from error


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


def to_json(value: Any) -> Any:
    """Turn a dataclass and everything in it into JSON values.

    >>> from pseudocal.app.report.sections import Fact
    >>> to_json((Fact("note", "Few."), None))
    [{'level': 'note', 'text': 'Few.'}, None]
    """
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: to_json(part) for key, part in value.items()}
    return [to_json(part) for part in value] if isinstance(value, list | tuple) else value


def from_json(kind: Any, value: Any, where: str) -> Any:
    """Rebuild a value of the type `kind` from JSON values.

    >>> from_json(tuple[float, ...], [1, 0.5], "edges")
    (1.0, 0.5)
    >>> from_json(dict[str, int], {"inputs": "many"}, "data")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected a whole number as data.inputs, got 'many'

    Args:
        kind: a dataclass, `str`, `int`, `float`, `bool`, `Any`, or a `Literal`, an optional, a
            tuple or a dictionary.
        value: the value that `json.loads` returned.
        where: the name of the value, for error messages.

    """
    if kind is Any:
        return value
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        codes = tuple(code.value for code in kind)
        return kind(value) if _among(value, codes) else _refuse("a known code", value, where)
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    origin = get_origin(kind)
    parts = get_args(kind)
    if origin is Literal:
        return (
            value
            if _among(value, parts)
            else _refuse("one of " + ", ".join(map(repr, parts)), value, where)
        )
    if origin in (UnionType, Union):  # the latter of a Literal
        [other] = [part for part in parts if part is not NoneType]
        return None if value is None else from_json(other, value, where)
    if origin is tuple:
        return _tuple(parts, value, where)
    if origin is dict:
        pairs = value.items() if isinstance(value, dict) else _refuse("an object", value, where)
        return {key: from_json(parts[1], part, f"{where}.{key}") for key, part in pairs}
    return _plain(kind, value, where)


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    hints = _hints(kind)
    if not isinstance(value, dict):
        _refuse("an object", value, where)
    if missing := [name for name in hints if name not in value]:
        raise InputError(f"expected {where} with the field {missing[0]!r}, got none")
    if unknown := [name for name in value if name not in hints]:
        raise InputError(f"expected {where} with the fields {', '.join(hints)}, got {unknown[0]!r}")
    return kind(
        **{name: from_json(hint, value[name], f"{where}.{name}") for name, hint in hints.items()}
    )


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _tuple(parts: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    many = parts[-1] is Ellipsis
    if not isinstance(value, list) or not (many or len(value) == len(parts)):
        _refuse("a list" if many else f"a list of {len(parts)}", value, where)
    kinds = [parts[0]] * len(value) if many else parts
    return tuple(
        from_json(kind, part, f"{where}[{i}]")
        for i, (kind, part) in enumerate(zip(kinds, value, strict=True))
    )


def _plain(kind: type, value: Any, where: str) -> Any:
    """Check text, a number or a boolean; an integer is accepted as a float."""
    number = type(value) in (int, float) and abs(value) <= (
        LARGEST_NUMBER if kind is float else LARGEST_WHOLE
    )
    if kind is float and number:
        return float(value)
    fits = type(value) is kind and kind is not float and (kind is not int or number)
    return value if fits else _refuse(WORDS[kind], value, where)


def _among(value: Any, options: tuple[Any, ...]) -> bool:
    return any(type(value) is type(option) and value == option for option in options)


def _refuse(expected: str, value: Any, where: str) -> Any:
    raise InputError(f"expected {expected} as {where}, got {brief(value)}")
