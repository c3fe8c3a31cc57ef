"""One self-contained HTML page: no script, no network, everything from outside escaped."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from pseudocal.app.report.content import FORMAT
from pseudocal.app.report.figures import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, has_intervals, histogram, reliability
from pseudocal.app.report.verdict import panel
from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError

FRAME = {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM, "width": WIDTH, "height": HEIGHT}
LEAST = 1e-6  # what is narrower than this is rounding, and nobody's concern


def page(content: dict[str, Any]) -> str:
    """Draw the report."""
    of = content["reliability"]["of"]
    html: str = templates()["page.html"].render(
        content,
        trust=content.get("trust"),
        panel=panel(content),
        confidences=histogram(content["confidence"], "pixels" if "segmentation" in content else "inputs"),
        diagrams=[reliability(content["reliability"][when], when, of) for when in ("before", "after")],
        intervals=has_intervals(content["reliability"]["before"]),
        effect=_effect(content["calibration"], content.get("trust")),
        frame=FRAME,
    )
    return html


@cache
def templates() -> dict[str, Any]:
    """The templates of the page, compiled once."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("jinja2", "report") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pseudocal.app.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"percent": _percent, "number": _number, "seconds": _seconds, "cells": _cells}
    return {name: environment.get_template(name) for name in environment.list_templates()}


def save_content(content: dict[str, Any], path: Path) -> None:
    """Write what the page is drawn from."""
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load_content(path: Path) -> dict[str, Any]:
    """Read what `save_content` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"expected the folder of a calibration, with report.json in it, got {path.parent}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"expected a report file, got {path}, which is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"expected a file of format {FORMAT}, got {path}, which is another")
    return content


def _effect(calibration: dict[str, Any], trust: dict[str, Any] | None = None) -> str:
    """What the temperature means, in a sentence.

    >>> _effect({"temperature": 1.8, "low": 1.7, "high": 1.9, "bound": None})
    'On this data the model is too sure of itself: dividing its logits by T lowers its confidences.'
    """
    if trust is not None and trust["replaced"]:
        return "Dividing by one changes nothing: the temperature that was fitted should not be applied."
    if calibration["bound"]:
        return "The search ended at the end of its range: there is no temperature to speak of."
    if trust is not None and trust["verdict"] == "do not apply":
        direction = "lower" if calibration["temperature"] > 1 else "raise"
        return f"Dividing the logits by T would {direction} the confidences, which the verdict advises against."
    if (calibration["low"] or 0) <= 1 <= (math.inf if calibration["high"] is None else calibration["high"]):
        return "This cannot be told apart from 1: the confidences may stay as they are."
    if calibration["temperature"] > 1:
        return "On this data the model is too sure of itself: dividing its logits by T lowers its confidences."
    return "On this data the model is not sure enough of itself: dividing its logits by T raises its confidences."


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _number(value: float | None) -> str:
    """Three digits after the point for what is of the size of one, else four that count.

    >>> _number(1.8412), _number(1e6), _number(None), _number(True), _number("text")
    ('1.841', '1e+06', 'unbounded', 'True', 'text')
    """
    if value is None:
        return "unbounded"
    if isinstance(value, bool | str) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3f}" if value == 0 or 0.01 <= abs(value) < 1000 or not math.isfinite(value) else f"{value:.4g}"


def _cells(row: dict[str, Any]) -> list[list[str]]:
    """Value, low and high of a row's before, after and change, to as many digits as its narrowest interval bears.

    >>> before, after = {"value": 0.5, "low": 0.25, "high": None}, {"value": 0.00741, "low": 0.0048, "high": 0.01}
    >>> _cells({"before": before, "after": after, "change": {"value": -0.4926, "low": -0.6, "high": -1e-5}})
    [['0.5000', '0.2500', 'unbounded'], ['0.0074', '0.0048', '0.0100'], ['-0.4926', '-0.6000', '0.0000']]
    """
    parts = [[row[when][key] for key in ("value", "low", "high")] for when in ("before", "after", "change")]
    gaps = [abs(end - value) for value, *ends in parts for end in ends if None not in (value, end)]
    finest = min((gap for gap in gaps if gap > LEAST), default=1.0)
    digits = max(3, 1 - math.floor(math.log10(finest)))  # two of that gap
    return [["unbounded" if number is None else f"{number:z.{digits}f}" for number in part] for part in parts]


def _seconds(value: float) -> str:
    """Seconds, or minutes and seconds.

    >>> _seconds(12.34), _seconds(125)
    ('12.3 s', '2 min 5 s')
    """
    return f"{value:.1f} s" if value < 60 else f"{int(value // 60)} min {int(value % 60)} s"
