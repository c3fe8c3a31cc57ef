"""MCD: maximum classifier discrepancy (Saito et al., CVPR 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pseudocal.lab.adapt.losses import class_balance, cross_entropy, discrepancy
from pseudocal.lab.adapt.method import Moment, Preset, Problem, SourceTargetBatch, Update, Updates
from pseudocal.lab.adapt.networks import Network

# Logits of source rows, then of target rows, by the first and by the second classifier.
Both = tuple[Tensor, Tensor]


class MCD(nn.Module):
    """Two classifiers disagree on target rows far from the source.

    The generator learns to leave no such rows.
    """

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
        self.weight = weight
        self.balance = balance
        self.generator_steps = generator_steps
        self.smoothing = smoothing

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """All learn the source; the classifiers move apart on the target.

        The generator brings them together.
        """
        rows = torch.cat([batch.source, batch.target])
        yield Update(self.source_loss(classify(network, network.features(rows)), batch.labels))
        with torch.no_grad():  # the generator stays as it is
            features = network.features(rows)
        both = classify(network, features)
        yield Update(
            self.source_loss(both, batch.labels) - self.target_discrepancy(both, batch.labels),
            only=network.classifiers(),
        )
        for _ in range(self.generator_steps):
            both = classify(network, network.features(rows))
            yield Update(self.target_discrepancy(both, batch.labels), only=network.generator())

    def source_loss(self, both: Both, labels: Tensor) -> Tensor:
        """Both classifiers' source loss, and their balance on the target."""
        n = len(labels)
        first, second = (cross_entropy(z[:n], labels, smoothing=self.smoothing) for z in both)
        if self.balance == 0:
            return first + second
        first_balance, second_balance = (class_balance(z[n:]) for z in both)
        return first + second + self.balance * (first_balance + second_balance)

    def target_discrepancy(self, both: Both, labels: Tensor) -> Tensor:
        """How far apart the classifiers are on the target."""
        n = len(labels)
        first, second = both
        return self.weight * discrepancy(first[n:], second[n:])


def classify(network: Network, features: Tensor) -> Both:
    """Return the logits of both classifiers for the features of source and target rows."""
    assert network.head.second_classifier is not None
    return network.head.classifier(features), network.head.second_classifier(features)


def with_weight(weight: float) -> Preset:
    """Return PseudoCal's head and ATDOC's optimiser with this weight of the discrepancy."""
    return Preset(MCD, head="pair", options={"weight": weight, "balance": 0.0})


# The discrepancy is a mean over classes, so TLlib's weight depends on the data set:
# examples/domain_adaptation/image_classification/mcd.sh, `--trade-off`. Its DomainNet has all 345
# classes. PseudoCal's own setting is not published; it uses TLlib's head.
MCD_PRESETS = {
    "paper": with_weight(30.0),  # TLlib's for Office-Home
    "office-31": with_weight(10.0),
    "visda-2017": with_weight(1.0),  # the script's default
    "domainnet-126": with_weight(120.0),
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
