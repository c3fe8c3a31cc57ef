"""The ratio of target to source density, with which CPCS and TransCal weight source rows.

A classifier of the domain gives the ratio: with equally many rows of each domain,
P(target | x) / P(source | x) = p_target(x) / p_source(x). As in both papers, the classifier is a
logistic regression on the model's features.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, as_numpy, is_real
from pseudocal.extras import MissingExtraError

LARGEST_LOG_RATIO = 100.0  # |log ratio| is clipped to this, so that its exponential is finite
MOST_STEPS = 1000  # steps of the optimiser; standardised features take about 20


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """The ratio of target to source density, as exp of a linear function of the features.

    >>> DensityRatio(np.array([np.log(2.0), 0.0]), 0.0)(np.array([[1.0, 5.0], [-1.0, 5.0]]))
    array([2. , 0.5])

    Attributes:
        slope: The weight of each feature, of shape `(features,)`.
        offset: The intercept.

    """

    slope: Floats
    offset: float

    def __call__(self, features: ArrayLike) -> Floats:
        """The ratio for each row of features `(n, features)`."""
        x = as_features(features, "features")
        if x.shape[1] != len(self.slope):
            raise InputError(f"expected rows of {len(self.slope)} features, got shape {x.shape}")
        ratio: Floats = np.exp(
            np.clip(x @ self.slope + self.offset, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        )
        return ratio


def density_ratio(
    source_train_features: ArrayLike,
    target_features: ArrayLike,
    *,
    reference: bool = False,
    seed: int = 0,
) -> DensityRatio:
    """Fit the density ratio to features of the source training set and of the target.

    Both domains have the same weight whatever their number of rows, and features are standardised.

    For two normal densities of unit variance with means 0 and 1 the log ratio is x - 1/2:

    >>> rng = np.random.default_rng(0)
    >>> ratio = density_ratio(rng.normal(0, 1, (4000, 1)), rng.normal(1, 1, (9000, 1)))
    >>> bool(abs(ratio.slope[0] - 1) < 0.1), abs(ratio.offset + 0.5) < 0.1
    (True, True)

    Args:
        source_train_features: Features of the source training set, of shape `(n, features)`.
        target_features: Features of the target, of shape `(m, features)`.
        reference: Whether to do as the released code of TransCal and PseudoCal: raw features, the
            smaller set replaced by a bootstrap sample of the size of the larger one, and 100 steps.
        seed: The seed of that bootstrap sample (the released code uses none).

    """
    source = as_features(source_train_features, "source features")
    target = as_features(target_features, "target features")
    if source.shape[1] != target.shape[1]:
        raise InputError(
            f"expected as many target as source features, {source.shape[1]}, got {target.shape[1]}"
        )
    if reference:
        return _logistic(*_equally_many(source, target, np.random.default_rng(seed)), steps=100)
    both = np.concatenate([source, target])
    mean = both.mean(axis=0)
    scale = both.std(axis=0)
    scale[scale == 0] = 1.0  # a constant feature carries no information, whatever it is divided by
    fitted = _logistic((source - mean) / scale, (target - mean) / scale, steps=MOST_STEPS)
    slope = fitted.slope / scale
    return DensityRatio(slope, fitted.offset - float(mean @ slope))


def as_features(features: ArrayLike, what: str) -> NDArray[np.float64]:
    """Convert to finite numbers `(n, features)`."""
    given = as_numpy(features, what)
    if not is_real(given) and given.dtype != bool:
        raise InputError(f"expected {what} that are real numbers, got dtype {given.dtype}")
    array = given.astype(np.float64, copy=False)
    if array.ndim != 2 or array.size == 0:
        raise InputError(f"expected {what} of shape (n, features), got shape {array.shape}")
    bad = ~np.isfinite(array)
    if bad.any():
        raise InputError(
            f"expected {what} that are finite, got {array[bad][0]} in row {np.argmax(bad.any(axis=1))}"
        )
    return array


def _equally_many(
    source: Floats, target: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Replace the smaller set by a bootstrap sample.

    Sets of equal size, which crash the released code, are kept.
    """
    if len(source) < len(target):
        return source[rng.integers(len(source), size=len(target))], target
    if len(target) < len(source):
        return source, target[rng.integers(len(target), size=len(source))]
    return source, target


def _logistic(source: Floats, target: Floats, steps: int) -> DensityRatio:
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn") from error
    domain = np.repeat([0, 1], [len(source), len(target)])
    model = LogisticRegression(class_weight="balanced", max_iter=steps)
    with (
        warnings.catch_warnings()
    ):  # if a plane separates the domains there is no optimum to converge to
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.concatenate([source, target]), domain)
    return DensityRatio(model.coef_[0], float(model.intercept_[0]))
