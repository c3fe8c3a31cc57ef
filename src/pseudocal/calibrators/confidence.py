"""Mean confidence as a function of the temperature, and its inverse.

The mean confidence decreases with the temperature, from one to one over the number of classes. So
there is one temperature for each accuracy in between, and an estimated accuracy on unlabelled data
calibrates the model on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import (
    InputError,
    Labelled,
    Logits,
    as_labels,
    as_logits,
    as_weights,
    check_rows,
)
from pseudocal.passes import block_starts
from pseudocal.scaling import TemperatureScaling
from pseudocal.scaling.temperature import BOUNDS

STEP = 1e-4  # step in log T for a numerical derivative


@dataclass(frozen=True)
class Effect:
    """What a temperature does to the confidence.

    Attributes:
        temperature: The temperature.
        confidence: The mean confidence on the target with it.
        gap: That confidence minus the estimated accuracy: above zero the model is overconfident.

    """

    temperature: float
    confidence: float
    gap: float


def confidences(logits: ArrayLike, temperature: float = 1.0) -> NDArray[np.float64]:
    """The probability of each row's predicted class `(n,)`.

    >>> confidences([[2 * math.log(3), 0.0]], temperature=2.0).round(4)
    array([0.75])
    """
    z = as_logits(logits)
    confidence = np.empty(len(z))
    for rows in _chunks(z):
        check_rows(z[rows], np.arange(rows.start, rows.stop))
        below = _below_top(z[rows])
        below *= 1 / temperature
        np.exp(below, out=below)
        confidence[rows] = 1 / below.sum(axis=1)
    return confidence


def predictions(logits: ArrayLike) -> NDArray[np.intp]:
    """The predicted class of each row `(n,)`.

    NumPy copies an array that is not contiguous, such as a column of a reservoir, to find the
    largest of each row; this copies a chunk at a time.

    >>> predictions([[2.0, 0.0], [0.0, 2.0]])
    array([0, 1])
    """
    z = as_logits(logits)
    predicted = np.empty(len(z), dtype=np.intp)
    for rows in _chunks(z):
        predicted[rows] = z[rows].argmax(axis=1)
    return predicted


def _chunks(logits: Logits) -> Iterator[slice]:
    """The rows of each chunk, so that nothing of the size of the logits is allocated."""
    starts = block_starts(logits.shape)
    for start in starts:
        yield slice(start, start + starts.step)


def mean_confidence(rows: Labelled, temperature: float) -> float:
    """The mean confidence of rows with weights.

    >>> round(mean_confidence(Labelled(np.array([[2 * math.log(3), 0.0]]), np.array([0])), temperature=2.0), 4)
    0.75
    """
    return float(np.average(confidences(rows.logits, temperature), weights=rows.weights))


def nearer(accuracy: float, before: float, after: float, error: float) -> float:
    """The probability that the accuracy is nearer to `after` than to `before`.

    The accuracy is known up to a standard error.

    >>> round(nearer(0.6, before=0.9, after=0.6, error=0.1), 3), nearer(0.75, before=0.9, after=0.6, error=0.1)
    (0.933, 0.5)
    """
    side = (after < before) - (after > before)
    return normal(side * ((before + after) / 2 - accuracy) / error)


def normal(z: float) -> float:
    """The normal distribution function.

    >>> normal(0.0), round(normal(1.645), 2)
    (0.5, 0.95)
    """
    return (1 + math.erf(z / math.sqrt(2))) / 2


def match_confidence(
    logits: ArrayLike, accuracy: float, error: float = math.inf
) -> TemperatureScaling:
    """The temperature at which the mean confidence equals `accuracy`.

    >>> round(match_confidence([[2.0, 0.0]] * 4, 0.75).temperature, 6), round(2 / math.log(3), 6)
    (1.820478, 1.820478)

    If no temperature reaches the accuracy, the result is the nearest bound, and its field `bound`
    is set.

    Args:
        logits: Logits of shape `(n, classes)`.
        accuracy: The mean confidence to reach.
        error: The standard error of the accuracy, from which that of log T follows.

    """
    from scipy.optimize import brentq

    if not math.isfinite(accuracy):
        raise InputError(f"expected a finite accuracy, got {accuracy}")
    z = as_logits(logits)

    def excess(log_t: float) -> float:
        return float(confidences(z, math.exp(log_t)).mean()) - accuracy

    low = math.log(BOUNDS[0])
    high = math.log(BOUNDS[1])
    if excess(low) <= 0:
        return TemperatureScaling(BOUNDS[0], rows=len(z), bound="lower")
    if excess(high) >= 0:
        return TemperatureScaling(BOUNDS[1], rows=len(z), bound="upper")
    temperature = math.exp(brentq(excess, low, high, xtol=1e-10))
    slope = confidence_slope(z, temperature)
    return TemperatureScaling(temperature, log_se=error / slope if slope else math.inf, rows=len(z))


def confidence_slope(logits: ArrayLike, temperature: float) -> float:
    """How fast the mean confidence falls as log T grows.

    Two classes with logits 2 and 0: the confidence c changes by c (1 - c) 2 / T.

    >>> round(confidence_slope([[2.0, 0.0]], 2.0), 4), round(0.7311 * 0.2689 * 2 / 2, 4)
    (0.1966, 0.1966)

    Args:
        logits: Logits of shape `(n, classes)`.
        temperature: Where to take the slope.

    """
    up, down = (
        float(confidences(logits, temperature * math.exp(step)).mean()) for step in (STEP, -STEP)
    )
    return (down - up) / (2 * STEP)


def below_top(logits: ArrayLike) -> NDArray[np.float64]:
    """Each logit minus the largest of its row, in float64."""
    z = as_logits(logits)
    check_rows(z)
    return _below_top(z)


def _below_top(z: Logits) -> NDArray[np.float64]:
    below: NDArray[np.float64] = np.subtract(z, z.max(axis=1, keepdims=True), dtype=np.float64)
    return below


def nll_loss(labelled: Labelled) -> Callable[[float], float]:
    """The mean negative log-likelihood as a function of the temperature.

    Mean of log sum_c exp(d_c / T) - d_y / T.
    """
    # finite at negative temperatures too, which a released search tries
    from scipy.special import logsumexp

    below = below_top(labelled.logits)
    row = np.arange(len(labelled))

    def loss(temperature: float) -> float:
        d = below / temperature
        return float(
            np.average(logsumexp(d, axis=1) - d[row, labelled.labels], weights=labelled.weights)
        )

    return loss


def checked(source: Labelled) -> Labelled:
    """The same labelled logits, checked."""
    logits = as_logits(source.logits)
    check_rows(logits)
    weights = None if source.weights is None else as_weights(source.weights, len(logits))
    return Labelled(logits, as_labels(source.labels, logits), weights, source.groups)
