"""MCC: minimum class confusion (Jin et al., ECCV 2020). Closed and partial sets."""

from __future__ import annotations

from torch import nn

from pseudocal.lab.adapt.losses import cross_entropy, mcc
from pseudocal.lab.adapt.method import (
    Moment,
    Preset,
    Problem,
    SourceTargetBatch,
    Update,
    Updates,
    forward,
)
from pseudocal.lab.adapt.networks import Network


class MCC(nn.Module):
    """Target predictions should not confuse the same two classes again and again."""

    def __init__(
        self,
        problem: Problem,
        *,
        weight: float = 1.0,
        temperature: float = 1.0,
        ramp: bool = True,
        smoothing: float = 0.1,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.temperature = temperature
        self.ramp = ramp
        self.smoothing = smoothing

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """Source cross-entropy plus the target's class confusion."""
        _, source, _, target = forward(network, batch)
        weight = self.weight * (now.ramp if self.ramp else 1)
        supervised = cross_entropy(source, batch.labels, smoothing=self.smoothing)
        yield Update(supervised + weight * mcc(target, temperature=self.temperature))


MCC_PRESETS = {
    "paper": Preset(MCC),
    "official": Preset(
        MCC,
        head="batchnorm",
        width=256,
        batch=28,
        options={"temperature": 2.5, "ramp": False, "smoothing": 0.0},
    ),
}
