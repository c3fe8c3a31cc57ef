"""SHOT: source hypothesis transfer (Liang et al., ICML 2020).

White-box source-free: a model, and no source data.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from pseudocal.lab.adapt.losses import cross_entropy, information_maximisation
from pseudocal.lab.adapt.method import Moment, Preset, Problem, TargetBatch, Update, Updates
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.pseudo_labels import cluster_labels
from pseudocal.lab.adapt.tensors import predict_tensors


class SHOT(nn.Module):
    """Keep the source classifier.

    Move the features until predictions are confident, diverse and fit the clusters.
    """

    labels: Tensor  # (target rows,)

    def __init__(
        self,
        problem: Problem,
        *,
        weight: float = 0.3,
        diversity: bool = True,
        threshold: int = 0,
        refreshes: int = 15,
    ) -> None:
        super().__init__()
        self.target = problem.target
        self.weight = weight
        self.diversity = diversity
        self.threshold = threshold
        self.refreshes = refreshes
        self.register_buffer("labels", torch.zeros(len(problem.target), dtype=torch.long))

    def steps(self, network: Network, batch: TargetBatch, now: Moment) -> Updates:
        """Pseudo-labels of the last refresh plus information maximisation; the classifier stays."""
        if now.starts_interval(self.refreshes):
            features, logits = predict_tensors(network, self.target)
            self.labels = cluster_labels(features, logits.softmax(dim=1), threshold=self.threshold)
        logits = network(batch.target)
        pseudo = self.weight * cross_entropy(logits, self.labels[batch.rows])
        yield Update(
            pseudo + information_maximisation(logits, diversity=self.diversity),
            only=network.generator(),
        )


# SHOT's object/image_pretrained.py adapts an ImageNet network to Caltech's 84 classes, a partial
# set: no schedule, 30 epochs with new pseudo-labels in each, no diversity term, classes of 30 rows
# or fewer skipped. For a closed set, such as ImageNet-Sketch, diversity and threshold are those of
# object/image_target.py.
IMAGENET = Preset(
    SHOT,
    head="direct",
    batch=64,
    lr=1e-3,
    decay=5e-4,
    schedule="constant",
    backbone_scale=1.0,
    options={"refreshes": 30},
    own_classifier=True,
)
SHOT_PRESETS = {
    "paper": Preset(SHOT, head="weightnorm", width=256, batch=64),
    "official": Preset(SHOT, head="weightnorm", width=256, batch=64),
    "partial": Preset(
        SHOT, head="weightnorm", width=256, batch=64, options={"diversity": False, "threshold": 10}
    ),
    "imagenet": IMAGENET,
    "imagenet-partial": replace(
        IMAGENET, options={"refreshes": 30, "diversity": False, "threshold": 30}
    ),
}
