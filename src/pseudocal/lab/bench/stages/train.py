"""The first stage: train the model of a task.

Target labels are used for the curve only; nothing depends on it.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.models.state_dicts import import_classifier, read_state_dict
from pseudocal.arrays import InputError
from pseudocal.files import replacing, save_json
from pseudocal.lab.adapt.backbones import build_backbone
from pseudocal.lab.adapt.choices import Choice
from pseudocal.lab.adapt.log import EVENTS, LOG_FILE
from pseudocal.lab.adapt.method import Preset
from pseudocal.lab.adapt.networks import Network, build_head
from pseudocal.lab.adapt.runs import save_network
from pseudocal.lab.adapt.stages import TrainingRun
from pseudocal.lab.adapt.tensors import load_tensors, save_tensors
from pseudocal.lab.adapt.training import find_preset, train
from pseudocal.lab.bench.segmentation_tasks import network_settings, split_source
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import domains_of, has_frozen_backbone
from pseudocal.lab.data import Domain
from pseudocal.lab.segmentation import SegmenterRun, train_segmenter

WATCHED = 2000  # images of a target on disk whose error is followed during training


def train_model(task: Task, store: Store) -> None:
    """Write `model.safetensors` last; the next stage reads the folder of the training."""
    if task.checkpoint is not None:
        _import_checkpoint(task, store)
    elif task.segments:
        _train_segmenter(task, store)
    else:
        _train_classifier(task, store)


def _train_classifier(task: Task, store: Store) -> None:
    """Train a classifier; above a frozen backbone only the head is saved."""
    folder = store.start(task)
    source, target = domains_of(task, store)
    frozen = has_frozen_backbone(task)
    trained = train(
        source,
        target.unlabelled(),
        TrainingRun(
            folder / "training",
            seed=task.seed,
            iterations=task.iterations,
            frozen=frozen,
            evaluate=_watched(target, task.seed),
            device=store.device,
            augment=task.augments,
            precision=task.precision,
        ),
        method=task.method,
        preset=preset_of(task),
        backbone=Choice(task.backbone, task.weights),
        width=task.width,
        options=dict(task.options),
    )
    _keep_logs(folder)
    save_json(folder / "train.json", {"curve": [asdict(point) for point in trained.curve]})
    tensors, note = load_tensors(trained.out / "model.safetensors")
    kept = {
        name: tensor for name, tensor in tensors.items() if name.startswith("head.") or not frozen
    }
    save_tensors(folder / "model.safetensors", kept, note)


def _keep_logs(folder: Path) -> None:
    """Keep the logs of all stages of a training, whose folder will be removed."""
    training = folder / "training"
    lines = []
    for stage in (training / "source", training / "distil", training):
        if (stage / LOG_FILE).exists():
            lines.append((stage / LOG_FILE).read_text())
        if (stage / EVENTS).exists():
            shutil.copytree(stage / EVENTS, folder / EVENTS, dirs_exist_ok=True)
    with replacing(folder / "train.jsonl") as aside:
        aside.write_text("".join(lines))


def _watched(target: Domain, seed: int) -> Domain:
    """Return the images for the curve.

    All that are in memory, and a sample of those on disk, which take time.
    """
    if isinstance(target.inputs, np.ndarray) or len(target) <= WATCHED:
        return target
    return target[np.sort(np.random.default_rng(seed).permutation(len(target))[:WATCHED])]


def _import_checkpoint(task: Task, store: Store) -> None:
    """Save somebody's trained classifier as ours; the next stage predicts with it."""
    folder = store.start(task)
    path = str(task.checkpoint).format(seed=task.seed)
    imported = import_classifier(read_state_dict(path), task.backbone)
    classes = domains_of(task, store)[1].classes
    if imported.classes != len(classes):
        raise InputError(
            f"expected a classifier of {len(classes)} classes, got {imported.classes} in {path}"
        )
    backbone = build_backbone(Choice(task.backbone, "random", None, {"normal": imported.normal}))
    head = build_head(imported.head, backbone.width, imported.width, imported.classes)
    network = Network(backbone, head)
    theirs = {
        name: getattr(imported.network, name) for name in ("backbone", "bottleneck", "classifier")
    }
    backbone.trunk.load_state_dict(theirs["backbone"].state_dict())
    head.classifier.load_state_dict(theirs["classifier"].state_dict())
    bottleneck = theirs["bottleneck"][0] if imported.head == "linear" else theirs["bottleneck"]
    head.bottleneck.load_state_dict(bottleneck.state_dict())
    save_json(folder / "train.json", {"curve": [], "checkpoint": path, "about": imported.about})
    save_network(folder, network, head=imported.head, width=imported.width, classes=classes)


def preset_of(task: Task) -> Preset:
    """Return the preset of the task, with its batch and learning rate if it has its own."""
    changes: dict[str, Any] = {"batch": task.batch, "lr": task.lr}
    return replace(
        find_preset(task.method, task.preset),
        **{name: value for name, value in changes.items() if value is not None},
    )


def _train_segmenter(task: Task, store: Store) -> None:
    folder = store.start(task)
    options = dict(task.options)
    trained = train_segmenter(
        split_source(task, store)[0],
        SegmenterRun(
            folder / "training",
            seed=task.seed,
            iterations=task.iterations,
            batch=task.batch or options["batch"],
            lr=task.lr or options["lr"],
            backbone_scale=options.get("backbone_scale", 1.0),
            device=store.device,
            precision=task.precision,
        ),
        network=task.backbone,
        settings=network_settings(task),
    )
    _keep_logs(folder)
    (trained.out / "model.safetensors").replace(folder / "model.safetensors")
