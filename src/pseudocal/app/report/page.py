"""One self-contained HTML page: no script, no network, everything from outside escaped."""

from __future__ import annotations

import importlib
import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pseudocal.app.report import figures, wording
from pseudocal.app.report.findings import (
    effect_of,
    estimate_source,
    is_contradicted,
    known_accuracy,
    second_opinions,
)
from pseudocal.app.report.record import Measurement, Report
from pseudocal.app.run import PAGE, REPORT
from pseudocal.extras import require
from pseudocal.files import replacing

KNOWN_TASKS = {"huggingface": "image-classification", "huggingface-text": "text-classification"}


def page(report: Report) -> str:
    """Draw the report as an HTML page."""
    judged = report.labels or report.trust
    diagrams = report.reliability
    html: str = templates()["page.html"].render(
        report=report,
        judged=judged,
        verdict=None if judged is None else wording.VERDICTS[judged.verdict],
        contradicted=is_contradicted(report),
        second_opinions=second_opinions(report),
        known=known_accuracy(report),
        estimate_source=estimate_source(report),
        tracks=list(figures.accuracy_and_confidence(report)),
        effect=wording.EFFECTS[effect_of(report.calibration, report.verdict)],
        confidences=figures.histogram(report),
        diagrams=figures.reliability_diagrams(report),
        risk=figures.risk_coverage(report),
        intervals=any(one.interval is not None for one in diagrams.before.filled()),
    )
    return html


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
        "cells": _cells,
        "chart_x": figures.chart_x,
        "chart_y": figures.chart_y,
        "track_x": figures.track_x,
        "number": wording.number,
        "percent": wording.percent,
        "points": wording.points,
        "seconds": wording.seconds,
    }
    environment.globals |= {
        "frame": figures.FRAME,
        "metric_titles": wording.METRIC_TITLES,
        "quarters": figures.QUARTERS,
    }
    return {name: environment.get_template(name) for name in environment.list_templates()}


def _cells(row: Measurement) -> list[tuple[str, str, str]]:
    """A metric before, after and its change, each with an interval."""
    parts = [row.before, row.after, row.change]
    numbers = [(part.value, part.low, part.high) for part in parts if part is not None]
    return wording.metric_cells(row.metric, numbers)


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
    text: str = templates()["card.md"].render(
        report=report,
        judged=report.labels or report.trust,
        index=json.dumps(index, ensure_ascii=False),  # JSON is YAML
    )
    return text + "\n"
