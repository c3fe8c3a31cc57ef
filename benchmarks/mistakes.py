"""How often 95% intervals of T cover the truth when mistakes are few, and on PseudoCal's mixup samples.

The first table uses labelled rows. Student's degrees of freedom were chosen on the kinds of data
called "chosen on"; those called "drawn later" were not used before. "As if many" ignores that the
standard error is itself uncertain.

The second table uses PseudoCal's mixup samples of an array, where each input is in two mixup
samples, once with the larger and once with the smaller weight. Either both inputs and pairs are
drawn again, or only the pairs. If mixup samples that share an input have the correlation r, the
error of 1/T is sqrt(1 + 2 r) times that of independent ones. This is what is estimated.

Takes a few minutes. `python benchmarks/mistakes.py 600 1500` draws 600 sets of rows and 1,500 sets
of inputs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pseudocal import PseudoCal, TemperatureScaling, fit_temperature

MANY, SETS, MIXED, PAIRINGS = 1_000_000, 1_000, 200, 200
Rows = tuple[np.ndarray, np.ndarray]
Draw = Callable[[int, np.random.Generator], Rows]


def noisy(fraction: float, tail: float = 0.0) -> Draw:
    """Labels that are the largest logit but for a fraction of them, which are anything.

    Confident rows if tailed.
    """

    def draw(n: int, rng: np.random.Generator) -> Rows:
        z = 3 * rng.standard_normal((n, 5)) * np.exp(tail * rng.standard_normal((n, 1)))
        return z, np.where(rng.random(n) < fraction, rng.integers(0, 5, n), z.argmax(axis=1))

    return draw


def gaussian(scale: float) -> Draw:
    """Labels drawn from Gaussian logits, twice as sure afterwards."""

    def draw(n: int, rng: np.random.Generator) -> Rows:
        z = scale * rng.standard_normal((n, 5))
        return 2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)

    return draw


def coins(mistakes: float) -> Draw:
    """One logit for all rows, wrong so often in a thousand."""

    def draw(n: int, rng: np.random.Generator) -> Rows:
        return np.tile([[3.0, 0.0]], (n, 1)), (rng.random(n) < mistakes / 1000).astype(int)

    return draw


def clusters(distance: float) -> Draw:
    """Two clusters and the log-odds of one with a tilt, three times too sure."""

    def draw(n: int, rng: np.random.Generator) -> Rows:
        labels = rng.integers(0, 2, n)
        x = rng.standard_normal((n, 2)) + distance * (labels[:, None] - 0.5)
        return 3 * np.stack([np.zeros(n), distance * (x[:, 0] + 0.6 * x[:, 1])], axis=1), labels

    return draw


def tailed(scale: float) -> Draw:
    """Twenty classes with long-tailed logits.

    One row in fifty has a second label that its logits do not know of.
    """

    def draw(n: int, rng: np.random.Generator) -> Rows:
        z = scale * rng.standard_t(3, (n, 20))
        labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        return z, np.where(rng.random(n) < 0.02, np.argsort(z, axis=1)[:, -2], labels)

    return draw


CHOSEN_ON: dict[str, tuple[Draw, int]] = {
    "noise 0.3%": (noisy(0.003), 1000),
    "noise 1%": (noisy(0.01), 1000),
    "noise 10%": (noisy(0.1), 1000),
    "tailed noise 0.3%": (noisy(0.003, 1.0), 1000),
    "tailed noise 1%": (noisy(0.01, 1.0), 1000),
    "Gaussian 10": (gaussian(10), 100),
    "Gaussian 100": (gaussian(100), 300),
    "coins 3": (coins(3), 1000),
    "coins 10": (coins(10), 1000),
}
DRAWN_LATER: dict[str, tuple[Draw, int]] = {
    "clusters 3": (clusters(3), 200),
    "clusters 4": (clusters(4), 1000),
    "clusters 4, more": (clusters(4), 5000),
    "long tails 4": (tailed(4), 100),
    "long tails 20": (tailed(20), 200),
    "long tails 20, more": (tailed(20), 2000),
}


def row(kind: str, name: str, draw: Draw, n: int, sets: int) -> None:
    """Print how often the interval held the truth."""
    logits, labels = draw(MANY, np.random.default_rng(10**6))
    truth, wrong = (
        fit_temperature(logits, labels).temperature,
        (logits.argmax(axis=1) != labels).mean(),
    )
    held = np.zeros(2)
    bounds = 0
    for seed in range(sets):
        fitted = fit_temperature(*draw(n, np.random.default_rng(seed)))
        bounds += fitted.bound is not None
        intervals = fitted.interval(), replace(fitted, effective_rows=math.inf).interval()
        held += [low <= truth <= high for low, high in intervals]
    here, many = held / sets
    print(
        f"| {kind} | {name} | {n} | {n * wrong:.1f} | {here:.3f} | {many:.3f} | {bounds / sets:.3f} |",
        flush=True,
    )


CENTRES = np.random.default_rng(1).normal(size=(10, 16))


def model(x: np.ndarray) -> np.ndarray:
    """A linear classifier that is three times too sure of itself."""
    return 3 * (x @ CENTRES.T - 0.5 * (CENTRES**2).sum(axis=1))


def inputs(n: int, rng: np.random.Generator) -> np.ndarray:
    """Clusters that overlap."""
    return CENTRES[rng.integers(0, 10, n)] + 1.5 * rng.normal(size=(n, 16))


def together(n: int, temperature: float) -> float:
    """The correlation of the slopes of two mixup samples of which one leads with the input that the other ends with.

    Pairs that are not mixed, since both inputs are predicted alike, count as slopes of zero.
    """
    x = inputs(n, np.random.default_rng(5))
    pseudo, partner = model(x).argmax(axis=1), np.roll(np.arange(n), 1)
    z = model(0.65 * x + 0.35 * x[partner]) / temperature
    p = np.exp(z - z.max(axis=1, keepdims=True))
    slopes = (p * z).sum(axis=1) / p.sum(axis=1) - z[np.arange(n), pseudo]
    mixed = pseudo != pseudo[partner]
    slopes = np.where(mixed, slopes - slopes[mixed].mean(), 0.0)
    return float(slopes @ np.roll(slopes, 1) / (slopes @ slopes))


def mixup_samples(n: int, sets: int) -> None:
    """Print the same of PseudoCal's mixup samples.

    The fraction that held the truth, and the error of 1/T by its estimate.
    """
    truth = (
        PseudoCal(estimator="mixup", seed=3, epochs=1)
        .fit(model, inputs(MANY // 4, np.random.default_rng(10**6)))
        .temperature
    )
    anew = [
        PseudoCal(estimator="mixup", seed=s, epochs=1)
        .collect(model, inputs(n, np.random.default_rng(s)))
        .temperature()
        for s in range(sets)
    ]
    mixup_row(n, "other inputs", anew, truth, math.sqrt(1 + 2 * together(200_000, truth)))
    same = inputs(n, np.random.default_rng(1000))
    again = [
        PseudoCal(estimator="mixup", seed=s, epochs=1).collect(model, same).temperature()
        for s in range(PAIRINGS)
    ]
    mixup_row(
        n,
        "the same inputs, other pairs",
        again,
        1 / float(np.mean([1 / f.temperature for f in again])),
    )


def mixup_row(
    n: int, what: str, fitted: list[TemperatureScaling], truth: float, expected: float = math.nan
) -> None:
    """Print one row."""
    held = np.mean([f.interval()[0] <= truth <= f.interval()[1] for f in fitted])
    error = (
        truth * np.std([1 / f.temperature for f in fitted]) / np.mean([f.log_se for f in fitted])
    )
    print(
        f"| {n:,} | {what} | {len(fitted):,} | {held:.3f} | {error:.2f} | {expected:.2f} |",
        flush=True,
    )


def separated(distance: float, n: int, sets: int) -> None:
    """Print the same of the mixup samples of two clusters so far apart that few mixup samples lie on the wrong side."""

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((n, 2)) + distance * (rng.integers(0, 2, n)[:, None] - 0.5) * [
            1,
            0,
        ]

    def sure(x: np.ndarray) -> np.ndarray:
        return np.stack([np.zeros(len(x)), 3 * x[:, 0]], axis=1)

    truth = (
        PseudoCal(estimator="mixup", seed=3, epochs=1)
        .fit(sure, draw(MANY // 4, np.random.default_rng(10**6)))
        .temperature
    )
    held, wrong, bounds = 0, 0.0, 0
    for seed in range(sets):
        evidence = PseudoCal(estimator="mixup", seed=seed, epochs=1).collect(
            sure, draw(n, np.random.default_rng(seed))
        )
        mixed, fitted = evidence.mixup_samples.labelled, evidence.temperature()
        low, high = fitted.interval()
        held, bounds = held + (low <= truth <= high), bounds + (fitted.bound is not None)
        wrong += (mixed.logits.argmax(axis=1) != mixed.labels).sum()
    print(
        f"| {distance:g} | {n:,} | {wrong / sets:.1f} | {held / sets:.3f} | {bounds / sets:.3f} |",
        flush=True,
    )


def main(sets: int = SETS, mixed: int = MIXED) -> None:
    """Print the tables."""
    print(f"\n95% intervals of T, {sets} sets of labelled rows in each row\n")
    print(
        "| | data | rows | mistakes | held | held as if many | at a bound |\n|---|---|---|---|---|---|---|"
    )
    for kind, cases in (("chosen on", CHOSEN_ON), ("drawn later", DRAWN_LATER)):
        for name, (draw, n) in cases.items():
            row(kind, name, draw, n, sets)
    print("\n95% intervals of T of PseudoCal\n")
    print(
        "| inputs | drawn | sets | held | error by its estimate | expected |\n|---|---|---|---|---|---|"
    )
    for n in (500, 5_000):
        mixup_samples(n, mixed)
    print(f"\n95% intervals of T of PseudoCal, two clusters, {mixed} sets of inputs in each row\n")
    print(
        "| distance | inputs | mixup samples on the wrong side | held | at a bound |\n|---|---|---|---|---|"
    )
    for distance in (10, 12, 13):
        separated(distance, 2_000, mixed)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
