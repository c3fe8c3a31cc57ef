"""A model card for the calibrated model: text, and metadata that the hub reads."""

from __future__ import annotations

import json
from typing import Any

from pseudocal.app.report.page import templates
from pseudocal.app.report.record import Report

KNOWN_TASKS = {"huggingface": "image-classification", "huggingface-text": "text-classification"}


def card_of(report: Report) -> str:
    """The text of `README.md`, whose first lines are metadata in YAML.

    Args:
        report: the report of the calibration.

    """
    text: str = templates()["card.md"].render(
        report=report,
        judged=report.labels or report.trust,
        index=json.dumps(_index(report), ensure_ascii=False),  # JSON is YAML
    )
    return text + "\n"


def _index(report: Report) -> list[dict[str, Any]]:
    task = KNOWN_TASKS.get(report.model.recipe, "other")
    if report.unit == "pixels":
        task = "image-segmentation"
    metrics = [_metric("temperature", "Temperature", report.calibration.temperature)]
    metrics += [
        _metric(row.metric, f"{row.metric}, calibrated", row.after.value)
        for row in report.metrics or ()
        if row.after is not None and row.after.value is not None
    ]
    dataset = {
        "name": report.data.name,
        "type": "unlabelled",
        "args": {"date": report.timing.finished},
    }
    result = {"task": {"type": task}, "dataset": dataset, "metrics": metrics}
    return [{"name": report.model.title, "results": [result]}]


def _metric(kind: str, name: str, value: float) -> dict[str, Any]:
    return {"type": kind, "name": name, "value": round(value, 6)}
