"""A training run: its loop with checkpoints, and the files of a finished one."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name

from pseudocal.arrays import InputError
from pseudocal.files import locked, save_json, sweep, writing
from pseudocal.lab.adapt.backbones import Backbone, build_backbone
from pseudocal.lab.adapt.choices import Choice
from pseudocal.lab.adapt.log import LOG_EVERY, TrainingLog
from pseudocal.lab.adapt.method import (
    SCHEDULES,
    Moment,
    Point,
    Preset,
    ReportProgress,
    TrainingProgress,
)
from pseudocal.lab.adapt.networks import Network, build_head
from pseudocal.lab.adapt.tensors import Tensors, load_tensors, predict_tensors, save_tensors
from pseudocal.lab.settings import Precision

CHECKPOINT = "resume.safetensors"  # in the folder of a run
# From the first step to the batches of all steps from there on.
Draw = Callable[[int], Generator[Any, None, None]]


@dataclass(frozen=True, eq=False)
class DescentPlan:
    """Settings of the loop.

    Attributes:
        preset: the settings of the optimiser.
        seed: the seed of everything random in each step.
        iterations: the number of steps.
        checkpoint: the file to resume from.
        checkpoint_every: the number of steps between checkpoints.
        evaluate: target inputs and labels, for the curve only.
        points: the number of points of the curve.
        report: called after each step.
        stage: the name of the stage in reports.
        backbone_scale: the backbone's learning rate relative to the head's.
        device: the device of torch.
        precision: what the network computes in; with "float16" gradients are scaled.
        log: the folder of the log; None to write none.

    """

    preset: Preset
    seed: int
    iterations: int
    checkpoint: Path
    checkpoint_every: int = 250
    evaluate: tuple[Tensors, Tensor] | None = None
    points: int = 20
    report: ReportProgress | None = None
    stage: str = "training"
    backbone_scale: float = 1.0
    device: str = "cpu"
    precision: Precision = "single"
    log: Path | None = None


def descend(network: Network, method: Any, draw: Draw, plan: DescentPlan) -> list[Point]:
    """Train the network in place and return its curve.

    Resumes from the plan's checkpoint if there is one.
    """
    optimiser = build_optimiser(network, method, plan)
    kind = torch.device(plan.device).type
    scaler = torch.amp.GradScaler(kind, enabled=plan.precision == "float16")
    with seeded(plan.seed), ExitStack() as stack:
        done, curve = restore_checkpoint(plan.checkpoint, network, method, optimiser, scaler)
        log = stack.enter_context(TrainingLog(plan.log, plan.stage, done))
        batches = stack.enter_context(closing(draw(done + 1)))
        for step in range(done + 1, plan.iterations + 1):
            now = Moment(step, plan.iterations)
            torch.manual_seed(_step_seed(plan.seed, step))
            rate = set_rate(optimiser, plan.preset, now)
            network.train()
            method.train()
            for number, update in enumerate(method.steps(network, next(batches), now)):
                log.add(step, number, update.loss)
                optimiser.zero_grad()
                scaler.scale(update.loss).backward(inputs=update.only)
                scaler.step(optimiser)
                scaler.update()
            saves = step % plan.checkpoint_every == 0
            if saves or step % LOG_EVERY == 0 or step == plan.iterations:
                log.write(step, rate)
            if plan.evaluate and (now.starts_interval(plan.points) or step == plan.iterations):
                curve.append(curve_point(network, *plan.evaluate, step=step))
            if saves and step < plan.iterations:
                save_checkpoint(plan.checkpoint, network, method, optimiser, scaler, step, curve)
            if plan.report:
                plan.report(TrainingProgress(plan.stage, step, plan.iterations, log.loss))
    return curve


def build_optimiser(network: Network, method: nn.Module, plan: DescentPlan) -> torch.optim.SGD:
    """SGD with Nesterov momentum.

    A backbone with trained weights moves at a fraction of the rate.
    """
    preset = plan.preset
    momentum = preset.backbone_momentum
    groups = [
        {"params": [*network.head.parameters(), *method.parameters()], "scale": 1.0},
        {
            "params": list(network.backbone.parameters()),
            "scale": plan.backbone_scale,
            "momentum": momentum,
            "nesterov": momentum > 0,
        },
    ]
    groups = [group for group in groups if group["params"]]  # a frozen backbone has none
    optimiser = torch.optim.SGD(
        groups, lr=preset.lr, momentum=0.9, weight_decay=preset.decay, nesterov=True, fused=True
    )
    if plan.precision == "float16":
        # A first step that is skipped, since scaled gradients overflow, would leave it undefined.
        for group in optimiser.param_groups:
            for parameter in group["params"] if group["momentum"] > 0 else ():
                optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimiser


def set_rate(optimiser: torch.optim.SGD, preset: Preset, now: Moment) -> float:
    """Set the current learning rate of each parameter group, and return the head's."""
    rate = preset.lr * SCHEDULES[preset.schedule](now.ramp)
    for group in optimiser.param_groups:
        group["lr"] = rate * group["scale"]
    return rate


def curve_point(network: Network, inputs: Tensors, labels: Tensor, *, step: int) -> Point:
    """Measure error and NLL on labelled target data."""
    logits = predict_tensors(network, inputs)[1]
    error = (logits.argmax(dim=1) != labels).float().mean().item()
    return Point(step, error, F.cross_entropy(logits, labels).item())


