"""Gather what the report shows into plain JSON values, so that the page can be drawn again without the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.report.confidences import Confidences
from pseudocal.app.report.facts import facts_of
from pseudocal.app.report.measured import measure, reliability
from pseudocal.app.report.thumbnails import thumbnail
from pseudocal.app.report.usage import usage_of
from pseudocal.arrays import Labelled, Labels, Logits, cores
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Outcomes

BINS = 20
SHOWN = 12
FORMAT = "pseudocal-report"


@dataclass(frozen=True, eq=False)
class Run:
    """One finished calibration: what was calibrated on what, and what came out."""

    model: dict[str, Any]  # name, kind, notes, files
    data: dict[str, Any]  # name, inputs, used, preparation, unreadable
    calibration: Calibration
    logits: Logits
    names: Sequence[str]
    classes: Sequence[str]
    mixes: Labelled
    pictures: Sequence[Path | None] = ()
    labels: Labels | None = None
    timing: dict[str, Any] = field(default_factory=dict)


def content_of(run: Run, confidences: Confidences) -> dict[str, Any]:
    """All that the report says, as JSON values."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "format_version": 1,
        "model": run.model,
        "data": run.data,
        "calibration": calibration_of(run.calibration),
        "trust": trust_of(run.calibration),
        "confidence": _histogram(confidences),
        "classes": _shares(confidences.top[:, 0], run.classes),
        "reliability": _reliability(run),
        "measured": _measured(run),
        "examples": _examples(run, confidences),
        "usage": usage_of(run.model, run.calibration.temperature),
        "settings": run.calibration.settings,
        "versions": run.calibration.versions,
        "timing": run.timing,
    }
    return content | {"facts": facts_of(content)}


def calibration_of(calibration: Calibration) -> dict[str, Any]:
    """The numbers of a calibration."""
    low, high = calibration.interval
    return {
        "method": calibration.method,
        "temperature": calibration.temperature,
        "low": None if math.isnan(low) else low,
        "high": high if math.isfinite(high) else None,
        "bound": calibration.bound,
        **calibration.counts,
    }


def trust_of(calibration: Calibration) -> dict[str, Any] | None:
    """The verdict with its reasons; `replaced` says that it led to a temperature of one."""
    if calibration.trust is None:
        return None
    refused = calibration.trust.verdict == "do not apply" and calibration.settings.get("on_distrust") == "identity"
    return calibration.trust.to_dict() | {"replaced": refused}


def _histogram(confidences: Confidences) -> dict[str, Any]:
    edges = np.linspace(0, 1, BINS + 1)
    before, after = confidences.before[:, 0], confidences.after[:, 0]
    return {
        "edges": edges.tolist(),
        "before": np.histogram(before, edges)[0].tolist(),
        "after": np.histogram(after, edges)[0].tolist(),
        "mean_before": float(before.mean()),
        "mean_after": float(after.mean()),
    }


def _shares(predicted: NDArray[np.int64], classes: Sequence[str]) -> list[dict[str, Any]]:
    """The classes that are predicted most.

    >>> _shares(np.array([1, 1, 0, 1]), ["cat", "dog"])
    [{'name': 'dog', 'share': 0.75}, {'name': 'cat', 'share': 0.25}]
    """
    counts = np.bincount(predicted)
    top = [i for i in np.argsort(-counts, kind="stable")[:10] if counts[i]]
    return [{"name": class_name(i, classes), "share": float(counts[i] / len(predicted))} for i in top]


def class_name(i: int, classes: Sequence[str]) -> str:
    """The name of class i, or its number."""
    return classes[i] if i < len(classes) else f"class {i}"


def _reliability(run: Run) -> dict[str, Any]:
    """Reliability before and after: of the real inputs where there are labels, else of the mixes."""
    logits, labels = (run.mixes.logits, run.mixes.labels) if run.labels is None else (run.logits, run.labels)
    return {
        "of": "mixes" if run.labels is None else "inputs",
        "before": reliability(logits, labels),
        "after": reliability(run.calibration(logits), labels),
    }


def _measured(run: Run) -> list[dict[str, Any]] | None:
    if run.labels is None:
        return None
    before = Outcomes.from_logits(run.logits, run.labels)
    return measure(before, Outcomes.from_logits(run.calibration(run.logits), run.labels))


def _examples(run: Run, c: Confidences) -> dict[str, list[dict[str, Any]]]:
    """The inputs whose confidence changed most, and those the calibrated model is least sure of."""
    before, after = c.before[:, 0], c.after[:, 0]
    chosen = {
        "changed": np.argsort(-np.abs(after - before), kind="stable")[:SHOWN],
        "unsure": np.argsort(after, kind="stable")[:SHOWN],
    }
    with ThreadPoolExecutor(cores()) as pool:  # most of it is to decode pictures
        return {key: list(pool.map(partial(_example, run, c), rows)) for key, rows in chosen.items()}


def _example(run: Run, c: Confidences, i: int) -> dict[str, Any]:
    picture = run.pictures[i] if len(run.pictures) else None
    shown = {
        "name": run.names[i],
        "class": class_name(int(c.top[i, 0]), run.classes),
        "before": float(c.before[i, 0]),
        "after": float(c.after[i, 0]),
        "thumbnail": thumbnail(picture) if picture is not None else None,
    }
    if run.labels is not None:
        shown["label"] = class_name(int(run.labels[i]), run.classes)
    return shown
