"""torch: a model, a second model from another seed, and a DataLoader of the new data.

The networks are trained on clean digits and used on noisy ones. The loader also gives labels: they
are never looked at.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pseudocal import PseudoCal, softmax
from pseudocal.metrics import ece
from pseudocal.torch import calibrated


def main() -> dict[str, float]:
    """Calibrate on the new data without its labels, and compare with the labels afterwards."""
    x, y = (torch.as_tensor(array) for array in load_digits(return_X_y=True))
    x = x.float().reshape(-1, 1, 8, 8) / 16
    first, second = (train(x[:900], y[:900], seed) for seed in (0, 1))
    noise = np.random.default_rng(0).normal(0, 0.45, size=x[900:].shape)
    new = x[900:] + torch.as_tensor(noise, dtype=torch.float32)
    truth = y[900:]

    loader = DataLoader(TensorDataset(new, truth), batch_size=128)
    calibration = PseudoCal().fit(first, loader, second_opinion=second)
    model = calibrated(first, calibration)  # one module: same inputs, calibrated logits

    scores = {
        "before": ece(probabilities(first, new), truth.numpy()),
        "after": ece(probabilities(model, new), truth.numpy()),
    }
    print(calibration)
    print(f"ECE {scores['before']:.1%} before, {scores['after']:.1%} after")
    return scores


def probabilities(model: nn.Module, x: torch.Tensor) -> np.ndarray:
    """What the model predicts."""
    with torch.inference_mode():
        return softmax(model(x).numpy())


def train(x: torch.Tensor, y: torch.Tensor, seed: int) -> nn.Module:
    """Plain supervised training."""
    torch.manual_seed(seed)
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