def save_checkpoint(
    path: Path,
    network: Network,
    method: nn.Module,
    optimiser: torch.optim.SGD,
    scaler: torch.amp.GradScaler,
    step: int,
    curve: list[Point],
) -> None:
    """Write all that training resumes from, in one file."""
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    tensors |= {f"method.{name}": tensor for name, tensor in method.state_dict().items()}
    for i, parameter in enumerate(_parameters(optimiser)):
        momentum = optimiser.state[parameter].get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{i}"] = momentum
    note = {
        "step": step,
        "curve": [vars(point) for point in curve],
        "scaler": scaler.state_dict(),
    }
    save_tensors(path, tensors, note=note)


def restore_checkpoint(
    path: Path,
    network: Network,
    method: nn.Module,
    optimiser: torch.optim.SGD,
    scaler: torch.amp.GradScaler,
) -> tuple[int, list[Point]]:
    """Restore network, method, optimiser and the scale of gradients.

    Return the step of the checkpoint (0 without one) and the curve.
    """
    if not path.exists():
        return 0, []
    tensors, note = load_tensors(path)
    for prefix, module in (("network.", network), ("method.", method)):
        module.load_state_dict(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )
    for i, parameter in enumerate(_parameters(optimiser)):
        if f"momentum.{i}" in tensors:
            # in the memory layout of the weights: the fused optimiser expects the same
            momentum = torch.empty_like(parameter.detach()).copy_(tensors[f"momentum.{i}"])
            optimiser.state[parameter]["momentum_buffer"] = momentum
    scaler.load_state_dict(note["scaler"])
    return note["step"], [Point(**point) for point in note["curve"]]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from this seed inside the block; torch's generator is the same after it as before."""
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        yield


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch threads inside the block; it affects the last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


def _parameters(optimiser: torch.optim.SGD) -> list[Any]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        out: the folder of its files.
        curve: error and NLL on the target during training, if labels for evaluation were given.
        seconds: how long it took.

    """

    out: Path
    curve: tuple[Point, ...]
    seconds: float

    @property
    def target(self) -> Path:
        """Target logits and features, without labels."""
        return self.out / "target.npz"

    @property
    def source_val(self) -> Path:
        """Source validation logits, features and labels.

        Of the source model if the method is source-free.
        """
        own = self.out / "source_val.npz"
        return own if own.exists() else self.out / "source" / "source_val.npz"

    @property
    def source_train(self) -> Path:
        """The same for the source images that were trained on."""
        return self.source_val.with_name("source_train.npz")

    def load(self) -> Network:
        """The whole network in evaluation mode: images with values 0 to 255 in, logits out."""
        return load_network(self.out)


@contextmanager
def own_folder(out: Path) -> Iterator[None]:
    """Make the folder of a run and hold it, so that a second run is refused.

    Remove what a killed one left aside.
    """
    with writing(out, out):
        out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        sweep(out)
        yield


def start_run(out: Path, settings: dict[str, Any]) -> Trained | None:
    """Write the settings, or compare them with those of an earlier start.

    Return the result if that one finished.
    """
    settings = json.loads(json.dumps(settings))  # as they will be read back
    path = out / "run.json"
    if path.exists():
        _check_same(out, json.loads(path.read_text())["settings"], settings)
    else:
        save_json(path, {"settings": settings, "versions": training_versions()})
    result = out / "result.json"
    if not result.exists():
        return None
    (out / CHECKPOINT).unlink(missing_ok=True)  # if the run was killed when all was done
    finished = json.loads(result.read_text())
    return Trained(out, tuple(Point(**point) for point in finished["curve"]), finished["seconds"])


def finish_run(out: Path, curve: list[Point], seconds: float) -> Trained:
    """Mark the run as finished and delete its checkpoint."""
    save_json(
        out / "result.json", {"curve": [asdict(point) for point in curve], "seconds": seconds}
    )
    (out / CHECKPOINT).unlink(missing_ok=True)
    return Trained(out, tuple(curve), seconds)


def save_network(
    out: Path, network: Network, *, head: str, width: int, classes: tuple[str, ...]
) -> None:
    """Write the weights of the whole network, and how to build it."""
    backbone = network.backbone
    assert isinstance(backbone, Backbone)
    note = {
        "backbone": asdict(backbone.choice),
        "head": head,
        "width": width,
        "classes": list(classes),
    }
    save_tensors(out / "model.safetensors", network.state_dict(), note)


def load_network(out: Path | str) -> Network:
    """Load the network of a finished training; nothing is downloaded and no pickle is read.

    Args:
        out: the folder of the training.

    """
    path = Path(out) / "model.safetensors"
    if not path.exists():
        raise InputError(
            f"expected a finished training with {path.name}, got {path.parent}, which has none"
        )
    tensors, note = load_tensors(path)
    choice = Choice(**note["backbone"])
    with seeded(0):  # the weights drawn here are replaced at once
        backbone = build_backbone(Choice(choice.name, "random", choice.size, choice.config))
        network = Network(
            backbone, build_head(note["head"], backbone.width, note["width"], len(note["classes"]))
        )
    network.load_state_dict(tensors)
    backbone.pretrained = True
    backbone.choice = choice
    return network.eval()


def training_versions() -> dict[str, str]:
    """Return the versions that the results may depend on."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        **{name: version(name) for name in ("numpy", "safetensors")},
    }


def _check_same(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if changed:
        key = changed[0]
        raise InputError(
            f"expected the settings that {out} was started with ({key} {before.get(key)!r}), got "
            f"{key} {now.get(key)!r}"
        )
