import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_array

from pseudocal import (
    Calibration,
    LabelSample,
    PseudoCal,
    TemperatureScaling,
    VectorScaling,
    rows_to_label,
)
from pseudocal.arrays import InputError, softmax
from pseudocal.calibrators import ReasonCode
from pseudocal.metrics import ece
from pseudocal.mixup.mixup import mixup
from pseudocal.sklearn import CalibratedClassifier, calibrated

TWO = Calibration("pseudocal", TemperatureScaling(2.0))


class FittedOnce(ClassifierMixin, BaseEstimator):
    """A classifier that needs no fit: the checks pass data of any number of features."""

    classes_ = np.arange(4)  # as many as the check of sparse data expects

    def fit(self, X, y=None):
        raise AssertionError("the wrapped model must not be refitted")

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, X):
        X = check_array(X, accept_sparse="csr")
        z = np.asarray(X.sum(axis=1)).reshape(-1, 1)
        return softmax(np.sin(z * [3, 5, 7, 9]))

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True
        return tags


# y is ignored: the classes are those of the wrapped model, which is never refitted
EXPECTED_FAILURES = {
    "check_classifiers_classes",
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_classifiers_train",
    "check_supervised_y_2d",
    "check_supervised_y_no_nan",
}


@pytest.mark.filterwarnings("ignore::pseudocal.UnreliableCalibrationWarning")  # random data
@pytest.mark.filterwarnings("ignore:y is ignored")
@parametrize_with_checks([CalibratedClassifier(FittedOnce())])
def test_the_checks_of_scikit_learn_pass(estimator, check):
    # not xfail, whose tracebacks end pytest in Python 3.11 if a syntax tree was too deep before
    if check.func.__name__ in EXPECTED_FAILURES:
        with pytest.raises((AssertionError, ValueError)):
            check(estimator)
    else:
        check(estimator)


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4))
    return x, np.array(["a", "b", "c"])[(x @ rng.normal(size=(4, 3))).argmax(axis=1)]


@pytest.fixture(scope="module")
def digits() -> tuple[LogisticRegression, np.ndarray, np.ndarray]:
    """An overconfident model, noisy target images and their classes as names."""
    x, y = load_digits(return_X_y=True)
    names = np.array([f"digit {k}" for k in range(10)])[y]
    noise = np.random.default_rng(0).normal(0, 4, size=x[400:].shape)
    model = LogisticRegression(max_iter=5000).fit(x[:400], names[:400])
    return model, x[400:] + noise, names[400:]


def test_fit_calibrates_without_labels(digits):
    model, target, labels = digits
    before = model.predict_proba(target)
    coefficients = model.coef_.copy()
    both = CalibratedClassifier(model).fit(target)
    expected = PseudoCal().fit(model, target)
    assert both.calibration_.temperature == expected.temperature > 1
    np.testing.assert_array_equal(
        both.predict_proba(target), expected.probabilities(model.predict_log_proba(target))
    )
    numbers = np.searchsorted(model.classes_, labels)
    assert ece(both.predict_proba(target), numbers) < ece(before, numbers)
    assert (both.predict(target) == model.predict(target)).all()
    assert both.score(target, labels) == model.score(target, labels)
    np.testing.assert_array_equal(model.coef_, coefficients)


def test_labels_given_to_fit_do_not_matter(digits):
    model, target, labels = digits
    some = target[:300]
    with pytest.warns(UserWarning, match=r"y is ignored.* calibration_\.refined"):
        with_labels = CalibratedClassifier(model).fit(some, labels[:300])
    without = CalibratedClassifier(model).fit(some)
    assert with_labels.calibration_.temperature == without.calibration_.temperature


