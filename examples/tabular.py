"""scikit-learn on tables: two classifiers, no labels, then 50 labels.

The classifiers learn the readings of one instrument and are used on those of a noisier one.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_classification
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pseudocal import LabelSample, rows_to_label
from pseudocal.metrics import ece
from pseudocal.sklearn import CalibratedClassifier, calibrated


def main() -> dict[str, float]:
    """Calibrate without labels, then with 50; all labels are used for the comparison only."""
    x, y = make_classification(
        6000, 20, n_informative=10, n_classes=5, class_sep=1.5, random_state=0
    )
    first, second = (train(x[:3000], y[:3000], seed) for seed in (0, 1))
    noise = np.random.default_rng(0).normal(0, 0.9, size=(3000, 20)) * x.std(axis=0)
    new = x[3000:] + noise
    truth = y[3000:]

    free = CalibratedClassifier(first, second_opinion=second).fit(new)

    logits = first.predict_log_proba(new)
    rows = rows_to_label(logits, 50)  # a person labels these; here the labels are known
    refined = free.calibration_.refined(logits, LabelSample(rows, truth[rows]))
    labelled = calibrated(first, refined)

    scores = {
        "before": ece(first.predict_proba(new), truth),
        "no labels": ece(free.predict_proba(new), truth),
        "50 labels": ece(labelled.predict_proba(new), truth),
    }
    print(f"without labels: {free.calibration_}")
    print(f"with 50 labels: {refined}")
    print(", ".join(f"ECE {name}: {value:.1%}" for name, value in scores.items()))
    return scores


def train(x: np.ndarray, y: np.ndarray, seed: int) -> MLPClassifier:
    """A network on standardised columns."""
    network = MLPClassifier(early_stopping=True, random_state=seed)
    return make_pipeline(StandardScaler(), network).fit(x, y)


if __name__ == "__main__":
    main()
