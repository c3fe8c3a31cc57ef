"""What is done for a task, stage by stage; what is there already is not done again.

A stage that fails leaves `error.json` behind and is tried again in the next run. Calibrators fail one by one: a model
that collapsed cannot be mixed, but still be scaled.
"""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pseudocal.arrays import InputError
from pseudocal.files import save_json
from pseudocal.lab.bench.calibrating import calibrate_with, score
from pseudocal.lab.bench.heads import predict, train_head
from pseudocal.lab.bench.store import Store, alone, timed
from pseudocal.lab.bench.synthesis import SYNTHESES, synthesise
from pseudocal.lab.bench.task import Task

STAGES = ("train", "predict", "synthesise", "calibrate", "score")
FILES: dict[str, tuple[str, ...]] = {
    "train": ("settings.json", "training", "model.safetensors", "train.json"),
    "predict": ("source_val.npz", "source_train.npz", "target_labels.npy", "target.npz"),
    "synthesise": ("mixes",),
    "calibrate": ("calibrations",),
    "score": ("scores.json", "reliability.npz", "error.json"),
}


def train_and_predict(task: Task, store: Store) -> None:
    """The stages of a model; an ensemble's other members need no more."""
    folder = store.folder(task)
    with alone(folder):
        if not (folder / "train.json").exists():
            with reported(folder, "train"), timed(folder, "train"):
                train_head(task, store)
        if not (folder / "target.npz").exists():
            with reported(folder, "predict"), timed(folder, "predict"):
                predict(task, store)


def calibrate_and_score(task: Task, calibrators: Sequence[str], store: Store) -> None:
    """The stages that compare calibrators."""
    folder, wanted = store.folder(task), [name for name in calibrators if name != "oracle"]
    with alone(folder):
        (folder / "error.json").unlink(missing_ok=True)
        mixes = [n for n in wanted if n in SYNTHESES and not (folder / "mixes" / f"{n}.npz").exists()]
        each(mixes, "synthesise", folder, lambda name: synthesise(task, name, store))
        ready = [n for n in wanted if not _failed(folder, n) and not calibrated(folder, n)]
        each(ready, "calibrate", folder, lambda name: calibrate_with(task, name, store))
        done = {name for name in [*wanted, "oracle"] if calibrated(folder, name)}
        if ready or not done or done - store.scores(task).keys():
            with reported(folder, "score"), timed(folder, "score"):
                score(task, store)


def has_model(task: Task, store: Store) -> bool:
    """Whether the stages of the model are done."""
    return all((store.folder(task) / name).exists() for name in ("train.json", "target.npz"))


def is_compared(task: Task, calibrators: Sequence[str], store: Store) -> bool:
    """Whether all calibrators are scored."""
    return store.error(task) is None and store.scores(task).keys() >= set(calibrators)


def forget(task: Task, store: Store, stage: str) -> None:
    """Remove what a stage and those after it wrote."""
    folder = store.folder(task)
    for name in STAGES[STAGES.index(stage) :]:
        for file in FILES[name]:
            path = folder / file
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@contextmanager
def reported(folder: Path, stage: str) -> Iterator[None]:
    """Write down what goes wrong before it goes on."""
    try:
        yield
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        save_json(folder / "error.json", {"stage": stage, "error": describe(error), "traceback": text})
        raise


def describe(error: Exception) -> str:
    """An error in one line.

    >>> describe(InputError("expected a, got b"))
    'InputError: expected a, got b'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def each(names: list[str], stage: str, folder: Path, do: Callable[[str], None]) -> None:
    """Do something for each calibrator; one that fails leaves a note."""
    if not names:
        return
    with reported(folder, stage), timed(folder, stage):
        for name in names:
            note = folder / "calibrations" / f"{name}.error.json"
            note.unlink(missing_ok=True)
            try:
                do(name)
            except InputError as error:
                save_json(note, {"stage": stage, "error": describe(error)})


def _failed(folder: Path, name: str) -> bool:
    """Whether its synthesis failed just now."""
    return name in SYNTHESES and not (folder / "mixes" / f"{name}.npz").exists()


def calibrated(folder: Path, name: str) -> bool:
    """Whether a calibrator has left its answer."""
    return any((folder / "calibrations" / f"{name}{suffix}").exists() for suffix in (".json", ".npy"))
