"""Vector and matrix scaling.

A weight for each class, or a full linear map, and a bias (Guo et al., ICML 2017).

Unlike a temperature they can change the predicted class, and with many classes and few labels they
overfit. The log-likelihood is concave in the weights, so L-BFGS with the exact gradient climbs to
its maximum, if there is one. It searches in coordinates in which the logits are uncorrelated and of
size one, which saves most of the steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import (
    Floats,
    InputError,
    Labels,
    Logits,
    as_logits,
    check_rows,
    softmax,
    work_dtype,
)
from pseudocal.scaling.temperature import TemperatureScaling, as_targets

LOGITS_AT_ONCE = 1 << 20  # logits per chunk
MOST_ITERATIONS = 5000  # of L-BFGS; problems without a penalty have taken up to 1,200
FLAT = 1e-6  # the largest slope, in coordinates of size one, at which the climb ends
NO_SPREAD = (
    1e-12  # a second moment, relative to the largest, that single precision cannot tell from zero
)
DESCENT = (5000, 0.01, 0.9)  # steps, learning rate and momentum of the released code
Parameters = NDArray[np.float64]
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
        return np.add(
            logits * self.weight, self.bias, dtype=work_dtype(logits), casting="same_kind"
        )


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
        return np.add(
            logits @ self.weight, self.bias, dtype=work_dtype(logits), casting="same_kind"
        )


Scaling = TemperatureScaling | VectorScaling | MatrixScaling


class UnfinishedFitWarning(UserWarning):
    """A fit stopped at its largest number of steps, before the maximum of the likelihood."""


def fit_vector(
    logits: ArrayLike, labels: ArrayLike, *, penalty: float = 0.0, reference: bool = False
) -> VectorScaling:
    """Fit a weight and a bias for each class by maximum likelihood.

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
    logits, targets = _checked(logits, labels, penalty)
    classes = logits.shape[1]
    start = np.concatenate([np.ones(classes), np.zeros(classes)])

    def forward(z: Floats, theta: Floats) -> Floats:
        return z * theta[:classes] + theta[classes:]

    def gradient(z: Floats, error: Floats) -> Floats:
        return np.concatenate([(z * error).sum(axis=0), error.sum(axis=0)])

    problem = _Problem(logits, targets, start, forward, gradient)
    theta = (
        problem.descent()
        if reference
        else problem.minimum(penalty, _coordinates_by_class(logits, penalty))
    )
    return VectorScaling(theta[:classes], theta[classes:])


def fit_matrix(
    logits: ArrayLike, labels: ArrayLike, *, penalty: float = 0.0, reference: bool = False
) -> MatrixScaling:
    """Fit a linear map and a bias by maximum likelihood.

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
    logits, targets = _checked(logits, labels, penalty)
    classes = logits.shape[1]
    start = np.concatenate([np.eye(classes).ravel(), np.zeros(classes)])

    def forward(z: Floats, theta: Floats) -> Floats:
        return z @ theta[:-classes].reshape(classes, classes) + theta[-classes:]

    def gradient(z: Floats, error: Floats) -> Floats:
        return np.concatenate([(z.T @ error).ravel(), error.sum(axis=0)])

    problem = _Problem(logits, targets, start, forward, gradient)
    theta = (
        problem.descent() if reference else problem.minimum(penalty, _coordinates(logits, penalty))
    )
    return MatrixScaling(theta[:-classes].reshape(classes, classes), theta[-classes:])


@dataclass(frozen=True, eq=False)
class _Problem:
    """A linear map of logits that is to be fitted to labels.

    Attributes:
        logits: Logits of shape `(n, classes)`.
        targets: Class indices `(n,)` or soft targets `(n, classes)`.
        start: The parameters of the identity.
        forward: The map of some rows of logits with given parameters.
        gradient: The slope of the summed loss in the parameters, from some rows and the errors of
            their probabilities.

    """

    logits: Logits
    targets: Labels
    start: Parameters
    forward: Callable[[Floats, Floats], Floats]
    gradient: Callable[[Floats, Floats], Floats]

    @cached_property
    def chunks(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]] | None:
        """All rows, unless they are too many to be kept in float64."""
        return (
            list(_chunks(self.logits, self.targets))
            if self.logits.size <= 8 * LOGITS_AT_ONCE
            else None
        )

    def loss(self, theta: Parameters, penalty: float) -> tuple[float, Parameters]:
        """The mean negative log-likelihood plus `penalty` times the squared distance from the start; its slope."""
        away = theta - self.start
        total = 0.0
        slope = np.zeros_like(theta)
        for z, t in self.chunks or _chunks(self.logits, self.targets):
            p = softmax(self.forward(z, theta))
            total -= float((t * np.log(np.maximum(p, np.finfo(np.float64).tiny))).sum())
            slope += self.gradient(z, p - t)
        n = len(self.logits)
        return total / n + penalty * float(away @ away), slope / n + 2 * penalty * away

    def minimum(self, penalty: float, coordinates: Linear) -> Parameters:
        """The parameters of least loss, searched in other coordinates.

        A warning if the search did not get there.
        """
        from scipy.optimize import minimize

        def loss(place: Parameters) -> tuple[float, Parameters]:
            value, slope = self.loss(self.start + coordinates(place), penalty)
            return value, coordinates(slope)

        options: Any = {
            "maxiter": MOST_ITERATIONS,
            "maxfun": 2 * MOST_ITERATIONS,
            "maxcor": 20,
            "gtol": FLAT,
            "ftol": 1e-13,
        }
        found = minimize(
            loss, np.zeros_like(self.start), jac=True, method="L-BFGS-B", options=options
        )
        if found.nit >= MOST_ITERATIONS or found.nfev >= 2 * MOST_ITERATIONS:
            said = f"expected the maximum of the likelihood within {MOST_ITERATIONS} steps, got a slope of"
            warnings.warn(
                f"{said} {np.abs(found.jac).max():.1e} after them",
                UnfinishedFitWarning,
                stacklevel=4,
            )
        return np.asarray(self.start + coordinates(found.x), dtype=np.float64)

    def descent(self) -> Parameters:
        """The parameters after the released code's gradient descent, which computes in single precision."""
        steps, rate, momentum = DESCENT
        z, t = (
            array.astype(np.float32)
            for array in next(_chunks(self.logits, self.targets, len(self.logits)))
        )
        theta: Floats = self.start.astype(np.float32)
        velocity: Floats = np.zeros_like(theta)
        for _ in range(steps):
            error = self.forward(z, theta)
            error -= error.max(axis=1, keepdims=True)
            np.exp(error, out=error)
            error /= error.sum(axis=1, keepdims=True)
            error -= t
            velocity = momentum * velocity + self.gradient(z, error) / len(z)
            theta = theta - rate * velocity
        return theta.astype(np.float64)


