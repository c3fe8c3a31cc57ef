"""The first two stages: train a model, and let it speak of the target and of its source."""

from __future__ import annotations

import shutil
from dataclasses import asdict

import numpy as np
from torch import Tensor, nn

from pseudocal.arrays import Inputs, Logits, Predictor
from pseudocal.files import save_json
from pseudocal.lab.adapt.backbones import Choice
from pseudocal.lab.adapt.features import compute_features
from pseudocal.lab.adapt.files import load_tensors, save_arrays, save_tensors
from pseudocal.lab.adapt.heads import build_head
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.rows import Indexable, Rows, predict_arrays
from pseudocal.lab.adapt.runs import load_network
from pseudocal.lab.adapt.train import train
from pseudocal.lab.bench.domains import domains_of
from pseudocal.lab.bench.store import Store, save_array
from pseudocal.lab.bench.task import Task
from pseudocal.lab.bench.views import View, backbone_of, features, is_frozen, seen
from pseudocal.lab.data import Domain
from pseudocal.predictors import as_predictor


def train_head(task: Task, store: Store) -> None:
    """Train the task's model; the target's labels give the curve alone, which nothing depends on."""
    folder = store.start(task)
    source, target = domains_of(task, store.root)
    trained = train(
        source,
        target.unlabelled(),
        method=task.method,
        preset=task.preset,
        out=folder / "training",
        backbone=Choice(task.backbone, task.weights),
        frozen=is_frozen(task),
        seed=task.seed,
        iterations=task.iterations,
        width=task.width,
        options=dict(task.options),
        evaluate=target if isinstance(target.inputs, np.ndarray) else None,  # where it costs next to nothing
    )
    tensors, note = load_tensors(trained.out / "model.safetensors")
    save_tensors(folder / "model.safetensors", _trained_part(tensors, task), note)
    save_json(folder / "train.json", {"curve": [asdict(point) for point in trained.curve]})
    shutil.rmtree(trained.out)


def predict(task: Task, store: Store) -> None:
    """Write the model's outputs on the target, as it is and mirrored, and on the source."""
    folder, network = store.folder(task), load_model(task, store)
    source, target = domains_of(task, store.root)
    if task.scenario != "source-free":
        learnt, held_out = source_inputs(task, source).split(0.8, seed=task.seed)  # as in training
        outputs = predict_arrays(network, Rows(held_out.inputs))
        save_arrays(folder / "source_val.npz", **outputs, labels=held_out.labels)
        train_features = predict_arrays(network, Rows(learnt.inputs))["features"]
        save_arrays(folder / "source_train.npz", features=train_features)
    save_array(folder / "target_labels.npy", target.labels)
    flipped = logits_of(network, seen(task, View("flipped"), store.root))
    real = predict_arrays(network, Rows(seen(task, View(), store.root)))
    save_arrays(folder / "target.npz", **real, flipped=flipped)


def source_inputs(task: Task, source: Domain) -> Domain:
    """The source as the trained part of the network sees it."""
    if not is_frozen(task):
        return source
    return Domain(source.name, features(task, source.inputs, View()), source.labels, source.classes)


def load_model(task: Task, store: Store) -> Network:
    """The part of the network that was trained, in evaluation mode: on features above a frozen backbone, else whole."""
    folder = store.folder(task)
    if not is_frozen(task):
        return load_network(folder)
    tensors, note = load_tensors(folder / "model.safetensors")
    width = backbone_of(task.backbone, task.weights, task.seed).width
    network = Network(nn.Identity(), build_head(note["head"], width, note["width"], len(note["classes"])))
    network.load_state_dict(tensors)
    return network.eval()


def of_images(task: Task, store: Store) -> Predictor:
    """The whole network, from images to logits."""
    network = load_model(task, store)
    if not is_frozen(task):
        return as_predictor(network)
    backbone = backbone_of(task.backbone, task.weights, task.seed)

    def predict_images(x: Inputs) -> Logits:
        pixels = x if x.dtype == np.uint8 else np.asarray(x, dtype=np.float32)
        return logits_of(network, compute_features(backbone, pixels))

    return predict_images


def logits_of(network: Network, inputs: Indexable) -> Logits:
    """Logits of all rows."""
    return predict_arrays(network, Rows(inputs))["logits"]


def _trained_part(tensors: dict[str, Tensor], task: Task) -> dict[str, Tensor]:
    return {name: t for name, t in tensors.items() if name.startswith("head.") or not is_frozen(task)}
