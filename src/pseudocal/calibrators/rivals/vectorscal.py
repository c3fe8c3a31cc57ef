"""VectorScal: a weight and a bias for each class, on labelled source validation data (Guo et al., ICML 2017)."""

from __future__ import annotations

from pseudocal.arrays import Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.scaling import fit_vector


def vectorscal(source: Labelled, *, penalty: float = 0.0) -> Calibration:
    """Fit a weight and a bias for each class where there are labels. Predictions may change.

    >>> import numpy as np
    >>> calibration = vectorscal(Labelled(np.zeros((4, 2)), np.array([0, 1, 1, 1])))
    >>> calibration.probabilities([[0.0, 0.0]]).round(3)
    array([[0.25, 0.75]])

    The likelihood is concave and its maximum is found; the released code takes 5,000 steps of gradient descent
    towards it. `penalty` holds the weights back, which 65 classes and 500 labels need.

    Args:
        source: labelled source validation logits.
        penalty: holds the weights back; 0 as published.

    """
    return Calibration("vectorscal", fit_vector(source.logits, source.labels, penalty=penalty), {"penalty": penalty})
