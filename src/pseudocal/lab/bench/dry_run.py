"""What a suite will take, before anything runs: passes, memory and hours for each table.

Passes of a method are counted by running its steps on a few small rows. Memory is that of a network
without data (the `meta` device), so no GPU is needed to know it. The speed is measured on the
device that the suite would run on.
"""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from pseudocal.lab.adapt.backbones import GPU_BATCH, IMAGENET, build_backbone
from pseudocal.lab.adapt.choices import Choice
from pseudocal.lab.adapt.devices import autocast, on_device
from pseudocal.lab.adapt.method import Moment, Preset, Problem, SourceTargetBatch
from pseudocal.lab.adapt.methods import METHODS
from pseudocal.lab.adapt.methods.dine import FINE_TUNE
from pseudocal.lab.adapt.networks import Network, build_head
from pseudocal.lab.adapt.runs import seeded
from pseudocal.lab.adapt.tensors import CPU_NUMBERS, Tensors
from pseudocal.lab.bench.calibrators import find_compared, with_repeats
from pseudocal.lab.bench.grid import check_data, shared_features, with_members
from pseudocal.lab.bench.segmentation_tasks import network_settings, split_source, target_scenes
from pseudocal.lab.bench.stages import is_compared
from pseudocal.lab.bench.stages.train import WATCHED, preset_of
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.task import Suite, Task
from pseudocal.lab.bench.views import backbone_of, domains_of, has_frozen_backbone
from pseudocal.lab.segmentation import build_segmenter
from pseudocal.lab.settings import Precision

STEPS = 60  # of a method, to count its passes
FEATURES = 8  # of the rows that it sees there
CLASSES = 4
POINTS = 20  # of the curve of a training
DROPOUT_PASSES = 10
INFERENCE_COST = 1 / 3  # of a pass without a gradient, relative to one with
SHRINK = 4  # the sides of images that are too large for a CPU, to measure its speed
SECONDS = 2.0  # to measure a network's speed


@dataclass(frozen=True)
class Cost:
    """What one table takes.

    Attributes:
        table: the data set and the scenario.
        models: the number of models to train.
        gradient: how many images pass through a network with a gradient.
        inference: how many pass without one.
        memory: bytes of the largest training, or of the weights if none is trained.
        hours: the hours of one process.

    """

    table: str
    models: int = 0
    gradient: int = 0
    inference: int = 0
    memory: int = 0
    hours: float = 0.0

    def plus(self, other: Cost) -> Cost:
        """Return the sum of two costs of one table; of the memory, the larger.

        Args:
            other: the other cost.

        """
        return Cost(
            self.table,
            self.models + other.models,
            self.gradient + other.gradient,
            self.inference + other.inference,
            max(self.memory, other.memory),
            self.hours + other.hours,
        )


@dataclass(frozen=True)
class Passes:
    """The images that pass through the backbone in a training.

    Attributes:
        gradient: with a gradient, in each step.
        inference: without one, in each step.
        looks: how often the whole target passes, in all steps together.
        largest: the most images that one update keeps activations of.

    """

    gradient: int
    inference: int
    looks: int
    largest: int


def dry_run(suite: Suite, store: Store) -> list[Cost]:
    """Return what the missing parts of a suite take, by table; nothing is trained or written.

    Data and weights are checked as before a run.

    Args:
        suite: the suite.
        store: the output folder, and the device to measure.

    """
    calibrators = with_repeats(suite.calibrators, suite.repeats)
    models = with_members(suite.tasks, calibrators)
    missing = [task for task in models if not store.has_model(task)]
    waiting = [task for task in suite.tasks if not is_compared(task, calibrators, store)]
    check_data([*missing, *waiting], store)
    networks = _Networks(store)
    costs = [Cost(_table(task)) for task in suite.tasks]
    costs += [
        networks.training(task) for task in {task.training: task for task in missing}.values()
    ]
    costs += [networks.comparison(task, calibrators) for task in waiting]
    for job in shared_features(missing, waiting, calibrators):
        source, target = domains_of(job.task, store)
        rows = len(source if job.domain == "source" else target)
        costs.append(networks.cost(job.task, inference=rows))
    tables: dict[str, Cost] = {}
    for cost in costs:
        tables[cost.table] = tables[cost.table].plus(cost) if cost.table in tables else cost
    return list(tables.values())


def dry_run_lines(costs: Sequence[Cost], device: str) -> list[str]:
    """Format costs as a table.

    >>> costs = [Cost("emoji, closed-set", 2, 72_000, 9_000, 2**31, 1.5)]
    >>> for line in dry_run_lines(costs, "cpu")[:2]:
    ...     print(line)
    table              models  passes  without gradient  memory, GB  hours
    emoji, closed-set       2  72,000             9,000         2.1    1.5

    Args:
        costs: what each table takes.
        device: the device that was measured.

    """
    head = ("table", "models", "passes", "without gradient", "memory, GB", "hours")
    rows = [head, *(_cells(cost) for cost in costs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, *numbers in rows:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *padded]))
    lines.append(
        "memory: weights, gradients, momentum and activations in float32; CUDA itself is not "
        "included"
    )
    lines.append(
        f"hours: of one process, for the passes above at the speed just measured on {device}; fitting "
        "calibrators and training heads on stored features are not included"
    )
    return lines


