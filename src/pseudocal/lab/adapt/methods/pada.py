"""PADA: partial adversarial domain adaptation (Cao et al., ECCV 2018). Partial sets."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pseudocal.lab.adapt.losses import class_weights, cross_entropy, domain_confusion
from pseudocal.lab.adapt.method import (
    Moment,
    Preset,
    Problem,
    SourceTargetBatch,
    Update,
    Updates,
    forward,
)
from pseudocal.lab.adapt.networks import Discriminator, Network, reverse_gradient
from pseudocal.lab.adapt.tensors import predict_tensors


class PADA(nn.Module):
    """Source classes that seem absent from the target should be aligned less, and learnt less.

    Class weights are the target's mean prediction, refreshed `updates` times; until the first all
    are one.
    """

    gamma: Tensor  # (classes,)

    def __init__(
        self,
        problem: Problem,
        *,
        updates: int = 20,
        sharpness: float = 1.0,
        over_max: bool = False,
        deep: bool = False,
        joint: bool = False,
        weight: float = 1.0,
        smoothing: float = 0.1,
    ) -> None:
        super().__init__()
        self.target = problem.target
        self.updates = updates
        self.sharpness = sharpness
        self.over_max = over_max
        self.joint = joint
        self.weight = weight
        self.smoothing = smoothing
        self.register_buffer("gamma", torch.ones(problem.classes))
        stds = (0.01, 0.01, 0.3) if deep else ()
        self.discriminator = Discriminator(problem.width, deep=deep, stds=stds)

    def refresh(self, network: Network) -> None:
        """Weigh the classes by what the network now predicts on the whole target."""
        self.gamma = class_weights(
            predict_tensors(network, self.target)[1],
            sharpness=self.sharpness,
            over_max=self.over_max,
        )

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """Weighted source cross-entropy plus a discriminator; absent classes weigh little."""
        if self.updates and now.step > 1 and now.starts_interval(self.updates):
            self.refresh(network)
        source_features, source, target_features, _ = forward(network, batch, joint=self.joint)
        scale = now.reversal
        real = self.discriminator(reverse_gradient(source_features, scale))
        fake = self.discriminator(reverse_gradient(target_features, scale))
        weights = self.gamma[batch.labels]
        rows = len(real) + len(fake)
        adversarial = domain_confusion(
            real, fake, weights / weights.max() / rows, torch.ones_like(fake) / rows
        )
        supervised = cross_entropy(source, batch.labels, smoothing=self.smoothing, weights=weights)
        yield Update(supervised + self.weight * adversarial)


# Published: weights refreshed every 500 of about 10,000 steps, so 20 times; sharpness 1 or 10, by
# data set. Label smoothing keeps predictions soft, so that their mean says little about which
# classes are absent: "paper" takes 10.
PADA_PRESETS = {
    "paper": Preset(PADA, options={"sharpness": 10.0}),
    "official": Preset(
        PADA,
        head="gaussian",
        width=256,
        decay=5e-4,
        options={"deep": True, "joint": True, "smoothing": 0.0},
    ),
}
