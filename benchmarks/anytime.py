"""What a tolerance costs in forward passes as the target grows, and how far from the full fit it stops.

Run by `make bench`.
"""

from __future__ import annotations

import numpy as np

from pseudocal import PseudoCal

CENTRES = np.random.default_rng(1).normal(size=(10, 16))
TOLERANCE, SEEDS = 0.02, 40


def model(x: np.ndarray) -> np.ndarray:
    """A linear classifier that is three times too sure of itself."""
    return 3 * (x @ CENTRES.T - 0.5 * (CENTRES**2).sum(axis=1))


def target(n: int) -> np.ndarray:
    """Clusters that overlap."""
    rng = np.random.default_rng(2)
    return CENTRES[rng.integers(0, 10, n)] + 1.5 * rng.normal(size=(n, 16))


def main() -> None:
    """Print one row for each size of the target set."""
    print(f"\nPseudoCal(tolerance={TOLERANCE}), {SEEDS} seeds\n")
    print(
        "| target rows | forward passes | T, first seed | passes for all | T of all | interval covers the full-data T |"
    )
    print("|---|---|---|---|---|---|")
    for n in (20_000, 200_000, 2_000_000):
        x = target(n)
        full = PseudoCal().fit(model, x, batch_size=4096)
        quick = [PseudoCal(tolerance=TOLERANCE, seed=seed).fit(model, x) for seed in range(SEEDS)]
        passes = np.mean([c.counts["forward_passes"] for c in quick])
        inside = sum(c.interval[0] < full.temperature < c.interval[1] for c in quick)
        low, high = quick[0].interval
        print(
            f"| {n:,} | {passes:,.0f} | {quick[0].temperature:.3f} [{low:.3f}, {high:.3f}] "
            f"| {full.counts['forward_passes']:,} | {full.temperature:.3f} | {inside} of {SEEDS} |"
        )


if __name__ == "__main__":
    main()
