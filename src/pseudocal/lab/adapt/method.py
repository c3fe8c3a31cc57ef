"""What an adaptation method is: settings, a little state, and a generator whose every `yield` is one optimiser step.

    class MyMethod(nn.Module):
        def __init__(self, problem, *, weight=1.0): ...        # buffers and parameters are saved and restored
        def steps(self, network, batch, now):
            ...
            yield Step(loss)                                   # the loop descends on it, then comes back
            ...                                                # so what stands here runs after the step

Source-free methods get a `TargetBatch`, the others a `Pair`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.rows import Rows


@dataclass(frozen=True, eq=False)
class TargetBatch:
    """Target inputs and which rows of the target set they are."""

    target: Tensor  # (n, ...) images, or features of a frozen backbone
    rows: Tensor  # (n,)


@dataclass(frozen=True, eq=False)
class Pair(TargetBatch):
    """A batch of each domain; only the source has labels."""

    source: Tensor
    labels: Tensor  # (n,), of the source


@dataclass(frozen=True)
class Moment:
    """Where training stands; steps count from 1.

    >>> Moment(50, 100).ramp, round(Moment(50, 100).reversal, 4)
    (0.5, 0.9866)
    """

    step: int
    total: int

    @property
    def ramp(self) -> float:
        """The share of the training that is done."""
        return self.step / self.total

    @property
    def reversal(self) -> float:
        """How strongly gradients are reversed: from 0 to 1 along a sigmoid (Ganin & Lempitsky, ICML 2015)."""
        return 2 / (1 + math.exp(-10 * self.ramp)) - 1

    def starts_interval(self, count: int) -> bool:
        """Whether this step is the first of one of `count` equal intervals.

        >>> [t for t in range(1, 7) if Moment(t, 6).starts_interval(3)]
        [1, 3, 5]
        """
        return (self.step - 1) % max(self.total // count, 1) == 0


@dataclass(frozen=True, eq=False)
class Step:
    """Descend on `loss`, moving all parameters or `only` these."""

    loss: Tensor
    only: list[nn.Parameter] | None = None


Steps = Iterator[Step]


@dataclass(frozen=True, eq=False)
class Problem:
    """What a method may know before it starts: the sizes, and the whole target set without labels."""

    classes: int
    width: int  # of the features the classifier sees
    target: Rows


@dataclass(frozen=True)
class Preset:
    """A method with its settings and the training that goes with them.

    The schedule spans the budget: the published ones (10,000 iterations) are those of `iterations=10_000`.
    `backbone_scale` is the backbone's share of the learning rate if it starts from trained weights.
    """

    method: Callable[..., Any]
    head: str = "linear"
    width: int = 1024
    batch: int = 36
    lr: float = 1e-2
    decay: float = 1e-3
    schedule: str = "inverse"
    backbone_scale: float = 0.1
    backbone_momentum: float = 0.9
    options: dict[str, Any] = field(default_factory=dict)


SCHEDULES: dict[str, Callable[[float], float]] = {  # of the share of the training that is done
    "constant": lambda ramp: 1.0,
    "poly": lambda ramp: (1 - ramp) ** 0.9,  # of segmentation
    "inverse": lambda ramp: (1 + 10 * ramp) ** -0.75,
    "steep": lambda ramp: (1 + 10 * ramp) ** -1.5,  # DINE's distillation
    "late": lambda ramp: (11 + 10 * ramp) ** -0.75,  # DINE's fine-tuning goes on where "inverse" ends
}


def forward(network: Network, batch: Pair, *, joint: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features and logits of the source, then of the target.

    `joint` sends both through in one batch, so that batch norm sees one mixture; apart is ATDOC's and CDAN's way.
    """
    if not joint:
        return (*network.both(batch.source), *network.both(batch.target))
    n = len(batch.source)
    features, logits = network.both(torch.cat([batch.source, batch.target]))
    return features[:n], logits[:n], features[n:], logits[n:]
