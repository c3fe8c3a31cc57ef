"""MatrixScal: a linear map of the logits, on labelled source validation data (Guo et al., ICML 2017)."""

from __future__ import annotations

from pseudocal.arrays import Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.scaling import fit_matrix


def matrixscal(source: Labelled, *, penalty: float = 0.0) -> Calibration:
    """Fit a linear map and a bias on labelled source data. The predicted classes may change.

    >>> import numpy as np
    >>> calibration = matrixscal(Labelled(np.zeros((4, 2)), np.array([0, 1, 1, 1])))
    >>> calibration.probabilities([[0.0, 0.0]]).round(3)
    array([[0.25, 0.75]])

    With C classes it has C (C + 1) parameters, so the published method, without a penalty, overfits small validation
    sets.

    Args:
        source: Labelled logits of the source validation set.
        penalty: The penalty of `fit_matrix`.

    """
    return Calibration("matrixscal", fit_matrix(source.logits, source.labels, penalty=penalty), {"penalty": penalty})
