"""An adaptation method.

Settings, a little state, and a generator whose every `yield` is one step of the optimiser.

    class MyMethod(nn.Module):
        def __init__(self, problem, *, weight=1.0): ...   # buffers, parameters: saved, restored
        def steps(self, network, batch, now):
            ...
            yield Update(loss)      # the loop takes one step of the optimiser
            ...                     # code here runs after that step

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
from pseudocal.lab.adapt.tensors import Tensors


@dataclass(frozen=True, eq=False)
class TargetBatch:
    """Target inputs and their numbers in the target set."""

    target: Tensor  # (n, ...) images, or features of a frozen backbone
    rows: Tensor  # (n,)


@dataclass(frozen=True, eq=False)
class SourceTargetBatch(TargetBatch):
    """A batch of each domain; only the source has labels."""

    source: Tensor
    labels: Tensor  # (n,), of the source


@dataclass(frozen=True)
class Moment:
    """How far training is; steps count from 1.

    >>> Moment(50, 100).ramp, round(Moment(50, 100).reversal, 4)
    (0.5, 0.9866)
    """

    step: int
    total: int

    @property
    def ramp(self) -> float:
        """The fraction of the training that is done."""
        return self.step / self.total

    @property
    def reversal(self) -> float:
        """How strongly gradients are reversed.

        From 0 to 1 along a sigmoid (Ganin & Lempitsky, ICML 2015).
        """
        return 2 / (1 + math.exp(-10 * self.ramp)) - 1

    def starts_interval(self, count: int) -> bool:
        """Whether this step is the first of one of `count` equal intervals.

        >>> [t for t in range(1, 7) if Moment(t, 6).starts_interval(3)]
        [1, 3, 5]
        """
        return (self.step - 1) % max(self.total // count, 1) == 0


@dataclass(frozen=True, eq=False)
class Update:
    """One step of the optimiser on `loss`, for all parameters or for `only` these."""

    loss: Tensor
    only: list[nn.Parameter] | None = None


Updates = Iterator[Update]


@dataclass(frozen=True, eq=False)
class Problem:
    """What a method knows before it starts: the sizes, and the whole target set without labels."""

    classes: int
    width: int  # of the features the classifier sees
    target: Tensors


@dataclass(frozen=True)
class Point:
    """Error and NLL on labelled target data, for the record: training does not depend on it.

    Attributes:
        step: the number of steps so far.
        error: the error rate.
        nll: the negative log-likelihood.

    """

    step: int
    error: float
    nll: float


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a stage of training.

    Attributes:
        stage: the name of the stage.
        done: how many steps or images are done.
        total: how many there are in all.
        loss: the loss of the last step; NaN if there is none.

    """

    stage: str
    done: int
    total: int
    loss: float = math.nan


ReportProgress = Callable[[TrainingProgress], None]


@dataclass(frozen=True)
class Preset:
    """A method with its settings and those of the optimiser.

    Attributes:
        method: builds the method from a `Problem` and its options.
        head: a name in the table of `pseudocal.lab.adapt.networks`.
        width: the width of the bottleneck.
        batch: how many inputs of each domain a step sees.
        lr: the learning rate at the start.
        decay: the weight decay.
        schedule: a name in `SCHEDULES`. It spans all iterations; the published schedules are for
            10,000.
        backbone_scale: the backbone's learning rate relative to the head's, if it starts from
            trained weights.
        backbone_momentum: the backbone's momentum.
        options: settings of the method that differ from its defaults.
        own_classifier: whether the source model of a source-free method is the pretrained network
            with its own classifier, as for ImageNet; else one is trained on the source.

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
    own_classifier: bool = False


SCHEDULES: dict[str, Callable[[float], float]] = {  # of the fraction of the training that is done
    "constant": lambda ramp: 1.0,
    "poly": lambda ramp: (1 - ramp) ** 0.9,  # of segmentation
    "inverse": lambda ramp: (1 + 10 * ramp) ** -0.75,
    "steep": lambda ramp: (1 + 10 * ramp) ** -1.5,  # DINE's distillation
    # DINE's fine-tuning goes on where "inverse" ends
    "late": lambda ramp: (11 + 10 * ramp) ** -0.75,
}


def forward(
    network: Network, batch: SourceTargetBatch, *, joint: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute features and logits of the source, then of the target.

    With `joint`, both domains are one batch and share their batch statistics; ATDOC and CDAN keep
    them apart.
    """
    if not joint:
        return (*network.both(batch.source), *network.both(batch.target))
    n = len(batch.source)
    features, logits = network.both(torch.cat([batch.source, batch.target]))
    return features[:n], logits[:n], features[n:], logits[n:]
