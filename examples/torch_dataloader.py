"""A torch model and a DataLoader.

A network is trained on clean digits and used on noisy ones. The loader may give labels too: they
are never looked at.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pseudocal import PseudoCal
from pseudocal.metrics import Outcomes, ece
from pseudocal.torch import calibrated


def main() -> dict[str, float]:
    """Train, calibrate on the target, and hold the result against labels that the calibration never saw."""
    x, y = (torch.as_tensor(a) for a in load_digits(return_X_y=True))
    x = x.float().reshape(-1, 1, 8, 8) / 16
    model = train(x[:900], y[:900])
    noise = torch.as_tensor(
        np.random.default_rng(0).normal(0, 0.45, size=x[900:].shape), dtype=torch.float32
    )
    target = TensorDataset(x[900:] + noise, y[900:])

    calibration = PseudoCal().fit(model, DataLoader(target, batch_size=128))
    model = calibrated(
        model, calibration
    )  # same inputs, calibrated logits; saves and exports as one

    with torch.inference_mode():
        after = model(target.tensors[0]).numpy()
    labels = target.tensors[1].numpy()
    before = after * calibration.temperature
    scores = {
        "before": ece(Outcomes.from_logits(before, labels)),
        "after": ece(Outcomes.from_logits(after, labels)),
    }
    print(calibration)
    print(f"verdict: {calibration.verdict}")
    print(f"ECE {scores['before']:.1%} before, {scores['after']:.1%} after")
    return scores


def train(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Plain supervised training."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(8):
        for rows in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return model.eval()


if __name__ == "__main__":
    main()