def test_a_second_fit_replaces_the_temperature_and_a_new_model_waits_for_fit(digits):
    model, target, _ = digits
    other = LogisticRegression(C=1e-4, max_iter=5000).fit(target[:300], model.predict(target[:300]))
    both = CalibratedClassifier(model).fit(target[:300])
    first = both.predict_proba(target)
    both.set_params(estimator=other)
    np.testing.assert_array_equal(both.predict_proba(target), first)
    both.fit(target[:300])
    expected = PseudoCal().fit(other, target[:300])
    assert both.calibration_.temperature == expected.temperature
    np.testing.assert_array_equal(
        both.predict_proba(target), expected.probabilities(other.predict_log_proba(target))
    )


def test_a_second_opinion_and_settings_are_used(digits):
    model, target, labels = digits
    other = LogisticRegression(C=0.01, max_iter=5000).fit(target[1000:], labels[1000:])
    method = PseudoCal(seed=3)
    both = CalibratedClassifier(model, second_opinion=other, method=method).fit(target[:500])
    expected = method.fit(model, target[:500], second_opinion=other)
    assert both.calibration_.temperature == expected.temperature
    assert both.calibration_.settings["estimator"] == "agreement"


@pytest.mark.filterwarnings("ignore:y is ignored")  # cross-validation passes it
def test_a_clone_keeps_the_fitted_models_and_drops_the_calibration(digits):
    model, target, labels = digits
    both = CalibratedClassifier(model, second_opinion=FrozenEstimator(model)).fit(target[:200])
    again = clone(both)
    assert again.estimator is model
    assert not hasattr(again, "calibration_")
    frozen = clone(CalibratedClassifier(FrozenEstimator(model)))
    assert (frozen.fit(target[:200]).predict(target) == model.predict(target)).all()
    p = cross_val_predict(
        CalibratedClassifier(model), target[:300], labels[:300], cv=2, method="predict_proba"
    )
    assert p.shape == (300, 10)


def test_the_last_step_of_a_pipeline_may_be_calibrated(digits):
    _, target, labels = digits
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(target[:400], labels[:400])
    both = CalibratedClassifier(model).fit(target[400:700])
    assert (both.predict(target) == model.predict(target)).all()


@pytest.mark.filterwarnings("ignore:y is ignored")
def test_parameters_of_a_fitted_model_cannot_be_searched(digits):
    model, target, labels = digits
    both = CalibratedClassifier(model, second_opinion=model)
    for name in ("estimator__C", "second_opinion__C"):
        with pytest.raises(InputError, match=f"got {name}: it is never refitted"):
            both.set_params(**{name: 0.5})
    search = GridSearchCV(CalibratedClassifier(model), {"estimator__C": [0.01, 1.0]}, cv=2)
    with pytest.raises(InputError, match="its parameters cannot be searched"):
        search.fit(target[:100], labels[:100])
    assert model.C == 1
    search = GridSearchCV(CalibratedClassifier(model), {"estimator": [model]}, cv=2)
    with pytest.raises(NotFittedError, match=r"wrap each in sklearn\.frozen\.FrozenEstimator"):
        search.set_params(error_score="raise").fit(target[:100], labels[:100])


@pytest.mark.filterwarnings("ignore:y is ignored")
def test_fitted_models_can_be_searched_if_they_are_frozen(digits):
    model, target, labels = digits
    worse = LogisticRegression().fit(target[:20], labels[:20])
    candidates = {"estimator": [FrozenEstimator(worse), FrozenEstimator(model)]}
    search = GridSearchCV(CalibratedClassifier(model), candidates, cv=2)
    search.fit(target[:200], labels[:200])
    assert search.best_params_["estimator"].estimator is model


def test_log_probabilities_are_those_of_the_calibrated_model(digits):
    model, target, _ = digits
    sharp = calibrated(model, Calibration("pseudocal", TemperatureScaling(0.001)))
    p = sharp.predict_proba(target)
    log_p = sharp.predict_log_proba(target)
    assert (p == 0).any()
    assert np.isfinite(log_p).all()
    np.testing.assert_allclose(np.exp(log_p), p, atol=1e-12)
    both = calibrated(model, TWO)
    np.testing.assert_allclose(both.predict_log_proba(target), np.log(both.predict_proba(target)))
    decided = calibrated(RidgeClassifier().fit(target, model.predict(target)), TWO)
    np.testing.assert_allclose(np.exp(decided.predict_log_proba(target)).sum(axis=1), 1)


