"""How close each calibrator comes to the oracle under shifts with known truth, and what it costs.

    python benchmarks/calibrators.py

The tables are in docs/paper/calibrators.md.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from pseudocal import fit_temperature, softmax
from pseudocal.arrays import Labelled
from pseudocal.calibrators import CALIBRATORS, Material, calibrate_by_name, cpcs, transcal
from pseudocal.calibrators.baselines.importance import density_ratio

SEEDS = range(10)


@dataclass(frozen=True, eq=False)
class Shift:
    """A source and a target whose density ratio is known at each source row."""

    source: Labelled
    source_x: np.ndarray
    ratio: np.ndarray
    target: Labelled
    target_x: np.ndarray

    def temperatures(self) -> dict[str, float]:
        """What each method that needs the ratio, known or learnt, makes of it, beside TempScal and the oracle."""
        learnt = density_ratio(self.source_x, self.target_x)(self.source_x)
        return {
            "oracle": fit_temperature(self.target.logits, self.target.labels).temperature,
            "tempscal": fit_temperature(self.source.logits, self.source.labels).temperature,
            "cpcs, known ratio": cpcs(self.source, self.ratio).temperature,
            "cpcs": cpcs(self.source, learnt).temperature,
            "transcal, known ratio": transcal(
                self.source, self.ratio, self.target.logits
            ).temperature,
            "transcal": transcal(self.source, learnt, self.target.logits).temperature,
        }


def covariate_shift(seed: int, *, by: float = 1.5, n: int = 4000) -> Shift:
    """p(y | x) stays, x moves `by` standard deviations, to where the model is overconfident."""
    rng = np.random.default_rng(seed)
    away = np.array([by, 0.0])
    weights = np.array([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])

    def domain(mean: np.ndarray) -> tuple[np.ndarray, Labelled]:
        x = mean + rng.standard_normal((n, 2))
        truth = x @ weights.T
        return x, Labelled(np.exp(0.5 + np.tanh(x[:, :1])) * truth, draw(softmax(truth), rng))

    source_x, source = domain(0 * away)
    target_x, target = domain(away)
    return Shift(source, source_x, np.exp(source_x @ away - away @ away / 2), target, target_x)


LINE, TRIANGLE = [[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]], [[1.0, 0.0], [-0.5, 0.87], [-0.5, -0.87]]
LABEL_SHIFTS = {  # centres and widths of the classes, and how often each comes up in the target
    "line": (LINE, [1.5, 0.7, 0.7], [0.8, 0.1, 0.1]),
    "triangle": (TRIANGLE, [2.0, 0.7, 0.7], [0.8, 0.1, 0.1]),
    "even triangle": (TRIANGLE, [1.0, 1.0, 1.0], [0.1, 0.2, 0.7]),
}


def label_shift(seed: int, *, which: str = "line", n: int = 4000) -> Shift:
    """p(x | y) stays, the classes come up more and less often than in the source, where all are equal.

    The model is twice too sure everywhere: it knows p(y | x) of the source, squared.
    """
    rng = np.random.default_rng(seed)
    centres, widths, skewed = (np.array(value) for value in LABEL_SHIFTS[which])
    even = np.ones(3) / 3

    def likelihood(x: np.ndarray) -> np.ndarray:
        square = ((x[:, None] - centres) ** 2).sum(axis=2)  # (n, classes)
        return np.exp(-0.5 * square / widths**2) / widths**2

    def domain(prior: np.ndarray) -> tuple[np.ndarray, Labelled]:
        labels = rng.choice(3, size=n, p=prior)
        x = centres[labels] + widths[labels, None] * rng.standard_normal((n, 2))
        return x, Labelled(2 * np.log(likelihood(x)), labels)

    source_x, source = domain(even)
    target_x, target = domain(skewed)
    ratio = likelihood(source_x) @ skewed / (likelihood(source_x) @ even)
    return Shift(source, source_x, ratio, target, target_x)


def draw(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One class for each row of probabilities."""
    return (p.cumsum(axis=1) > rng.random((len(p), 1))).argmax(axis=1)


def distances(shift) -> dict[str, float]:
    """Each method's mean distance from the oracle, as |log(T / T_oracle)|."""
    runs = [shift(seed).temperatures() for seed in SEEDS]
    return {
        name: float(np.mean([abs(np.log(run[name] / run["oracle"])) for run in runs]))
        for name in runs[0]
        if name != "oracle"
    }


def large_material(n: int = 5000, features: int = 256, classes: int = 65) -> Material:
    """Source and target of the size that the issue names, from a linear model."""
    rng = np.random.default_rng(0)
    head = rng.standard_normal((features, classes)) / np.sqrt(features)
    train, source, target = (rng.standard_normal((n, features)) + mean for mean in (0.0, 0.0, 0.1))
    members = [lambda x, k=k: 6 * x @ (head + 0.02 * k) for k in range(3)]
    truth = [draw(softmax(3 * x @ head), rng) for x in (source, target)]
    return Material(
        source=Labelled(6 * source @ head, truth[0]),
        source_train_features=train,
        source_features=source,
        target_features=target,
        target_logits=6 * target @ head,
        target_labels=truth[1],
        target_inputs=target.astype(np.float32),
        model=_with_dropout(head),
        members=members,
        member_logits=[member(target) for member in members],
    )


def _with_dropout(head: np.ndarray):
    import torch

    linear = torch.nn.Linear(head.shape[0], head.shape[1], bias=False)
    linear.weight.data = torch.as_tensor(6 * head.T, dtype=torch.float32)
    return torch.nn.Sequential(torch.nn.Dropout(0.2), linear)


def print_distances() -> None:
    """The table of both shifts."""
    columns = {
        f"covariate shift by {by}": distances(partial(covariate_shift, by=by))
        for by in (0.7, 1.0, 1.5)
    }
    columns |= {
        f"label shift, {which}": distances(partial(label_shift, which=which))
        for which in LABEL_SHIFTS
    }
    print(
        f"| distance of log T from the oracle's, mean of 10 | {' | '.join(columns)} |\n|{' --- |' * 7}"
    )
    for name in columns["label shift, line"]:
        print(f"| {name} | {' | '.join(f'{column[name]:.3f}' for column in columns.values())} |")


def print_seconds() -> None:
    """The table of CPU time; one BLAS thread, since several wait for each other at full speed."""
    material, total = large_material(), 0.0
    print(
        "\n| 5,000 source and 5,000 target rows, 256 features, 65 classes | CPU seconds |\n| --- | --- |"
    )
    for name, settings in [*((name, {}) for name in CALIBRATORS), ("oracle", {"by": "ece"})]:
        start = time.process_time()
        with threadpool_limits(1):
            calibrate_by_name(name, material, **settings)
        seconds = time.process_time() - start
        total += seconds
        print(f"| {name}{' by ECE' if settings else ''} | {seconds:.2f} |")
    print(f"| all | {total:.2f} |")


if __name__ == "__main__":
    print_distances()
    print_seconds()
