"""The numbers behind the figures, read from the files of the stages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pseudocal.arrays import Floats
from pseudocal.lab.bench.calibrators import SWEEP, sees_labels
from pseudocal.lab.bench.records import Record, unique
from pseudocal.lab.bench.store import Store, load_arrays
from pseudocal.lab.bench.task import Task
from pseudocal.metrics import Outcomes, Reliability


def reliabilities(task: Task, names: Sequence[str], store: Store) -> dict[str, Reliability]:
    """Return the reliability after each calibration."""
    found = load_arrays(store.folder(task) / "reliability.npz")
    return {name: Reliability(found["edges"], *found[name]) for name in names if name in found}


def real_and_pseudo(task: Task, store: Store) -> dict[str, Reliability]:
    """Return the reliability on the real target and on the mixup samples.

    PseudoCal assumes that the two are similar.
    """
    mixup_samples = load_arrays(store.folder(task) / "mixup" / "pseudocal.npz")
    pseudo = Reliability.of(Outcomes.from_logits(mixup_samples["logits"], mixup_samples["labels"]))
    return {"real target": reliabilities(task, ["none"], store)["none"], "pseudo target": pseudo}


@dataclass(frozen=True)
class Training:
    """Error and NLL on the target over the steps of training, as means over tasks."""

    steps: Floats
    error: Floats
    nll: Floats


def trainings(tasks: Sequence[Task], store: Store) -> dict[str, Training]:
    """Return the curves of each method; they need labels, and are only drawn."""
    found = {}
    for method in unique(task.method for task in tasks):
        folders = [store.folder(task) for task in tasks if task.method == method]
        files = [folder / "train.json" for folder in folders]
        curves = [json.loads(file.read_text())["curve"] for file in files if file.exists()]
        # those of one budget
        curves = [curve for curve in curves if curve and len(curve) == len(curves[0])]
        if curves:
            step, error, nll = (
                np.array([[point[key] for point in curve] for curve in curves])
                for key in ("step", "error", "nll")
            )
            found[method] = Training(step[0], error.mean(axis=0), nll.mean(axis=0))
    return found


@dataclass(frozen=True)
class Sweep:
    """ECE as a function of lambda, with hard or with soft labels."""

    lams: Floats
    mean: Floats  # over tasks
    sd: Floats  # over tasks


def sweeps(records: Sequence[Record]) -> dict[str, dict[str, Sweep]]:
    """Return the curves by method, then by the kind of labels."""
    values: dict[tuple[str, str], dict[float, list[float]]] = {}
    for record in records:
        if record.calibrator not in SWEEP:
            continue
        variant = SWEEP[record.calibrator].mixup_variant
        assert variant is not None
        of_curve = values.setdefault((record.task.method, variant.labels), {})
        of_curve.setdefault(variant.lam, []).append(record.ece)
    found: dict[str, dict[str, Sweep]] = {}
    for method in unique(record.task.method for record in records):
        for labels in ("hard", "soft"):
            of_curve = values.get((method, labels), {})
            if of_curve:
                lams = sorted(of_curve)
                means = np.array([np.mean(of_curve[lam]) for lam in lams])
                sds = np.array([np.std(of_curve[lam]) for lam in lams])
                found.setdefault(method, {})[labels] = Sweep(np.array(lams), means, sds)
    return found


def _is_bound(calibrator: str) -> bool:
    """Whether there is nothing to compare.

    The oracles themselves, no calibration, or another model's temperature.
    """
    return sees_labels(calibrator) or calibrator in ("none", "pseudo-ensemble")


def temperatures(records: Sequence[Record]) -> dict[str, tuple[Floats, Floats]]:
    """Return the oracle's and the first fitted temperature of each task, by calibrator."""
    records = [record for record in records if record.repeat == 0]
    best = {record.task: record.temperature for record in records if record.calibrator == "oracle"}
    found = {}
    for name in unique(r.calibrator for r in records if not _is_bound(r.calibrator)):
        both = [
            (best[r.task], r.temperature)
            for r in records
            if r.calibrator == name and r.temperature is not None and best.get(r.task) is not None
        ]
        if both:
            found[name] = (np.array([b for b, _ in both]), np.array([t for _, t in both]))
    return found
