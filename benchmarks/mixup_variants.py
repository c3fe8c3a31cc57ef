"""The paper's ablation of mixup variants on the built-in digits.

    python benchmarks/mixup_variants.py

Prints the ECE of each variant, the correspondence rate and the lambda sweep. Takes about five
minutes on one core.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from pseudocal import PseudoCal
from pseudocal.calibrators import oracle, uncalibrated
from pseudocal.lab.analyses import correspondence, lambda_sweep
from pseudocal.lab.data import Domain, load
from pseudocal.metrics import Outcomes, ece
from pseudocal.mixup import STRATEGIES, manifoldmix, moco_v2, randaug
from pseudocal.predictors import as_predictor

SEEDS = range(3)
LABELS = (", hard", ", soft")
TASKS = [("fonts", "mnist"), ("mnist", "optdigits")]


class Digits(nn.Module):
    """A small network for 16 x 16 digits that takes pixels from 0 to 255."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits `(n, 10)`."""
        return self.layers(x / 255)


def train(source: Domain, seed: int = 0, epochs: int = 8) -> nn.Module:
    """Plain supervised training on the source."""
    torch.manual_seed(seed)
    model = Digits()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.tensor(source.inputs[:], dtype=torch.float32), torch.tensor(source.labels)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return model.eval()


def main() -> None:
    """Train, run everything, print Markdown."""
    torch.set_num_threads(1)  # the network is too small for more
    domains, runs = load("digits"), {}
    for source, target in TASKS:
        x = np.asarray(domains[target].inputs[:], dtype=np.float32)
        models = [train(domains[source].split(0.8)[0], seed) for seed in SEEDS]
        runs[f"{source} -> {target}"] = [
            everything(model, x, domains[target].labels) for model in models
        ]
    columns = {
        task: {name: float(np.mean([run[name] for run in each])) for name in each[0]}
        for task, each in runs.items()
    }
    print_variants(columns)
    print_ratios(columns)


def everything(model: torch.nn.Module, x: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """In percent.

    The ECE of every mixup variant and lambda, the accuracy, the correspondence rate.
    """
    logits = as_predictor(model)(x)

    def error(calibration) -> float:
        return ece(Outcomes.from_logits(calibration(logits), labels))

    rows = {"No calibration": error(uncalibrated())}
    rows |= {
        name: error(PseudoCal().fit(model, x, strategy=bound(name, model))) for name in STRATEGIES
    }
    rows["Oracle"] = error(oracle(logits, labels, by="ece"))
    rows["Accuracy"] = float((logits.argmax(axis=1) == labels).mean())
    rows["Correspondence"] = correspondence(model, x, labels).rate
    rows |= {f"{each.lam}, {each.labels}": each.ece for each in lambda_sweep(model, x, labels)}
    return {name: 100 * value for name, value in rows.items()}


def bound(name: str, model: torch.nn.Module):
    """A strategy with what it needs: a layer for ManifoldMix, and that pixels go up to 255."""
    pixels: dict[str, Any] = {"mean": 0.0, "std": 1 / 255}
    return {
        "ManifoldMix": partial(manifoldmix, module=model, layer="layers.8"),
        "MocoV2Aug": partial(moco_v2, **pixels),
        "RandAug": partial(randaug, **pixels),
    }.get(name, STRATEGIES[name])


def print_variants(columns: dict[str, dict[str, float]]) -> None:
    """A row for each mixup variant, a column for each task."""
    print(f"| %, mean of {len(SEEDS)} models | {' | '.join(columns)} |")
    print(f"|{' --- |' * (len(columns) + 1)}")
    names = next(iter(columns.values()))
    for name in names:
        if not name.endswith(LABELS):
            print(f"| {name} | {' | '.join(f'{each[name]:.1f}' for each in columns.values())} |")


def print_ratios(columns: dict[str, dict[str, float]]) -> None:
    """A row for each mixing ratio, a column for each task with hard and with soft labels."""
    heads = [f"{task}{labels}" for task in columns for labels in LABELS]
    print(f"\n| lambda | {' | '.join(heads)} |\n|{' --- |' * (len(heads) + 1)}")
    names = next(iter(columns.values()))
    for lam in [name.removesuffix(LABELS[0]) for name in names if name.endswith(LABELS[0])]:
        cells = [f"{each[lam + labels]:.1f}" for each in columns.values() for labels in LABELS]
        print(f"| {lam} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
