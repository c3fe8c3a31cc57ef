"""Train an adapted classifier: labelled source, unlabelled target, a method by name.

    trained = train(source, target.unlabelled(), TrainingRun("runs/mcc"), method="mcc")
    model = trained.load()                  # images with values 0 to 255 in, logits out
    np.load(trained.target)["logits"]       # what a calibrator needs, without target labels

`shot` and `dine` are the source-free halves alone: one takes a model, the other the outputs of a
black box. Neither has a parameter that could take source data.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, softmax
from pseudocal.lab.adapt.backbones import Backbone, build_backbone
from pseudocal.lab.adapt.choices import Choice
from pseudocal.lab.adapt.method import Preset
from pseudocal.lab.adapt.methods import METHODS
from pseudocal.lab.adapt.methods.dine import FINE_TUNE
from pseudocal.lab.adapt.networks import Network, build_head
from pseudocal.lab.adapt.runs import Trained, seeded
from pseudocal.lab.adapt.stages import (
    TrainingRun,
    TrainingStage,
    check_options,
    cropped,
    train_stage,
)
from pseudocal.lab.adapt.tensors import Tensors, predict_arrays
from pseudocal.lab.adapt.weights import pretrained_classifier
from pseudocal.lab.data import Domain, Unlabelled


def train(
    source: Domain,
    target: Unlabelled,
    run: TrainingRun,
    *,
    method: str = "mcc",
    preset: str | Preset = "paper",
    backbone: Choice | str = "efficientnet-lite0",
    width: int | None = None,
    options: dict[str, Any] | None = None,
) -> Trained:
    """Train on 80 percent of the source and on the target without labels; the last iterate is kept.

    Source-free methods train a source model first, in the folder `source` of the run, and see no
    more of the source than that model (SHOT) or its outputs (DINE). With the preset "imagenet" the
    source model is the pretrained network with its own classifier; of the source only the class
    names are used.

    Args:
        source: labelled images.
        target: images without labels.
        run: where to write, the seed, the number of iterations, and how to run.
        method: a name in `METHODS`.
        preset: a name in `METHODS[method]`, or a preset of your own.
        backbone: a name in `BACKBONES`, or a `Choice` of weights and size.
        width: the width of the bottleneck; None for that of the preset.
        options: settings of the method that differ from the preset's, by name.

    """
    chosen = find_preset(method, preset)
    chosen = check_options(chosen if width is None else replace(chosen, width=width), options)
    with seeded(run.seed):
        body = build_backbone(backbone)
    run = replace(run, frozen=run.freezes(body))
    if chosen.own_classifier:
        return _train_from_own(source.classes, target, body, method, chosen, run)
    if method == "shot":
        return _train_shot(source, target, body, chosen, run)
    if method == "dine":
        return _train_dine(source, target, body, chosen, run)
    return _train_both(source, target, body, TrainingStage(method, chosen, source.classes), run)


def shot(
    model: Network,
    target: Unlabelled,
    run: TrainingRun,
    *,
    classes: tuple[str, ...],
    preset: str | Preset = "paper",
    options: dict[str, Any] | None = None,
) -> Trained:
    """Adapt a source model to the target without source data (SHOT).

    The given model does not change.

    Args:
        model: a source model with the head and the width of the preset; `train(...,
            method="source-only", preset="shot")` gives one.
        target: images without labels.
        run: where to write, the seed, the number of iterations, and how to run.
        classes: the class names of the model.
        preset: a name in `METHODS["shot"]`, or a preset of your own.
        options: settings of the method that differ from the preset's, by name.

    """
    return _shot(model, target, run, classes, check_options(find_preset("shot", preset), options))


def dine(
    probabilities: ArrayLike,
    target: Unlabelled,
    run: TrainingRun,
    *,
    classes: tuple[str, ...],
    backbone: Choice | str = "efficientnet-lite0",
    preset: str | Preset = "paper",
    options: dict[str, Any] | None = None,
) -> Trained:
    """Learn from a black box's probabilities on the target (DINE).

    Args:
        probabilities: `(n, classes)`, the outputs of the black box for each target image.
        target: images without labels.
        run: where to write, the seed, the number of iterations, and how to run.
        classes: the class names of the black box.
        backbone: a name in `BACKBONES`, or a `Choice` of weights and size.
        preset: a name in `METHODS["dine"]`, or a preset of your own.
        options: settings of the method that differ from the preset's, by name.

    """
    with seeded(run.seed):
        body = build_backbone(backbone)
    return _dine(
        probabilities,
        target,
        body,
        run,
        classes,
        check_options(find_preset("dine", preset), options),
    )


def find_preset(method: str, preset: str | Preset) -> Preset:
    """Look up a method's preset by name; a preset is returned as it is."""
    if method not in METHODS:
        raise InputError(f"expected a method among {', '.join(METHODS)}, got {method!r}")
    if isinstance(preset, Preset):
        return preset
    if preset not in METHODS[method]:
        raise InputError(
            f"expected a preset of {method} among {', '.join(METHODS[method])}, got {preset!r}"
        )
    return METHODS[method][preset]


