"""A Hugging Face image classifier.

From the folder of a model to a config that carries the temperature.

The model here is a small ResNet with random weights, so that the example needs no download. With a
model of yours, the first lines go and `MODEL` is its folder or its name on the hub (`hf:owner/name`
for the command).
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    ResNetConfig,
    ResNetForImageClassification,
)

from pseudocal import PseudoCal


def main() -> float:
    """Calibrate a saved model and load it again with its temperature."""
    with TemporaryDirectory() as folder:
        save_small_model(Path(folder))
        model = AutoModelForImageClassification.from_pretrained(folder).eval()
        pixels = torch.rand(512, 3, 1, 1) + 0.2 * torch.rand(
            512, 3, 32, 32
        )  # what its image processor would give

        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pixels), batch_size=64)
        calibration = PseudoCal().fit(model, (batch for (batch,) in loader))

        model.config.pseudocal_temperature = (
            calibration.temperature
        )  # travels with the model from now on
        model.save_pretrained(folder)

        config = AutoConfig.from_pretrained(folder)
        logits = model(pixel_values=pixels[:8]).logits
        probabilities = (logits / config.pseudocal_temperature).softmax(dim=-1)
    print(calibration)
    print(f"verdict: {calibration.verdict}")
    print(f"confidence of the first input: {probabilities[0].max():.3f}")
    return float(config.pseudocal_temperature)


def save_small_model(folder: Path) -> None:
    """A ResNet that tells colours apart at random, and is very sure of it."""
    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
    )
    model = ResNetForImageClassification(config)
    with torch.no_grad():
        head = model.classifier[1]
        head.weight.mul_(40)
        head.bias.sub_(
            model(pixel_values=torch.rand(256, 3, 1, 1).expand(-1, -1, 32, 32)).logits.mean(dim=0)
        )
    model.save_pretrained(folder)


if __name__ == "__main__":
    main()
