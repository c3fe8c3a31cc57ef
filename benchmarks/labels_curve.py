"""ECE against the number of labels, for the bank of models: a figure of docs/evaluation/index.md.

    python benchmarks/trust_bank.py --data FOLDER --out runs/bank       train the models once
    python benchmarks/labels_curve.py --bank runs/bank > printed.md     development families
    python benchmarks/labels_curve.py --bank runs/bank --held-out       each look is logged

Means over families of the mean ECE (percent, on inputs without a label) and of its ratio to the
oracle's; six draws of labels for every other model.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evaluation import DRAWS, Judged, held_back, judged
from labels_grid import NUMBERS, Draws, Tables
from labels_targets import Target
from pseudocal.calibrators.refinement import priors_of
from trust import opened
from trust_bank import DEVELOPMENT, HELD_OUT, load_cases
from trust_tables import table

METHODS = ("none", "one model", "two models", "oracle")


def errors_of(one: Judged) -> Iterator[tuple[int, list[float]]]:
    """The number of labels, and the mean ECE of each method over the draws."""
    logits = one.case.logits.astype(np.float64)
    if len(logits) <= max(NUMBERS):
        return
    estimates = one.calibration.estimates
    target = Target(one.case.family, one.case.task, logits, one.case.labels, estimates)
    tables = Tables(target)
    accuracy = one.trust.estimated_accuracy
    alone = {"mixup": estimates["mixup"]}
    no_labels = Draws(tables, np.empty((1, 0), dtype=np.int64), spread=True)
    values = (0.0, math.log(alone["mixup"]), math.log(one.calibration.temperature), target.oracle)
    yield 0, [float(no_labels.ece(value).mean()) for value in values]
    rows = tables.chosen(range(DRAWS))
    for n in NUMBERS:
        draws = Draws(tables, rows[:, :n], spread=True)
        refined = []
        for given in (alone, estimates):
            found = draws.posterior(priors_of(given, logits, accuracy=accuracy))
            refined.append(held_back(tables, rows[:, :n], found.median))
        values = (0.0, *refined, target.oracle)
        yield n, [float(draws.ece(value).mean()) for value in values]


def row_of(labels: int, values: np.ndarray) -> str:
    return f"| {labels} | {' | '.join(f'{value:.2f}' for value in values)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bank", type=Path, required=True, help="a folder that trust_bank.py filled"
    )
    parser.add_argument("--held-out", action="store_true", help="look at the held-out families")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.held_out:
        opened("bank: ECE against the number of labels")
    cases = defaultdict(list)
    for name in HELD_OUT if args.held_out else DEVELOPMENT:
        for case in load_cases(args.bank / f"{name}.npz"):
            cases[case.family].append(case)
    found: dict[int, list[np.ndarray]] = defaultdict(list)  # the means of each family
    for group in cases.values():
        errors = defaultdict(list)
        for case in group[::2]:
            for n, each in errors_of(judged(case)):
                errors[n].append(each)
        for n, values in errors.items():
            found[n].append(np.mean(values, axis=0))
    head = f"| labels | {' | '.join(METHODS)} |"
    errors_by_labels = []
    ratios_by_labels = []
    for n, families in found.items():
        means = np.array(families)
        ratios = means / means[:, -1:]
        errors_by_labels.append(row_of(n, means.mean(axis=0)))
        ratios_by_labels.append(row_of(n, ratios.mean(axis=0)))
    print("## ECE by labels", table(head, errors_by_labels), sep="\n\n", end="\n\n")
    print("## Ratio by labels", table(head, ratios_by_labels), sep="\n\n")


if __name__ == "__main__":
    main()
