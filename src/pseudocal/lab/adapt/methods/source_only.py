"""No adaptation: learn from the labelled source only."""

from __future__ import annotations

from torch import nn

from pseudocal.lab.adapt.losses import cross_entropy
from pseudocal.lab.adapt.method import Moment, Preset, Problem, SourceTargetBatch, Update, Updates
from pseudocal.lab.adapt.networks import Network


class SourceOnly(nn.Module):
    """Cross-entropy on the source, label-smoothed in the code PseudoCal's models come from."""

    def __init__(self, problem: Problem, *, smoothing: float = 0.1) -> None:
        super().__init__()
        self.smoothing = smoothing

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """Source cross-entropy; the target is not used."""
        yield Update(cross_entropy(network(batch.source), batch.labels, smoothing=self.smoothing))


SOURCE_ONLY_PRESETS = {
    "paper": Preset(SourceOnly),
    "official": Preset(SourceOnly, width=256),
    "shot": Preset(SourceOnly, head="weightnorm", width=256, batch=64),
    "dine": Preset(SourceOnly, head="direct", batch=64),
}
