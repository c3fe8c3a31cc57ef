"""TempScal: temperature scaling on labelled source validation data (Guo et al., ICML 2017)."""

from __future__ import annotations

from pseudocal.arrays import Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, nll_loss
from pseudocal.calibrators.rivals.search import released
from pseudocal.scaling import TemperatureScaling, fit_temperature


def tempscal(source: Labelled, *, reference: bool = False) -> Calibration:
    """Fit one temperature where there are labels, and trust that it holds elsewhere.

    Three of four predictions are right at logit gap 2, so the gap should be log 3, and T = 2 / log 3:

    >>> import numpy as np
    >>> round(tempscal(Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))).temperature, 4)
    1.8205

    `reference` stops where the search of the released code does, within 1e-4 or so of the maximum.

    Args:
        source: labelled source validation logits.
        reference: whether to search as the released code does.

    """
    if reference:
        scaling = TemperatureScaling(released(nll_loss(checked(source))), rows=len(source))
    else:
        scaling = fit_temperature(source.logits, source.labels, weights=source.weights, groups=source.groups)
    return Calibration("tempscal", scaling, {"reference": reference})
