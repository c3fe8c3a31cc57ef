"""Vector and matrix scaling.

A weight for each class, or a full linear map, and a bias (Guo et al., ICML 2017).

Unlike a temperature they can change the predicted class, and with many classes and few labels they
overfit. The log-likelihood is concave in the weights, so L-BFGS with the exact gradient climbs to
its maximum, if there is one. It searches in coordinates in which the logits are centred,
uncorrelated and of size one. This saves most of the steps, and the result does not depend on a
constant added to the logits. The search starts at the best temperature, so the likelihood of its
result is at least as high.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import (
    Floats,
    InputError,
    Labels,
    Logits,
    as_logits,
    check_not_probabilities,
    check_rows,
    work_dtype,
)
from pseudocal.scaling.temperature import TemperatureScaling, as_targets, fit_temperature

LOGITS_AT_ONCE = 1 << 20  # logits per chunk
MOST_ITERATIONS = 5000  # of L-BFGS; problems without a penalty have taken up to 1,200
FLAT = 1e-6  # the largest slope, in coordinates of size one, at which the climb ends
NO_SPREAD = (
    1e-12  # a variance, relative to the largest, that single precision cannot tell from zero
)
DESCENT = (5000, 0.01, 0.9)  # steps, learning rate and momentum of the released code
Doubles = NDArray[np.float64]
Parameters = Doubles  # (weights + 1, classes): the weights, and in the last row the bias
Product = Callable[[Floats, Floats], Floats]
Linear = Callable[[Parameters], Parameters]


@dataclass(frozen=True, eq=False)
class VectorScaling:
    """Multiply each class's logit by its own weight and add its own bias.

    >>> VectorScaling(np.array([1.0, 2.0]), np.array([0.0, 1.0]))(np.array([[3.0, 4.0]]))
    array([[3., 9.]])

    Attributes:
        weight: The weight of each class, of shape `(classes,)`.
        bias: The bias of each class, of shape `(classes,)`.

    """

    weight: Floats
    bias: Floats

    def __post_init__(self) -> None:
        _check_shapes(self.weight, self.bias, 1)

    def __call__(self, logits: ArrayLike) -> Logits:
        """Scale logits `(n, classes)`."""
        logits = _fitting(logits, len(self.bias))
        scaled = logits * self.weight + self.bias  # in float64: the two may be large and cancel
        return scaled.astype(work_dtype(logits), copy=False)


@dataclass(frozen=True, eq=False)
class MatrixScaling:
    """Apply a linear map to the logits: `logits @ weight + bias`.

    >>> MatrixScaling(np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros(2))(np.array([[3.0, 4.0]]))
    array([[4., 3.]])

    Attributes:
        weight: The matrix, of shape `(classes, classes)`.
        bias: The bias of each class, of shape `(classes,)`.

    """

    weight: Floats
    bias: Floats

    def __post_init__(self) -> None:
        _check_shapes(self.weight, self.bias, 2)

    def __call__(self, logits: ArrayLike) -> Logits:
        """Scale logits `(n, classes)`."""
        logits = _fitting(logits, len(self.bias))
        scaled = logits @ self.weight + self.bias  # in float64: the two may be large and cancel
        return scaled.astype(work_dtype(logits), copy=False)


Scaling = TemperatureScaling | VectorScaling | MatrixScaling


class UnfinishedFitWarning(UserWarning):
    """A fit stopped at its largest number of steps, before the maximum of the likelihood."""


def fit_vector(
    logits: ArrayLike, labels: ArrayLike, *, penalty: float = 0.0, reference: bool = False
) -> VectorScaling:
    """Fit a weight and a bias for each class by maximum likelihood.

    Without a penalty the likelihood is never lower than that of the best temperature, and a constant added to the
    logits does not change the probabilities.

    Class 1 is three times as frequent as class 0, while the logits give both the same probability:

    >>> import math
    >>> scaling = fit_vector(np.zeros((4, 2)), [0, 1, 1, 1])
    >>> round(float(scaling.bias[1] - scaling.bias[0]), 4), round(math.log(3), 4)
    (1.0986, 1.0986)

    Args:
        logits: Logits of shape `(n, classes)`.
        labels: Class indices `(n,)` or soft targets `(n, classes)`.
        penalty: The factor of the squared distance from the identity that is added to the mean
            loss; 0 for the maximum of the likelihood.
        reference: Whether to do as the released code of TransCal and PseudoCal: 5,000 steps of
            gradient descent with a learning rate of 0.01 and a momentum of 0.9. With few labels
            they end long before the maximum, which prevents some of the overfitting.

    """
    z, targets = _checked(logits, labels, penalty)

    def times(z: Floats, weight: Floats) -> Floats:
        return z * weight

    def slope(z: Floats, error: Floats) -> Floats:
        by_class: Floats = (z * error).sum(axis=0, keepdims=True)
        return by_class

    problem = _Problem(z, targets, np.ones((1, z.shape[1])), times, slope)
    if reference:
        theta = problem.descent()
    else:
        moments = _moments(z, lambda z: (z * z).sum(axis=0))
        theta = problem.minimum(penalty, moments.mean, _coordinates_by_class(moments, penalty))
    return VectorScaling(theta[0], theta[-1])


def fit_matrix(
    logits: ArrayLike, labels: ArrayLike, *, penalty: float = 0.0, reference: bool = False
) -> MatrixScaling:
    """Fit a linear map and a bias by maximum likelihood.

    Without a penalty the likelihood is never lower than that of the best temperature, and a constant added to the
    logits does not change the probabilities.

    If the labels swap the two classes, the map swaps them back:

    >>> scaling = fit_matrix([[2.0, 0.0], [0.0, 2.0]], [1, 0], penalty=0.1)
    >>> scaling([[2.0, 0.0]]).argmax()
    np.int64(1)

    Args:
        logits: Logits of shape `(n, classes)`.
        labels: Class indices `(n,)` or soft targets `(n, classes)`.
        penalty: The factor of the squared distance from the identity that is added to the mean
            loss; 0 for the maximum of the likelihood.
        reference: Whether to do as the released code does; see `fit_vector`.

    """
    z, targets = _checked(logits, labels, penalty)

    def times(z: Floats, weight: Floats) -> Floats:
        return z @ weight

    def slope(z: Floats, error: Floats) -> Floats:
        return z.T @ error

    problem = _Problem(z, targets, np.eye(z.shape[1]), times, slope)
    if reference:
        theta = problem.descent()
    else:
        moments = _moments(z, lambda z: z.T @ z)
        theta = problem.minimum(penalty, moments.mean, _coordinates(moments, penalty))
    return MatrixScaling(theta[:-1], theta[-1])


@dataclass(frozen=True, eq=False)
class _Problem:
    """A linear map of logits that is to be fitted to labels.

    Attributes:
        logits: Logits of shape `(n, classes)`.
        targets: Class indices `(n,)` or soft targets `(n, classes)`.
        identity: The weights of the identity: ones of shape `(1, classes)`, or the unit matrix.
        times: The product of rows of logits and weights.
        slope: The slope of the summed loss in the weights, from some rows and the errors of their probabilities.

    """

    logits: Logits
    targets: Labels
    identity: Doubles
    times: Product
    slope: Product

    def minimum(self, penalty: float, mean: Doubles, coordinates: Linear) -> Parameters:
        """The parameters of least loss; a warning if the search did not get there.

        With centred logits the bias is `centre * weight` larger. The penalty is on the bias of the original logits;
        this centre is the one at which weights and bias do not depend on each other to second order.
        """
        from scipy.optimize import minimize

        centred = _Centred(self, mean / (1 + 2 * penalty), penalty)
        start = centred.start()

        def loss(place: Doubles) -> tuple[float, Doubles]:
            value, slope = centred.loss(start + coordinates(place.reshape(start.shape)))
            return value, coordinates(slope).ravel()

        options: Any = {
            "maxiter": MOST_ITERATIONS,
            "maxfun": 2 * MOST_ITERATIONS,
            "maxcor": 20,
            "gtol": FLAT,
            "ftol": 1e-13,
        }
        found = minimize(loss, np.zeros(start.size), jac=True, method="L-BFGS-B", options=options)
        if found.nit >= MOST_ITERATIONS or found.nfev >= 2 * MOST_ITERATIONS:
            said = f"expected the maximum of the likelihood within {MOST_ITERATIONS} steps, got a slope of"
            warnings.warn(
                f"{said} {np.abs(found.jac).max():.1e} after them",
                UnfinishedFitWarning,
                stacklevel=3,
            )
        theta = start + coordinates(found.x.reshape(start.shape))
        if (
            penalty == 0
        ):  # a constant changes nothing: without one, scaled logits are small and keep their digits
            theta[-1] -= theta[-1].mean()
        theta[-1] = centred.bias(theta)
        return theta

    def descent(self) -> Parameters:
        """The parameters after the released code's gradient descent, which computes in single precision."""
        steps, rate, momentum = DESCENT
        everything = next(_chunks(self.logits, self.targets, 0.0, len(self.logits)))
        z, t = (array.astype(np.float32) for array in everything)
        theta: Floats = np.vstack([self.identity, np.zeros(z.shape[1])]).astype(np.float32)
        velocity: Floats = np.zeros_like(theta)
        for _ in range(steps):
            error = self.times(z, theta[:-1]) + theta[-1]
            error -= error.max(axis=1, keepdims=True)
            np.exp(error, out=error)
            error /= error.sum(axis=1, keepdims=True)
            error -= t
            gradient = np.vstack([self.slope(z, error), error.sum(axis=0)])
            velocity = momentum * velocity + gradient / len(z)
            theta = theta - rate * velocity
        return theta.astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Centred:
    """The loss of a problem as a function of the weights and the bias of centred logits.

    Attributes:
        problem: The problem.
        centre: What is subtracted from the logits of each class.
        penalty: The factor of the squared distance from the identity, of the map of the original logits.

    """

    problem: _Problem
    centre: Doubles
    penalty: float

    @cached_property
    def chunks(self) -> list[tuple[Doubles, Doubles]] | None:
        """All rows, unless they are too many to be kept in float64."""
        small = self.problem.logits.size <= 8 * LOGITS_AT_ONCE
        return (
            list(_chunks(self.problem.logits, self.problem.targets, self.centre)) if small else None
        )

    def bias(self, theta: Parameters) -> Doubles:
        """The bias of the original logits."""
        shift = self.problem.times(self.centre[None], theta[:-1])[0]
        return np.asarray(theta[-1] - shift, dtype=np.float64)

    def start(self) -> Parameters:
        """The best temperature, or the identity if its loss with the penalty is smaller."""
        fitted = fit_temperature(self.problem.logits, self.problem.targets)
        scaled = self._multiple(1 / fitted.temperature)
        return min(scaled, self._multiple(1.0), key=lambda theta: self.loss(theta)[0])

    def _multiple(self, factor: float) -> Parameters:
        """The parameters that multiply all logits by one factor."""
        weight = factor * self.problem.identity
        return np.vstack([weight, self.problem.times(self.centre[None], weight)])

    def loss(self, theta: Parameters) -> tuple[float, Parameters]:
        """The mean negative log-likelihood plus `penalty` times the squared distance from the identity; its slope."""
        problem = self.problem
        weight, bias = theta[:-1], theta[-1]
        total, slope = 0.0, np.zeros_like(theta)
        for z, t in self.chunks or _chunks(problem.logits, problem.targets, self.centre):
            x = problem.times(z, weight) + bias
            x -= x.max(axis=1, keepdims=True)
            p = np.exp(x)
            sums = p.sum(axis=1, keepdims=True)
            total += float(np.log(sums).sum() - (t * x).sum())  # targets sum to one
            p /= sums
            p -= t
            slope[:-1] += problem.slope(z, p)
            slope[-1] += p.sum(axis=0)
        n = len(problem.logits)
        away, away_bias = weight - problem.identity, self.bias(theta)
        distance = float((away * away).sum() + away_bias @ away_bias)
        pull = np.vstack([away - problem.slope(self.centre[None], away_bias[None]), away_bias])
        return total / n + self.penalty * distance, slope / n + 2 * self.penalty * pull


