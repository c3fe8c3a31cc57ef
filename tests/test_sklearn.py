"""A calibration inside a scikit-learn classifier."""

from __future__ import annotations

import numpy as np
import pytest

from pseudocal import Calibration, InputError, TemperatureScaling, VectorScaling

sklearn = pytest.importorskip("sklearn")

from sklearn.linear_model import LogisticRegression, RidgeClassifier  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from pseudocal.sklearn import CalibratedClassifier, calibrated  # noqa: E402

TWO = Calibration("pseudocal", TemperatureScaling(2.0))


@parametrize_with_checks([CalibratedClassifier(LogisticRegression(max_iter=200), temperature=2.0)])
def test_the_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4))
    return x, np.array(["a", "b", "c"])[(x @ rng.normal(size=(4, 3))).argmax(axis=1)]


def test_probabilities_are_those_of_the_calibration_and_predictions_stay():
    x, y = problem()
    model = LogisticRegression().fit(x, y)
    both = calibrated(model, TWO)
    np.testing.assert_allclose(both.predict_proba(x), TWO.probabilities(model.predict_log_proba(x)))
    assert (both.predict(x) == model.predict(x)).all()
    assert both.score(x, y) == model.score(x, y)
    decided = RidgeClassifier().fit(x, y)  # which has no probabilities
    assert (calibrated(decided, TWO).predict(x) == decided.predict(x)).all()


def test_it_goes_through_skops(tmp_path):
    skops = pytest.importorskip("skops.io")
    x, y = problem()
    both = calibrated(LogisticRegression().fit(x, y), TWO)
    skops.dump(both, tmp_path / "model.skops")
    own = skops.get_untrusted_types(file=tmp_path / "model.skops")
    assert own == ["pseudocal.sklearn.CalibratedClassifier"]
    again = skops.load(tmp_path / "model.skops", trusted=own)
    np.testing.assert_array_equal(again.predict_proba(x), both.predict_proba(x))


def test_what_cannot_be_inside_is_refused():
    x, y = problem()
    model = LogisticRegression().fit(x, y)
    with pytest.raises(InputError, match="expected a Calibration, got float"):
        calibrated(model, 2.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a fitted classifier, got LogisticRegression"):
        calibrated(LogisticRegression(), TWO)
    with pytest.raises(InputError, match="expected a calibration by a temperature"):
        calibrated(model, Calibration("vector", VectorScaling(np.ones(3), np.zeros(3))))
    with pytest.raises(InputError, match="temperature"):
        CalibratedClassifier(LogisticRegression(), temperature=-1.0).fit(x, y)
