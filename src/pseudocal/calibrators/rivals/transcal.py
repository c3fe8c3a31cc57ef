"""TransCal: match confidence to an estimate of the target accuracy that has less bias and variance.

Wang et al., NeurIPS 2020. The target error is estimated from source errors, weighted by the density ratio w:

    bias:      w^exponent, with an exponent below one, tames the few weights that would decide everything
    variance:  two control variates, of which the mean is known: the weights (1), then the accuracy (mean confidence
               after temperature scaling on the source)

and one temperature brings the mean target confidence to one minus that error.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Floats, InputError, Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, confidences, gaps, match_confidence
from pseudocal.calibrators.rivals.tempscal import tempscal
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
    """The temperature at which the mean target confidence is one minus the estimated target error.

    Without `bias` and `variance`, T matches the weighted accuracy.

    Half of the source rows are wrong but they count a third of the others, so three in four should be right:

    >>> source = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 1, 1]))
    >>> plain = transcal(source, [1.5, 1.5, 0.5, 0.5], [[2.0, 0.0]], bias=False, variance=False)
    >>> round(plain.temperature, 4), round(2 / math.log(3), 4)
    (1.8205, 1.8205)

    The paper learns the exponent together with T from one equation, which any exponent solves with a T of its own:
    what comes out is where the search happened to go. `exponent` fixes it, to where that search starts. `reference`
    searches as the released code does: for both, from (2, 0.5), with T of at least 1, so that it never sharpens.

    Args:
        source: labelled source validation logits.
        ratio: the density ratio at each source row, known or from `density_ratio`.
        target_logits: logits of target data, `(n, classes)`.
        bias: whether weights are taken to the power of `exponent`.
        variance: whether to use the control variates.
        exponent: the power of the weights.
        reference: whether to search as the released code does.

    """
    if not 0 <= exponent <= 1:
        raise InputError(f"expected an exponent between 0 and 1, got {exponent}")
    source = checked(source)
    temperature = tempscal(Labelled(source.logits, source.labels), reference=reference).temperature
    still = math.nan if reference else 0.0  # the released code divides by zero, and its search turns back there
    errors = _Errors(source, as_weights(ratio, len(source)), temperature, variance, still)
    settings = {"bias": bias, "variance": variance, "exponent": exponent, "reference": reference}
    if reference:
        return Calibration("transcal", _released(errors, target_logits, bias), settings)
    error = errors.on_target(exponent if bias else 1.0)
    return Calibration("transcal", match_confidence(target_logits, 1 - error), settings)


class _Errors:
    """Source errors, their weights, and what they say of the target."""

    def __init__(self, source: Labelled, weights: Column, temperature: float, variance: bool, still: float) -> None:
        self.wrong: Column = (source.logits.argmax(axis=1) != source.labels).astype(np.float64)
        self.weights = weights
        self.variance = variance
        self.still = still
        self.confidence = float(confidences(source.logits, temperature).mean())

    def on_target(self, exponent: float) -> float:
        """The estimated share of errors in the target."""
        weights = self.weights**exponent
        errors: Column = weights * self.wrong
        if not self.variance:
            return float(errors.mean())
        errors = controlled(errors, weights, 1.0, still=self.still)
        return float(controlled(errors, 1 - self.wrong, self.confidence, still=self.still).mean())


def controlled(values: Column, by: Column, mean: float, *, still: float = 0.0) -> Column:
    """Values of the same mean and less variance, given a variable that goes along with them and has a known mean.

    They follow the variable exactly here, so what is left is what they would be at its known mean:

    >>> controlled(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]), 0.5)
    array([1.5, 1.5, 1.5])

    A variable that does not vary (all weights equal, or all source rows right) controls nothing: its slope is `still`.
    """
    spread = by - by.mean()
    square = float(spread @ spread)
    slope = float(spread @ values) / square if square > np.finfo(np.float64).eps * len(by) else still
    return values - slope * (by - mean)


def _released(errors: _Errors, target_logits: ArrayLike, bias: bool) -> TemperatureScaling:
    from scipy.optimize import minimize

    below = gaps(target_logits)

    def gap(at: Column) -> float:
        temperature, exponent = at
        confidence = float((1 / np.exp(below / temperature).sum(axis=1)).mean())
        return abs(confidence - (1 - errors.on_target(float(exponent) if bias else 1.0)))

    found = minimize(gap, np.array([2.0, 0.5]), method="SLSQP", bounds=[(1.0, None), (0.0, 1.0)])
    return TemperatureScaling(float(found.x[0]), rows=len(below))
