"""How often the 90% interval of the calibration error, measured on labels, covers the truth.

    python benchmarks/labels_error.py

A simulated target has 2,000 rows with Gaussian logits of ten classes. Labels are drawn at a known
temperature. In "two kinds of rows" every second row has another temperature, so no single one
fits. `rows_to_label` chooses the rows and `refine` fits a temperature. The truth is the root mean
square, over as many bins of equal mass and on all rows, of the mean confidence minus the
probability of being right. The bootstrap uses 200 resamples instead of 1,000 to save time. Takes a
minute or two on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from unittest.mock import patch

import numpy as np

from pseudocal import LabelSample, rows_to_label, softmax
from pseudocal.calibrators import Measured, refine
from pseudocal.calibrators.labelled_accuracy import bins_for
from pseudocal.calibrators.refinement import priors_of
from pseudocal.metrics import Interval, bootstrap

ROWS, CLASSES, SCALE = 2_000, 10, 3.0
SETTINGS = {
    "T = 0.7": (0.7, 0.7),
    "T = 1": (1.0, 1.0),
    "T = 2": (2.0, 2.0),
    "two kinds of rows": (1.0, 4.0),
}
NUMBERS = (100, 200)
RESAMPLES = 200


def binned_error(confidence: np.ndarray, right: np.ndarray, bins: int) -> float:
    """The root mean square gap over bins of equal mass between confidence and the probability of being right."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), bins)
    squares = [(confidence[part].mean() - right[part].mean()) ** 2 for part in parts]
    return float(np.sqrt(np.average(squares, weights=[len(part) for part in parts])))


def draws(
    n: int, temperatures: tuple[float, float], count: int
) -> Iterator[tuple[Measured, float, float]]:
    """Yield what answers say of one target after another, and the true error before and after."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        logits = SCALE * rng.standard_normal((ROWS, CLASSES))
        true = logits / np.resize(temperatures, ROWS)[:, None]
        labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
        right = softmax(true)[np.arange(ROWS), logits.argmax(axis=1)]
        rows = rows_to_label(logits, n, seed=seed)
        scaling, measured = refine(
            logits, LabelSample(rows, labels[rows], seed=seed), priors=priors_of({}, logits)
        )
        after = softmax(logits / scaling.temperature).max(axis=1)
        before = softmax(logits).max(axis=1)
        yield (
            measured,
            binned_error(before, right, bins_for(n)),
            binned_error(after, right, bins_for(n)),
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=100)
    given = parser.parse_args()
    print(
        "| labels | n | error before | estimate | held | width | error after | estimate | held | width |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    quick = partial(bootstrap, resamples=RESAMPLES)
    for name, temperatures in SETTINGS.items():
        for n in NUMBERS:
            with patch("pseudocal.calibrators.labelled_accuracy.bootstrap", quick):
                found = list(draws(n, temperatures, given.draws))
            before = [
                (measured.error_before, truth)
                for measured, truth, _ in found
                if measured.error_before
            ]
            after = [
                (measured.error_after, truth)
                for measured, _, truth in found
                if measured.error_after
            ]
            print(f"| {name} | {n} | {' | '.join(cells(before) + cells(after))} |", flush=True)


def cells(pairs: list[tuple[Interval, float]]) -> list[str]:
    """The mean truth and estimate in percent, how often the interval holds the truth, and its mean width."""
    truth, value = 100 * np.mean([(truth, interval.value) for interval, truth in pairs], axis=0)
    held = np.mean([interval.low <= t <= interval.high for interval, t in pairs])
    width = 100 * np.mean([interval.high - interval.low for interval, _ in pairs])
    return [f"{truth:.1f}", f"{value:.1f}", f"{held:.1%}", f"{width:.1f}"]


if __name__ == "__main__":
    main()
