"""TransCal.

Match the confidence to an estimate of the target accuracy with reduced bias and variance.

Wang et al., NeurIPS 2020. The target error is estimated from source errors, weighted by the density
ratio w:

    bias:      w^exponent, with an exponent below one, limits the influence of a few large weights
    variance:  two control variates with known means: the weights (1), then the accuracy (the mean
        confidence after
               temperature scaling on the source)

A temperature then matches the mean target confidence to one minus that error.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Floats, InputError, Labelled
from pseudocal.calibrators.baselines.tempscal import tempscal
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import below_top, checked, confidences, match_confidence
from pseudocal.scaling import TemperatureScaling
from pseudocal.scaling.temperature import as_weights

Column = Floats  # (n,)


def transcal(
    source: Labelled,
    ratio: ArrayLike,
    target_logits: ArrayLike,
    *,
    bias: bool = True,
    variance: bool = True,
    exponent: float = 0.5,
    reference: bool = False,
) -> Calibration:
    """The temperature at which the mean target confidence equals one minus the estimated target error.

    Half of the source rows are wrong, but with a third of the weight of the others, so the target
    accuracy is 3/4:

    >>> source = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 1, 1]))
    >>> plain = transcal(source, [1.5, 1.5, 0.5, 0.5], [[2.0, 0.0]], bias=False, variance=False)
    >>> round(plain.temperature, 4), round(2 / math.log(3), 4)
    (1.8205, 1.8205)

    The paper fits the exponent together with T from one equation, which every exponent solves with
    its own T, so the result depends on the path of the search. Here the exponent is fixed, at the
    value where that search starts.

    Args:
        source: Labelled logits of the source validation set.
        ratio: The density ratio of each source row, such as `density_ratio(...)(source_features)`.
        target_logits: Logits of the target, of shape `(n, classes)`.
        bias: Whether to reduce the bias, by raising the ratio to the power of `exponent`.
        variance: Whether to reduce the variance, with the control variates.
        exponent: The exponent, between 0 and 1.
        reference: Whether to search as the released code does: for T and the exponent, from (2,
            0.5), with T >= 1.

    """
    if not 0 <= exponent <= 1:
        raise InputError(f"expected an exponent between 0 and 1, got {exponent}")
    source = checked(source)
    temperature = tempscal(Labelled(source.logits, source.labels), reference=reference).temperature
    still = math.nan if reference else 0.0  # the released code divides by zero here
    errors = _Errors(source, as_weights(ratio, len(source)), temperature, variance, still)
    settings = {"bias": bias, "variance": variance, "exponent": exponent, "reference": reference}
    if reference:
        return Calibration("transcal", _released(errors, target_logits, bias), settings)
    error = errors.on_target(exponent if bias else 1.0)
    return Calibration("transcal", match_confidence(target_logits, 1 - error), settings)


class _Errors:
    """Source errors and their weights, for an estimate of the target error."""

    def __init__(
        self, source: Labelled, weights: Column, temperature: float, variance: bool, still: float
    ) -> None:
        self.wrong: Column = (source.logits.argmax(axis=1) != source.labels).astype(np.float64)
        self.weights = weights
        self.variance = variance
        self.still = still
        self.confidence = float(confidences(source.logits, temperature).mean())

    def on_target(self, exponent: float) -> float:
        """The estimated error rate on the target."""
        weights = self.weights**exponent
        errors: Column = weights * self.wrong
        if not self.variance:
            return float(errors.mean())
        errors = controlled(errors, weights, 1.0, still=self.still)
        return float(controlled(errors, 1 - self.wrong, self.confidence, still=self.still).mean())


def controlled(values: Column, by: Column, mean: float, *, still: float = 0.0) -> Column:
    """Reduce the variance of values with a control variate.

    A correlated variable with a known mean.

    Here the values are a linear function of the variable, so each becomes the value at the known
    mean:

    >>> controlled(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]), 0.5)
    array([1.5, 1.5, 1.5])

    If the variable is constant (all weights equal, or all source rows right), its slope is `still`.
    """
    spread = by - by.mean()
    square = float(spread @ spread)
    slope = (
        float(spread @ values) / square if square > np.finfo(np.float64).eps * len(by) else still
    )
    return values - slope * (by - mean)


def _released(errors: _Errors, target_logits: ArrayLike, bias: bool) -> TemperatureScaling:
    from scipy.optimize import minimize

    below = below_top(target_logits)

    def gap(at: Column) -> float:
        temperature, exponent = at
        confidence = float((1 / np.exp(below / temperature).sum(axis=1)).mean())
        return abs(confidence - (1 - errors.on_target(float(exponent) if bias else 1.0)))

    found = minimize(gap, np.array([2.0, 0.5]), method="SLSQP", bounds=[(1.0, None), (0.0, 1.0)])
    return TemperatureScaling(float(found.x[0]), rows=len(below))
