"""Vector and matrix scaling: a weight for each class, or a full linear map, and a bias (Guo et al., ICML 2017).

Unlike a temperature they can change the predicted class, and with many classes and few labels they overfit. The
log-likelihood is concave in the weights, so L-BFGS with the exact gradient finds its maximum if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Labels, Logits, as_logits, check_rows, softmax, work_dtype
from pseudocal.scaling.temperature import TemperatureScaling, as_targets

LOGITS_AT_ONCE = 1 << 20  # logits per chunk
Gradient = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


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
        return np.add(logits * self.weight, self.bias, dtype=work_dtype(logits), casting="same_kind")


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
        return np.add(logits @ self.weight, self.bias, dtype=work_dtype(logits), casting="same_kind")


Scaling = TemperatureScaling | VectorScaling | MatrixScaling


def fit_vector(logits: ArrayLike, labels: ArrayLike, *, penalty: float = 0.0) -> VectorScaling:
    """Fit a weight and a bias for each class by maximum likelihood.

    Class 1 is three times as frequent as class 0, while the logits give both the same probability:

    >>> import math
    >>> scaling = fit_vector(np.zeros((4, 2)), [0, 1, 1, 1])
    >>> round(float(scaling.bias[1] - scaling.bias[0]), 4), round(math.log(3), 4)
    (1.0986, 1.0986)

    Args:
        logits: Logits of shape `(n, classes)`.
        labels: Class indices `(n,)` or soft targets `(n, classes)`.
        penalty: The factor of the squared distance from the identity that is added to the mean loss; 0, the default,
            is the method as published.

    """
    logits, targets = _checked(logits, labels)
    classes = logits.shape[1]
    start = np.concatenate([np.ones(classes), np.zeros(classes)])

    def forward(z: Floats, theta: Floats) -> Floats:
        return z * theta[:classes] + theta[classes:]

    def gradient(z: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([(z * error).sum(axis=0), error.sum(axis=0)])

    theta = _minimise(logits, targets, start, forward, gradient, penalty)
    return VectorScaling(theta[:classes], theta[classes:])


def fit_matrix(logits: ArrayLike, labels: ArrayLike, *, penalty: float = 0.0) -> MatrixScaling:
    """Fit a linear map and a bias by maximum likelihood.

    If the labels swap the two classes, the map swaps them back:

    >>> scaling = fit_matrix([[2.0, 0.0], [0.0, 2.0]], [1, 0], penalty=0.1)
    >>> scaling([[2.0, 0.0]]).argmax()
    np.int64(1)

    Args:
        logits: Logits of shape `(n, classes)`.
        labels: Class indices `(n,)` or soft targets `(n, classes)`.
        penalty: The factor of the squared distance from the identity that is added to the mean loss; 0, the default,
            is the method as published.

    """
    logits, targets = _checked(logits, labels)
    classes = logits.shape[1]
    start = np.concatenate([np.eye(classes).ravel(), np.zeros(classes)])

    def forward(z: Floats, theta: Floats) -> Floats:
        return z @ theta[:-classes].reshape(classes, classes) + theta[-classes:]

    def gradient(z: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([(z.T @ error).ravel(), error.sum(axis=0)])

    theta = _minimise(logits, targets, start, forward, gradient, penalty)
    return MatrixScaling(theta[:-classes].reshape(classes, classes), theta[-classes:])


def _minimise(
    logits: Logits,
    targets: Labels,
    start: NDArray[np.float64],
    forward: Callable[[Floats, Floats], Floats],
    gradient: Gradient,
    penalty: float,
) -> NDArray[np.float64]:
    """Minimise the mean negative log-likelihood plus `penalty` times the squared distance from `start`."""
    from scipy.optimize import minimize

    if not 0 <= penalty < np.inf:
        raise InputError(f"expected a finite penalty of at least 0, got {penalty}")

    def loss(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        away = theta - start
        total, slope = 0.0, np.zeros_like(theta)
        for z, t in _chunks(logits, targets):
            p = softmax(forward(z, theta))
            total -= float((t * np.log(np.maximum(p, np.finfo(np.float64).tiny))).sum())
            slope += gradient(z, p - t)
        n = len(logits)
        return total / n + penalty * float(away @ away), slope / n + 2 * penalty * away

    result = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "gtol": 1e-7, "ftol": 1e-12})
    return np.asarray(result.x, dtype=np.float64)


def _chunks(logits: Logits, targets: Labels) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Chunks of rows in float64, with their targets as distributions over the classes."""
    classes = logits.shape[1]
    size = max(1, LOGITS_AT_ONCE // classes)
    for start in range(0, len(logits), size):
        z, t = logits[start : start + size].astype(np.float64), targets[start : start + size]
        yield z, t.astype(np.float64) if t.ndim == 2 else np.eye(classes)[t]


def _checked(logits: ArrayLike, labels: ArrayLike) -> tuple[Logits, Labels]:
    z = as_logits(logits)
    check_rows(z)
    if not np.isfinite(z.min()):
        row = int(np.argmax(np.isneginf(z).any(axis=1)))
        raise InputError(f"expected finite logits (a weight times -inf has no gradient), got -inf in row {row}")
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
