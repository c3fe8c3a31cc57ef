"""All that a report says, as one typed and versioned record: `report.json` holds it, and the page is drawn from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pseudocal.app.report.fields import from_json, to_json
from pseudocal.app.report.sections import (
    AboutData,
    AboutFit,
    AboutModel,
    AboutTrust,
    ClassShare,
    Diagrams,
    Examples,
    Fact,
    Histogram,
    Measurement,
    Segmentation,
    Timing,
)
from pseudocal.arrays import InputError
from pseudocal.files import replacing

REPORT_FORMAT = "pseudocal-report"
REPORT_VERSION = 2


@dataclass(frozen=True)
class Report:
    """All that a report says.

    Attributes:
        model: what was calibrated.
        data: what it was calibrated on.
        calibration: the temperature.
        trust: the verdict; None if none was given.
        confidence: the histogram of the confidences of inputs, or of pixels.
        classes: the ten classes that are predicted most.
        reliability: the two diagrams.
        measured: what labels say; None without labels.
        examples: a few inputs.
        segmentation: maps and a table of classes; None for a classifier.
        usage: lines of Python that apply the result.
        settings: all it takes to repeat the calibration.
        versions: of the packages that had a part in it.
        timing: when it was made.
        facts: what to know before using it, cautions first.

    """

    model: AboutModel
    data: AboutData
    calibration: AboutFit
    trust: AboutTrust | None
    confidence: Histogram
    classes: tuple[ClassShare, ...]
    reliability: Diagrams
    measured: tuple[Measurement, ...] | None
    examples: Examples
    segmentation: Segmentation | None
    usage: str
    settings: dict[str, Any]
    versions: dict[str, str]
    timing: Timing
    facts: tuple[Fact, ...] = ()

    def __post_init__(self) -> None:
        for row in self.measured or ():
            if row.after is None or row.change is None:
                raise InputError(f"expected the {row.metric} before and after calibration, got {row}")

    @property
    def unit(self) -> Literal["inputs", "pixels"]:
        """What predictions are of."""
        return "inputs" if self.segmentation is None else "pixels"

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"format": REPORT_FORMAT, "format_version": REPORT_VERSION, **to_json(self)}

    @classmethod
    def from_dict(cls, content: Any) -> Report:
        """What `to_dict` gave; refuses other formats, other versions, and fields that are missing or not of their type.

        >>> Report.from_dict({"format": "pseudocal-report", "format_version": 99})
        Traceback (most recent call last):
        pseudocal.arrays.InputError: expected a report of format version 2, got 99
        """
        if not isinstance(content, dict) or content.get("format") != REPORT_FORMAT:
            got = content.get("format") if isinstance(content, dict) else content
            raise InputError(f"expected a file of format {REPORT_FORMAT}, got {repr(got)[:80]}")
        version = content.get("format_version")
        if version != REPORT_VERSION or isinstance(version, bool):
            raise InputError(f"expected a report of format version {REPORT_VERSION}, got {repr(version)[:80]}")
        rest = {key: value for key, value in content.items() if key not in ("format", "format_version")}
        report: Report = from_json(cls, rest, "report")
        return report

    def save(self, path: Path) -> None:
        """Write JSON, aside and then renamed."""
        with replacing(path) as aside:
            aside.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read what `save` wrote."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"expected the folder of a calibration, with {path.name}, got {path.parent}") from None
        except OSError as error:
            raise InputError(f"expected a report file that can be read, got {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"expected a report file, got {path}, which is not JSON: {error}") from error
        try:
            return cls.from_dict(content)
        except InputError as error:
            raise InputError(f"{error} in {path}") from error
