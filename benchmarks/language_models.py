"""ECE of a language model's choices, before and after 50 labels.

    python benchmarks/language_models.py mmlu_llama13b.npz

The file has probabilities of four options under ten prompts (`<subject>|probabilities`, prompts x
questions x 4) and the right answers (`<subject>|labels`). Prompts are taken one by one, or averaged
as pseudocal averages the prompts in a JSONL file; the subjects together, or each alone. The labels
are those of the 50 questions that `label` would choose, for five random starts; all questions are
scored. Each row of the table is a mean over prompts, subjects and random starts.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from pseudocal import LabelSample, rows_to_label, softmax
from pseudocal.calibrators import uncalibrated
from pseudocal.metrics import ece

LABELS = 50
STARTS = 5
SMALLEST = -50.0  # stands for log 0


@dataclass(frozen=True)
class Scores:
    """What 50 labels do to one set of questions; all in percent."""

    accuracy: float
    confidence: float
    before: float  # ECE
    after: list[float]  # ECE with 50 labels, for each random start
    changed: list[bool]  # whether the verdict is to apply the temperature


def main(path: str) -> None:
    """Print the table."""
    with np.load(path) as arrays:
        subjects = sorted({key.split("|")[0] for key in arrays})
        probabilities = [arrays[f"{name}|probabilities"] for name in subjects]
        labels = [arrays[f"{name}|labels"].astype(np.int64) for name in subjects]
    together = np.concatenate(probabilities, axis=1)
    truth = np.concatenate(labels)
    print(f"{len(subjects)} subjects, {len(truth)} questions, {len(together)} prompts")
    print("| questions | accuracy | confidence | ECE | ECE with 50 labels | verdict `apply` |")
    print("|---|---|---|---|---|---|")
    print_row("all, one prompt", [scores(each, truth) for each in together])
    print_row("all, ten prompts averaged", [scores(together.mean(axis=0), truth)])
    each_subject = zip(probabilities, labels, strict=True)
    alone = [scores(some.mean(axis=0), own) for some, own in each_subject]
    print_row("each subject, ten prompts averaged", alone)


def scores(probabilities: np.ndarray, truth: np.ndarray) -> Scores:
    """Score a set of questions before and after labels."""
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(probabilities.astype(np.float64)), SMALLEST)
    after = []
    changed = []
    for seed in range(STARTS):
        rows = rows_to_label(logits, LABELS, seed=seed)
        refined = uncalibrated().refined(logits, LabelSample(rows, truth[rows], seed=seed))
        after.append(error(refined(logits), truth))
        changed.append(refined.verdict == "apply")
    accuracy = 100 * float((logits.argmax(axis=1) == truth).mean())
    confidence = 100 * float(softmax(logits).max(axis=1).mean())
    return Scores(accuracy, confidence, error(logits, truth), after, changed)


def error(logits: np.ndarray, truth: np.ndarray) -> float:
    """ECE in percent, in 15 bins."""
    return 100 * float(ece(softmax(logits), truth))


def print_row(name: str, found: list[Scores]) -> None:
    """Print the means of several sets of questions."""
    columns = [
        [each.accuracy for each in found],
        [each.confidence for each in found],
        [each.before for each in found],
        [value for each in found for value in each.after],
    ]
    cells = [f"{np.mean(column):.1f}%" for column in columns]
    applied = np.mean([value for each in found for value in each.changed])
    print(f"| {name} | {' | '.join(cells)} | {applied:.0%} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
