"""Self-contained HTML pages: no script, no network, everything from outside escaped."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pseudocal.app.report import figures, wording
from pseudocal.app.report.findings import (
    effect_of,
    essentials_of,
    estimate_source,
    is_contradicted,
    is_fitted_on_mixup,
    is_unchecked,
    known_accuracy,
    second_opinions,
    shown_threshold,
)
from pseudocal.app.report.record import Measurement, Report
from pseudocal.app.run import PAGE, REPORT
from pseudocal.app.thresholds import ClassLine
from pseudocal.extras import require
from pseudocal.files import replacing

CLASSES_SHOWN = 60  # thresholds by class, like the classes themselves
LEAST_GAP = 1e-6  # a narrower interval is rounding error
LIGHTS = ("guaranteed", "measured", "estimated", "not enough labels")
KNOWN_TASKS = {"huggingface": "image-classification", "huggingface-text": "text-classification"}


def page(report: Report) -> str:
    """Draw the report as an HTML page."""
    diagrams = report.reliability
    shown = (diagrams.before,) if report.unfitted else (diagrams.before, diagrams.after)
    return from_template(
        "page.html",
        report=report,
        essentials=essentials_of(report),
        verdict=None if report.verdict is None else wording.VERDICTS[report.verdict],
        contradicted=is_contradicted(report),
        second_opinions=second_opinions(report),
        known=known_accuracy(report),
        estimate_source=estimate_source(report),
        tracks=list(figures.accuracy_and_confidence(report)),
        effect=wording.EFFECTS[effect_of(report.calibration, report.verdict)],
        confidences=figures.histogram(report),
        diagrams=figures.reliability_diagrams(report),
        folded=diagrams.source == "mixup" and not is_fitted_on_mixup(report),
        few=any(figures.is_few(one) for bins in shown for one in bins.filled()),
        risk=figures.risk_coverage(report),
        class_lights=_class_lights(report),
        example=shown_threshold(report),
        unchecked=is_unchecked(report),
        intervals=any(one.interval is not None for one in diagrams.before.filled()),
    )


def _class_lights(report: Report) -> list[ClassLine]:
    """The thresholds by class: what is guaranteed first, then the classes with most labels."""
    if report.threshold is None:
        return []
    lines = sorted(
        report.threshold.classes, key=lambda line: (LIGHTS.index(line.light), -line.labels)
    )
    return lines[:CLASSES_SHOWN]


@cache
def templates() -> dict[str, Any]:
    """Compile the templates, once."""
    jinja2 = require("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pseudocal.app.report"),
        autoescape=jinja2.select_autoescape(default=True, disabled_extensions=("md", "txt")),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "cells": metric_cells,
        "chart_x": figures.chart_x,
        "chart_y": figures.chart_y,
        "track_x": figures.track_x,
        "number": wording.number,
        "percent": wording.percent,
        "points": wording.points,
        "table_rows": figures.table_rows,
        "rule_of": wording.rule_of,
        "seconds": wording.seconds,
    }
    environment.globals |= {
        "frame": figures.FRAME,
        "metric_titles": wording.METRIC_TITLES,
        "preprocessing_assumed": wording.PREPROCESSING_ASSUMED,
        "quarters": figures.QUARTERS,
    }
    return {name: environment.get_template(name) for name in environment.list_templates()}


def from_template(template: str, **values: Any) -> str:
    """What a template says with these values."""
    text: str = templates()[template].render(values)
    return text


def metric_cells(row: Measurement) -> list[tuple[str, ...]]:
    """A metric before, after and its change, with two digits of the narrowest interval.

    ECE, accuracy and mIoU are in percent, their changes in percentage points.

    >>> from pseudocal.app.report.record import Estimate
    >>> before, after = Estimate(0.0741, 0.048, 0.1), Estimate(0.0715, 0.05, 0.09)
    >>> metric_cells(Measurement("ece", before, after, Estimate(-0.0026, -0.016, -1e-9)))
    [('7.41%', '4.80%', '10.00%'), ('7.15%', '5.00%', '9.00%'), ('-0.26', '-1.60', '0.00')]
    >>> metric_cells(Measurement("nll", Estimate(0.5, 0.25, None)))
    [('0.500', '0.250', 'unbounded')]
    """
    in_percent = row.metric in wording.PERCENTAGES
    scale = 100 if in_percent else 1
    parts = [astuple(part) for part in (row.before, row.after, row.change) if part is not None]
    gaps = [
        scale * abs(end - value)
        for value, *ends in parts
        for end in ends
        if value is not None and end is not None
    ]
    finest = min((gap for gap in gaps if gap > LEAST_GAP), default=1.0)
    digits = max(1 if in_percent else 3, 1 - math.floor(math.log10(finest)))
    found = []
    for i, part in enumerate(parts):
        sign = "%" if in_percent and i < 2 else ""
        cells = ("unbounded" if v is None else f"{scale * v:z.{digits}f}{sign}" for v in part)
        found.append(tuple(cells))
    return found


def warm_up() -> None:
    """Import and compile what the report needs, half a second of work.

    The report itself names missing packages.
    """
    for name in ("scipy.special", "pyarrow.parquet"):
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError):
        templates()


def write_report(report: Report, folder: Path) -> None:
    """Write `report.json` and `report.html` into a folder."""
    report.save(folder / REPORT)
    write_page(report, folder)


def write_page(report: Report, folder: Path) -> None:
    """Write `report.html` into a folder."""
    html = page(report)
    with replacing(folder / PAGE) as aside:
        aside.write_text(html, encoding="utf-8", errors="replace")  # file names may be no Unicode


def card_of(report: Report) -> str:
    """A model card: the text of `README.md`, whose first lines are metadata for the hub."""
    task = KNOWN_TASKS.get(report.model.recipe, "other")
    if report.unit == "pixels":
        task = "image-segmentation"
    metrics = [("temperature", "Temperature", report.calibration.temperature)]
    metrics += [
        (row.metric, f"{row.metric}, calibrated", row.after.value)
        for row in report.metrics or ()
        if row.after is not None and row.after.value is not None
    ]
    result = {
        "task": {"type": task},
        "dataset": {
            "name": report.data.name,
            "type": "unlabelled",
            "args": {"date": report.timing.finished},
        },
        "metrics": [
            {"type": kind, "name": name, "value": round(value, 6)} for kind, name, value in metrics
        ],
    }
    index = [{"name": report.model.title, "results": [result]}]
    text = from_template(
        "card.md",
        report=report,
        index=json.dumps(index, ensure_ascii=False),  # JSON is YAML
    )
    return text + "\n"


# ------------------------------------------------------------------------------ several reports


@dataclass(frozen=True)
class ComparedLine:
    """What a comparison says about one calibration, in words."""

    name: str  # the folder of the results
    address: str  # where its page is, from the page of the comparison
    model: str
    data: str
    finished: str
    inputs: str
    temperature: str  # the one that applies, and one that was rejected
    verdict: str
    recommendation: str  # with its command
    tone: str  # the colour of the verdict: "good", "caution" or "bad"
    accuracy: str
    confidence: str
    ece: str


def line_of(report: Report, name: str, address: str) -> ComparedLine:
    """Make the line of one report, which has a name and a page."""
    fit = report.calibration
    temperature = f"{fit.temperature:.3f}"
    if fit.refused is not None:
        temperature = f"1 ({fit.refused:.3f} rejected)"
    confidence = f"{report.confidence.mean_before:.1%}"
    if not report.unchanged:
        confidence += f" → {report.confidence.mean_after:.1%}"
    return ComparedLine(
        name=name,
        address=address,
        model=report.model.title,
        data=report.data.name,
        finished=report.timing.finished[:10],
        inputs=f"{report.data.used:,}",
        temperature=temperature,
        verdict=report.verdict or "none",
        recommendation=str(report.recommendation),
        tone="" if report.verdict is None else wording.VERDICTS[report.verdict].tone,
        accuracy=_accuracy(report),
        confidence=confidence,
        ece=_ece(report),
    )


def _ece(report: Report) -> str:
    row = report.metric("ece")
    if row is None or row.after is None:
        return "-"
    text = f"{_percent(row.before.value)} → {_percent(row.after.value)}"
    return f"{text} if applied" if report.refused else text


def _accuracy(report: Report) -> str:
    """The accuracy from the best source."""
    row = report.metric("accuracy")
    if row is not None:
        return f"{_percent(row.before.value)} (ground truth)"
    known = known_accuracy(report)
    if known is None:
        return "-"
    source = "labels"
    if report.labels is None:
        source = f"estimated from {estimate_source(report)}"
    return f"{known.value:.0%}, {known.low:.0%} to {known.high:.0%} ({source})"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def comparison(lines: Sequence[ComparedLine]) -> str:
    """Draw the page, with the lines in this order."""
    return from_template("comparison.html", lines=lines)