def _cells(cost: Cost) -> tuple[str, ...]:
    return (
        cost.table,
        f"{cost.models:,}",
        f"{cost.gradient:,}",
        f"{cost.inference:,}",
        f"{cost.memory / 1e9:.1f}",
        f"{cost.hours:,.1f}",
    )


def count_passes(preset: Preset) -> Passes:
    """Count the passes of a method by running its steps on small rows.

    >>> count_passes(METHODS["mcc"]["paper"])
    Passes(gradient=72, inference=0, looks=0, largest=72)

    Args:
        preset: the method with its settings.

    """
    with seeded(0):
        target = _CountedRows(np.zeros((2 * preset.batch + 1, FEATURES), np.float32))
        backbone = _Counter()
        head = build_head(preset.head, FEATURES, FEATURES, CLASSES)
        network = Network(backbone, head)
        extra = {}
        if "probabilities" in inspect.signature(preset.method).parameters:
            extra["probabilities"] = torch.full((len(target), CLASSES), 1 / CLASSES)
        problem = Problem(CLASSES, head.width, target)
        method = preset.method(problem, **preset.options, **extra)
        rows = torch.arange(preset.batch)
        batch = SourceTargetBatch(
            torch.randn(preset.batch, FEATURES),
            rows,
            torch.randn(preset.batch, FEATURES),
            rows % CLASSES,
        )
        largest = 0
        for step in range(1, STEPS + 1):
            network.train()
            before = backbone.gradient
            for _ in method.steps(network, batch, Moment(step, STEPS)):
                largest = max(largest, backbone.gradient - before)
                before = backbone.gradient
    looks = target.read // len(target)
    inference = backbone.inference - target.read
    return Passes(backbone.gradient // STEPS, inference // STEPS, looks, largest)


class _Counter(nn.Module):
    """Takes the place of a backbone and counts rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES)
        self.gradient = 0
        self.inference = 0

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.gradient += len(x)
        else:
            self.inference += len(x)
        features: Tensor = self.layer(x)
        return features


class _CountedRows(Tensors):
    """A target that counts the rows that are read."""

    read = 0

    def __getitem__(self, chosen: NDArray[np.intp]) -> Tensor:
        self.read += len(chosen)
        return super().__getitem__(chosen)


def training_memory(network: nn.Module, shape: tuple[int, ...], rows: int) -> int:
    """Return the bytes that a training needs for weights, gradients, momentum and activations.

    Activations are what the backward pass reads. Nothing is computed: the network is copied to the
    `meta` device, whose tensors have a shape and no data.

    >>> training_memory(nn.Linear(3, 2, bias=False), (3,), 5)  # 3 * 6 weights, 5 * 3 inputs
    132

    Args:
        network: the network.
        shape: the shape of an input.
        rows: the number of inputs that one update keeps activations of.

    """
    fake: Any = copy.deepcopy(network).to("meta").train()
    weights = {each.untyped_storage()._cdata: each for each in fake.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage  # held, so that its address is not used again
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        fake(torch.empty(rows, *shape, device="meta"))
    of_weights = sum(int(each.untyped_storage().nbytes()) for each in weights.values())
    activations = sum(int(storage.nbytes()) for storage in kept.values())
    return 3 * of_weights + activations


def training_speed(
    network: nn.Module,
    shape: tuple[int, ...],
    *,
    rows: int,
    device: str,
    precision: Precision = "single",
    seconds: float = SECONDS,
) -> float:
    """Measure how many images a second a network learns from.

    Args:
        network: the network; its weights change.
        shape: the shape of an image.
        rows: the number of images of a step; fewer on a CPU, where large batches are slow.
        device: the device.
        precision: what the network computes in.
        seconds: for how long to measure.

    """
    place = torch.device(device)
    on_device(network, device).train()
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, fused=True)
    shrunk = 1
    if place.type == "cpu":
        if math.prod(shape) > CPU_NUMBERS:  # a frame of a street: its cost is that of its pixels
            shrunk = SHRINK**2
            shape = (shape[0], shape[1] // SHRINK, shape[2] // SHRINK)
        rows = max(1, min(rows, CPU_NUMBERS // math.prod(shape)))
    images = torch.randint(0, 256, (rows, *shape), dtype=torch.uint8, device=device)

    def step() -> None:
        optimiser.zero_grad()
        with autocast(place, precision):
            loss = network(images).float().square().mean()
        loss.backward()
        optimiser.step()
        if place.type == "cuda":
            torch.cuda.synchronize(place)

    step()  # the first is slower
    done = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        step()
        done += rows
    return done / shrunk / (time.perf_counter() - started)


class _Networks:
    """The networks of tasks; memory and speed of each are found once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._speeds: dict[tuple[Any, ...], float] = {}
        self._memory: dict[tuple[Any, ...], int] = {}
        self._passes: dict[tuple[Any, ...], list[Passes]] = {}

    def training(self, task: Task) -> Cost:
        """What the training of a model takes; a frozen backbone's features are counted apart."""
        if task.segments:
            batch = task.batch or dict(task.options)["batch"]
            return self.cost(task, models=1, gradient=task.iterations * batch, largest=batch)
        source, target = (len(domain) for domain in domains_of(task, self._store))
        if task.checkpoint is not None:
            return self.cost(task, inference=source + target)
        if has_frozen_backbone(task):
            return self.cost(task, models=1)
        stages = self.passes(task)
        gradient = sum(task.iterations * stage.gradient for stage in stages)
        inference = sum(
            task.iterations * stage.inference + stage.looks * target + source + target
            for stage in stages
        )
        points = math.ceil(task.iterations / max(task.iterations // POINTS, 1)) + 1
        inference += points * min(WATCHED, target)
        largest = max(stage.largest for stage in stages)
        return self.cost(task, models=1, gradient=gradient, inference=inference, largest=largest)

    def comparison(self, task: Task, calibrators: Sequence[str]) -> Cost:
        """What the calibrators of a task take: passes of mixup samples and with dropout."""
        if task.segments:
            frames = len(target_scenes(task, self._store)) + len(split_source(task, self._store)[1])
            return self.cost(task, inference=len(calibrators) * frames)
        if has_frozen_backbone(task):
            return self.cost(task)
        target = len(domains_of(task, self._store)[1])
        passes = 0
        compared = [find_compared(name) for name in calibrators]
        for name, each in zip(calibrators, compared, strict=True):
            if each.mixup_variant is not None:
                passes += 2
            if name.startswith("mc-dropout"):
                passes += DROPOUT_PASSES
        if any(each.needs_second for each in compared):
            passes += 2
        return self.cost(task, inference=passes * target)

    def cost(
        self,
        task: Task,
        *,
        models: int = 0,
        gradient: int = 0,
        inference: int = 0,
        largest: int = 0,
    ) -> Cost:
        """Return a cost with its memory and hours."""
        memory = self.memory(task, largest)
        passes = gradient + INFERENCE_COST * inference
        hours = passes / self.speed(task, largest or GPU_BATCH) / 3600 if passes else 0.0
        return Cost(_table(task), models, gradient, inference, memory, hours)

    def passes(self, task: Task) -> list[Passes]:
        """The passes of each training of a model."""
        key = (task.method, task.preset, task.batch)
        if key not in self._passes:
            self._passes[key] = [count_passes(preset) for preset in _stages(task)]
        return self._passes[key]

    def memory(self, task: Task, rows: int) -> int:
        """The bytes of a training that keeps activations of some rows; of the weights, if none."""
        key = (task.backbone, task.weights, self.shape(task), rows)
        if key not in self._memory:
            network = self.network(task)
            if rows > 0:
                self._memory[key] = training_memory(network, self.shape(task), rows)
            else:
                self._memory[key] = sum(each.nbytes for each in network.parameters())
        return self._memory[key]

    def speed(self, task: Task, rows: int) -> float:
        """The images a second that the network of a task learns from."""
        key = (task.backbone, task.weights, task.precision, self.shape(task))
        if key not in self._speeds:
            self._speeds[key] = training_speed(
                self.network(task),
                self.shape(task),
                rows=rows,
                device=self._store.device,
                precision=task.precision,
            )
        return self._speeds[key]

    def network(self, task: Task) -> nn.Module:
        """The network of a task before training."""
        with seeded(0):
            if task.segments:
                classes = len(split_source(task, self._store)[0].classes)
                return build_segmenter(task.backbone, classes, **network_settings(task))
            if task.checkpoint is not None:
                config = {"normal": IMAGENET}
                return build_backbone(Choice(task.backbone, "random", None, config))
            return copy.deepcopy(backbone_of(task.backbone, task.weights, task.seed))

    def shape(self, task: Task) -> tuple[int, ...]:
        """The shape of an image."""
        if task.segments:
            return tuple(split_source(task, self._store)[0].inputs.shape[1:])
        return tuple(domains_of(task, self._store)[1].inputs.shape[1:])


def _stages(task: Task) -> list[Preset]:
    """The trainings of a model, one after the other."""
    preset = preset_of(task)
    before: list[Preset] = []
    if task.method in ("shot", "dine") and not preset.own_classifier:
        before = [replace(METHODS["source-only"][task.method], batch=preset.batch)]
    after = [replace(FINE_TUNE, batch=preset.batch)] if task.method == "dine" else []
    return [*before, preset, *after]


def _table(task: Task) -> str:
    return f"{task.data}, {task.scenario}"
