"""How often 95% bootstrap intervals cover the truth: percentile, basic, and that of `pseudocal.metrics`.

Logits of ten classes are Gaussian, and labels are drawn at the true temperature. The change is that
of dividing by this temperature. Prints the lowest and the highest coverage over ten settings. Takes
a few minutes.
"""

from __future__ import annotations

import numpy as np

from pseudocal import Outcomes
from pseudocal.metrics import Interval, Metric, accuracy, bootstrap, ece, nll, paired
from pseudocal.metrics.samples import RowSample

SETTINGS = [(n, t) for n in (300, 1000) for t in (0.7, 1.0, 1.05, 1.2, 2.0)]
SETS, RESAMPLES = 200, 300


def draw(n: int, temperature: float, rng: np.random.Generator) -> tuple[Outcomes, Outcomes]:
    """Outcomes of a model, and of the same model divided by its true temperature."""
    z = 3 * rng.standard_normal((n, 10))
    labels = (z / temperature + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Outcomes.from_logits(z, labels), Outcomes.from_logits(z / temperature, labels)


def plain(value: float, draws: np.ndarray) -> dict[str, Interval]:
    """The two textbook intervals."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return {
        "percentile": Interval(value, low, high),
        "basic": Interval(value, 2 * value - high, 2 * value - low),
    }


def intervals(
    metric: Metric, before: Outcomes, after: Outcomes | None, seed: int
) -> dict[str, Interval]:
    """All three of a metric, or of its change."""
    old = RowSample(metric, before).draws(RESAMPLES, np.random.default_rng(seed))
    if after is None:
        ours = bootstrap(metric, before, resamples=RESAMPLES, seed=seed)
        return plain(metric(before), old) | {"here": ours}
    new = RowSample(metric, after).draws(RESAMPLES, np.random.default_rng(seed))
    ours = paired(metric, before, after, resamples=RESAMPLES, seed=seed)
    return plain(metric(after) - metric(before), new - old) | {"here": ours}


def main() -> None:
    """Print the table."""
    cases: dict[str, tuple[Metric, bool]] = {
        "accuracy": (accuracy, False),
        "NLL": (nll, False),
        "ECE": (ece, False),
        "change of ECE": (ece, True),
    }
    held: dict[tuple[str, str], list[float]] = {}
    for n, t in SETTINGS:
        rng = np.random.default_rng(0)
        big = draw(1_000_000, t, rng)
        sets = [draw(n, t, rng) for _ in range(SETS)]
        for name, (metric, change) in cases.items():
            if t == 1 and change:
                continue  # nothing changes
            truth = _truth(metric, big, t)
            truth = -truth if change else truth  # the true temperature takes all of it off
            rows = [
                intervals(metric, old, new if change else None, seed)
                for seed, (old, new) in enumerate(sets)
            ]
            for kind in ("percentile", "basic", "here"):
                fraction = np.mean(
                    [row[kind].low - 1e-9 <= truth <= row[kind].high + 1e-9 for row in rows]
                )
                held.setdefault((kind, name), []).append(float(fraction))
    print("| | " + " | ".join(cases) + " |\n|---|" + "---|" * len(cases))
    for kind in ("percentile", "basic", "here"):
        cells = [f"{min(held[kind, name]):.2f} to {max(held[kind, name]):.2f}" for name in cases]
        print(f"| {kind} | " + " | ".join(cells) + " |")


def _truth(metric: Metric, big: tuple[Outcomes, Outcomes], temperature: float) -> float:
    return 0.0 if metric is ece and temperature == 1 else metric(big[0])


if __name__ == "__main__":
    main()
