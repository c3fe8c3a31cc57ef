"""Accuracy of every adaptation method on optdigits to MNIST, with a small network trained end to end.

    python benchmarks/digits.py [method ...]

The table is in docs/paper/adaptation.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from pseudocal.lab.adapt import METHODS, TrainingRun, train
from pseudocal.lab.data import digits


def main() -> None:
    """Print one row for each method."""
    domains = digits("optdigits", "mnist")
    source, target = domains["optdigits"], domains["mnist"]
    print("\noptdigits -> mnist, 600 iterations, seed 0\n\n| method | accuracy, % |\n|---|---|")
    for method in sys.argv[1:] or METHODS:
        with tempfile.TemporaryDirectory() as out:
            run = TrainingRun(Path(out), iterations=600)
            trained = train(
                source, target.unlabelled(), run, method=method, backbone="digits", width=256
            )
            with np.load(trained.target) as outputs:
                accuracy = 100 * (outputs["logits"].argmax(axis=1) == target.labels).mean()
        print(f"| {method} | {accuracy:.1f} |", flush=True)


if __name__ == "__main__":
    main()
