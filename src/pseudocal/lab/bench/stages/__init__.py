"""The five stages of a task, in order; a stage whose files exist is skipped.

    train          train the model
    predict        its outputs on the target and on the source
    mixup          mixup samples of the target and their labels, from `PseudoCal.steps`
    calibrate      fit calibrators to the files of the earlier stages
    score          the oracle and the metrics: the only stage that reads target labels

Classification and segmentation tasks go through the same stages; a stage checks `task.segments`
where they differ. A stage that fails writes `error.json` and is tried again in the next run.
Calibrators fail one by one, whatever the error. Each writes `calibrations/NAME.error.json` with its
traceback, and is tried again in the next run or with `--redo calibrate`.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from pseudocal.files import OutputError, save_json
from pseudocal.lab.bench.calibrators import find_compared, sees_labels
from pseudocal.lab.bench.stages.calibrate import calibrate_with, is_outdated, results_of
from pseudocal.lab.bench.stages.mixup import estimates_path, write_mixup_samples
from pseudocal.lab.bench.stages.predict import predict_outputs
from pseudocal.lab.bench.stages.score import calibrate_with_labels, score_calibrations
from pseudocal.lab.bench.stages.train import train_model
from pseudocal.lab.bench.store import Store, alone, read_times
from pseudocal.lab.bench.task import Task

STAGES: dict[str, tuple[str, ...]] = {  # the files that each stage writes
    "train": (
        *("settings.json", "training", "train.json", "train.jsonl", "tensorboard"),
        "model.safetensors",
    ),
    "predict": ("source_val.npz", "source_train.npz", "target_labels.npy", "target.npz"),
    "mixup": ("mixup",),
    "calibrate": ("calibrations",),
    "score": ("scores.json", "reliability.npz", "error.json"),
}


def make_model(task: Task, store: Store) -> None:
    """Run the stages that make a model; the other members of an ensemble need no more."""
    folder = store.folder(task)
    with alone(folder):
        (folder / "error.json").unlink(missing_ok=True)
        if not (folder / "model.safetensors").exists():
            with _stage("train", folder):
                train_model(task, store)
        if not task.segments and not (folder / "target.npz").exists():
            with _stage("predict", folder):
                predict_outputs(task, store)
        shutil.rmtree(folder / "training", ignore_errors=True)


def compare_calibrators(task: Task, calibrators: Sequence[str], store: Store) -> None:
    """Run the stages that compare calibrators on a task whose model exists."""
    folder = store.start(task)
    with alone(folder):
        (folder / "error.json").unlink(missing_ok=True)
        for name in calibrators:
            if is_outdated(folder, name):
                for path in (*results_of(folder, name), folder / "reliability.npz"):
                    path.unlink(missing_ok=True)
        oracles = [name for name in calibrators if sees_labels(name)]
        missing = [
            name for name in calibrators if name not in oracles and not _is_calibrated(folder, name)
        ]
        to_mix = [name for name in calibrators if _lacks_mixup(task, name, store)]
        to_mix = [name for name in to_mix if not _is_calibrated(folder, name)]
        if to_mix:
            with _stage("mixup", folder):
                for name in to_mix:
                    with _noted("mixup", folder, name):
                        write_mixup_samples(task, name, store)
        ready = [name for name in missing if not _lacks_mixup(task, name, store)]
        if ready:
            with _stage("calibrate", folder):
                for name in ready:
                    with _noted("calibrate", folder, name):
                        calibrate_with(task, name, store)
        done = {name for name in calibrators if name in oracles or _is_calibrated(folder, name)}
        is_new = bool(done & set(ready)) or bool(done - store.scores(task).keys())
        if is_new or not (folder / "reliability.npz").exists():
            with _stage("score", folder):
                labelled = [name for name in oracles if not _lacks_mixup(task, name, store)]
                for name in dict.fromkeys(["oracle", *labelled]):
                    with _noted("score", folder, name):
                        calibrate_with_labels(task, name, store)
                score_calibrations(task, store)


def is_compared(task: Task, calibrators: Sequence[str], store: Store) -> bool:
    """Whether all calibrators are scored, those of plugins by their present code."""
    if store.error(task) is not None or not (store.folder(task) / "reliability.npz").exists():
        return False
    if any(is_outdated(store.folder(task), name) for name in calibrators):
        return False
    return store.scores(task).keys() >= set(calibrators)


def forget_stages(task: Task, store: Store, first: str) -> None:
    """Remove the files of a stage and of all later ones, including those of a shared training."""
    names = list(STAGES)
    files = [file for name in names[names.index(first) :] for file in STAGES[name]]
    folders = {store.folder(task)}
    if first == "train":
        folders.add(store.folder(task.training))
    for path in (folder / file for folder in folders for file in files):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _stage(name: str, folder: Path) -> Iterator[None]:
    """Record the error of a stage before it propagates, or else how long the stage took."""
    wall = time.perf_counter()
    cpu = time.process_time()
    try:
        yield
    except Exception as error:
        save_json(folder / "error.json", _record(name, error))
        raise
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    save_json(folder / "times.json", {**read_times(folder), name: spent})


@contextmanager
def _noted(stage: str, folder: Path, calibrator: str) -> Iterator[None]:
    """Record any error of a calibrator, and how long it took; continue with the others.

    Only a full disk stops them: then no other result could be written either.
    """
    note = folder / "calibrations" / f"{calibrator}.error.json"
    cpu = time.process_time()
    note.unlink(missing_ok=True)
    try:
        yield
    except OutputError:
        raise
    except Exception as error:
        save_json(note, _record(stage, error))
        if torch.cuda.is_available():  # a calibrator that ran out of memory leaves it to the next
            torch.cuda.empty_cache()
    times = read_times(folder)
    own = times.setdefault("calibrators", {}).setdefault(calibrator, {})
    own[stage] = time.process_time() - cpu
    save_json(folder / "times.json", times)


def _record(stage: str, error: Exception) -> dict[str, str]:
    text = "".join(traceback.format_exception(error))
    return {"stage": stage, "error": describe(error), "traceback": text}


def describe(error: Exception) -> str:
    """Format an error in one line.

    >>> describe(ValueError("expected a, got b"))
    'ValueError: expected a, got b'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _lacks_mixup(task: Task, name: str, store: Store) -> bool:
    """Whether a calibrator lacks its mixup samples, not made yet or failed."""
    if task.segments:
        return False
    compared = find_compared(name)
    if compared.needs_second:
        return not estimates_path(task, name, store).exists()
    if compared.mixup_variant is None:
        return False
    return not (store.folder(task) / "mixup" / f"{name}.npz").exists()


def _is_calibrated(folder: Path, name: str) -> bool:
    """Whether the result of a calibrator exists."""
    return any(path.exists() for path in results_of(folder, name))
