"""The training loop of every method, and the checkpoint it resumes from after a kill.

All that is random in step t, such as batches and dropout masks, depends on the seed and on t alone. So a checkpoint
needs no random state, and a training that was killed and resumed ends with the same weights to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name

from pseudocal.lab.adapt.method import SCHEDULES, Moment, Preset
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.tensors import Tensors, load_tensors, predict_tensors, save_tensors


@dataclass(frozen=True)
class Point:
    """Error and NLL on labelled target data after `step` steps. For the record: training does not depend on it."""

    step: int
    error: float
    nll: float


@dataclass(frozen=True)
class TrainingProgress:
    """How far a stage is: its name, what is done of how much, and the loss (NaN if there is none)."""

    stage: str
    done: int
    total: int
    loss: float = math.nan


Report = Callable[[TrainingProgress], None]


@dataclass(frozen=True, eq=False)
class DescentPlan:
    """Settings of the loop.

    Attributes:
        preset: the settings of the optimiser.
        seed: decides what is random in each step.
        iterations: the number of steps.
        checkpoint: the file to resume from.
        checkpoint_every: after how many steps it is written.
        evaluate: target inputs and labels, for the curve only.
        points: the number of points of the curve.
        report: called after each step.
        stage: the name of the stage in reports.
        backbone_scale: the backbone's learning rate relative to the head's.

    """

    preset: Preset
    seed: int
    iterations: int
    checkpoint: Path
    checkpoint_every: int = 250
    evaluate: tuple[Tensors, Tensor] | None = None
    points: int = 20
    report: Report | None = None
    stage: str = "training"
    backbone_scale: float = 1.0


def descend(network: Network, method: Any, draw: Callable[[int], Any], plan: DescentPlan) -> list[Point]:
    """Train the network in place and return its curve; resumes from the plan's checkpoint if there is one."""
    optimiser = build_optimiser(network, method, plan)
    with seeded(plan.seed):
        done, curve = restore_checkpoint(plan.checkpoint, network, method, optimiser)
        for step in range(done + 1, plan.iterations + 1):
            now = Moment(step, plan.iterations)
            torch.manual_seed(_step_seed(plan.seed, step))
            set_rate(optimiser, plan.preset, now)
            network.train()
            method.train()
            loss = math.nan
            for update in method.steps(network, draw(step), now):
                loss = _finite(update.loss.item(), step)
                optimiser.zero_grad()
                update.loss.backward(inputs=update.only)
                optimiser.step()
            if plan.evaluate and (now.starts_interval(plan.points) or step == plan.iterations):
                curve.append(curve_point(network, *plan.evaluate, step=step))
            if step % plan.checkpoint_every == 0 and step < plan.iterations:
                save_checkpoint(plan.checkpoint, network, method, optimiser, step, curve)
            if plan.report:
                plan.report(TrainingProgress(plan.stage, step, plan.iterations, loss))
    return curve


def build_optimiser(network: Network, method: nn.Module, plan: DescentPlan) -> torch.optim.SGD:
    """SGD with Nesterov momentum; a backbone with trained weights moves at a fraction of the rate."""
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
    return torch.optim.SGD(groups, lr=preset.lr, momentum=0.9, weight_decay=preset.decay, nesterov=True, fused=True)


def set_rate(optimiser: torch.optim.SGD, preset: Preset, now: Moment) -> None:
    """The learning rate of this moment, for each group by its scale."""
    rate = preset.lr * SCHEDULES[preset.schedule](now.ramp)
    for group in optimiser.param_groups:
        group["lr"] = rate * group["scale"]


def curve_point(network: Network, inputs: Tensors, labels: Tensor, *, step: int) -> Point:
    """Error and NLL on labelled target data."""
    logits = predict_tensors(network, inputs)[1]
    error = (logits.argmax(dim=1) != labels).float().mean().item()
    return Point(step, error, F.cross_entropy(logits, labels).item())


def save_checkpoint(
    path: Path, network: Network, method: nn.Module, optimiser: torch.optim.SGD, step: int, curve: list[Point]
) -> None:
    """Write all that training resumes from, in one file."""
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    tensors |= {f"method.{name}": tensor for name, tensor in method.state_dict().items()}
    for i, parameter in enumerate(_parameters(optimiser)):
        momentum = optimiser.state[parameter].get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{i}"] = momentum
    save_tensors(path, tensors, note={"step": step, "curve": [vars(point) for point in curve]})


def restore_checkpoint(
    path: Path, network: Network, method: nn.Module, optimiser: torch.optim.SGD
) -> tuple[int, list[Point]]:
    """Read a checkpoint into network, method and optimiser; the step it was written after (0 without one)."""
    if not path.exists():
        return 0, []
    tensors, note = load_tensors(path)
    for prefix, module in (("network.", network), ("method.", method)):
        module.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    for i, parameter in enumerate(_parameters(optimiser)):
        if f"momentum.{i}" in tensors:
            optimiser.state[parameter]["momentum_buffer"] = tensors[f"momentum.{i}"].to(parameter.device)
    return note["step"], [Point(**point) for point in note["curve"]]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from this seed inside the block; torch's generator is the same after it as before."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use so many threads of torch inside the block; another number of threads gives other last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


def _finite(loss: float, step: int) -> float:
    if not math.isfinite(loss):
        raise FloatingPointError(f"expected a finite loss, got {loss} in step {step}: a smaller learning rate may help")
    return loss


def _parameters(optimiser: torch.optim.SGD) -> list[Any]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]
