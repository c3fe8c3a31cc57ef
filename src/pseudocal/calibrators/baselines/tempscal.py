"""TempScal: temperature scaling on labelled source validation data (Guo et al., ICML 2017)."""

from __future__ import annotations

from pseudocal.arrays import Labelled
from pseudocal.calibrators.baselines.search import released
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, nll_loss
from pseudocal.scaling import TemperatureScaling, fit_temperature


def tempscal(source: Labelled, *, reference: bool = False) -> Calibration:
    """Fit a temperature on labelled source data, and assume that it holds on the target.

    Three of four predictions with a logit gap of 2 are right, so the gap should be log 3, and T = 2
    / log 3:

    >>> import numpy as np
    >>> round(tempscal(Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))).temperature, 4)
    1.8205

    Args:
        source: Labelled logits of the source validation set.
        reference: Whether to search as the released code does, which stops within about 1e-4 of the
            maximum.

    """
    if reference:
        scaling = TemperatureScaling(released(nll_loss(checked(source))), rows=len(source))
    else:
        scaling = fit_temperature(
            source.logits, source.labels, weights=source.weights, groups=source.groups
        )
    return Calibration("tempscal", scaling, {"reference": reference})
