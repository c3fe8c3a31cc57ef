"""No calibration, TempScal, VectorScal and MatrixScal (Guo et al., ICML 2017).

All fit a scaling of the logits to labelled source validation data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Labelled, Logits
from pseudocal.calibrators.baselines.search import released
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, nll_loss
from pseudocal.metrics import Outcomes, nll
from pseudocal.randomness import Streams
from pseudocal.scaling import (
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
    fit_matrix,
    fit_temperature,
    fit_vector,
)

# The ridge penalties to try: 10 to 1e-6, the strongest first.
PENALTIES = tuple(float(10 ** (power / 2)) for power in range(2, -13, -1))
FOLDS = 5
Map = TypeVar("Map", VectorScaling, MatrixScaling)


def uncalibrated() -> Calibration:
    """Leave the logits as they are.

    >>> uncalibrated()([[2.0, 0.0]])
    array([[2., 0.]])
    """
    return Calibration("none", TemperatureScaling(1.0))


def tempscal(source: Labelled, *, reference: bool = False) -> Calibration:
    """TempScal: fit a temperature on labelled source data, and assume that it fits the target.

    Three of four predictions with a logit gap of 2 are right, so the gap should be log 3, and
    T = 2 / log 3:

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


def vectorscal(
    source: Labelled, *, penalty: float | None = None, reference: bool = False
) -> Calibration:
    """VectorScal: fit a weight and a bias for each class on labelled source data.

    The predicted classes may change.

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


def matrixscal(
    source: Labelled, *, penalty: float | None = None, reference: bool = False
) -> Calibration:
    """MatrixScal: fit a linear map and a bias on labelled source data.

    The predicted classes may change.

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


def fit_ridge(fit: Callable[..., Map], source: Labelled) -> tuple[Map, float]:
    """Fit a map with the penalty of least held-out loss, and return both.

    Both maps have more parameters than few labelled rows can fix. The penalty holds them close to
    temperature scaling: logits are divided by the temperature of the source first, and the distance
    from the identity counts after that.

    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(60, 3))
    >>> labels = (logits + rng.gumbel(size=(60, 3))).argmax(axis=1)
    >>> scaling, penalty = fit_ridge(fit_vector, Labelled(logits, labels))  # calibrated logits
    >>> bool(np.abs(scaling.weight - 1).max() < 0.3), penalty > 0.01
    (True, True)

    Args:
        fit: `fit_vector` or `fit_matrix`.
        source: Labelled logits of the source validation set.

    """
    source = checked(source)
    temperature = fit_temperature(source.logits, source.labels).temperature
    logits = np.asarray(source.logits, dtype=np.float64) / temperature
    penalty = chosen_penalty(fit, logits, source.labels)
    found = fit(logits, source.labels, penalty=penalty)
    return type(found)(found.weight / temperature, found.bias), penalty


def chosen_penalty(fit: Callable[..., Map], logits: Logits, labels: NDArray[np.intp]) -> float:
    """The penalty of least negative log-likelihood on held-out rows, in five folds.

    Penalties become weaker until the loss has risen twice, so the slow fits of an overfitted map
    are not made.

    Args:
        fit: `fit_vector` or `fit_matrix`.
        logits: Logits of shape `(n, classes)`.
        labels: Class indices `(n,)`.

    """
    n = len(labels)
    folds = np.array_split(Streams(0).order().permutation(n), min(FOLDS, n))
    losses: list[float] = []
    for penalty in PENALTIES:
        total = 0.0
        for held_out in folds:
            rest = np.setdiff1d(np.arange(n), held_out)
            scaling = fit(logits[rest], labels[rest], penalty=penalty)
            total += len(held_out) * nll(
                Outcomes.from_logits(scaling(logits[held_out]), labels[held_out])
            )
        losses.append(total)
        if len(losses) > 2 and losses[-1] > losses[-2] > losses[-3]:
            break
    return PENALTIES[int(np.argmin(losses))]
