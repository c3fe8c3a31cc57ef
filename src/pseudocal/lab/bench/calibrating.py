"""The fourth and the fifth stage: calibrators, then scores. Target labels are read in the last one alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pseudocal.arrays import Logits
from pseudocal.calibrators import CALIBRATORS, Calibration, calibrate, ensemble, oracle
from pseudocal.files import save_json
from pseudocal.lab.bench.material import material_for, member_logits
from pseudocal.lab.bench.store import Store, read_arrays, save_array
from pseudocal.lab.bench.synthesis import SYNTHESES
from pseudocal.lab.bench.task import Task
from pseudocal.metrics import Outcomes, accuracy, brier, ece, nll
from pseudocal.scaling import TemperatureScaling, fit_temperature

METRICS = {"ece": ece, "nll": nll, "brier": brier, "accuracy": accuracy}


def calibrate_with(task: Task, name: str, store: Store) -> None:
    """Write `calibrations/NAME`: a calibration, or target logits where other predictions are the answer."""
    folder = store.folder(task) / "calibrations"
    folder.mkdir(exist_ok=True)
    if name in SYNTHESES:
        _of_mixes(task, name, store).save(folder / f"{name}.json")
        return
    settings = {"seed": task.seed} if name == "mc-dropout" else {}
    corrected = calibrate(name, material_for(name, task, store), **settings)
    if corrected.calibration is not None:
        corrected.calibration.save(folder / f"{name}.json")
    else:
        save_array(folder / f"{name}.npy", corrected.logits)


def _of_mixes(task: Task, name: str, store: Store) -> Calibration:
    mixes = read_arrays(store.folder(task) / "mixes" / f"{name}.npz")
    how = SYNTHESES[name]
    settings = {"strategy": how.strategy, "lam": how.lam, "labels": how.labels, "seed": task.seed}
    scaling = fit_temperature(mixes["logits"], mixes["labels"])
    return Calibration(name, scaling, settings, {"mixes": len(mixes["labels"])})


def score(task: Task, store: Store) -> None:
    """Fit the oracle, then write the metrics of all calibrations that are there."""
    folder = store.folder(task)
    labels = np.load(folder / "target_labels.npy", allow_pickle=False)
    logits = read_arrays(folder / "target.npz")["logits"]
    oracle(logits, labels).save(folder / "calibrations" / "oracle.json")
    scores: dict[str, dict[str, float | None]] = {}
    for path in sorted((folder / "calibrations").iterdir()):
        if not path.name.endswith(".error.json"):
            outcomes = Outcomes.from_logits(corrected_logits(task, path.stem, store), labels)
            metrics = {metric: function(outcomes) for metric, function in METRICS.items()}
            scores[path.stem] = {**metrics, "temperature": temperature_in(path)}
    save_json(folder / "scores.json", dict(sorted(scores.items())))


def corrected_logits(task: Task, name: str, store: Store) -> Logits:
    """Target logits after a calibration."""
    path = store.folder(task) / "calibrations" / f"{name}.npy"
    if path.exists():
        corrected: Logits = np.load(path, allow_pickle=False)
        return corrected
    together = name in SYNTHESES and SYNTHESES[name].together
    before = ensemble(member_logits(task, store)) if together else _target_logits(task, store)
    return Calibration.load(path.with_suffix(".json"))(before)


def temperature_in(path: Path) -> float | None:
    """The temperature of a calibration's file, if it is one."""
    scaling = Calibration.load(path).scaling if path.suffix == ".json" else None
    return scaling.temperature if isinstance(scaling, TemperatureScaling) else None


def title_of(name: str) -> str:
    """How tables call a calibrator."""
    return SYNTHESES[name].title if name in SYNTHESES else CALIBRATORS[name].title


def _target_logits(task: Task, store: Store) -> Logits:
    logits: Logits = read_arrays(store.folder(task) / "target.npz")["logits"]
    return logits
