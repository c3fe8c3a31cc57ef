"""MatrixScal.

A linear map of the logits, on labelled source validation data (Guo et al., ICML 2017).
"""

from __future__ import annotations

from pseudocal.arrays import Labelled
from pseudocal.calibrators.baselines.ridge import fit_ridge
from pseudocal.calibrators.calibration import Calibration
from pseudocal.scaling import fit_matrix


def matrixscal(
    source: Labelled, *, penalty: float | None = None, reference: bool = False
) -> Calibration:
    """Fit a linear map and a bias on labelled source data. The predicted classes may change.

    >>> import numpy as np
    >>> calibration = matrixscal(Labelled(np.zeros((4, 2)), np.array([0, 1, 1, 1])), penalty=0.0)
    >>> calibration.probabilities([[0.0, 0.0]]).round(3)
    array([[0.25, 0.75]])

    With C classes it has C (C + 1) parameters, so without a penalty it overfits small validation
    sets.

    Args:
        source: Labelled logits of the source validation set.
        penalty: The penalty of `fit_matrix`: 0 for the maximum of the likelihood; None to choose it
            on held-out rows.
        reference: Whether to do as the released code: gradient descent that ends long before the
            maximum.

    """
    if penalty is None and not reference:
        scaling, penalty = fit_ridge(fit_matrix, source)
    else:
        scaling = fit_matrix(
            source.logits, source.labels, penalty=penalty or 0.0, reference=reference
        )
    return Calibration("matrixscal", scaling, {"penalty": penalty, "reference": reference})
