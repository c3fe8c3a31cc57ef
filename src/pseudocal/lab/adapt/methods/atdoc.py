"""ATDOC: label target rows by their neighbours or by class centroids (Liang et al., CVPR 2021).

Closed and partial.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name

from pseudocal.lab.adapt.losses import cross_entropy
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
from pseudocal.lab.adapt.pseudo_labels import (
    centroid_labels,
    moved_centroids,
    neighbour_labels,
    sharpened,
)


class Neighbourhood(nn.Module):
    """ATDOC-NA: remember every target row; each is labelled by the k remembered rows next to it."""

    memory: Tensor  # (target rows, width), unit length
    predictions: Tensor  # (target rows, classes)

    def __init__(
        self, problem: Problem, *, weight: float = 0.2, k: int = 5, smoothing: float = 0.1
    ) -> None:
        super().__init__()
        self.weight = weight
        self.k = k
        self.smoothing = smoothing
        n = len(problem.target)
        self.register_buffer("memory", F.normalize(torch.rand(n, problem.width), dim=1))
        self.register_buffer("predictions", torch.full((n, problem.classes), 1 / problem.classes))

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """Source cross-entropy plus the neighbours' labels on the target.

        Then remember the batch.
        """
        _, source, features, target = forward(network, batch)
        labels, votes = neighbour_labels(
            features, batch.rows, memory=self.memory, predictions=self.predictions, k=self.k
        )
        supervised = cross_entropy(source, batch.labels, smoothing=self.smoothing)
        yield Update(
            supervised + self.weight * now.ramp * cross_entropy(target, labels, weights=votes)
        )
        features, logits = in_evaluation(network, batch.target)
        self.memory[batch.rows] = F.normalize(features, dim=1)
        self.predictions[batch.rows] = sharpened(logits.softmax(dim=1))


class Centroids(nn.Module):
    """ATDOC-NC: each target row is labelled by the nearest of slowly moving class centroids."""

    centroids: Tensor  # (classes, width)

    def __init__(
        self,
        problem: Problem,
        *,
        weight: float = 0.1,
        momentum: float = 0.1,
        smoothing: float = 0.1,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.momentum = momentum
        self.smoothing = smoothing
        self.register_buffer(
            "centroids", F.normalize(torch.rand(problem.classes, problem.width), dim=1)
        )

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """Source cross-entropy plus the centroids' labels on the target.

        Then move the centroids.
        """
        _, source, features, target = forward(network, batch)
        labels = centroid_labels(features, self.centroids)
        supervised = cross_entropy(source, batch.labels, smoothing=self.smoothing)
        yield Update(supervised + self.weight * now.ramp * cross_entropy(target, labels))
        features, logits = in_evaluation(network, batch.target)
        self.centroids = moved_centroids(
            self.centroids, features, logits.argmax(dim=1), momentum=self.momentum
        )


@torch.no_grad()
def in_evaluation(network: Network, x: Tensor) -> tuple[Tensor, Tensor]:
    """Features and logits of the network in eval mode, as it is now."""
    network.eval()
    both = network.both(x)
    network.train()
    return both


ATDOC_PRESETS = {"paper": Preset(Neighbourhood), "official": Preset(Neighbourhood, width=256)}
ATDOC_NC_PRESETS = {"paper": Preset(Centroids), "official": Preset(Centroids, width=256)}
