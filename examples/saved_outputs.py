"""Saved outputs only: a paid service, a model in another language, a colleague's function.

All there is are two tables of probabilities, one of each service. No model is run here.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import pseudocal.app
from pseudocal.metrics import ece


def main() -> dict[str, float]:
    """Estimate the accuracy from two tables, label 50 inputs, calibrate."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        truth = where_the_services_are(folder)
        out = pseudocal.app.collect_outputs(
            folder / "first.csv",
            folder / "out",
            second_opinion=folder / "second.csv",
            output_type="probabilities",
        )
        estimate = pseudocal.app.conclude(pseudocal.app.Run.open(out)).trust.estimated_accuracy
        pseudocal.app.label(out, 50)  # a person opens out/label.html; here the labels are known
        table = pd.read_csv(out / "to-label.csv")
        table["label"] = truth[table["file"]]
        table.to_csv(folder / "labels.csv", index=False)
        calibration = pseudocal.app.refine(out, folder / "labels.csv").calibration
        before = np.loadtxt(folder / "first.csv", delimiter=",", skiprows=1)
    after = calibration.probabilities(np.log(before))
    scores = {"before": ece(before, truth), "after": ece(after, truth)}
    print(f"estimated accuracy {estimate.value:.0%} ({estimate.low:.0%} to {estimate.high:.0%})")
    print(f"measured accuracy {calibration.measured.accuracy.value:.0%} from 50 labels")
    print(f"ECE {scores['before']:.1%} before, {scores['after']:.1%} after")
    return scores


def where_the_services_are(folder: Path) -> np.ndarray:
    """Write a table of probabilities for each of two services; return the true digits."""
    x, y = load_digits(return_X_y=True)
    new = x[900:] + np.random.default_rng(0).normal(0, 4, size=x[900:].shape)
    for seed, name in enumerate(("first", "second")):
        model = MLPClassifier((50,), random_state=seed).fit(x[:900], y[:900])
        digits = ",".join(str(digit) for digit in model.classes_)
        probabilities = np.maximum(model.predict_proba(new), 1e-7)  # no class is impossible
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        np.savetxt(folder / f"{name}.csv", probabilities, delimiter=",", header=digits, comments="")
    return y[900:]


if __name__ == "__main__":
    main()
