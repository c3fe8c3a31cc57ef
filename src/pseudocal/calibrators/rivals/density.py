"""How much likelier an input is in the target than in the source: the ratio that CPCS and TransCal weigh with.

A classifier that tells the two domains apart knows the ratio of their densities: with equally many rows of each,
P(target | x) / P(source | x) = p_target(x) / p_source(x). Logistic regression on the model's features is the
classifier, as in both papers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError
from pseudocal.extras import MissingExtraError

LARGEST_LOG_RATIO = 100.0  # |log ratio| at most, so that the exponential of a confident classifier stays a number
MOST_STEPS = 1000  # of the optimiser; features of one scale take some 20 of them


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """The ratio of target to source density at any features, as exp of a linear function.

    >>> DensityRatio(np.array([np.log(2.0), 0.0]), 0.0)(np.array([[1.0, 5.0], [-1.0, 5.0]]))
    array([2. , 0.5])
    """

    slope: Floats  # (features,)
    offset: float

    def __call__(self, features: ArrayLike) -> Floats:
        """The ratio at each row of features `(n, features)`."""
        x = as_features(features, "features")
        if x.shape[1] != len(self.slope):
            raise InputError(f"expected rows of {len(self.slope)} features, got shape {x.shape}")
        ratio: Floats = np.exp(np.clip(x @ self.slope + self.offset, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))
        return ratio


def density_ratio(
    source_train_features: ArrayLike, target_features: ArrayLike, *, reference: bool = False, seed: int = 0
) -> DensityRatio:
    """Learn the density ratio from features of source training data and of target data.

    Between two normal densities of unit variance at 0 and 1 the log ratio is x - 1/2:

    >>> rng = np.random.default_rng(0)
    >>> ratio = density_ratio(rng.normal(0, 1, (4000, 1)), rng.normal(1, 1, (9000, 1)))
    >>> bool(abs(ratio.slope[0] - 1) < 0.1), abs(ratio.offset + 0.5) < 0.1
    (True, True)

    The domains count the same however many rows they have, and features are brought to one scale first; no chance
    is involved. `reference` does as the released code of TransCal and PseudoCal does: features as they are, the
    smaller set replaced by a bootstrap sample of the larger one's size (drawn with `seed`; unseeded there), 100 steps.

    Args:
        source_train_features: features of source training data, `(n, features)`.
        target_features: features of target data, `(m, features)`.
        reference: whether to do as the released code does.
        seed: the seed of the bootstrap sample of `reference`.

    """
    source = as_features(source_train_features, "source features")
    target = as_features(target_features, "target features")
    if source.shape[1] != target.shape[1]:
        raise InputError(f"expected as many target as source features, {source.shape[1]}, got {target.shape[1]}")
    if reference:
        return _logistic(*_equally_many(source, target, np.random.default_rng(seed)), steps=100)
    both = np.concatenate([source, target])
    mean, scale = both.mean(axis=0), both.std(axis=0)
    scale[scale == 0] = 1.0  # a feature that never varies tells nothing, whatever it is divided by
    fitted = _logistic((source - mean) / scale, (target - mean) / scale, steps=MOST_STEPS)
    slope = fitted.slope / scale
    return DensityRatio(slope, fitted.offset - float(mean @ slope))


def as_features(features: ArrayLike, what: str) -> NDArray[np.float64]:
    """See `features` as finite numbers `(n, features)`."""
    array = np.asarray(features, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        raise InputError(f"expected {what} of shape (n, features), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise InputError(f"expected {what} that are finite, got others in row {np.argmin(np.isfinite(array).all(1))}")
    return array


def _equally_many(source: Floats, target: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """A bootstrap sample in the place of the smaller set. Sets of one size, at which the release crashes, stay."""
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
    with warnings.catch_warnings():  # domains that a plane parts have no optimum to converge to, only a direction
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.concatenate([source, target]), domain)
    return DensityRatio(model.coef_[0], float(model.intercept_[0]))
