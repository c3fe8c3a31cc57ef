"""Train an adapted classifier: labelled source, unlabelled target, a method by name.

    trained = train(source, target.unlabelled(), method="mcc", out="runs/mcc")
    model = trained.load()                  # images with values 0 to 255 in, logits out
    np.load(trained.target)["logits"]       # what a calibrator needs, without target labels

`shot` and `dine` are the source-free halves by themselves: one takes a model, the other a black box's outputs, and
neither has a parameter through which source data could come in.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, softmax
from pseudocal.lab.adapt.backbones import Backbone, Choice, build_backbone
from pseudocal.lab.adapt.fit import Run, Stage, check_options, fit, is_frozen
from pseudocal.lab.adapt.heads import build_head
from pseudocal.lab.adapt.loop import Report, seeded
from pseudocal.lab.adapt.method import Preset
from pseudocal.lab.adapt.methods import METHODS
from pseudocal.lab.adapt.methods.dine import FINE_TUNE
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.runs import Trained
from pseudocal.lab.data import Domain, Unlabelled


def train(
    source: Domain,
    target: Unlabelled,
    *,
    method: str = "mcc",
    preset: str = "paper",
    out: Path | str,
    backbone: Choice | str = "efficientnet-lite0",
    frozen: bool | None = None,
    seed: int = 0,
    iterations: int = 1000,
    width: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    options: dict[str, Any] | None = None,
    evaluate: Domain | None = None,
    cache: Path | None = None,
    checkpoint_every: int = 250,
    device: str = "cpu",
    progress: Report | None = None,
) -> Trained:
    """Train on 80 percent of the source and on the target without labels; the last iterate is kept.

    Started again on the same folder, it goes on where it was killed, or returns what is finished. `width`, `batch`,
    `lr` and `options` change single settings of the preset. Source-free methods train a source model first, in
    `out/source`, and see no more of the source than that model (SHOT) or its outputs (DINE).
    """
    run = Run(Path(out), seed, iterations, frozen, cache, evaluate, progress, checkpoint_every, device)
    chosen = check_options(_adjusted(find_preset(method, preset), width, batch, lr), options)
    with seeded(seed):
        body = build_backbone(backbone)
    run = replace(run, frozen=is_frozen(run, body))
    if method == "shot":
        return _train_shot(source, target, body, chosen, run)
    if method == "dine":
        return _train_dine(source, target, body, chosen, run)
    return _train_pair(source, target, body, method, chosen, run)


def shot(
    model: Network,
    target: Unlabelled,
    run: Run,
    *,
    classes: tuple[str, ...],
    preset: str = "paper",
    options: dict[str, Any] | None = None,
) -> Trained:
    """Adapt a source model to the target without source data (SHOT); the model itself is left as it is.

    `Preset.head` and `width` must be those of the model, which `train` sees to: its `shot` source preset.
    """
    return _shot(model, target, run, classes, check_options(find_preset("shot", preset), options))


def dine(
    probabilities: ArrayLike,
    target: Unlabelled,
    run: Run,
    *,
    classes: tuple[str, ...],
    backbone: Choice | str = "efficientnet-lite0",
    preset: str = "paper",
    options: dict[str, Any] | None = None,
) -> Trained:
    """Learn from a black box's probabilities on the target, one row for each target row (DINE)."""
    with seeded(run.seed):
        body = build_backbone(backbone)
    return _dine(probabilities, target, body, run, classes, check_options(find_preset("dine", preset), options))


def find_preset(method: str, preset: str) -> Preset:
    """Look up a method's preset by name."""
    if method not in METHODS:
        raise InputError(f"expected a method among {', '.join(METHODS)}, got {method!r}")
    if preset not in METHODS[method]:
        raise InputError(f"expected a preset of {method} among {', '.join(METHODS[method])}, got {preset!r}")
    return METHODS[method][preset]


def _adjusted(preset: Preset, width: int | None, batch: int | None, lr: float | None) -> Preset:
    changes: dict[str, Any] = {"width": width, "batch": batch, "lr": lr}
    return replace(preset, **{name: value for name, value in changes.items() if value is not None})


def _train_pair(source: Domain, target: Unlabelled, body: Backbone, method: str, preset: Preset, run: Run) -> Trained:
    if preset.head == "pair" and is_frozen(run, body):
        preset = replace(preset, head="bottleneck-pair")  # MCD's generator must have something to train
    network = _network(body, preset, len(source.classes), run.seed)
    return fit(network, Stage(method, preset, source.classes, {}), run, target=target, source=source)


def _train_shot(source: Domain, target: Unlabelled, body: Backbone, preset: Preset, run: Run) -> Trained:
    before = _adjusted(find_preset("source-only", "shot"), preset.width, preset.batch, preset.lr)
    first = _train_pair(source, target, body, "source-only", before, run.within("source"))
    return _shot(first.load(), target, run, source.classes, preset)


def _shot(model: Network, target: Unlabelled, run: Run, classes: tuple[str, ...], preset: Preset) -> Trained:
    network = copy.deepcopy(model)
    if is_frozen(run, network.backbone) and not list(network.head.bottleneck.parameters()):  # type: ignore[arg-type]
        raise InputError("expected a model with a bottleneck to adapt above its frozen backbone, got none")
    return fit(network, Stage("shot", preset, classes, {}), run, target=target)


def _train_dine(source: Domain, target: Unlabelled, body: Backbone, preset: Preset, run: Run) -> Trained:
    before = _adjusted(find_preset("source-only", "dine"), None, preset.batch, preset.lr)
    first = _train_pair(source, target, copy.deepcopy(body), "source-only", before, run.within("source"))
    with np.load(first.target, allow_pickle=False) as outputs:
        probabilities = softmax(outputs["logits"])
    return _dine(probabilities, target, body, run, source.classes, preset)


def _dine(
    probabilities: ArrayLike, target: Unlabelled, body: Backbone, run: Run, classes: tuple[str, ...], preset: Preset
) -> Trained:
    teacher = np.asarray(probabilities, dtype=np.float32)
    expected = (len(target.inputs), len(classes))
    if teacher.shape != expected or not np.allclose(teacher.sum(axis=1), 1, atol=1e-3):
        raise InputError(f"expected probabilities of shape {expected} with rows that sum to one, got {teacher.shape}")
    run = replace(run, frozen=is_frozen(run, body))
    network = _network(body, preset, len(classes), run.seed)
    stage = Stage("distil", preset, classes, {"probabilities": torch.from_numpy(teacher)})
    distilled = fit(network, stage, run.within("distil"), target=target)
    tune = replace(FINE_TUNE, head=preset.head, width=preset.width, batch=preset.batch, lr=preset.lr)
    return fit(distilled.load(), Stage("dine", tune, classes, {}), run, target=target)


def _network(body: Backbone, preset: Preset, classes: int, seed: int) -> Network:
    with seeded(seed):
        return Network(body, build_head(preset.head, body.width, preset.width, classes))
