"""Accuracy of the adaptation methods on emoji: 12 tasks, a frozen EfficientNet-Lite0, several seeds.

    python benchmarks/adaptation.py --seeds 3 --methods source-only mcc bnm

Every cell is one small file under --out: what is finished is skipped, so the run can be stopped and started at will.
All methods have the same head width and budget and the settings of the preset; none was chosen by target labels.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pseudocal.adapt import train
from pseudocal.adapt.files import save_json
from pseudocal.data import Domain, emoji

METHODS = ["source-only", "mcc", "bnm", "cdan", "cdan+e", "atdoc", "atdoc-nc", "shot", "safn"]
WIDTH = 256
# The outer product of 256 features and 52 classes has 13,312 columns: too wide for seconds of CPU.
OPTIONS: dict[str, dict[str, Any]] = {"cdan": {"randomised": 1024}, "cdan+e": {"randomised": 1024}}


def run_cell(path: Path, source: Domain, target: Domain, method: str, preset: str, seed: int, iterations: int) -> None:
    """Train one task and write its accuracy down; labels of the target are used for that alone."""
    if path.exists():
        return
    started = time.process_time()
    with tempfile.TemporaryDirectory() as out:
        trained = train(
            source,
            target.unlabelled(),
            method=method,
            preset=preset,
            out=out,
            seed=seed,
            iterations=iterations,
            width=WIDTH,
            options=OPTIONS.get(method),
        )
        with np.load(trained.target) as outputs:
            correct = outputs["logits"].argmax(axis=1) == target.labels
    save_json(path, {"accuracy": float(correct.mean()), "cpu_seconds": time.process_time() - started})


def read(out: Path, method: str, seed: int) -> list[dict[str, float]]:
    """The finished cells of a method and a seed."""
    return [json.loads(path.read_text()) for path in sorted((out / method / str(seed)).glob("*.json"))]


def table(out: Path, methods: list[str], seeds: int) -> str:
    """Mean accuracy over the tasks, its mean and standard deviation over seeds, as Markdown."""
    lines = ["| method | accuracy, % | sd over seeds | seeds | CPU s per task |", "|---|---|---|---|---|"]
    for method in methods:
        cells = [read(out, method, seed) for seed in range(seeds)]
        full = [seed for seed in cells if len(seed) == 12]
        if not full:
            continue
        means = [100 * float(np.mean([cell["accuracy"] for cell in seed])) for seed in full]
        spread = f"{np.std(means, ddof=1):.2f}" if len(full) > 1 else "-"
        seconds = np.median([cell["cpu_seconds"] for seed in full for cell in seed])
        lines.append(f"| {method} | {np.mean(means):.1f} | {spread} | {len(full)} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("runs/adaptation"))
    args = parser.parse_args()
    torch.set_num_threads(1)  # the heads are small: a second thread costs more than it gives
    out = args.out / f"{args.preset}-{args.iterations}"
    domains = emoji()
    for seed, method in itertools.product(range(args.seeds), args.methods):
        for source, target in itertools.permutations(domains, 2):
            path = out / method / str(seed) / f"{source}-{target}.json"
            run_cell(path, domains[source], domains[target], method, args.preset, seed, args.iterations)
    print(table(out, args.methods, args.seeds))


if __name__ == "__main__":
    main()
