"""A scikit-learn classifier on tabular data.

A model that was fitted on the readings of one instrument is used on those of a noisier one, where
it is too bold.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_classification
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pseudocal import PseudoCal
from pseudocal.metrics import ece


def main() -> dict[str, float]:
    """Fit, calibrate on the target without its labels, use them to see what happened."""
    x, y = make_classification(
        6000, 20, n_informative=10, n_classes=5, class_sep=1.5, random_state=0
    )
    model = make_pipeline(StandardScaler(), MLPClassifier(early_stopping=True, random_state=0)).fit(
        x[:3000], y[:3000]
    )
    noise = np.random.default_rng(0).normal(0, 0.9, size=(3000, 20)) * x.std(axis=0)
    target, labels = x[3000:] + noise, y[3000:]

    calibration = PseudoCal().fit(model, target)
    before = model.predict_proba(target)
    after = calibration.probabilities(model.predict_log_proba(target))

    scores = {
        "before": ece(before, labels),
        "after": ece(after, labels),
    }
    print(calibration)
    print(f"verdict: {calibration.verdict}")
    print(f"ECE {scores['before']:.1%} before, {scores['after']:.1%} after")
    return scores


if __name__ == "__main__":
    main()
