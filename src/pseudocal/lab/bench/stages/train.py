"""The first stage: train the model of a task. Target labels are used for the curve only; nothing depends on it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from pseudocal.files import save_json
from pseudocal.lab.adapt.backbones import Choice
from pseudocal.lab.adapt.stages import TrainingRun
from pseudocal.lab.adapt.tensors import load_tensors, save_tensors
from pseudocal.lab.adapt.training import train
from pseudocal.lab.bench.segmenters import halves, network_settings
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import domains_of, has_frozen_backbone
from pseudocal.lab.segmentation import SegmenterRun, train_segmenter


def train_model(task: Task, store: Store) -> None:
    """Write `model.safetensors` last; the next stage reads the folder of the training."""
    if task.segments:
        _train_segmenter(task, store.start(task))
    else:
        _train_classifier(task, store)


def _train_classifier(task: Task, store: Store) -> None:
    """Train a classifier; above a frozen backbone only the head is saved."""
    folder = store.start(task)
    source, target = domains_of(task, store.root)
    frozen = has_frozen_backbone(task)
    trained = train(
        source,
        target.unlabelled(),
        TrainingRun(
            folder / "training",
            seed=task.seed,
            iterations=task.iterations,
            frozen=frozen,
            evaluate=target if isinstance(target.inputs, np.ndarray) else None,  # only if it costs next to nothing
        ),
        method=task.method,
        preset=task.preset,
        backbone=Choice(task.backbone, task.weights),
        width=task.width,
        options=dict(task.options),
    )
    save_json(folder / "train.json", {"curve": [asdict(point) for point in trained.curve]})
    tensors, note = load_tensors(trained.out / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if name.startswith("head.") or not frozen}
    save_tensors(folder / "model.safetensors", kept, note)


def _train_segmenter(task: Task, folder: Path) -> None:
    options = dict(task.options)
    trained = train_segmenter(
        halves(task)[0],
        SegmenterRun(
            folder / "training",
            seed=task.seed,
            iterations=task.iterations,
            batch=options["batch"],
            lr=options["lr"],
        ),
        network=task.backbone,
        settings=network_settings(task),
    )
    (trained.out / "model.safetensors").replace(folder / "model.safetensors")
