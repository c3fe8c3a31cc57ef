"""VectorScal.

A weight and a bias for each class, on labelled source validation data (Guo et al., ICML 2017).
"""

from __future__ import annotations

from pseudocal.arrays import Labelled
from pseudocal.calibrators.baselines.ridge import fit_ridge
from pseudocal.calibrators.calibration import Calibration
from pseudocal.scaling import fit_vector


def vectorscal(
    source: Labelled, *, penalty: float | None = None, reference: bool = False
) -> Calibration:
    """Fit a weight and a bias for each class on labelled source data.

    The predicted classes may change.

    >>> import numpy as np
    >>> calibration = vectorscal(Labelled(np.zeros((4, 2)), np.array([0, 1, 1, 1])), penalty=0.0)
    >>> calibration.probabilities([[0.0, 0.0]]).round(3)
    array([[0.25, 0.75]])

    Args:
        source: Labelled logits of the source validation set.
        penalty: The penalty of `fit_vector`: 0 for the maximum of the likelihood; None to choose it
            on held-out rows, which is needed with many classes and few labels, such as 65 and 500.
        reference: Whether to do as the released code: gradient descent that ends long before the
            maximum.

    """
    if penalty is None and not reference:
        scaling, penalty = fit_ridge(fit_vector, source)
    else:
        scaling = fit_vector(
            source.logits, source.labels, penalty=penalty or 0.0, reference=reference
        )
    return Calibration("vectorscal", scaling, {"penalty": penalty, "reference": reference})
