"""MCD: maximum classifier discrepancy (Saito et al., CVPR 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pseudocal.adapt.losses import class_balance, cross_entropy, discrepancy
from pseudocal.adapt.method import Moment, Pair, Preset, Problem, Step, Steps
from pseudocal.adapt.networks import Network


class MCD(nn.Module):
    """Two classifiers disagree on target rows far from the source; the generator learns to leave no such rows."""

    def __init__(
        self,
        problem: Problem,
        *,
        weight: float = 1.0,
        balance: float = 0.01,
        generator_steps: int = 4,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.weight, self.balance, self.generator_steps, self.smoothing = weight, balance, generator_steps, smoothing

    def steps(self, network: Network, batch: Pair, now: Moment) -> Steps:
        """Everything learns the source; the classifiers part on the target; the generator reconciles them."""
        supervised, balance, _ = self.losses(network, batch)
        yield Step(supervised + balance)
        supervised, balance, apart = self.losses(network, batch)
        yield Step(supervised + balance - apart, only=network.classifiers())
        for _ in range(self.generator_steps):
            yield Step(self.losses(network, batch)[2], only=network.generator())

    def losses(self, network: Network, batch: Pair) -> tuple[Tensor, Tensor, Tensor]:
        """Both classifiers' source loss, their balance on the target, and how far apart they are there."""
        assert network.head.rival is not None
        n = len(batch.source)
        features = network.features(torch.cat([batch.source, batch.target]))
        first, rival = network.head.classifier(features), network.head.rival(features)
        supervised = sum(
            (cross_entropy(z[:n], batch.labels, smoothing=self.smoothing) for z in (first, rival)), torch.zeros(())
        )
        balance = self.balance * (class_balance(first[n:]) + class_balance(rival[n:]))
        return supervised, balance, self.weight * discrepancy(first[n:], rival[n:])


# The discrepancy is a mean over classes: TLlib multiplies it by 30 on Office-Home (65 classes). PseudoCal's own
# setting is not published; "paper" takes TLlib's, whose head it uses.
PRESETS = {
    "paper": Preset(MCD, head="pair", options={"weight": 30.0, "balance": 0.0}),
    "official": Preset(
        MCD,
        head="pair",
        width=1000,
        batch=32,
        lr=1e-3,
        decay=5e-4,
        schedule="constant",
        backbone_scale=1.0,
        backbone_momentum=0.0,
    ),
}
