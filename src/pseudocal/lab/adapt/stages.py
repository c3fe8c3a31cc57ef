"""One stage of a training, from settings to files; shared by `train`, `shot` and `dine`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Generator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from pseudocal.arrays import InputError
from pseudocal.lab.adapt.backbones import Backbone, cached_features
from pseudocal.lab.adapt.devices import deterministic, on_device
from pseudocal.lab.adapt.method import (
    Preset,
    Problem,
    ReportProgress,
    SourceTargetBatch,
    TargetBatch,
    TrainingProgress,
)
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.runs import (
    CHECKPOINT,
    DescentPlan,
    Draw,
    Trained,
    descend,
    finish_run,
    own_folder,
    save_network,
    seeded,
    start_run,
    torch_threads,
)
from pseudocal.lab.adapt.tensors import (
    SOURCE,
    TARGET,
    Tensors,
    batch_numbers,
    predict_arrays,
    random_crops,
    read_ahead,
    save_arrays,
)
from pseudocal.lab.data import Crops, Domain, Indexable, Unlabelled, cache_folder, crops_of
from pseudocal.lab.settings import Precision

AnyDomain = TypeVar("AnyDomain", Domain, Unlabelled)


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """Where a training writes and how it runs; the same for every method.

    Attributes:
        out: the folder of the model and its outputs. A killed training resumes there; a finished
            one is returned without training again.
        seed: the seed of the initial weights, the batches and the dropout.
        iterations: the number of batches to train on.
        frozen: whether to freeze the backbone and train on cached features; None to freeze it if it
            is pretrained.
        cache: the folder of cached features; None for one in the user's cache folder.
        evaluate: labelled target data for the curve of error and NLL; no gradient and no choice
            depends on it.
        progress: called with a `TrainingProgress` after each batch.
        checkpoint_every: the number of iterations between checkpoints.
        device: the device of torch: "cpu", "cuda", "cuda:1", ...
        augment: whether a step sees random crops and mirror images of image files; None for yes if
            the backbone is trained. All outputs are of the centre.
        precision: what a backbone that is trained computes in where torch does so safely: "mixed"
            is bfloat16, "float16" has scaled gradients. Weights, the head, losses and all outputs
            that are saved stay in float32.

    """

    out: Path
    seed: int = 0
    iterations: int = 1000
    frozen: bool | None = None
    cache: Path | None = None
    evaluate: Domain | None = None
    progress: ReportProgress | None = None
    checkpoint_every: int = 250
    device: str = "cpu"
    augment: bool | None = None
    precision: Precision = "single"

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(self.out))
        for name in ("iterations", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"expected {name} of at least 1, got {getattr(self, name)}")

    def freezes(self, backbone: Backbone) -> bool:
        """Whether the backbone is frozen.

        Args:
            backbone: the backbone.

        """
        return backbone.pretrained if self.frozen is None else self.frozen

    def augments(self, backbone: Backbone, target: Unlabelled) -> bool:
        """Whether a step sees random crops and mirror images.

        Args:
            backbone: the backbone.
            target: the target, as it is loaded.

        """
        possible = not self.freezes(backbone) and _crops(target.inputs) is not None
        if self.augment and not possible:
            raise InputError(
                "expected image files and a backbone that is trained, to augment them, got "
                f"{target.name}"
            )
        return possible if self.augment is None else self.augment

    def within(self, folder: str) -> TrainingRun:
        """Return the same settings for an earlier stage, without the curve of the last one.

        Args:
            folder: the name of the stage's folder inside `out`.

        """
        return replace(self, out=self.out / folder, evaluate=None)


@dataclass(frozen=True, eq=False)
class TrainingStage:
    """What one stage trains.

    Attributes:
        name: its name in the settings file and in progress reports.
        preset: the method with its settings.
        classes: the class names.
        extra: other arguments of the method, which are not written to the settings file.

    """

    name: str
    preset: Preset
    classes: tuple[str, ...]
    extra: dict[str, Any] = field(default_factory=dict)


def train_stage(
    network: Network,
    stage: TrainingStage,
    run: TrainingRun,
    *,
    target: Unlabelled,
    source: Domain | None = None,
) -> Trained:
    """Train a network in place, on images or cached features, and write all files of the run."""
    backbone = network.backbone
    assert isinstance(backbone, Backbone)
    frozen = run.freezes(backbone)
    augment = run.augments(backbone, target)
    with own_folder(run.out), deterministic(run.device):
        finished = start_run(run.out, _settings(network, stage, run, target, source))
        if finished:
            return finished
        started = time.perf_counter()
        backbone.precision = run.precision
        inner = Network(nn.Identity(), network.head) if frozen else network
        parts = dict(
            zip(("source_train", "source_val"), _halves(source, run, backbone), strict=False)
        )
        target = cropped(_prepared(target, run, backbone))
        on_device(inner, run.device)
        plan = _plan(run, stage, backbone)
        inputs = Tensors(target.inputs, run.device)
        with seeded(run.seed):
            problem = Problem(len(stage.classes), network.head.width, inputs)
            method = stage.preset.method(problem, **stage.preset.options, **stage.extra).to(
                run.device
            )
        draw = _draw(parts.get("source_train"), inputs, plan, augment=augment)
        # a head is too small to gain from threads
        with torch_threads(1) if frozen else nullcontext():
            curve = descend(inner, method, draw, plan)
        for name, part in parts.items():
            outputs = predict_arrays(inner, Tensors(part.inputs, run.device))
            save_arrays(run.out / f"{name}.npz", **outputs, labels=part.labels)
        save_arrays(run.out / "target.npz", **predict_arrays(inner, inputs))
        save_network(
            run.out,
            network,
            head=stage.preset.head,
            width=stage.preset.width,
            classes=stage.classes,
        )
        return finish_run(run.out, curve, time.perf_counter() - started)


def check_options(preset: Preset, options: dict[str, Any] | None) -> Preset:
    """Return the preset with some options of its method changed; unknown options are refused."""
    parameters = inspect.signature(preset.method).parameters.values()
    known = [each.name for each in parameters if each.default is not each.empty]
    for name in options or {}:
        if name not in known:
            raise InputError(f"expected options among {', '.join(known)}, got {name!r}")
    return replace(preset, options={**preset.options, **(options or {})})


def _halves(source: Domain | None, run: TrainingRun, backbone: Backbone) -> tuple[Domain, ...]:
    """Split the source into images to train on and images to hold out.

    80 and 20 percent, as in the paper.
    """
    if source is None:
        return ()
    halves = _prepared(source, run, backbone).split(0.8, seed=run.seed)
    return tuple(cropped(half) for half in halves)


def _crops(inputs: Indexable) -> Crops | None:
    return None if isinstance(inputs, np.ndarray) else crops_of(inputs)


def cropped(domain: AnyDomain) -> AnyDomain:
    """Return the domain, with image files as crops.

    Decoded once, and with a margin to crop at random.
    """
    crops: Any = _crops(domain.inputs)
    return domain if crops is None else replace(domain, inputs=crops)


def _prepared(domain: AnyDomain, run: TrainingRun, backbone: Backbone) -> AnyDomain:
    """Return the domain, with cached features in place of its images if the backbone is frozen."""
    if not run.freezes(backbone):
        return domain

    def tick(done: int, total: int) -> None:
        if run.progress:
            run.progress(TrainingProgress(f"features of {domain.name}", done, total))

    cache = run.cache or cache_folder() / "features"
    features: Any = cached_features(
        backbone, domain.inputs, cache=cache, device=run.device, tick=tick
    )
    return replace(domain, inputs=features)


def _plan(run: TrainingRun, stage: TrainingStage, backbone: Backbone) -> DescentPlan:
    evaluate = None
    if run.evaluate is not None:
        if run.evaluate.classes != stage.classes:
            raise InputError(
                f"expected evaluation data with the classes of the source, {_few(stage.classes)}, "
                f"got {_few(run.evaluate.classes)}"
            )
        labels = torch.from_numpy(run.evaluate.labels).to(run.device)
        evaluate = (Tensors(_prepared(run.evaluate, run, backbone).inputs, run.device), labels)
    return DescentPlan(
        stage.preset,
        run.seed,
        run.iterations,
        run.out / CHECKPOINT,
        checkpoint_every=run.checkpoint_every,
        evaluate=evaluate,
        report=run.progress,
        stage=stage.name,
        backbone_scale=stage.preset.backbone_scale if backbone.pretrained else 1.0,
        device=run.device,
        precision=run.precision,
        log=run.out,
    )


def _draw(
    source: Domain | None, target: Tensors, plan: DescentPlan, *, augment: bool = False
) -> Draw:
    """Return a function that draws batches.

    Of both domains, or of the target if there is no source.

    What is on disk is read ahead, in a thread, which also pins it for a GPU.
    """
    batch = plan.preset.batch
    seed = plan.seed
    domains = [target.inputs] if source is None else [target.inputs, source.inputs]
    in_memory = all(isinstance(inputs, np.ndarray) for inputs in domains)

    def read(inputs: Any, stream: int, step: int) -> tuple[Any, ...]:
        numbers = batch_numbers(len(inputs), batch, seed, stream, step)
        if augment and isinstance(inputs, Crops):
            return random_crops(inputs, numbers, seed, stream, step), numbers
        return inputs[numbers], numbers

    def staged_batch(step: int) -> list[Tensor]:
        arrays = read(target.inputs, TARGET, step)
        if source is not None:
            images, numbers = read(source.inputs, SOURCE, step)
            arrays = (*arrays, images, source.labels[numbers])
        return [target.staged(array) for array in arrays]

    def draw(first: int) -> Generator[TargetBatch, None, None]:
        steps = map(staged_batch, count(first)) if in_memory else read_ahead(staged_batch, first)
        for step in steps:
            tensors = [target.placed(tensor) for tensor in step]
            yield TargetBatch(*tensors) if source is None else SourceTargetBatch(*tensors)

    return draw


def _few(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:3]) + (f" and {len(classes) - 3} more" if len(classes) > 3 else "")


def _settings(
    network: Network,
    stage: TrainingStage,
    run: TrainingRun,
    target: Unlabelled,
    source: Domain | None,
) -> dict[str, Any]:
    backbone = network.backbone
    assert isinstance(backbone, Backbone)
    return {
        "method": stage.name,
        **{name: value for name, value in vars(stage.preset).items() if name != "method"},
        "seed": run.seed,
        "iterations": run.iterations,
        "backbone": asdict(backbone.choice),
        "frozen": run.freezes(backbone),
        # absent from folders that were started before these existed
        **({"augment": True} if run.augments(backbone, target) else {}),
        **({"precision": run.precision} if run.precision != "single" else {}),
        "source": None if source is None else [source.name, len(source.inputs)],
        "target": [target.name, len(target.inputs)],
        "classes": list(stage.classes),
    }
