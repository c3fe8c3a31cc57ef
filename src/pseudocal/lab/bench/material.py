"""What each calibrator asks for, read from the store when it does. Target labels are not on offer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from pseudocal.arrays import InputError, Labelled, Logits
from pseudocal.calibrators import CALIBRATORS, Material, Part
from pseudocal.lab.adapt.networks import Head, Network
from pseudocal.lab.bench.heads import load_model
from pseudocal.lab.bench.store import Store, read_arrays
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import View, seen

DROPOUT = 0.5  # in front of the classifier, where a head has no dropout of its own


def material_for(name: str, task: Task, store: Store) -> Material:
    """The parts that a calibrator declares, and no others."""
    return Material(**{part: READERS[part](task, store) for part in CALIBRATORS[name].parts if part in READERS})


def member_logits(task: Task, store: Store) -> list[Logits]:
    """Target logits of the task's ensemble."""
    missing = [each.seed for each in task.members() if not (store.folder(each) / "target.npz").exists()]
    if missing:
        raise InputError(f"expected all members of the ensemble, got none of seed {missing[0]}")
    return [_target(each, store)["logits"] for each in task.members()]


def dropping(network: Network) -> Network:
    """The network with dropout: its own, or a layer in front of the classifier."""
    head = network.head
    if any(isinstance(module, _DropoutNd) and module.p > 0 for module in network.modules()):
        return network
    classifier = nn.Sequential(nn.Dropout(DROPOUT), head.classifier)
    return Network(network.backbone, Head(head.bottleneck, classifier, width=head.width)).eval()


def _target(task: Task, store: Store) -> dict[str, Any]:
    return read_arrays(store.folder(task) / "target.npz")


def _source(task: Task, store: Store, part: str = "source_val.npz") -> dict[str, Any]:
    path: Path = store.folder(task) / part
    if not path.exists():
        raise InputError(f"expected source data, got a {task.scenario} task, which has none")
    return read_arrays(path)


def _labelled_source(task: Task, store: Store) -> Labelled:
    arrays = _source(task, store)
    return Labelled(arrays["logits"], arrays["labels"])


READERS: dict[Part, Callable[[Task, Store], Any]] = {
    "source": _labelled_source,
    "source_features": lambda task, store: _source(task, store)["features"],
    "source_train_features": lambda task, store: _source(task, store, "source_train.npz")["features"],
    "target_features": lambda task, store: _target(task, store)["features"],
    "target_logits": lambda task, store: _target(task, store)["logits"],
    "member_logits": member_logits,
    "model": lambda task, store: dropping(load_model(task, store)),  # MC-Dropout alone asks for it here
    "target_inputs": lambda task, store: seen(task, View(), store.root),
}