def _coordinates(logits: Logits, penalty: float) -> Linear:
    """Coordinates of a matrix and a bias in which logits, and the one that the bias multiplies, are uncorrelated."""
    n, classes = logits.shape
    moments = np.zeros((classes + 1, classes + 1))
    for z, _ in _chunks(logits, np.zeros(n, dtype=np.intp)):
        rows = np.column_stack([z, np.ones(len(z))])
        moments += rows.T @ rows / n
    root = _inverse_root(moments, penalty)
    return lambda place: (root @ place.reshape(classes + 1, classes)).ravel()


def _coordinates_by_class(logits: Logits, penalty: float) -> Linear:
    """The same for the weight and the bias of each class."""
    n, classes = logits.shape
    moments = np.zeros((classes, 2, 2))
    moments[:, 1, 1] = 1.0
    for z, _ in _chunks(logits, np.zeros(n, dtype=np.intp)):
        moments[:, 0, 0] += (z * z).sum(axis=0) / n
        moments[:, 0, 1] += z.sum(axis=0) / n
    moments[:, 1, 0] = moments[:, 0, 1]
    root = _inverse_root(moments, penalty)
    return lambda place: np.einsum("cij,jc->ic", root, place.reshape(2, classes)).ravel()


def _inverse_root(moments: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
    """The inverse square root of second moments, to which a penalty adds in every direction.

    It is zero in directions in which the logits vary by rounding errors only: the map is not fitted
    to those.
    """
    sizes, directions = np.linalg.eigh(moments)
    varies = sizes > NO_SPREAD * sizes.max(axis=-1, keepdims=True)
    scales = np.where(varies, 1 / np.sqrt(np.where(varies, sizes, 1.0) + 2 * penalty), 0.0)
    return np.asarray((directions * scales[..., None, :]) @ np.swapaxes(directions, -1, -2))


def _chunks(
    logits: Logits, targets: Labels, size: int | None = None
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Chunks of rows in float64, with their targets as distributions over the classes."""
    classes = logits.shape[1]
    size = size or max(1, LOGITS_AT_ONCE // classes)
    for start in range(0, len(logits), size):
        z = logits[start : start + size].astype(np.float64)
        t = targets[start : start + size]
        yield z, t.astype(np.float64) if t.ndim == 2 else np.eye(classes)[t]


def _checked(logits: ArrayLike, labels: ArrayLike, penalty: float) -> tuple[Logits, Labels]:
    if not 0 <= penalty < np.inf:
        raise InputError(f"expected a finite penalty of at least 0, got {penalty}")
    z = as_logits(logits)
    check_rows(z)
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
            f"expected weight of shape {classes * ndim} to fit a bias of shape {classes}, got {np.shape(weight)}"
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        bad = next(x for x in (*np.ravel(weight), *np.ravel(bias)) if not np.isfinite(x))
        raise InputError(f"expected finite weights and biases, got {bad}")


def _fitting(logits: ArrayLike, classes: int) -> Logits:
    z = as_logits(logits)
    if z.shape[1] != classes:
        raise InputError(f"expected logits for {classes} classes, got shape {z.shape}")
    return z
