"""CDAN and CDAN+E: adversarial alignment given the predicted class (Long et al., NeurIPS 2018)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pseudocal.arrays import InputError
from pseudocal.lab.adapt.losses import (
    confidence_weights,
    cross_entropy,
    domain_confusion,
    entropies,
    multilinear,
    over_batch,
    per_domain,
)
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


class CDAN(nn.Module):
    """A discriminator of features and predictions together should not tell the domains apart.

    `randomised` replaces the outer product by so many random products of the two, which costs far
    less when there are many classes. `entropy` gives confident rows a larger weight (CDAN+E):
    gradients flow through that weight with "official" and not with "tllib".
    """

    feature_map: Tensor | None
    class_map: Tensor | None

    def __init__(
        self,
        problem: Problem,
        *,
        entropy: str | None = None,
        conditional: bool = True,
        randomised: int | None = None,
        deep: bool = False,
        hidden: int = 1024,
        weight: float = 1.0,
        smoothing: float = 0.1,
    ) -> None:
        super().__init__()
        if entropy not in (None, "official", "tllib"):
            raise InputError(
                f"expected an entropy weight among None, official, tllib, got {entropy!r}"
            )
        self.entropy = entropy
        self.conditional = conditional
        self.weight = weight
        self.smoothing = smoothing
        self.register_buffer(
            "feature_map", None if randomised is None else torch.randn(problem.width, randomised)
        )
        self.register_buffer(
            "class_map", None if randomised is None else torch.randn(problem.classes, randomised)
        )
        inputs = randomised or problem.width * (problem.classes if conditional else 1)
        self.discriminator = Discriminator(inputs, width=hidden, deep=deep)

    def condition(self, features: Tensor, p: Tensor) -> Tensor:
        """What the discriminator sees."""
        if not self.conditional:  # plain DANN, to compare with
            return features
        if self.feature_map is None or self.class_map is None:
            return multilinear(p, features)
        return (
            (features @ self.feature_map)
            * (p.detach() @ self.class_map)
            / math.sqrt(self.feature_map.shape[1])
        )

    def row_weights(self, p: Tensor, reversal: float) -> Tensor:
        """One for each row, or more for confident ones.

        With "official" the gradient of the entropy is reversed.
        """
        if self.entropy is None:
            return torch.ones_like(p[:, 0])
        if self.entropy == "tllib":
            return confidence_weights(p)
        return 1 + torch.exp(-reverse_gradient(entropies(p), reversal))

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """Source cross-entropy plus the discriminator's loss, with its gradient reversed."""
        source_features, source, target_features, target = forward(network, batch)
        features = torch.cat([source_features, target_features])
        p = torch.cat([source, target]).softmax(dim=1)
        seen = self.discriminator(reverse_gradient(self.condition(features, p), now.reversal))
        weights = self.row_weights(p, now.reversal)
        normalise = over_batch if self.entropy == "tllib" else per_domain
        n = len(source)
        adversarial = domain_confusion(seen[:n], seen[n:], *normalise(weights[:n], weights[n:]))
        yield Update(
            cross_entropy(source, batch.labels, smoothing=self.smoothing)
            + self.weight * adversarial
        )


# A bottleneck of 1024 would make the outer product's first layer 1024 * 1024 * classes large;
# ATDOC's default is 256.
CDAN_PRESETS = {
    "paper": Preset(CDAN, width=256),
    "official": Preset(CDAN, width=256, options={"deep": True, "smoothing": 0.0}),
}
CDAN_E_PRESETS = {
    "paper": Preset(CDAN, width=256, options={"entropy": "official"}),
    "official": Preset(
        CDAN, width=256, options={"entropy": "official", "deep": True, "smoothing": 0.0}
    ),
}