def test_a_class_is_not_a_fitted_model():
    with pytest.raises(InputError, match="got the class LogisticRegression: pass LogisticReg"):
        calibrated(LogisticRegression, TWO)


def test_a_model_of_one_class_and_empty_data_are_named():
    x, y = problem()
    forest = RandomForestClassifier(3).fit(x, np.full(len(y), "a"))
    with pytest.raises(InputError, match=r"two classes, got RandomF.* with one: \['a'\]"):
        CalibratedClassifier(forest).fit(x)
    with pytest.raises(InputError, match="got 0 samples"):
        CalibratedClassifier(LogisticRegression().fit(x, y)).fit(x[:0])


def test_a_model_that_is_not_fitted_is_refused(digits):
    with pytest.raises(NotFittedError, match=r"LogisticRegression without classes_: fit it first"):
        CalibratedClassifier(LogisticRegression()).fit(digits[1])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        CalibratedClassifier(digits[0]).predict_proba(digits[1])


def test_probabilities_are_those_of_the_calibration_and_predictions_stay():
    x, y = problem()
    model = LogisticRegression().fit(x, y)
    both = calibrated(model, TWO)
    np.testing.assert_allclose(both.predict_proba(x), TWO.probabilities(model.predict_log_proba(x)))
    assert (both.predict(x) == model.predict(x)).all()
    assert both.score(x, y) == model.score(x, y)
    decided = RidgeClassifier().fit(x, y)  # which has no probabilities
    assert (calibrated(decided, TWO).predict(x) == decided.predict(x)).all()


def test_a_calibration_replaces_that_of_a_calibrated_classifier(digits):
    model, target, _ = digits
    free = CalibratedClassifier(model).fit(target[:300])
    again = calibrated(free, TWO)
    assert again.estimator is again.estimator_ is model
    expected = TWO.probabilities(model.predict_log_proba(target))
    np.testing.assert_array_equal(again.predict_proba(target), expected)
    nested = CalibratedClassifier(again).fit(target[:300])
    assert nested.estimator_ is model
    np.testing.assert_array_equal(nested.predict_proba(target), free.predict_proba(target))
    unfitted = calibrated(CalibratedClassifier(model), TWO)
    np.testing.assert_array_equal(unfitted.predict_proba(target), expected)


def test_a_calibration_for_other_classes_is_refused(digits):
    model, target, _ = digits
    two_classes = LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"])
    fitted = CalibratedClassifier(model).fit(target[:300]).calibration_
    assert fitted.classes == 10
    with pytest.raises(InputError, match=r"expected logits of 10 classes, .* got 2"):
        calibrated(two_classes, fitted)


def test_fit_warns_before_it_drops_labels(digits):
    model, target, truth = digits
    free = CalibratedClassifier(model).fit(target[:300])
    rows = rows_to_label(model.predict_log_proba(target[:300]), 50)
    classes = np.searchsorted(model.classes_, truth[rows])
    logits = model.predict_log_proba(target[:300])
    labelled = calibrated(model, free.calibration_.refined(logits, LabelSample(rows, classes)))
    with pytest.warns(UserWarning, match="replaced a calibration with labels"):
        labelled.fit(target[:300])
    assert labelled.calibration_ == free.calibration_


def test_a_clone_has_no_calibration(digits):
    with pytest.raises(NotFittedError):
        clone(calibrated(digits[0], TWO)).predict_proba(digits[1])


def test_names_that_the_model_changes_are_not_compared():
    pandas = pytest.importorskip("pandas")
    lightgbm = pytest.importorskip("lightgbm")
    x, y = problem()
    frame = pandas.DataFrame(x, columns=[f"f {i}" for i in range(x.shape[1])])
    model = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(frame, y)
    assert model.feature_names_in_[0] == "f_0"
    expected = TWO.probabilities(np.log(model.predict_proba(frame)))
    np.testing.assert_allclose(calibrated(model, TWO).predict_proba(frame), expected)


