"""The fifth stage: the oracle and the metrics. Only this stage reads target labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Logits
from pseudocal.calibrators import Calibration, ensemble
from pseudocal.files import save_json
from pseudocal.lab.adapt.tensors import save_arrays
from pseudocal.lab.analyses import calibrated_ece, chance_correspondence
from pseudocal.lab.bench.calibrators import find_compared
from pseudocal.lab.bench.segmentation_tasks import target_scenes
from pseudocal.lab.bench.stages.calibrate import (
    PART_READERS,
    Fitted,
    calibrate_listed,
    checked_fit,
    load_fitted_segmenter,
    save_fitted,
)
from pseudocal.lab.bench.stages.estimators import refine_with_labels
from pseudocal.lab.bench.stages.mixup import estimates_path
from pseudocal.lab.bench.store import Store, load_arrays
from pseudocal.lab.bench.task import Task
from pseudocal.lab.segmentation import load_segmenter
from pseudocal.lab.segmentation.comparison import evaluate_ensemble, evaluate_maps, fit_oracle
from pseudocal.metrics import Metric, Outcomes, Reliability, accuracy, brier, ece, nll
from pseudocal.predictors import as_predictor
from pseudocal.scaling import TemperatureScaling

CLASSIFIER_METRICS: dict[str, Metric] = {
    "ece": ece,
    "nll": nll,
    "brier": brier,
    "accuracy": accuracy,
}


class Scored(NamedTuple):
    """The metrics after one calibration, its temperature if it has one, and its reliability."""

    metrics: dict[str, float]
    temperature: float | None
    reliability: Reliability


def calibrate_with_labels(task: Task, name: str, store: Store) -> None:
    """Fit a calibrator that sees target labels."""
    if task.segments:
        path = store.folder(task) / "calibrations" / f"{name}.json"
        model = load_fitted_segmenter(task, store)
        per_image = dict(task.options)["pixels_per_image"]
        fit_oracle(model, target_scenes(task, store), per_image, task.seed).save(path)
        return
    save_fitted(task, name, fit_with_labels(task, name, store), store)


def fit_with_labels(task: Task, name: str, store: Store) -> Fitted:
    """Fit a calibrator that sees target labels to the outputs of a classifier.

    Args:
        task: the task.
        name: the name of the calibrator, as a suite has it.
        store: the output folder; nothing is written to it.

    """
    if find_compared(name).needs_second:
        labels = _target_labels(task, store)
        path = estimates_path(task, name, store)
        return refine_with_labels(task, name, path, lambda rows: labels[rows], store)
    corrected = calibrate_listed(task, name, store, {"target_labels": _target_labels})
    return checked_fit(task, name, corrected, store)


def _target_labels(task: Task, store: Store) -> NDArray[Any]:
    labels: NDArray[Any] = np.load(store.folder(task) / "target_labels.npy", allow_pickle=False)
    return labels


def score_calibrations(task: Task, store: Store) -> None:
    """Write the metrics of all calibrations."""
    folder = store.folder(task)
    if task.segments:
        found = _segmenter_scores(task, store)
    else:
        found = _classifier_scores(task, store)
    bins = {name: each.reliability for name, each in sorted(found.items())}
    sums = {
        name: np.stack([each.count, each.confidence_sum, each.correct_sum])
        for name, each in bins.items()
    }
    save_arrays(folder / "reliability.npz", edges=next(iter(bins.values())).edges, **sums)
    scores = {
        name: {**each.metrics, "temperature": each.temperature}
        for name, each in sorted(found.items())
    }
    save_json(folder / "scores.json", scores)


def _classifier_scores(task: Task, store: Store) -> dict[str, Scored]:
    found = {}
    for path in _calibrations(store.folder(task)):
        found[path.stem] = score_fitted(task, path.stem, load_fitted(path), store)
    return found


def load_fitted(path: Path) -> Fitted:
    """Read what a calibrator found: a calibration, or corrected logits."""
    if path.suffix == ".json":
        return Calibration.load(path)
    logits: Logits = np.load(path, allow_pickle=False)
    return logits


def score_fitted(task: Task, name: str, fitted: Fitted, store: Store) -> Scored:
    """Score what a calibrator found for a classifier.

    Args:
        task: the task.
        name: the name of the calibrator, as a suite has it.
        fitted: its calibration, or corrected logits.
        store: the output folder; nothing is written to it.

    """
    folder = store.folder(task)
    labels = _target_labels(task, store)
    logits = load_arrays(folder / "target.npz")["logits"]
    if not isinstance(fitted, Calibration):
        corrected = fitted
    elif find_compared(name).needs_ensemble:
        corrected = fitted(ensemble(PART_READERS["member_logits"](task, store)))
    else:
        corrected = fitted(logits)
    outcomes = Outcomes.from_logits(corrected, labels)
    reliability = Reliability.of(outcomes)
    metrics = {key: metric(outcomes) for key, metric in CLASSIFIER_METRICS.items()}
    metrics["resolution"] = calibrated_ece(reliability)
    metrics |= _correspondence(folder / "mixup" / f"{name}.npz", logits, labels)
    return Scored(metrics, _temperature(fitted), reliability)


def _correspondence(path: Path, logits: Logits, labels: NDArray[Any]) -> dict[str, float]:
    """How often a mixup sample is right exactly when the real input of its larger part is.

    The chance level is that rate for two independent events with the same accuracies.
    """
    if not path.exists():
        return {}
    samples = load_arrays(path)
    if "first" not in samples:  # the ablation's other mixup variants keep no row numbers
        return {}
    first = samples["first"]
    right = logits[first].argmax(axis=1) == labels[first]
    right_mixed = samples["logits"].argmax(axis=1) == samples["labels"]
    rate = float(np.mean(right))
    rate_mixed = float(np.mean(right_mixed))
    return {
        "correspondence": float(np.mean(right == right_mixed)),
        "chance": chance_correspondence(rate, rate_mixed),
    }


def _segmenter_scores(task: Task, store: Store) -> dict[str, Scored]:
    folder = store.folder(task)
    target = target_scenes(task, store)
    model = load_segmenter(store.folder(task.training)).to(store.device)
    paths = [path for path in _calibrations(folder) if path.stem != "ensemble"]
    temperatures = [Calibration.load(path).temperature for path in paths]
    seen = evaluate_maps(as_predictor(model), target, temperatures=temperatures)
    found = {
        path.stem: Scored(each.score(), temperature, each.reliability)
        for path, temperature, each in zip(paths, temperatures, seen, strict=True)
    }
    if (folder / "calibrations" / "ensemble.json").exists():
        members = [
            load_segmenter(store.folder(member.training)).to(store.device)
            for member in store.members(task)
        ]
        together = evaluate_ensemble(members, target)
        found["ensemble"] = Scored(together.score(), None, together.reliability)
    return found


def _calibrations(folder: Path) -> list[Path]:
    """List the results of calibrators, without the error files of those that failed."""
    return sorted(
        path
        for path in (folder / "calibrations").iterdir()
        if path.suffix in (".json", ".npy") and not path.name.endswith(".error.json")
    )


def _temperature(fitted: Fitted) -> float | None:
    if isinstance(fitted, Calibration) and isinstance(fitted.scaling, TemperatureScaling):
        return fitted.scaling.temperature
    return None