def _train_both(
    source: Domain, target: Unlabelled, body: Backbone, stage: TrainingStage, run: TrainingRun
) -> Trained:
    if stage.preset.head == "pair" and run.freezes(body):
        # Above a frozen backbone MCD's generator is a bottleneck: something must be left to train.
        stage = replace(stage, preset=replace(stage.preset, head="bottleneck-pair"))
    network = _network(body, stage.preset, len(source.classes), run.seed)
    return train_stage(network, stage, run, target=target, source=source)


def _train_shot(
    source: Domain, target: Unlabelled, body: Backbone, preset: Preset, run: TrainingRun
) -> Trained:
    before = replace(
        METHODS["source-only"]["shot"], width=preset.width, batch=preset.batch, lr=preset.lr
    )
    stage = TrainingStage("source-only", before, source.classes)
    first = _train_both(source, target, body, stage, run.within("source"))
    return _shot(first.load(), target, run, source.classes, preset)


def _train_from_own(
    classes: tuple[str, ...],
    target: Unlabelled,
    body: Backbone,
    method: str,
    preset: Preset,
    run: TrainingRun,
) -> Trained:
    """Adapt a pretrained network that keeps its own classifier.

    No source data, and no training on any.
    """
    classifier = pretrained_classifier(body.choice)
    if classifier.out_features != len(classes):
        raise InputError(
            f"expected pretrained weights of {len(classes)} classes for {body.choice.name}, "
            f"got {classifier.out_features} in {body.choice.weights}"
        )
    model = _network(body, replace(preset, head="direct"), len(classes), run.seed)
    model.head.classifier.load_state_dict(classifier.state_dict())
    if method == "shot":
        return _shot(model, target, run, classes, preset)
    outputs = predict_arrays(model.to(run.device), Tensors(cropped(target).inputs, run.device))
    return _dine(softmax(outputs["logits"]), target, body, run, classes, preset)


def _shot(
    model: Network, target: Unlabelled, run: TrainingRun, classes: tuple[str, ...], preset: Preset
) -> Trained:
    network = copy.deepcopy(model)
    if run.freezes(network.backbone) and not list(network.head.bottleneck.parameters()):  # type: ignore[arg-type]
        raise InputError(
            "expected a model with a bottleneck to adapt above its frozen backbone, "
            f"got a bottleneck without parameters: {type(network.head.bottleneck).__name__}"
        )
    return train_stage(network, TrainingStage("shot", preset, classes), run, target=target)


def _train_dine(
    source: Domain, target: Unlabelled, body: Backbone, preset: Preset, run: TrainingRun
) -> Trained:
    before = replace(METHODS["source-only"]["dine"], batch=preset.batch, lr=preset.lr)
    stage = TrainingStage("source-only", before, source.classes)
    first = _train_both(source, target, copy.deepcopy(body), stage, run.within("source"))
    with np.load(first.target, allow_pickle=False) as outputs:
        probabilities = softmax(outputs["logits"])
    return _dine(probabilities, target, body, run, source.classes, preset)


def _dine(
    probabilities: ArrayLike,
    target: Unlabelled,
    body: Backbone,
    run: TrainingRun,
    classes: tuple[str, ...],
    preset: Preset,
) -> Trained:
    teacher = np.asarray(probabilities, dtype=np.float32)
    expected = (len(target.inputs), len(classes))
    if teacher.shape != expected or not np.allclose(teacher.sum(axis=1), 1, atol=1e-3):
        raise InputError(
            f"expected probabilities of shape {expected} with rows that sum to one, got "
            f"{teacher.shape}"
        )
    run = replace(run, frozen=run.freezes(body))
    network = _network(body, preset, len(classes), run.seed)
    stage = TrainingStage("distil", preset, classes, {"probabilities": torch.from_numpy(teacher)})
    distilled = train_stage(network, stage, run.within("distil"), target=target)
    tune = replace(
        FINE_TUNE, head=preset.head, width=preset.width, batch=preset.batch, lr=preset.lr
    )
    return train_stage(distilled.load(), TrainingStage("dine", tune, classes), run, target=target)


def _network(body: Backbone, preset: Preset, classes: int, seed: int) -> Network:
    with seeded(seed):
        return Network(body, build_head(preset.head, body.width, preset.width, classes))
