"""What PseudoCal costs beyond its forward passes, on a ResNet-18, and what importing the library costs.

Run by `make bench`. For comparison, the same real and mixed batches are sent through the network
alone. Both are timed in turn, and the median of the ratios is printed.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import torch
from transformers import ResNetConfig, ResNetForImageClassification

from pseudocal import PseudoCal

IMAGES, ROUNDS = 768, 5


def network() -> torch.nn.Module:
    """A ResNet-18 with random weights."""
    torch.manual_seed(0)
    config = ResNetConfig(
        hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=20
    )
    return ResNetForImageClassification(config).eval()


class Recorded(torch.nn.Module):
    """Keep every batch that passes."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.batches: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pass a batch on."""
        self.batches.append(x)
        return self.model(x).logits


def main() -> None:
    """Print the ratio of the whole to the passes alone."""
    model = network()
    rng = np.random.default_rng(0)
    coarse = rng.standard_normal((IMAGES, 3, 8, 8), dtype=np.float32)
    images = torch.from_numpy(coarse.repeat(8, axis=2).repeat(8, axis=3))
    recorded = Recorded(model)
    calibration = PseudoCal().fit(recorded, images, batch_size=64)
    whole, passes = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        PseudoCal().fit(model, images, batch_size=64)
        whole.append(time.perf_counter() - start)
        start = time.perf_counter()
        with torch.inference_mode():
            for x in recorded.batches:
                model(x)
        passes.append(time.perf_counter() - start)
    ratio = np.median(np.array(whole) / np.array(passes))
    mixed = calibration.counts["mixup_samples"]
    print(f"\nPseudoCal on a ResNet-18, {IMAGES} images of 64 x 64, {mixed} mixup samples")
    print(
        f"whole {np.median(whole):.2f} s, its forward passes alone {np.median(passes):.2f} s, ratio {ratio:.3f}"
    )
    code = "import time; t = time.perf_counter(); import pseudocal; print(time.perf_counter() - t)"
    seconds = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    print(f"import pseudocal: {min(seconds):.3f} s")


if __name__ == "__main__":
    main()
