"""Calibrate a fitted scikit-learn classifier on unlabelled data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from pseudocal.arrays import InputError, Logits, Probabilities, unmasked
from pseudocal.batches import count, is_array
from pseudocal.extras import MissingExtraError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.frozen import FrozenEstimator
    from sklearn.utils import get_tags
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("scikit-learn", "sklearn") from error

from pseudocal.calibrators import Calibration, PseudoCal
from pseudocal.calibrators.calibration import check_same_classes
from pseudocal.predictors.classifier import ClassifierPredictor

__all__ = ["CalibratedClassifier", "calibrated"]


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier with calibrated probabilities for new, unlabelled data.

    `fit` takes unlabelled data from where the classifier now runs and fits a temperature. It never
    refits the classifier, so the predicted classes stay the same.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> x, y = load_digits(return_X_y=True)
    >>> model = LogisticRegression(max_iter=5000).fit(x[:400], y[:400])
    >>> target = x[400:] + np.random.default_rng(0).normal(0, 4, x[400:].shape)
    >>> both = CalibratedClassifier(model).fit(target)
    >>> both.calibration_.temperature > 1                    # the model is overconfident there
    True
    >>> bool((both.predict(target) == model.predict(target)).all())
    True

    `clone` keeps the wrapped model, which is never refitted, and drops the calibration. So
    cross-validation fits the temperature again on each training part, without labels.

    Args:
        estimator: The fitted classifier. Of a `CalibratedClassifier`, the one that it wraps.
        second_opinion: Another fitted classifier of the same classes, or a list of them, as in
            `PseudoCal.fit`.
        method: The settings of the calibration; None for `PseudoCal()`.

    Attributes:
        calibration_: The `Calibration`: its temperature, interval and verdict.
        estimator_: The classifier that it calibrates.
        classes_: The classes of the classifier.
        n_features_in_: The number of features of the data.

    """

    def __init__(
        self, estimator: Any, *, second_opinion: Any = None, method: PseudoCal | None = None
    ) -> None:
        self.estimator = estimator
        self.second_opinion = second_opinion
        self.method = method

    def fit(self, X: Any, y: Any = None) -> CalibratedClassifier:
        """Calibrate the classifier on unlabelled data.

        Args:
            X: The features of the target data. With two classes, or if a table has texts,
                categories, dates or missing values, nothing is applied: T = 1, with a warning,
                until `calibration_.refined` gets labels.
            y: Ignored, with a warning; only here because scikit-learn passes it. Labels go to
                `calibration_.refined`.

        """
        if y is not None:
            warnings.warn(
                "y is ignored, since fit uses no labels: for a calibration with labels, pass them "
                "to calibration_.refined, and the result to pseudocal.sklearn.calibrated",
                UserWarning,
                stacklevel=2,
            )
        earlier = getattr(self, "calibration_", None)
        if earlier is not None and earlier.measured is not None:
            warnings.warn(
                "fit replaced a calibration with labels by one without labels: pass the labels to "
                "calibration_.refined again",
                UserWarning,
                stacklevel=2,
            )
        estimator = _unwrapped(self.estimator)
        _check_fitted(estimator)
        unmasked(X, "inputs")
        if not is_array(X):
            X = np.asarray(X)
        validate_data(self, X, skip_check_array=True)
        self._fitted_here = True
        if count(X) < 2:
            got = f"{count(X)} sample{'s' if count(X) == 0 else ''}"
            raise InputError(f"expected at least two inputs, since pairs are mixed, got {got}")
        method = PseudoCal() if self.method is None else self.method
        calibration = method.fit(estimator, X, second_opinion=self.second_opinion)
        if len(estimator.classes_) == 2 and calibration.settings.get("estimator") == "none":
            warnings.warn(
                "T = 1, nothing was applied: with two classes, nothing can be checked without "
                "labels. Label about 50 rows, chosen by pseudocal.rows_to_label, and pass them to "
                "calibration_.refined",
                UserWarning,
                stacklevel=2,
            )
        return self._with(estimator, calibration)

    def predict_proba(self, X: Any) -> Probabilities:
        """Calibrated probabilities `(n, classes)`.

        Args:
            X: The features.

        """
        self._check(X)
        return self.calibration_.probabilities(ClassifierPredictor(self.estimator_)(X))

    def predict_log_proba(self, X: Any) -> Logits:
        """The logarithms of the calibrated probabilities `(n, classes)`.

        They are finite where `predict_proba` rounds to zero, and they are calibrated: pass
        `calibration_.refined` those of `estimator_` instead.

        Args:
            X: The features.

        """
        self._check(X)
        logits = ClassifierPredictor(self.estimator_)(X)
        found: Logits = log_softmax(self.calibration_.scaling(logits), axis=1)
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """The classes that the wrapped classifier predicts.

        Args:
            X: The features.

        """
        self._check(X)
        classes: NDArray[Any] = self.estimator_.predict(X)
        return classes

    def _with(self, estimator: Any, calibration: Calibration) -> CalibratedClassifier:
        self.estimator_ = estimator
        self.calibration_ = calibration
        self.classes_ = estimator.classes_
        return self

    def _check(self, x: Any) -> None:
        check_is_fitted(self)
        # of `calibrated`: the classifier checks its features itself, and may have renamed them
        if not hasattr(self, "_fitted_here"):
            return
        if len(getattr(x, "shape", (0, 0))) == 2:  # the classifier itself refuses other shapes
            validate_data(self, x, reset=False, skip_check_array=True)

    def set_params(self, **params: Any) -> CalibratedClassifier:
        """Set parameters, but not those of a wrapped classifier, which is never refitted.

        Args:
            params: The parameters by name.

        """
        for name in params:
            wrapped, nested, _ = name.partition("__")
            if nested and wrapped in ("estimator", "second_opinion"):
                raise InputError(
                    f"expected no parameter of the fitted {wrapped}, got {name}: it is never "
                    "refitted, so its parameters cannot be searched; search them before calibration"
                )
        super().set_params(**params)
        return self

    def __sklearn_clone__(self) -> CalibratedClassifier:
        return type(self)(**self.get_params(deep=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        wrapped = get_tags(self.estimator)
        tags.input_tags = wrapped.input_tags
        tags.classifier_tags = wrapped.classifier_tags
        tags.target_tags.required = False
        return tags


def calibrated(model: Any, calibration: Calibration) -> CalibratedClassifier:
    """A fitted classifier with a calibration from elsewhere, such as a file or `refine`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from pseudocal import Calibration, TemperatureScaling
    >>> model = LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"])
    >>> halved = calibrated(model, Calibration("pseudocal", TemperatureScaling(2.0)))
    >>> before = model.predict_proba([[1.0]])[0]
    >>> after = halved.predict_proba([[1.0]])[0]
    >>> bool(np.isclose(before[1] / before[0], (after[1] / after[0]) ** 2))
    True

    `calibrated(model, calibration)` replaces the calibration of a `CalibratedClassifier`: it takes
    the classifier inside, and T is not applied twice. So fit the calibration to the logits of that
    classifier, `model.estimator_`.

    A `clone` of the result is not fitted: it has no calibration, and `fit` would fit another one
    without the labels. Use the result itself, and not in `cross_val_score`, which clones it.

    Args:
        model: The fitted classifier, or a `CalibratedClassifier` of it.
        calibration: Its calibration, as `PseudoCal.fit` returns it: a temperature.

    """
    if not isinstance(calibration, Calibration):
        raise InputError(f"expected a Calibration, got {type(calibration).__name__}")
    model = _unwrapped(model)
    _check_fitted(model)
    try:
        calibration.temperature  # noqa: B018
    except AttributeError as error:
        raise InputError(f"expected a calibration by a temperature, got {calibration!r}") from error
    check_same_classes(calibration, len(model.classes_))
    both = CalibratedClassifier(model)._with(model, calibration)
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(both, name, getattr(model, name))
    return both


def _unwrapped(model: Any) -> Any:
    """The classifier inside a `CalibratedClassifier`, whose probabilities have no temperature."""
    inner = model.estimator if isinstance(model, FrozenEstimator) else model
    if not isinstance(inner, CalibratedClassifier):
        return model
    return _unwrapped(getattr(inner, "estimator_", inner.estimator))


def _check_fitted(model: Any) -> None:
    """Refuse a classifier that is not fitted."""
    if isinstance(model, type):
        raise InputError(
            f"expected a fitted classifier of scikit-learn, got the class {model.__name__}: pass "
            f"{model.__name__}(...).fit(X, y)"
        )
    if not hasattr(model, "classes_"):
        raise NotFittedError(
            f"expected a fitted classifier of scikit-learn, got {type(model).__name__} without "
            "classes_: fit it first, since it is never refitted, or pass the logits of another "
            "model to Calibration.probabilities. To search over fitted classifiers with "
            "GridSearchCV, which clones them, wrap each in sklearn.frozen.FrozenEstimator"
        )
