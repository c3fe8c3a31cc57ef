"""Accuracy on a partial set, whose target has half of the classes, and PADA's final class weights.

    python benchmarks/partial.py

The table is in docs/paper/adaptation.md.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from pseudocal.lab.adapt import METHODS, TrainingRun, train
from pseudocal.lab.adapt.losses import class_weights
from pseudocal.lab.data import emoji, partial

CASES = [
    ("source-only", "paper"),
    ("mcc", "paper"),
    ("atdoc", "paper"),
    ("shot", "partial"),
    ("pada", "paper"),
]


def main() -> None:
    """Print one row for each method."""
    domains = emoji("noto", "twemoji")
    present = domains["twemoji"].classes[: len(domains["twemoji"].classes) // 2]
    source, target = domains["noto"], partial(domains["twemoji"], present)
    print(
        "\nnoto -> twemoji with the first 26 of 52 classes, seed 0\n\n| method | accuracy, % |\n|---|---|"
    )
    for method, preset in CASES:
        with tempfile.TemporaryDirectory() as out:
            trained = train(
                source,
                target.unlabelled(),
                TrainingRun(Path(out)),
                method=method,
                preset=preset,
                width=256,
            )
            with np.load(trained.target) as outputs:
                logits = outputs["logits"]
        print(f"| {method} | {100 * (logits.argmax(axis=1) == target.labels).mean():.1f} |")
        if method == "pada":
            sharpness = METHODS["pada"][preset].options["sharpness"]
            weights = class_weights(torch.from_numpy(logits), sharpness=sharpness).numpy()
            there = np.isin(target.classes, present)
            print(
                f"\nPADA's mean class weight: absent {weights[~there].mean():.2f}, present {weights[there].mean():.2f}"
            )


if __name__ == "__main__":
    main()
