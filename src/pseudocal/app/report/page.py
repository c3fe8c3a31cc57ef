"""One self-contained HTML page: no script, no network, everything from outside escaped."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from pseudocal.app.report.figures import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, histogram, reliability
from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import AboutFit, AboutTrust, Measurement
from pseudocal.app.report.verdict import panel
from pseudocal.extras import require
from pseudocal.files import replacing

FRAME = {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM, "width": WIDTH, "height": HEIGHT}
LEAST_GAP = 1e-6  # what is narrower than this is rounding, and nobody's concern


def page(report: Report) -> str:
    """Draw the report."""
    diagrams = report.reliability
    html: str = templates()["page.html"].render(
        {field.name: getattr(report, field.name) for field in fields(report)},
        unit=report.unit,
        panel=panel(report),
        confidences=histogram(report.confidence, report.unit),
        diagrams=[reliability(getattr(diagrams, when), when, diagrams.of) for when in ("before", "after")],
        intervals=diagrams.before.has_intervals,
        effect=_effect(report.calibration, report.trust),
        frame=FRAME,
    )
    return html


@cache
def templates() -> dict[str, Any]:
    """The templates of the page, compiled once."""
    jinja2 = require("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pseudocal.app.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"percent": _percent, "number": _number, "seconds": _seconds, "cells": _cells}
    return {name: environment.get_template(name) for name in environment.list_templates()}


def write_report(report: Report, folder: Path) -> None:
    """Write `report.json` and `report.html` into a folder."""
    report.save(folder / "report.json")
    write_page(report, folder)


def write_page(report: Report, folder: Path) -> None:
    """Write `report.html` into a folder."""
    with replacing(folder / "report.html") as aside:
        aside.write_text(page(report), encoding="utf-8", errors="replace")  # names of files need not be Unicode


def _effect(fit: AboutFit, trust: AboutTrust | None = None) -> str:
    """What the temperature means, in a sentence.

    >>> _effect(AboutFit("pseudocal", 1.8, 1.7, 1.9, bound=None, pairs=600, mixes=580, forward_passes=1180))
    'On this data the model is too sure of itself: dividing its logits by T lowers its confidences.'
    """
    if trust is not None and trust.replaced:
        return "Dividing by one changes nothing: the temperature that was fitted should not be applied."
    if fit.bound:
        return "The search ended at the end of its range: there is no temperature to speak of."
    if trust is not None and trust.verdict == "do not apply":
        direction = "lower" if fit.temperature > 1 else "raise"
        return f"Dividing the logits by T would {direction} the confidences, which the verdict advises against."
    if (fit.low or 0) <= 1 <= (math.inf if fit.high is None else fit.high):
        return "This cannot be told apart from 1: the confidences may stay as they are."
    if fit.temperature > 1:
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


def _cells(row: Measurement) -> list[list[str]]:
    """Value, low and high of a row's before, after and change, to as many digits as its narrowest interval bears.

    >>> from pseudocal.app.report.sections import Estimate
    >>> before, after = Estimate(0.5, 0.25, None), Estimate(0.00741, 0.0048, 0.01)
    >>> _cells(Measurement("ece", before, after, Estimate(-0.4926, -0.6, -1e-5)))
    [['0.5000', '0.2500', 'unbounded'], ['0.0074', '0.0048', '0.0100'], ['-0.4926', '-0.6000', '0.0000']]
    """
    parts = [(part.value, part.low, part.high) for part in (row.before, row.after, row.change) if part is not None]
    gaps = [abs(end - value) for value, *ends in parts for end in ends if value is not None and end is not None]
    finest = min((gap for gap in gaps if gap > LEAST_GAP), default=1.0)
    digits = max(3, 1 - math.floor(math.log10(finest)))  # two of that gap
    return [["unbounded" if number is None else f"{number:z.{digits}f}" for number in part] for part in parts]


def _seconds(value: float) -> str:
    """Seconds, or minutes and seconds.

    >>> _seconds(12.34), _seconds(125)
    ('12.3 s', '2 min 5 s')
    """
    return f"{value:.1f} s" if value < 60 else f"{int(value // 60)} min {int(value % 60)} s"
