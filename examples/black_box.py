"""A black box that returns probabilities.

A paid service, a model in another language, a colleague's function.

Its logarithm is all that is needed, since softmax(log p) = p. Two calls for each input, and no
label.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from pseudocal import PseudoCal


def main() -> float:
    """Calibrate a function about which nothing is known."""
    x, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(100, random_state=0).fit(x[:900], y[:900])

    def ask(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return forest.predict_proba(rows)

    def log_ask(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(
            np.clip(ask(rows), 1e-6, None)
        )  # a class at zero would be one that is impossible for ever

    target = x[900:]
    calibration = PseudoCal(tolerance=0.05).fit(
        log_ask, target
    )  # stops asking when it knows enough
    before, after = ask(target), calibration.probabilities(log_ask(target))
    print(calibration)
    print(f"verdict: {calibration.verdict}")
    print(
        f"mean confidence {before.max(axis=1).mean():.3f} before, {after.max(axis=1).mean():.3f} after",
        end=", ",
    )
    print(f"accuracy {(after.argmax(axis=1) == y[900:]).mean():.3f}")
    return calibration.temperature


if __name__ == "__main__":
    main()