def test_the_model_itself_refuses_other_columns():
    pandas = pytest.importorskip("pandas")
    x, y = problem()
    frame = pandas.DataFrame(x, columns=[f"f {i}" for i in range(x.shape[1])])
    both = calibrated(LogisticRegression().fit(frame, y), TWO)
    with pytest.raises(ValueError, match="feature names should match"):
        both.predict_proba(frame.rename(columns={"f 0": "other"}))


def test_it_goes_through_skops(tmp_path, digits):
    skops = pytest.importorskip("skops.io")
    model, target, _ = digits
    both = CalibratedClassifier(model).fit(target[:300])
    skops.dump(both, tmp_path / "model.skops")
    types = skops.get_untrusted_types(file=tmp_path / "model.skops")
    assert all(name.startswith("pseudocal.") for name in types)
    again = skops.load(tmp_path / "model.skops", trusted=types)
    np.testing.assert_array_equal(again.predict_proba(target), both.predict_proba(target))


def test_what_cannot_be_inside_is_refused():
    x, y = problem()
    model = LogisticRegression().fit(x, y)
    with pytest.raises(InputError, match="expected a Calibration, got float"):
        calibrated(model, 2.0)  # type: ignore[arg-type]
    with pytest.raises(
        NotFittedError, match="expected a fitted classifier of scikit-learn, got LogisticRegression"
    ):
        calibrated(LogisticRegression(), TWO)
    with pytest.raises(InputError, match="expected a calibration by a temperature"):
        calibrated(model, Calibration("vector", VectorScaling(np.ones(3), np.zeros(3))))


