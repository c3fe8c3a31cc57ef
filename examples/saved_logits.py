"""Saved logits only: the model ran elsewhere, and all there is are files.

Mixup samples need the model, so the machine that has it writes two files more than it would anyway:
the logits of the mixup samples and their pseudo-labels. From there on no model is needed, and the
rest is also what `pseudocal evaluate` and `pseudocal apply` do.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from pseudocal import LabelSample, fit_temperature, rows_to_label
from pseudocal.calibrators import measure_temperature
from pseudocal.metrics import Outcomes, ece


def main() -> dict[str, float]:
    """Write files as the machine with the model would, then work with nothing but them."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        labels = where_the_model_is(folder)

        mixup_samples, pseudo = (
            np.load(folder / "mixup samples.npy", mmap_mode="r"),
            np.load(folder / "pseudo.npy"),
        )
        scaling = fit_temperature(mixup_samples, pseudo)
        logits = np.load(folder / "logits.npy", mmap_mode="r")
        rows = rows_to_label(logits, 50)  # a person would say what these are; the labels do so here
        measured = measure_temperature(logits, LabelSample(rows, labels[rows]), scaling.temperature)
        scores = {
            "before": ece(Outcomes.from_logits(logits, labels)),
            "after": ece(Outcomes.from_logits(scaling(logits), labels)),
        }
    print(
        f"T = {scaling.temperature:.3f} in [{scaling.interval()[0]:.3f}, {scaling.interval()[1]:.3f}]"
    )
    print(f"verdict by {measured.labels} answers: {measured.verdict}")
    print(f"ECE {scores['before']:.1%} before, {scores['after']:.1%} after")
    return scores


def where_the_model_is(folder: Path, lam: float = 0.65) -> NDArray[np.int64]:
    """Predict the inputs and the mixup samples of pairs that the model tells apart.

    Save logits and pseudo-labels.
    """
    rng = np.random.default_rng(0)
    centres = 1.6 * rng.normal(size=(5, 8))
    labels = rng.integers(5, size=3000)
    x = centres[labels] + rng.normal(size=(3000, 8)) * 1.5

    def model(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return 2 * (x @ centres.T) - (centres**2).sum(
            axis=1
        )  # made for data with less noise, so too sure

    logits = model(x)
    predicted, partner = logits.argmax(axis=1), rng.permutation(len(x))
    differ = predicted != predicted[partner]
    np.save(folder / "logits.npy", logits)
    np.save(folder / "mixup samples.npy", model(lam * x + (1 - lam) * x[partner])[differ])
    np.save(folder / "pseudo.npy", predicted[differ])
    return labels


if __name__ == "__main__":
    main()
