"""VectorScal: a weight and a bias for each class, on labelled source validation data (Guo et al., ICML 2017)."""

from __future__ import annotations

from pseudocal.arrays import Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.scaling import fit_vector


def vectorscal(source: Labelled, *, penalty: float = 0.0) -> Calibration:
    """Fit a weight and a bias for each class on labelled source data. The predicted classes may change.

    >>> import numpy as np
    >>> calibration = vectorscal(Labelled(np.zeros((4, 2)), np.array([0, 1, 1, 1])))
    >>> calibration.probabilities([[0.0, 0.0]]).round(3)
    array([[0.25, 0.75]])

    The log-likelihood is concave and its maximum is found; the released code takes 5,000 steps of gradient descent
    towards it.

    Args:
        source: Labelled logits of the source validation set.
        penalty: The penalty of `fit_vector`; needed with many classes and few labels, such as 65 and 500.

    """
    return Calibration("vectorscal", fit_vector(source.logits, source.labels, penalty=penalty), {"penalty": penalty})
