"""ECE of a language model's choices, before and after 50 labels.

    python benchmarks/language_models.py mmlu_llama13b.npz

The file has probabilities of four options under ten prompts (`<subject>|probabilities`, prompts x
questions x 4) and the right answers (`<subject>|labels`). Each row of the table pools all subjects:
the prompts one by one (the mean of their scores), and the ten averaged, as pseudocal averages the
prompts in a JSONL file. The labels are those of the 50 questions that `label` would choose, for five
random starts; all questions are scored.
"""

from __future__ import annotations

import sys

import numpy as np

from pseudocal import LabelSample, rows_to_label, softmax
from pseudocal.calibrators import uncalibrated
from pseudocal.metrics import ece

LABELS = 50
STARTS = 5


def main(path: str) -> None:
    """Print the table."""
    with np.load(path) as arrays:
        subjects = sorted({key.split("|")[0] for key in arrays})
        probabilities = np.concatenate([arrays[f"{s}|probabilities"] for s in subjects], axis=1)
        truth = np.concatenate([arrays[f"{s}|labels"] for s in subjects]).astype(np.int64)
    with np.errstate(divide="ignore"):
        prompts = np.maximum(np.log(probabilities.astype(np.float64)), -50)
        averaged = np.maximum(np.log(probabilities.mean(axis=0, dtype=np.float64)), -50)
    print(f"{len(subjects)} subjects, {len(truth)} questions, {len(prompts)} prompts")
    print("| prompts | accuracy | ECE | ECE with 50 labels | made worse |")
    print("|---|---|---|---|---|")
    print_row("one", [scores(logits, truth) for logits in prompts])
    print_row("ten, averaged", [scores(averaged, truth)])


def scores(logits: np.ndarray, truth: np.ndarray) -> tuple[float, float, list[float]]:
    """Accuracy and ECE in percent, and the ECE with 50 labels for each random start."""
    after = []
    for seed in range(STARTS):
        rows = rows_to_label(logits, LABELS, seed=seed)
        refined = uncalibrated().refined(logits, LabelSample(rows, truth[rows], seed=seed))
        after.append(error(refined(logits), truth))
    accuracy = 100 * float((logits.argmax(axis=1) == truth).mean())
    return accuracy, error(logits, truth), after


def error(logits: np.ndarray, truth: np.ndarray) -> float:
    """ECE in percent, in 15 bins."""
    return 100 * float(ece(softmax(logits), truth))


def print_row(name: str, found: list[tuple[float, float, list[float]]]) -> None:
    """Print the means over prompts and random starts."""
    after = np.array([each for _, _, each in found])
    before = np.array([[each] for _, each, _ in found])
    accuracy = np.mean([each for each, _, _ in found])
    worse = 100 * (after > before + 1).mean()
    cells = (f"{accuracy:.1f}%", f"{before.mean():.1f}%", f"{after.mean():.1f}%", f"{worse:.0f}%")
    print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
