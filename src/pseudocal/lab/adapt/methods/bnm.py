"""BNM: batch nuclear-norm maximisation (Cui et al., CVPR 2020)."""

from __future__ import annotations

from torch import nn

from pseudocal.arrays import InputError
from pseudocal.lab.adapt.losses import bnm, bnm_atdoc, bnm_fast, cross_entropy
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

SCALES = {"official": bnm, "atdoc": bnm_atdoc, "fast": bnm_fast}


class BNM(nn.Module):
    """A batch of target predictions should be confident and diverse.

    Its matrix should have a large nuclear norm.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        weight: float = 1.0,
        scale: str = "atdoc",
        ramp: bool = True,
        smoothing: float = 0.1,
    ) -> None:
        super().__init__()
        if scale not in SCALES:
            raise InputError(f"expected a scale among {', '.join(SCALES)}, got {scale!r}")
        self.weight = weight
        self.norm = SCALES[scale]
        self.ramp = ramp
        self.smoothing = smoothing

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """Source cross-entropy minus the nuclear norm of the target's predictions."""
        _, source, _, target = forward(network, batch)
        weight = self.weight * (now.ramp if self.ramp else 1)
        yield Update(
            cross_entropy(source, batch.labels, smoothing=self.smoothing)
            + weight * self.norm(target)
        )


BNM_PRESETS = {
    "paper": Preset(BNM),
    "official": Preset(
        BNM, head="direct", options={"scale": "official", "ramp": False, "smoothing": 0.0}
    ),
}
