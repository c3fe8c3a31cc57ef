"""Train a small network on one kind of digits, use it on another, and calibrate it there without labels.

Run by `make demo`; takes about a minute. Labels of the target are used at the very end only, to show what happened.
"""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import nn

from pseudocal import Outcomes, PseudoCal, Reliability, fit_temperature
from pseudocal.data import Domain, load
from pseudocal.metrics import accuracy, bootstrap, ece, nll, paired

mpl.use("Agg")
import matplotlib.pyplot as plt

OUT = Path("demo-output")
TASKS = [("fonts", "mnist"), ("mnist", "optdigits"), ("mnist", "mnist")]  # the last without any shift


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


def draw(reliabilities: dict[str, Reliability], title: str, path: Path) -> None:
    """Reliability diagrams side by side: confidence against accuracy, and how many predictions a bin holds."""
    figure, axes = plt.subplots(
        2, len(reliabilities), figsize=(4 * len(reliabilities), 5), sharex=True, height_ratios=[4, 1], squeeze=False
    )
    for (name, r), (top, bottom) in zip(reliabilities.items(), axes.T, strict=True):
        low, high = r.accuracy_interval()
        top.plot([0, 1], [0, 1], color="0.6", lw=1)
        some = r.count > 0
        top.errorbar(
            r.confidence[some],
            r.accuracy[some],
            [(r.accuracy - low)[some], (high - r.accuracy)[some]],
            fmt="o",
            capsize=2,
        )
        top.set(title=f"{name}: ECE {r.ece:.1%}", ylabel="accuracy", ylim=(0, 1.02), xlim=(0, 1.02))
        bottom.bar(r.edges[:-1], r.count / r.count.sum(), width=np.diff(r.edges), align="edge", edgecolor="white")
        bottom.set(xlabel="confidence", ylabel="share")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def show(source: str, target: str, domains: dict[str, Domain]) -> None:
    """Train, calibrate without labels, then look at the labels."""
    start = time.perf_counter()
    learnt, held_out = domains[source].split(0.8)
    model = train(learnt)
    used_on = held_out if source == target else domains[target]
    unlabelled = used_on.unlabelled()
    images = np.asarray(unlabelled.inputs[:], dtype=np.float32)
    calibration = PseudoCal().fit(model, images)

    with torch.inference_mode():
        logits = model(torch.from_numpy(images)).numpy()
    labels = used_on.labels  # from here on for evaluation only
    oracle = fit_temperature(logits, labels)
    scaled = {"no calibration": logits, "PseudoCal": calibration(logits), "oracle (needs labels)": oracle(logits)}
    temperatures = [1.0, calibration.temperature, oracle.temperature]
    outcomes = {name: Outcomes.from_logits(z, labels) for name, z in scaled.items()}

    before, after = outcomes["no calibration"], outcomes["PseudoCal"]
    where = f"other {target}" if source == target else target
    print(f"\ntrained on {source}, used on {where}: accuracy {accuracy(before):.1%} on {len(labels):,} images")
    print(f"{calibration}\n")
    print(f"{'':24}{'T':>8}{'ECE, 95% interval':>26}{'NLL':>9}")
    for (name, o), t in zip(outcomes.items(), temperatures, strict=True):
        print(f"{name:24}{t:8.2f}{f'{bootstrap(ece, o):.1%}':>26}{nll(o):9.3f}")
    change = paired(ece, before, after)
    verdict = "it helped" if change.high < 0 else "IT MADE THINGS WORSE" if change.low > 0 else "no clear change"
    print(f"\nECE after minus before: {change:.1%}: {verdict}.")
    path = OUT / f"{source}-to-{target}.svg"
    draw({name: Reliability.of(o) for name, o in outcomes.items()}, f"{source} -> {target}", path)
    print(f"Reliability diagrams: {path}   ({time.perf_counter() - start:.0f} s)")


def main() -> None:
    """Show every task."""
    OUT.mkdir(exist_ok=True)
    domains = load("digits")
    for source, target in TASKS:
        show(source, target, domains)
    print("\nThe interval of T is tight in every case, good and bad: it is no verdict. See docs/trust.md.")


if __name__ == "__main__":
    main()
