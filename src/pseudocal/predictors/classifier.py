"""A fitted scikit-learn classifier, or any object with the same methods, as a predictor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Inputs, Logits, as_numpy, binary_logits, unmasked

FLOOR = float(np.log(np.finfo(np.float32).eps))  # the log of the smallest step below 1 in float32


@dataclass(frozen=True)
class ClassifierPredictor:
    """Logits of a classifier.

    The logarithm of its probabilities, or its decision function if it has none.

    Attributes:
        model: The fitted classifier.

    """

    model: Any

    @property
    def class_names(self) -> list[Any] | None:
        """The names of its classes, in the order of its logits; None if it has none."""
        names = getattr(self.model, "classes_", None)
        return None if names is None or isinstance(names, list) else np.asarray(names).tolist()

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch of features."""
        x = unmasked(x, "inputs")
        if not hasattr(self.model, "predict_proba"):
            return self._decisions(x)
        probabilities = self.model.predict_proba(x)
        if isinstance(probabilities, list) or not np.allclose(
            np.sum(probabilities, axis=1), 1, atol=1e-3
        ):
            raise InputError(
                "expected one distribution over classes, got several independent outputs "
                "(multi-label); calibrate each as a separate model"
            )
        if np.shape(probabilities)[1] < 2:
            raise InputError(
                f"expected a classifier of at least two classes, got {type(self.model).__name__} "
                f"with one: {self.class_names}"
            )
        with np.errstate(divide="ignore"):
            return floored(np.log(probabilities))

    def _decisions(self, x: Inputs) -> Logits:
        """The decision function, if it returns one number per class."""
        scores = as_numpy(self.model.decision_function(x), "decisions")
        logits = binary_logits(scores) if scores.ndim == 1 else scores
        classes = len(getattr(self.model, "classes_", ()))
        if logits.shape[1] != classes:
            raise InputError(
                f"expected one decision for each of {classes} classes, got shape {scores.shape}"
            )
        return logits


def floored(logits: Logits) -> Logits:
    """Replace -inf in logs of probabilities by a small number, the smallest of its row.

    Decision trees and nearest neighbours give probabilities of exactly zero. A mixup sample with
    such a label would have an infinite loss.

    >>> floored(np.log([[0.5, 0.5, 1e-30], [1.0, 1e-300, 1e-300]])).round(1)
    array([[  -0.7,   -0.7,  -69.1],
           [   0. , -690.8, -690.8]])
    >>> floored(np.array([[0.0, -np.inf]])).round(1)
    array([[  0. , -15.9]])
    """
    lowest = np.where(np.isneginf(logits), np.inf, logits).min(axis=1, keepdims=True)
    return np.where(np.isneginf(logits), np.minimum(FLOOR, lowest), logits)
