"""One training from settings to files: what `train`, `shot` and `dine` have in common."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pseudocal.arrays import InputError
from pseudocal.lab.adapt.backbones import Backbone
from pseudocal.lab.adapt.features import cached_features
from pseudocal.lab.adapt.files import save_arrays
from pseudocal.lab.adapt.loop import Plan, Progress, Report, descend, seeded, torch_threads
from pseudocal.lab.adapt.method import Pair, Preset, Problem, TargetBatch
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.rows import SOURCE, TARGET, Rows, batch_rows, predict_arrays
from pseudocal.lab.adapt.runs import Trained, finish_run, save_network, start_run
from pseudocal.lab.data import Domain, Unlabelled, cache_folder

AnyDomain = TypeVar("AnyDomain", Domain, Unlabelled)


@dataclass(frozen=True, eq=False)
class Run:
    """Where a training writes and how it runs; the same for every method.

    `frozen` keeps the backbone as it is and trains on cached features (None: if it has trained weights).
    `evaluate` is labelled target data for the curve of error and NLL; no gradient and no choice depends on it.
    """

    out: Path
    seed: int = 0
    iterations: int = 1000
    frozen: bool | None = None
    cache: Path | None = None
    evaluate: Domain | None = None
    progress: Report | None = None
    checkpoint_every: int = 250
    device: str = "cpu"

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(self.out))
        for name in ("iterations", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"expected {name} of at least 1, got {getattr(self, name)}")

    def within(self, folder: str) -> Run:
        """The same for a stage of its own in a folder below; the curve belongs to the last stage alone."""
        return replace(self, out=self.out / folder, evaluate=None)


@dataclass(frozen=True, eq=False)
class Stage:
    """What is trained in one go: a method's preset, and the names that its settings are written down under."""

    name: str
    preset: Preset
    classes: tuple[str, ...]
    extra: dict[str, Any]  # to the method, beside the preset's options; not written down


def fit(network: Network, stage: Stage, run: Run, *, target: Unlabelled, source: Domain | None = None) -> Trained:
    """Train a whole network in place, on its images or on cached features, and write all files of the run."""
    backbone = network.backbone
    assert isinstance(backbone, Backbone)
    frozen = is_frozen(run, backbone)
    finished = start_run(run.out, _settings(network, stage, run, target, source))
    if finished:
        return finished
    started = time.perf_counter()
    inner = Network(nn.Identity(), network.head) if frozen else network
    parts = dict(zip(("source_train", "source_val"), _halves(source, run, backbone), strict=False))
    target = _prepared(target, run, backbone)
    inner.to(run.device)
    plan = _plan(run, stage, backbone)
    rows = Rows(target.inputs, run.device)
    with seeded(run.seed):
        problem = Problem(len(stage.classes), network.head.width, rows)
        method = stage.preset.method(problem, **stage.preset.options, **stage.extra).to(run.device)
    with torch_threads(1) if frozen else nullcontext():  # a step of a head is too small to share
        curve = descend(inner, method, _draw(parts.get("source_train"), rows, plan), plan)
    for name, part in parts.items():
        outputs = predict_arrays(inner, Rows(part.inputs, run.device))
        save_arrays(run.out / f"{name}.npz", **outputs, labels=part.labels)
    save_arrays(run.out / "target.npz", **predict_arrays(inner, rows))
    save_network(run.out, network, head=stage.preset.head, width=stage.preset.width, classes=stage.classes)
    return finish_run(run.out, curve, time.perf_counter() - started)


def is_frozen(run: Run, backbone: Backbone) -> bool:
    """Whether the backbone stays as it is: as asked, or if it has trained weights."""
    return backbone.pretrained if run.frozen is None else run.frozen


def check_options(preset: Preset, options: dict[str, Any] | None) -> Preset:
    """The preset with some options changed; unknown ones are refused with the list of those there are."""
    known = [p.name for p in inspect.signature(preset.method).parameters.values() if p.default is not p.empty]
    for name in options or {}:
        if name not in known:
            raise InputError(f"expected options among {', '.join(known)}, got {name!r}")
    return replace(preset, options={**preset.options, **(options or {})})


def _halves(source: Domain | None, run: Run, backbone: Backbone) -> tuple[Domain, ...]:
    """Source rows to train on and to hold out: 80 and 20 percent, as in the paper."""
    return () if source is None else _prepared(source, run, backbone).split(0.8, seed=run.seed)


def _prepared(domain: AnyDomain, run: Run, backbone: Backbone) -> AnyDomain:
    """The domain as it is, or with cached features in the place of its images."""
    if not is_frozen(run, backbone):
        return domain

    def tick(done: int, total: int) -> None:
        if run.progress:
            run.progress(Progress(f"features of {domain.name}", done, total))

    cache = run.cache or cache_folder() / "features"
    features: Any = cached_features(backbone, domain.inputs, cache=cache, device=run.device, tick=tick)
    return replace(domain, inputs=features)


def _plan(run: Run, stage: Stage, backbone: Backbone) -> Plan:
    evaluate = None
    if run.evaluate is not None:
        if run.evaluate.classes != stage.classes:
            raise InputError("expected classes to evaluate on that are those of the source, got other ones")
        labels = torch.from_numpy(run.evaluate.labels).to(run.device)
        evaluate = (Rows(_prepared(run.evaluate, run, backbone).inputs, run.device), labels)
    return Plan(
        stage.preset,
        run.seed,
        run.iterations,
        run.out / "resume.safetensors",
        checkpoint_every=run.checkpoint_every,
        evaluate=evaluate,
        report=run.progress,
        stage=stage.name,
        backbone_scale=stage.preset.backbone_scale if backbone.pretrained else 1.0,
    )


def _draw(source: Domain | None, target: Rows, plan: Plan) -> Callable[[int], TargetBatch]:
    """What a step sees: a pair of batches, or a target batch where there is no source."""
    batch, seed, device = plan.preset.batch, plan.seed, target.device

    def of_target(step: int) -> tuple[Tensor, Tensor]:
        rows = batch_rows(len(target), batch, seed, TARGET, step)
        return target[rows], torch.from_numpy(rows).to(device)

    if source is None:
        return lambda step: TargetBatch(*of_target(step))
    inputs, labels = Rows(source.inputs, device), source.labels

    def pair(step: int) -> Pair:
        rows = batch_rows(len(inputs), batch, seed, SOURCE, step)
        return Pair(*of_target(step), inputs[rows], torch.from_numpy(labels[rows]).to(device))

    return pair


def _settings(network: Network, stage: Stage, run: Run, target: Unlabelled, source: Domain | None) -> dict[str, Any]:
    backbone = network.backbone
    assert isinstance(backbone, Backbone)
    return {
        "method": stage.name,
        **{name: value for name, value in vars(stage.preset).items() if name != "method"},
        "seed": run.seed,
        "iterations": run.iterations,
        "backbone": asdict(backbone.choice),
        "frozen": is_frozen(run, backbone),
        "source": None if source is None else [source.name, len(source.inputs)],
        "target": [target.name, len(target.inputs)],
        "classes": list(stage.classes),
    }
