"""Segmentation tasks: their settings, and the scenes that they read."""

from __future__ import annotations

import inspect
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pseudocal.arrays import InputError
from pseudocal.lab.bench.task import Task
from pseudocal.lab.data import Scenes, scenes, streets

if TYPE_CHECKING:  # which loads torch; the list of suites needs none
    from pseudocal.lab.bench.store import Store

OPTIONS: dict[str, dict[str, Any]] = {  # by data set
    "scenes": {
        "batch": 8,  # scenes per training step
        "lr": 0.1,
        "pixels_per_image": 2000,  # pixels to fit on
        "scenes": 150,  # scenes of a target, and at most of the source to fit on
    },
    "street-scenes": {
        "batch": 2,
        "lr": 2.5e-3,
        "pixels_per_image": 20_000,
        "scenes": 500,
        # of the target's frames in pixels; those of the sources are resized in proportion
        "height": 512,
        "backbone_scale": 0.1,  # the backbone's learning rate relative to the head's
    },
}
TRAINED_FRACTION = 0.75  # of a source's scenes; TempScal uses the rest
# Height and width, as AdaptSegNet has them.
FRAME_SIZES = {"cityscapes": (512, 1024), "gta5": (720, 1280), "synthia": (760, 1280)}
STREET_CLASS_COUNTS = {"gta5": 19, "synthia": 16}


def check_settings(task: Task) -> None:
    """Refuse settings that are not valid for a segmenter."""
    from pseudocal.lab.segmentation import NETWORKS  # loads torch; the list of suites needs none

    if (task.method, task.scenario) != ("source-only", "closed-set"):
        raise InputError(
            f"expected source-only, closed-set for segmentation, got {task.method}, {task.scenario}"
        )
    if task.data == "street-scenes" and (
        task.source not in STREET_CLASS_COUNTS or task.target != "cityscapes"
    ):
        raise InputError(
            f"expected gta5 or synthia as the source and cityscapes as the target, got {task.pair}"
        )
    if task.backbone not in NETWORKS:
        raise InputError(f"expected a network among {', '.join(NETWORKS)}, got {task.backbone!r}")
    known = [
        name for name in inspect.signature(NETWORKS[task.backbone]).parameters if name != "classes"
    ]
    for name in network_settings(task):
        if name not in known:
            raise InputError(
                f"expected settings of {task.backbone} among {', '.join(known)}, got {name!r}"
            )
    if task.backbone != "unet" and task.weights == "default":
        raise InputError(
            f"expected weights for {task.backbone}: {WEIGHTS_OF[task.backbone]}, or random, got "
            "none"
        )
    for name, value in task.options:
        known = [*OPTIONS[task.data], "full_size"]
        if name not in known:
            raise InputError(f"expected options among {', '.join(known)}, got {name!r}")
        if name == "full_size":
            if not isinstance(value, bool):
                raise InputError(f"expected full_size to be true or false, got {value!r}")
            continue
        kind = int | float if name in ("lr", "backbone_scale") else int
        if not isinstance(value, kind) or isinstance(value, bool) or value <= 0:
            raise InputError(f"expected {name}, a number above zero, got {value!r}")


WEIGHTS_OF = {
    "segformer": "a folder or hub id",
    "deeplab": "a state dict of a ResNet-101, such as torchvision's resnet101-63fe2227.pth",
}


def network_settings(task: Task) -> dict[str, Any]:
    """Return the settings of the network that differ from its defaults."""
    from pseudocal.lab.adapt.weights import paper_file  # which loads torch

    settings: dict[str, Any] = {}
    if task.width is not None:
        settings["width"] = task.width
    if task.weights not in ("default", "random"):
        settings["weights"] = task.weights
        if task.backbone == "deeplab":
            settings["weights"] = paper_file("resnet101", task.weights)
    return settings


def check_segmentation(task: Task, store: Store) -> None:
    """Refuse invalid settings, missing weights and missing data before anything runs."""
    check_settings(task)
    weights = network_settings(task).get("weights")
    if task.backbone == "deeplab" and weights is not None and not Path(weights).is_file():
        raise InputError(
            f"expected {WEIGHTS_OF['deeplab']}, or a folder that has it, got {weights}"
        )
    for name in (task.source, task.target):
        _scenes(task, name, store)


def split_source(task: Task, store: Store) -> tuple[Scenes, Scenes]:
    """Split the source's scenes into those to train on and those held out.

    No more are held out than a target has.
    """
    training, held_out = _scenes(task, task.source, store).split(TRAINED_FRACTION, seed=task.seed)
    return training, held_out[: dict(task.options).get("scenes", len(held_out))]


def target_scenes(task: Task, store: Store) -> Scenes:
    """Load the target's scenes with their masks."""
    return _scenes(task, task.target, store)[: dict(task.options)["scenes"]]


def _scenes(task: Task, name: str, store: Store) -> Scenes:
    if task.data == "scenes":
        return _built_in(name)
    scale = dict(task.options)["height"] / FRAME_SIZES["cityscapes"][0]
    height, width = (round(side * scale) for side in FRAME_SIZES[name])
    return _streets(name, store.place(task.data), STREET_CLASS_COUNTS[task.source], (height, width))


@lru_cache(maxsize=4)
def _built_in(name: str) -> Scenes:
    return scenes(name)[name]


@lru_cache(maxsize=4)
def _streets(name: str, root: Path | None, classes: int, size: tuple[int, int]) -> Scenes:
    """Read one of the data sets in the root's folder of that name, in any spelling of its case."""
    if root is None or not root.is_dir():
        raise InputError(f"expected root, a folder with {', '.join(FRAME_SIZES)} in it, got {root}")
    found = [
        each
        for each in root.iterdir()
        if each.is_dir() and each.name.lower() in (name, f"{name}-rand-cityscapes")
    ]
    if not found:
        names = ", ".join(sorted(path.name for path in root.iterdir()))
        raise InputError(f"expected a folder {name} in {root}, got {names}")
    return streets(name, found[0], classes=classes, size=size)