class _Moments(NamedTuple):
    """Moments of the logits.

    Attributes:
        mean: The mean logit of each class.
        spread: The variance of each class, or the covariance of all classes.
        rounding: The variance of each class that rounding errors could cause.

    """

    mean: Doubles
    spread: Doubles
    rounding: Doubles


def _moments(logits: Logits, squares: Callable[[Doubles], Doubles]) -> _Moments:
    """The mean of the logits, and the mean of `squares` of centred ones."""
    n, nobody = len(logits), np.zeros(len(logits), dtype=np.intp)
    mean = np.sum([z.sum(axis=0) for z, _ in _chunks(logits, nobody)], axis=0) / n
    spread = np.zeros(())
    for z, _ in _chunks(logits, nobody, mean):
        spread = spread + squares(z) / n
    precision = max(np.finfo(logits.dtype).eps, np.finfo(np.float64).eps)
    largest = np.maximum(logits.max(axis=0), -logits.min(axis=0)).astype(np.float64)
    return _Moments(mean, spread, (precision * largest) ** 2)


def _coordinates(moments: _Moments, penalty: float) -> Linear:
    """Coordinates of a matrix and a bias in which the logits are uncorrelated and of size one.

    Weights stay as they are in directions in which the logits vary by rounding errors only.
    """
    mean = moments.mean
    sizes, directions = np.linalg.eigh(
        moments.spread + _pull(mean[:, None] * mean, np.eye(len(mean)), penalty)
    )
    least = max(NO_SPREAD * sizes.max(), moments.rounding.max())
    root = (directions * _inverse_root(sizes, least)) @ directions.T

    def weights_and_bias(place: Parameters) -> Parameters:
        return np.vstack([root @ place[:-1], place[-1] / math.sqrt(1 + 2 * penalty)])

    return weights_and_bias


