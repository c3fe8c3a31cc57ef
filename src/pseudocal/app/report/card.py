"""A model card for the calibrated model.

What was done to it, in words and as metadata that the hub reads.
"""

from __future__ import annotations

import json
from typing import Any

from pseudocal.app.report.measured import count_of_answers
from pseudocal.app.report.record import Report

KNOWN_TASKS = {"huggingface": "image-classification", "huggingface-text": "text-classification"}


def card_of(report: Report) -> str:
    """Return the text of `README.md`, whose first lines are metadata in YAML.

    Args:
        report: the report of the calibration.

    """
    task = (
        "image-segmentation"
        if report.segmentation is not None
        else KNOWN_TASKS.get(report.model.recipe, "other")
    )
    metrics = [_metric("temperature", "Temperature", report.calibration.temperature)]
    measured = [
        (row.metric, row.after.value) for row in report.measured or () if row.after is not None
    ]
    metrics += [
        _metric(name, f"{name}, calibrated", value) for name, value in measured if value is not None
    ]
    judged = report.answers or report.trust
    dataset = {
        "name": report.data.name,
        "type": "unlabelled",
        "args": {"date": report.timing.finished},
    }
    result = {"task": {"type": task}, "dataset": dataset, "metrics": metrics}
    index = [{"name": report.model.title, "results": [result]}]
    lines = [
        "---",
        f"model-index: {json.dumps(index, ensure_ascii=False)}",  # JSON is YAML
        "---",
        "",
        "# Calibration",
        "",
        f"The logits are those of `{report.model.title}` divided by {report.calibration.temperature:.6g}, which "
        f"pseudocal found on {report.data.used:,} inputs{_source(report)}. The division is inside the weights of the "
        "last layer.",
        "",
        f"- Data: {report.data.name}",
        f"- Date: {report.timing.finished}",
        f"- Mean confidence: {report.confidence.mean_before:.1%} before, {report.confidence.mean_after:.1%} after",
    ]
    if judged is not None:
        lines.append(f"- Verdict: {judged.verdict}. {' '.join(map(str, judged.reasons))}")
    return "\n".join(lines) + "\n"


def _source(report: Report) -> str:
    if report.answers is None:
        return " without labels"
    return f" and {count_of_answers(report.answers.labels, 'inputs')} of a person"


def _metric(kind: str, name: str, value: float) -> dict[str, Any]:
    return {"type": kind, "name": name, "value": round(value, 6)}
