"""Hugging Face: from two saved classifiers to one that `from_pretrained` opens, calibrated.

Two small ResNets learn clean digits, so the example needs no download. With your own models, leave
`train_and_save` out and name their folders, or `hf:owner/name`.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import (
    AutoModelForImageClassification,
    ResNetConfig,
    ResNetForImageClassification,
)

import pseudocal.app
from pseudocal import softmax
from pseudocal.metrics import ece


def main() -> dict[str, float]:
    """Calibrate a saved model on unlabelled data, and open the result again."""
    x, y = load_digits(return_X_y=True)
    images = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    noise = np.random.default_rng(0).normal(0, 0.3, size=images[900:].shape)
    new = images[900:] + noise.astype(np.float32)
    with TemporaryDirectory() as name:
        folder = Path(name)
        for seed in (0, 1):
            train_and_save(images[:900], y[:900], seed, folder / f"model-{seed}")
        np.save(folder / "new.npy", new)  # as an image processor would prepare them
        result = pseudocal.app.calibrate(
            str(folder / "model-0"),
            folder / "new.npy",
            folder / "out",
            second_opinion=str(folder / "model-1"),
        )
        before = probabilities(folder / "model-0", new)
        # `model`, or `unconfirmed-model` if the verdict is caution
        after = probabilities(result.out / result.report.model.files[0], new)
    scores = {"before": ece(before, y[900:]), "after": ece(after, y[900:])}
    print(result.report.headline)
    print(result.report.recommendation)
    print(f"ECE {scores['before']:.1%} before, {scores['after']:.1%} after")
    return scores


def probabilities(folder: Path, x: np.ndarray) -> np.ndarray:
    """What a saved model predicts."""
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        return softmax(model(pixel_values=torch.as_tensor(x)).logits.numpy())


def train_and_save(x: np.ndarray, y: np.ndarray, seed: int, folder: Path) -> None:
    """Train a small ResNet for a few seconds."""
    torch.manual_seed(seed)
    config = ResNetConfig(
        num_channels=1,
        embedding_size=16,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        layer_type="basic",
        num_labels=10,
    )
    model = ResNetForImageClassification(config)
    pixels, labels = torch.as_tensor(x), torch.as_tensor(y)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(6):
        for rows in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            model(pixel_values=pixels[rows], labels=labels[rows]).loss.backward()
            optimiser.step()
    model.eval().save_pretrained(folder)


if __name__ == "__main__":
    main()