def _coordinates_by_class(moments: _Moments, penalty: float) -> Linear:
    """The same for the weight and the bias of each class."""
    sizes = moments.spread + _pull(moments.mean**2, np.ones(1), penalty)
    root = _inverse_root(sizes, moments.rounding)
    return lambda place: (
        place * np.vstack([root, np.full_like(root, 1 / math.sqrt(1 + 2 * penalty))])
    )


def _pull(mean_squares: Doubles, one: Doubles, penalty: float) -> Doubles:
    """The second derivative of the penalty in the weights, at the best bias for each of them."""
    return 2 * penalty * (one + mean_squares / (1 + 2 * penalty))


def _inverse_root(sizes: Doubles, least: Any) -> Doubles:
    """One over the square root of each size; zero for sizes of no more than `least`."""
    varies = sizes > least
    return np.where(varies, 1 / np.sqrt(np.where(varies, sizes, 1.0)), 0.0)


def _chunks(
    logits: Logits, targets: Labels, centre: Doubles | float = 0.0, size: int | None = None
) -> Iterator[tuple[Doubles, Doubles]]:
    """Chunks of centred rows in float64, with their targets as distributions over the classes."""
    classes = logits.shape[1]
    size = size or max(1, LOGITS_AT_ONCE // classes)
    for start in range(0, len(logits), size):
        z = logits[start : start + size].astype(np.float64) - centre
        t = targets[start : start + size]
        if t.ndim == 1:
            certain = np.zeros_like(z)
            certain[np.arange(len(t)), t] = 1.0
            yield z, certain
        else:
            yield z, t.astype(np.float64)


def _checked(logits: ArrayLike, labels: ArrayLike, penalty: float) -> tuple[Logits, Labels]:
    if not 0 <= penalty < np.inf:
        raise InputError(f"expected a finite penalty of at least 0, got {penalty}")
    z = as_logits(logits)
    check_rows(z)
    check_not_probabilities(z)
    if not np.isfinite(z.min()):
        row = int(np.argmax(np.isneginf(z).any(axis=1)))
        raise InputError(
            f"expected finite logits (a weight times -inf has no gradient), got -inf in row {row}"
        )
    return z, as_targets(labels, z)


def _check_shapes(weight: Floats, bias: Floats, ndim: int) -> None:
    classes = np.shape(bias)
    if len(classes) != 1 or np.shape(weight) != classes * ndim:
        raise InputError(
            f"expected weight of shape {classes * ndim} to fit a bias of shape {classes}, got "
            f"{np.shape(weight)}"
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        bad = next(x for x in (*np.ravel(weight), *np.ravel(bias)) if not np.isfinite(x))
        raise InputError(f"expected finite weights and biases, got {bad}")


def _fitting(logits: ArrayLike, classes: int) -> Logits:
    z = as_logits(logits)
    if z.shape[1] != classes:
        raise InputError(f"expected logits for {classes} classes, got shape {z.shape}")
    return z
