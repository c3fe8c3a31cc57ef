"""CPU time of a batch in a monitor with up to a thousand earlier batches, and the size of its page.

    python benchmarks/watch_cost.py        # about 2 minutes on one core

A batch has 200 saved outputs of 10 classes. No model runs, so all time is the monitor's. "In Python"
is the median CPU time of ten calls of `watch`, "the command" that of the next five, each a process.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from contextlib import chdir
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pseudocal.app import collect_outputs, watch

BATCHES = 1000
LOOKS = (15, 100, 300, 1000)  # the last of five commands; ten calls come before them
INPUTS = 200
CLASSES = 10


def save_outputs(path: Path, n: int, rng: np.random.Generator) -> None:
    labels = rng.integers(0, CLASSES, n)
    np.save(path, 4 * np.eye(CLASSES)[labels] + rng.normal(size=(n, CLASSES)))


def command_seconds(day: str) -> float:
    """The CPU time of the command, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [
        sys.executable,
        "-m",
        "pseudocal",
        "watch",
        "monitor",
        "batch.npy",
        "--time",
        day,
        "-q",
    ]
    subprocess.run(words, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rng = np.random.default_rng(0)
    seconds: dict[int, float] = {}
    command: dict[int, float] = {}
    with TemporaryDirectory() as folder, chdir(folder):
        save_outputs(Path("baseline.npy"), 2000, rng)
        collect_outputs("baseline.npy", "out")
        watch("monitor", baseline="out")
        for i in range(BATCHES):
            save_outputs(Path("batch.npy"), INPUTS, rng)
            day = date(2024, 1, 1) + timedelta(days=i)
            if any(look - 5 <= i < look for look in LOOKS):
                command.setdefault(i, command_seconds(day.isoformat()))
                continue
            started = time.process_time()
            watch("monitor", "batch.npy", time=day.isoformat())
            seconds[i] = time.process_time() - started
        sizes = {
            name: Path("monitor", name).stat().st_size
            for name in ("index.html", "state.json", "drawn.jsonl")
        }
    own = {}
    whole = {}
    print("| batch | in Python, ms | the command, ms |\n|---|---|---|")
    for look in LOOKS:
        own[look] = 1000 * np.median([seconds[i] for i in range(look - 15, look - 5)])
        whole[look] = 1000 * np.median([command[i] for i in range(look - 5, look)])
        print(f"| {look:,} | {own[look]:.1f} | {whole[look]:.0f} |")
    ratios = [each[LOOKS[-1]] / each[LOOKS[0]] for each in (own, whole)]
    print(f"\n1,000th to {LOOKS[0]}th: {ratios[0]:.2f} in Python, {ratios[1]:.2f} the command")
    print({name: f"{size / 1000:.0f} kB" for name, size in sizes.items()})


if __name__ == "__main__":
    main()
