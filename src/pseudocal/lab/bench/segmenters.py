"""Models of tasks of segmentation.

A segmenter is trained on its source alone, so that all targets of a source and seed share one. It lies in the folder of
a task with the target "any":

    OUT/tasks/scenes/closed-set/SOURCE-any/source-only/SEED-HASH/      settings.json, model.safetensors, times.json
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import nn

from pseudocal.arrays import InputError
from pseudocal.lab.bench import stages
from pseudocal.lab.bench.stages import reported
from pseudocal.lab.bench.store import Store, alone, timed
from pseudocal.lab.bench.task import Task
from pseudocal.lab.data import Scenes, scenes
from pseudocal.lab.segmentation import NETWORKS, SegmenterRun, load_segmenter, train_segmenter

TRAINING = {"batch": 8, "lr": 0.1}
OPTIONS = {**TRAINING, "pixels": 2000, "scenes": 150}  # pixels of an image to fit on, scenes of a target
SHARE = 0.75  # of a source's scenes that are trained on; TempScal has the others


def training_of(task: Task) -> Task:
    """The training that a task shares with all that have another target or other pixels.

    >>> noto = Task("scenes", "noto", "fluent", options=tuple(OPTIONS.items()))
    >>> training_of(noto) == training_of(replace(noto, target="twemoji"))
    True
    """
    return replace(task, target="any", options=tuple((name, dict(task.options)[name]) for name in TRAINING))


def check_settings(task: Task) -> None:
    """Refuse what a segmenter cannot be."""
    if (task.method, task.scenario) != ("source-only", "closed-set"):
        raise InputError(f"expected source-only, closed-set for segmentation, got {task.method}, {task.scenario}")
    if task.backbone not in NETWORKS:
        raise InputError(f"expected a network among {', '.join(NETWORKS)}, got {task.backbone!r}")
    known = [name for name in inspect.signature(NETWORKS[task.backbone]).parameters if name != "classes"]
    for name in _network_settings(task):
        if name not in known:
            raise InputError(f"expected settings of {task.backbone} among {', '.join(known)}, got {name!r}")
    for name, value in task.options:
        if name not in OPTIONS:
            raise InputError(f"expected options among {', '.join(OPTIONS)}, got {name!r}")
        if not isinstance(value, int | float if name == "lr" else int) or isinstance(value, bool) or value <= 0:
            raise InputError(f"expected {name}, a number above zero, got {value!r}")


def check(task: Task, store: Store) -> None:
    """Refuse, before anything runs, settings that make no sense and data that are not there."""
    check_settings(task)
    for name in (task.source, task.target):
        _scenes(name)


def shared(models: Sequence[Task], tasks: Sequence[Task], calibrators: Sequence[str]) -> list[Task]:
    """Each training once."""
    return list(dict.fromkeys(map(training_of, models)))


def train(job: Task, store: Store) -> None:
    """Train a segmenter, unless it is there."""
    folder = store.folder(job)
    with alone(folder):
        if not (folder / "model.safetensors").exists():
            with timed(folder, "train"):
                _train(job, store.start(job))
        shutil.rmtree(folder / "training", ignore_errors=True)


def _train(job: Task, folder: Path) -> None:
    options = dict(job.options)
    trained = train_segmenter(
        halves(job)[0],
        SegmenterRun(
            folder / "training",
            seed=job.seed,
            iterations=job.iterations,
            batch=options["batch"],
            lr=options["lr"],
        ),
        network=job.backbone,
        settings=_network_settings(job),
    )
    (trained.out / "model.safetensors").replace(folder / "model.safetensors")


def ensure_model(task: Task, store: Store) -> None:
    """Train the task's segmenter if that failed before, and write down what goes wrong."""
    folder = store.start(task)
    with alone(folder), reported(folder, "train"):
        train(training_of(task), store)


def has_model(task: Task, store: Store) -> bool:
    """Whether the task's segmenter is trained, and nothing left over of its training."""
    folder = store.folder(training_of(task))
    return (folder / "model.safetensors").exists() and not (folder / "training").exists()


def forget(task: Task, store: Store, stage: str) -> None:
    """Remove what a stage and those after it wrote, the shared training too if it is the first."""
    stages.forget(task, store, stage)
    if stage == "train":
        stages.forget(training_of(task), store, stage)


def load_model(task: Task, store: Store) -> nn.Module:
    """The task's segmenter in evaluation mode."""
    return load_segmenter(store.folder(training_of(task)))


def members(task: Task, store: Store) -> list[nn.Module]:
    """The segmenters of the task's ensemble."""
    missing = [member.seed for member in task.members() if not has_model(member, store)]
    if missing:
        raise InputError(f"expected all members of the ensemble, got none of seed {missing[0]}")
    return [load_model(member, store) for member in task.members()]


def _network_settings(task: Task) -> dict[str, Any]:
    """What was asked for of the network; the names of random weights ask for nothing."""
    asked = {"width": task.width, "weights": None if task.weights in ("default", "random") else task.weights}
    return {name: value for name, value in asked.items() if value is not None}


def halves(task: Task) -> tuple[Scenes, Scenes]:
    """The source's scenes that are trained on, and those held out."""
    return _scenes(task.source).split(SHARE, seed=task.seed)


def target_of(task: Task) -> Scenes:
    """The target's scenes with their masks."""
    return _scenes(task.target)[: dict(task.options)["scenes"]]


@lru_cache(maxsize=4)
def _scenes(name: str) -> Scenes:
    return scenes(name)[name]
