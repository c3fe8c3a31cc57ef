"""Segmentation tasks: their settings, and the scenes that they read."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from pseudocal.arrays import InputError
from pseudocal.lab.bench.task import Task
from pseudocal.lab.data import Scenes, scenes

OPTIONS: dict[str, Any] = {
    "batch": 8,  # scenes per training step
    "lr": 0.1,
    "pixels_per_image": 2000,  # pixels to fit on
    "scenes": 150,  # scenes of a target
}
SHARE = 0.75  # the share of a source's scenes to train on; TempScal uses the rest


def check_settings(task: Task) -> None:
    """Refuse settings that are not valid for a segmenter."""
    from pseudocal.lab.segmentation import NETWORKS  # which loads torch; the list of suites needs none

    if (task.method, task.scenario) != ("source-only", "closed-set"):
        raise InputError(f"expected source-only, closed-set for segmentation, got {task.method}, {task.scenario}")
    if task.backbone not in NETWORKS:
        raise InputError(f"expected a network among {', '.join(NETWORKS)}, got {task.backbone!r}")
    known = [name for name in inspect.signature(NETWORKS[task.backbone]).parameters if name != "classes"]
    for name in network_settings(task):
        if name not in known:
            raise InputError(f"expected settings of {task.backbone} among {', '.join(known)}, got {name!r}")
    if task.backbone != "unet" and task.weights == "default":
        raise InputError(f"expected weights for {task.backbone}, a folder or hub id, or random, got none")
    for name, value in task.options:
        if name not in OPTIONS:
            raise InputError(f"expected options among {', '.join(OPTIONS)}, got {name!r}")
        if not isinstance(value, int | float if name == "lr" else int) or isinstance(value, bool) or value <= 0:
            raise InputError(f"expected {name}, a number above zero, got {value!r}")


def network_settings(task: Task) -> dict[str, Any]:
    """Return the settings of the network that differ from its defaults."""
    asked = {"width": task.width, "weights": None if task.weights in ("default", "random") else task.weights}
    return {name: value for name, value in asked.items() if value is not None}


def check_segmentation(task: Task) -> None:
    """Refuse invalid settings and missing data before anything runs."""
    check_settings(task)
    for name in (task.source, task.target):
        _scenes(name)


def halves(task: Task) -> tuple[Scenes, Scenes]:
    """Split the source's scenes into those to train on and those held out."""
    return _scenes(task.source).split(SHARE, seed=task.seed)


def target_of(task: Task) -> Scenes:
    """Load the target's scenes with their masks."""
    return _scenes(task.target)[: dict(task.options)["scenes"]]


@lru_cache(maxsize=4)
def _scenes(name: str) -> Scenes:
    return scenes(name)[name]
