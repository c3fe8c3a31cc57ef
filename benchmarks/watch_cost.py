"""What a batch costs a monitor after a thousand others, and how large its page is.

    python benchmarks/watch_cost.py        # about 2 minutes on one core

Saved outputs of 10 classes, 200 inputs per batch: no model runs, so all time is the monitor's. Each
figure is the median over ten batches.
"""

from __future__ import annotations

import time
from contextlib import chdir
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pseudocal.app import collect_outputs, watch

BATCHES = 1000
LOOKS = (10, 100, 300, 1000)
INPUTS = 200
CLASSES = 10


def save_outputs(path: Path, n: int, rng: np.random.Generator) -> None:
    labels = rng.integers(0, CLASSES, n)
    np.save(path, 4 * np.eye(CLASSES)[labels] + rng.normal(size=(n, CLASSES)))


def main() -> None:
    rng = np.random.default_rng(0)
    seconds = []
    with TemporaryDirectory() as folder, chdir(folder):
        save_outputs(Path("baseline.npy"), 2000, rng)
        collect_outputs("baseline.npy", "out")
        watch("monitor", baseline="out")
        for i in range(BATCHES):
            save_outputs(Path("batch.npy"), INPUTS, rng)
            day = date(2024, 1, 1) + timedelta(days=i)
            started = time.perf_counter()
            watch("monitor", "batch.npy", time=day.isoformat())
            seconds.append(time.perf_counter() - started)
        sizes = {
            name: Path("monitor", name).stat().st_size for name in ("index.html", "state.json")
        }
    print("| batch | ms |\n|---|---|")
    for look in LOOKS:
        print(f"| {look} | {1000 * np.median(seconds[look - 10 : look]):.0f} |")
    print({name: f"{size / 1000:.0f} kB" for name, size in sizes.items()})


if __name__ == "__main__":
    main()
