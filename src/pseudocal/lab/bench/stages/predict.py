"""The second stage: the outputs of a classifier on the target and on the source.

Training has already written most of them, and they are reused; the model only predicts again if
they are missing, for example if this stage is run again. The logits of every pixel are too large to
store, so segmenters skip this stage and the next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from pseudocal.arrays import Inputs, Logits, Predictor
from pseudocal.lab.adapt.backbones import compute_features
from pseudocal.lab.adapt.devices import on_device
from pseudocal.lab.adapt.networks import Network, build_head
from pseudocal.lab.adapt.runs import load_network
from pseudocal.lab.adapt.tensors import Tensors, load_tensors, predict_arrays, save_arrays
from pseudocal.lab.bench.store import Store, load_arrays, save_array
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import (
    View,
    backbone_of,
    domains_of,
    has_frozen_backbone,
    network_inputs,
)
from pseudocal.lab.data import Indexable
from pseudocal.lab.data.cache import NamedArrays
from pseudocal.predictors import as_predictor

TRAINED_FRACTION = 0.8  # of the source, as in `pseudocal.lab.adapt.train`


def predict_outputs(task: Task, store: Store) -> None:
    """Write the model's outputs on the target and, unless the task is source-free, on the source.

    The target's last.
    """
    if task.scenario != "source-free":
        write_outputs("source_val", task, store)
        write_outputs("source_train", task, store)
    save_array(store.folder(task) / "target_labels.npy", domains_of(task, store)[1].labels)
    write_outputs("target", task, store)


def write_outputs(name: str, task: Task, store: Store) -> None:
    """Write one file of outputs.

    Those that training has left, or else what the model predicts now.
    """
    folder = store.folder(task)
    trained = folder / "training" / f"{name}.npz"
    outputs = load_arrays(trained) if trained.exists() else _outputs(name, task, store)
    if name == "source_train":  # density ratios need only the features
        outputs = {"features": outputs["features"]}
    save_arrays(folder / f"{name}.npz", **outputs)


def _outputs(name: str, task: Task, store: Store) -> NamedArrays:
    """Compute what training writes: logits and features, and the labels of the source."""
    network = load_classifier(task, store)
    source, target = domains_of(task, store)
    if name == "target":
        inputs = network_inputs(task, target.inputs, View(), store.device)
        return predict_arrays(network, Tensors(inputs, store.device))
    source_inputs: Any = network_inputs(task, source.inputs, View(), store.device)
    training, held_out = replace(source, inputs=source_inputs).split(
        TRAINED_FRACTION, seed=task.seed
    )
    part = training if name == "source_train" else held_out
    return {**predict_arrays(network, Tensors(part.inputs, store.device)), "labels": part.labels}


def load_classifier(task: Task, store: Store) -> Network:
    """Load the trained part of the network, for evaluation on the device of the store.

    That is the head if the backbone is frozen, and else the whole network.
    """
    folder = store.folder(task)
    if not has_frozen_backbone(task):
        return on_device(load_network(folder), store.device)
    tensors, note = load_tensors(folder / "model.safetensors")
    width = backbone_of(task.backbone, task.weights, task.seed).width
    network = Network(
        nn.Identity(), build_head(note["head"], width, note["width"], len(note["classes"]))
    )
    network.load_state_dict(tensors)
    return network.to(store.device).eval()


def load_whole_network(task: Task, store: Store) -> Network:
    """Load the whole network, from images to logits, also if its backbone is frozen."""
    network = load_classifier(task, store)
    if not has_frozen_backbone(task):
        return network
    backbone = backbone_of(task.backbone, task.weights, task.seed)
    return Network(backbone, network.head).to(store.device).eval()


def image_predictor(task: Task, store: Store) -> Predictor:
    """Return the whole network as a function from images to logits."""
    network = load_classifier(task, store)
    if not has_frozen_backbone(task):
        return as_predictor(network)
    backbone = backbone_of(task.backbone, task.weights, task.seed)

    def predict_images(x: Inputs) -> Logits:
        images = x if x.dtype == np.uint8 else np.asarray(x, dtype=np.float32)
        return all_logits(network, compute_features(backbone, images, device=store.device))

    return predict_images


def all_logits(network: Network, inputs: Indexable) -> Logits:
    """Compute the logits of all inputs."""
    return predict_arrays(network, Tensors(inputs, network.device))["logits"]
