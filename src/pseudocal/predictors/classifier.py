"""A fitted scikit-learn classifier, or anything with its methods, as a predictor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pseudocal.arrays import Batch, InputError, Logits, binary_logits

# Trees and neighbours give probabilities of exactly zero, whose logarithm would make a mix that is labelled so
# infinitely unlikely. This is the smallest step that a float32 softmax can take below one.
FLOOR = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class ClassifierPredictor:
    """Logits of a classifier: the logarithm of its probabilities, else its decision function."""

    model: Any

    def __call__(self, x: Batch, /) -> Logits:
        """Predict one batch of features."""
        if not hasattr(self.model, "predict_proba"):
            scores = np.asarray(self.model.decision_function(x))
            return binary_logits(scores) if scores.ndim == 1 else scores
        probabilities = self.model.predict_proba(x)
        if isinstance(probabilities, list):
            raise InputError(
                f"expected one distribution over classes, got {len(probabilities)} outputs (multi-label); "
                "calibrate each of them as a model of its own"
            )
        logits: Logits = np.log(np.maximum(probabilities, FLOOR))
        return logits