@pytest.fixture(scope="module")
def cities():
    """A pipeline for a table with a column of texts, rows of it, and their classes."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    city = rng.choice(["Berlin", "Oslo", "Rome"], 800)
    frame = pandas.DataFrame({"city": city, "age": rng.normal(40, 12, 800)})
    z = (frame["age"] - 40) / 6 + (city == "Oslo") + rng.logistic(size=800)
    y = np.array(["leaves", "stays"])[(z > 0).astype(int)]
    encoded = make_column_transformer(
        (OneHotEncoder(), ["city"]), (StandardScaler(), ["age"]), sparse_threshold=0
    )
    pipe = make_pipeline(encoded, LogisticRegression()).fit(frame[:400], y[:400])
    return pipe, frame[400:], y[400:]


def test_a_table_that_cannot_be_mixed_is_calibrated_with_labels(cities):
    pipe, frame, y = cities
    with pytest.warns(
        UserWarning, match=r"cannot be mixed: city \(text, .*\)\..* Calibration\.refined"
    ):
        both = CalibratedClassifier(pipe).fit(frame)
    assert both.calibration_.temperature == 1
    assert both.calibration_.verdict == "caution"
    assert both.calibration_.trust.reasons[0].code == ReasonCode.TABLES_NOT_MIXED
    np.testing.assert_allclose(both.predict_proba(frame), pipe.predict_proba(frame))

    logits = pipe.predict_log_proba(frame)
    rows = rows_to_label(logits, 50)
    labels = LabelSample(rows, np.searchsorted(pipe.classes_, y[rows]))
    refined = both.calibration_.refined(logits, labels)
    assert refined.measured.labels == 50
    assert repr(refined).startswith("Calibration(labels: T = ")
    assert repr(both.calibration_).startswith("Calibration(none: T = 1.000")
    assert repr(both.calibration_.trust.estimated_accuracy) == "AccuracyEstimate(unknown)"
    assert refined.measured.temperature.low < refined.measured.temperature.high
    np.testing.assert_allclose(
        calibrated(pipe, refined).predict_proba(frame), refined.probabilities(logits)
    )


def test_two_classes_wait_for_labels_with_a_warning():
    x, y = problem()
    model = LogisticRegression().fit(x, y == "a")
    with pytest.warns(UserWarning, match=r"^T = 1, nothing was applied: with two classes"):
        both = CalibratedClassifier(model).fit(x)
    assert both.calibration_.temperature == 1
    CalibratedClassifier(model, method=PseudoCal(estimator="mixup")).fit(x)  # as requested


def test_a_table_that_cannot_be_mixed_takes_no_second_opinion(cities):
    pipe, frame, _ = cities
    why = r"for a table that cannot be mixed \(columns city \(text, .*leave it out"
    with pytest.raises(InputError, match=f"^expected no second opinion {why}"):
        CalibratedClassifier(pipe, second_opinion=pipe).fit(frame)
    with pytest.raises(InputError, match=f"^expected no strategy {why}"):
        PseudoCal().fit(pipe, frame, strategy=mixup)


@pytest.mark.parametrize("frame", [False, True])
def test_missing_values_are_not_mixed_in_arrays_and_frames_alike(frame):
    x, y = problem()
    model = HistGradientBoostingClassifier(max_iter=3).fit(x, y)
    x[3, 1] = np.nan
    if frame:
        x = pytest.importorskip("pandas").DataFrame(x)
        model = HistGradientBoostingClassifier(max_iter=3).fit(x, y)
    with pytest.warns(UserWarning, match=r"mixed: 1 \(missing values\)\. Fill in missing values"):
        both = CalibratedClassifier(model).fit(x)
    assert both.calibration_.temperature == 1
    assert both.calibration_.trust.reasons[0].code == ReasonCode.TABLES_NOT_MIXED


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["ant", "b", "c"], r"\['ant', 'b', 'c'\]: .* compared by position"),
        (["c", "a", "b"], r"\['c', 'a', 'b'\]: they have the same classes in another order"),
    ],
)
def test_a_second_opinion_on_other_classes_is_refused(names, why):
    x, y = problem()
    model = LogisticRegression().fit(x, y)
    second = LogisticRegression(C=0.1).fit(x, y)
    second.classes_ = np.array(names)
    message = r"expected a second opinion with the classes \['a', 'b', 'c'\] of the model, got "
    with pytest.raises(InputError, match=message + why):
        CalibratedClassifier(model, second_opinion=[model, second]).fit(x)
    with pytest.raises(InputError, match=message + why):
        PseudoCal().fit(model, x, second_opinion=second)
    PseudoCal().fit(model, x, second_opinion=second.predict_log_proba)  # without names of classes
    second.classes_ = np.arange(3)  # of labels that were encoded
    PseudoCal().fit(model, x, second_opinion=second)
    PseudoCal().fit(second, x, second_opinion=model)


def test_a_second_opinion_that_is_not_fitted_is_named():
    x, y = problem()
    model = LogisticRegression().fit(x, y)
    with pytest.raises(InputError, match=r"^the second opinion is not fitted: .*Fit it first"):
        CalibratedClassifier(model, second_opinion=LogisticRegression()).fit(x)


def test_a_second_opinion_on_other_columns_is_named():
    pandas = pytest.importorskip("pandas")
    x, y = problem()
    frame = pandas.DataFrame(x, columns=["age", "height", "weight", "water"])
    model = LogisticRegression().fit(frame, y)
    scaled = make_column_transformer((StandardScaler(), ["age", "soil"]))
    other = make_pipeline(scaled, LogisticRegression()).fit(frame.assign(soil=frame["age"]), y)
    with pytest.raises(InputError, match=r"^the second opinion does not accept .*soil.* columns$"):
        CalibratedClassifier(model, second_opinion=other).fit(frame)


def test_a_frozen_calibrated_classifier_is_unwrapped_too(digits):
    model, inputs, _ = digits
    frozen = FrozenEstimator(calibrated(model, TWO))
    expected = calibrated(model, TWO).predict_proba(inputs)
    np.testing.assert_array_equal(calibrated(frozen, TWO).predict_proba(inputs), expected)
