"""The tables of docs/evaluation.md, by one command.

    python benchmarks/trust_bank.py --data FOLDER --out runs/bank             train the models once
    python benchmarks/evaluation.py --data FOLDER --bank runs/bank      development families
    python benchmarks/evaluation.py --held-out ...                      families for claims; each look
                                                                        is logged

Choices are made on the development families. A look at the held-out families is a line in
`trust_openings.jsonl`.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labels_targets import Target, later_years, texts_of_others, two_classes
from pseudocal import LabelSample, fit_temperature, rows_to_label
from pseudocal.calibrators.posterior import Prior
from pseudocal.calibrators.refinement import as_applied, priors_of, refine
from pseudocal.metrics import Outcomes, ece
from trust import opened
from trust_families import twins
from trust_tables import table

DRAWS = 6  # of labels, for each model
LABELS = (20, 50)


def error(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """ECE in percent."""
    return 100 * ece(Outcomes.from_logits(logits / temperature, labels))


class Refined(NamedTuple):
    """One draw of labels: what they lead to on the rows without a label."""

    before: float
    after: float
    verdict: str
    covered: bool
    gap_grows: bool


def refined(
    logits: np.ndarray, labels: np.ndarray, n: int, seed: int, priors: list[Prior]
) -> Refined:
    rows = rows_to_label(logits, n, seed=seed)
    rest = np.setdiff1d(np.arange(len(labels)), rows)
    sample = LabelSample(rows, labels[rows], seed=seed)
    scaling, measured = as_applied(*refine(logits, sample, priors=priors))
    truth = fit_temperature(logits, labels).temperature
    return Refined(
        error(logits[rest], labels[rest], 1.0),
        error(logits[rest], labels[rest], scaling.temperature),
        measured.verdict,
        measured.temperature.low <= truth <= measured.temperature.high,
        abs(measured.gap_after.value) > abs(measured.gap_before.value),
    )


def percent(values: list[bool]) -> str:
    return f"{np.mean(values):.0%}" if values else "-"


# ------------------------------------------------------------------------------ two classes


def pairs_of_gases(path: Path) -> Iterator[Target]:
    """One gas or another: trained on the first two batches, used on all later ones."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    with np.load(path, allow_pickle=False) as file:
        x, y, batch, names = file["x"], file["y"], file["batch"], file["classes"]
    for pair in combinations(range(len(names)), 2):
        kept = np.isin(y, pair)
        early = kept & (batch <= 2)
        late = kept & (batch > 2)
        labels = (y == pair[1]).astype(np.int64)
        if len(np.unique(labels[early])) < 2:
            continue
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        some = np.flatnonzero(late)[:: max(1, late.sum() // 1000)]
        models = twins(model, x[early], labels[early], n=2)
        task = f"{names[pair[0]]} or {names[pair[1]]}"
        yield two_classes("gas drift, two gases", task, models, x[some], labels[some])


def two_class_table(targets: list[Target]) -> str:
    """No labels, and labels with the prior before and now."""
    without = defaultdict(list)
    found: dict[tuple[str, int, str], list[Refined]] = defaultdict(list)
    for target in targets:
        mixup = target.estimates.get("mixup", 1.0)
        truth = fit_temperature(target.logits, target.labels).temperature
        temperatures = (1.0, mixup, truth)
        without[target.family].append(
            [error(target.logits, target.labels, t) for t in temperatures]
        )
        priors = {
            "around mixup's T, width 0.7": [Prior("mixup", mixup, 0.7)],
            "around T = 1, width 0.4": priors_of(target.estimates, target.logits),
        }
        for seed in range(DRAWS):
            for n in LABELS:
                for name, given in priors.items():
                    one = refined(target.logits, target.labels, n, seed, given)
                    found[target.family, n, name].append(one)
    rows = []
    for family, errors in without.items():
        means = np.mean(errors, axis=0)
        for name, value in zip(("T = 1 (default)", "mixup's T", "oracle"), means, strict=True):
            rows.append(f"| {family} | 0 | {name} | {value:.1f} | | | |")
    for (family, n, name), draws in found.items():
        applied = [draw for draw in draws if draw.verdict == "apply"]
        rows.append(
            f"| {family} | {n} | {name} | {np.mean([d.after for d in draws]):.1f} "
            f"| {len(applied)} of {len(draws)} "
            f"| {percent([d.after <= d.before + 1 for d in applied])} "
            f"| {percent([d.covered for d in draws])} |"
        )
    head = "| family | labels | temperature or prior | ECE | apply | of these no worse | covered |"
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a folder of data files")
    parser.add_argument("--held-out", action="store_true", help="look at the held-out families")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # verdicts are counted here
    if args.held_out:
        opened("two classes: gas drift")
        targets = [*pairs_of_gases(args.data / "gas_drift.npz")]
    else:
        targets = [
            *texts_of_others(args.data / "sentiment_4domains.npz"),
            *later_years(args.data / "employment_ma.npz"),
        ]
    print("## Two classes", two_class_table(targets), sep="\n\n", end="\n\n")


if __name__ == "__main__":
    main()
