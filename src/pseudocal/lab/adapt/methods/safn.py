"""SAFN: stepwise adaptive feature norms (Xu et al., ICCV 2019)."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from pseudocal.lab.adapt.losses import cross_entropy, entropy, stepwise_norm
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


class SAFN(nn.Module):
    """Features with larger norms transfer better.

    Those of both domains should grow a little at every step.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        weight: float = 0.05,
        step: float = 1.0,
        entropy_weight: float = 0.0,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.step = step
        self.entropy_weight = entropy_weight
        self.smoothing = smoothing

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """Source cross-entropy plus the norms of both domains.

        `entropy_weight` 0.1 is the variant +ENT.
        """
        source_features, source, target_features, target = forward(network, batch)
        norms = stepwise_norm(source_features, step=self.step) + stepwise_norm(
            target_features, step=self.step
        )
        supervised = cross_entropy(source, batch.labels, smoothing=self.smoothing)
        yield Update(supervised + self.weight * norms + self.entropy_weight * entropy(target))


OFFICIAL = Preset(
    SAFN,
    head="afn",
    width=1000,
    batch=32,
    lr=1e-3,
    decay=5e-4,
    schedule="constant",
    backbone_scale=1.0,
    backbone_momentum=0.0,
)
# PseudoCal's settings for SAFN are not published: "paper" has its head (1024) and the optimiser of
# its other models. Step and weight by data set are TLlib's
# (examples/domain_adaptation/image_classification/afn.sh, `-r` and `--trade-off-norm`).
SAFN_PRESETS = {
    "paper": Preset(SAFN, head="afn"),
    "visda-2017": Preset(SAFN, head="afn", options={"step": 0.3}),
    "domainnet-126": Preset(SAFN, head="afn", options={"weight": 0.01}),
    "official": OFFICIAL,
    # jihanyang/AFN, its script for VisDA: two blocks, smaller steps, a smaller weight
    "official-visda": replace(OFFICIAL, head="afn-two", options={"step": 0.3, "weight": 0.01}),
}
