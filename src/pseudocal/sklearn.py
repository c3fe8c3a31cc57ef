"""Add a calibration to a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Probabilities, check_temperature, softmax, unmasked
from pseudocal.extras import MissingExtraError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.utils import get_tags
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise MissingExtraError("scikit-learn", "sklearn") from error

from pseudocal.calibrators import Calibration
from pseudocal.predictors.classifier import ClassifierPredictor

__all__ = ["CalibratedClassifier", "calibrated"]


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier and its temperature as one: the same predictions, calibrated probabilities.

    Args:
        estimator: The classifier.
        temperature: The number that its log-probabilities, or its decision function, are divided
            by.

    """

    def __init__(self, estimator: Any, temperature: float = 1.0) -> None:
        self.estimator = estimator
        self.temperature = temperature

    def fit(self, x: Any, y: Any, **settings: Any) -> CalibratedClassifier:
        """Fit a copy of the classifier; the temperature stays as it is.

        Args:
            x: The features.
            y: The classes.
            settings: Other arguments of the classifier's own `fit`.

        """
        check_temperature(self.temperature)
        return self._holding(
            clone(self.estimator).fit(unmasked(x, "inputs"), unmasked(y, "labels"), **settings)
        )

    def predict_proba(self, x: Any) -> Probabilities:
        """Calibrated probabilities `(n, classes)`.

        Args:
            x: The features.

        """
        check_is_fitted(self)
        return softmax(ClassifierPredictor(self.estimator_)(x) / self.temperature)

    def predict(self, x: Any) -> NDArray[Any]:
        """The class of the largest probability.

        Args:
            x: The features.

        """
        check_is_fitted(self)
        classes: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(x), axis=1)]
        return classes

    def _holding(self, fitted: Any) -> CalibratedClassifier:
        """Take over a fitted classifier, and what scikit-learn wants to know of it."""
        self.estimator_ = fitted
        self.classes_ = fitted.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.input_tags = own.input_tags
        tags.classifier_tags = own.classifier_tags
        return tags


def calibrated(model: Any, calibration: Calibration) -> CalibratedClassifier:
    """A fitted classifier with its calibration inside; it may be dumped with skops like any other.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from pseudocal import Calibration, TemperatureScaling
    >>> model = LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"])
    >>> halved = calibrated(model, Calibration("pseudocal", TemperatureScaling(2.0)))
    >>> odds = [each.predict_proba([[1.0]])[0, 1] / each.predict_proba([[1.0]])[0, 0] for each in (model, halved)]
    >>> bool(np.isclose(odds[0], odds[1] ** 2))
    True

    Args:
        model: The fitted classifier.
        calibration: Its calibration, as `PseudoCal.fit` returns it: a temperature.

    """
    if not isinstance(calibration, Calibration):
        raise InputError(f"expected a Calibration, got {type(calibration).__name__}")
    if not hasattr(model, "classes_"):
        raise InputError(
            f"expected a fitted classifier, got {type(model).__name__} without classes_"
        )
    try:
        temperature = calibration.temperature
    except AttributeError as error:
        raise InputError(f"expected a calibration by a temperature, got {calibration!r}") from error
    return CalibratedClassifier(model, temperature)._holding(model)
