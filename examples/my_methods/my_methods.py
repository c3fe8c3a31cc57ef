"""A calibrator, an adaptation method and a data set for `pseudocal bench`.

Use this file as it is, or install the package; then no option is needed:

    pseudocal bench run suite.toml --plugin my_methods.py
    pip install . && pseudocal bench run suite.toml
"""

from __future__ import annotations

import numpy as np
from torch import nn

from pseudocal import Calibration, PseudoCal
from pseudocal.lab.adapt.losses import cross_entropy
from pseudocal.lab.adapt.method import (
    Moment,
    Problem,
    SourceTargetBatch,
    Update,
    Updates,
    forward,
)
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.data import Domain, from_arrays
from pseudocal.lab.plugins import calibrator, dataset, method


@calibrator("confident-half", title="PseudoCal, confident half")
def confident_half(model, target_inputs, target_logits, *, seed: int = 0) -> Calibration:
    """PseudoCal on the more confident half of the target."""
    confidence = target_logits.max(axis=1) - np.sort(target_logits, axis=1)[:, -2]
    chosen = np.sort(np.argsort(confidence)[len(confidence) // 2 :])
    return PseudoCal(epochs=1, seed=seed).fit(model, target_inputs[chosen])


@method("entropy", width=64)
class Entropy(nn.Module):
    """Source cross-entropy plus the entropy of target predictions."""

    def __init__(self, problem: Problem, *, weight: float = 0.1) -> None:
        super().__init__()
        self.weight = weight

    def steps(self, network: Network, batch: SourceTargetBatch, now: Moment) -> Updates:
        """One step of the optimiser."""
        _, source, _, target = forward(network, batch)
        log_p = target.log_softmax(dim=1)
        entropy = -(log_p.exp() * log_p).sum(dim=1).mean()
        yield Update(cross_entropy(source, batch.labels) + self.weight * now.ramp * entropy)


@dataset("stripes")
def stripes(*domains: str) -> dict[str, Domain]:
    """Four classes of striped images in two domains, "clean" and "noisy"."""
    noise = {"clean": 20.0, "noisy": 150.0}
    return {name: _stripes(name, noise[name]) for name in domains or noise}


def _stripes(name: str, noise: float) -> Domain:
    rng = np.random.default_rng(len(name))
    labels = rng.integers(0, 4, 240)
    at = np.arange(16)
    waves = 100 * np.sin(2 * np.pi * np.outer(labels + 1, at) / 16)[:, None, None, :]
    images = 128 + waves + noise * rng.standard_normal((240, 1, 16, 16))
    classes = ("1", "2", "3", "4")
    return from_arrays(np.clip(images, 0, 255).astype(np.uint8), labels, classes, name=name)
