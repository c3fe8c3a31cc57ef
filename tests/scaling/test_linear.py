"""Vector and matrix scaling, and all scalings as JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from pseudocal import (
    InputError,
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
    fit_matrix,
    fit_temperature,
    fit_vector,
    softmax,
)
from pseudocal.calibrators.calibration import scaling_from_dict, scaling_to_dict
from pseudocal.metrics import Outcomes, ece
from pseudocal.scaling import UnfinishedFitWarning, linear


def nll(logits, labels):
    return -np.log(softmax(logits)[np.arange(len(labels)), labels]).mean()


def test_vector_scaling_recovers_the_weights_that_drew_the_labels(known):
    weight, bias = np.array([0.5, 1.0, 1.5]), np.array([0.5, 0.0, -0.5])
    corrected, labels = known(40_000, 3, 1.0)
    scaling = fit_vector((corrected - bias) / weight, labels)
    assert np.allclose(scaling.weight, weight, atol=0.05)
    assert np.allclose(scaling.bias - scaling.bias.mean(), bias, atol=0.05)


def test_matrix_scaling_is_logistic_regression_on_logits(known):
    linear_model = pytest.importorskip("sklearn.linear_model")
    logits, labels = known(3000, 4, 2.0)
    reference = linear_model.LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(
        logits, labels
    )
    ours = fit_matrix(logits, labels)
    assert np.allclose(softmax(ours(logits)), reference.predict_proba(logits), atol=1e-4)


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
def test_the_gradient_vanishes_at_the_fit(known, fit):
    """With a bias for each class the mean probability of a class is its frequency, or it was not the optimum."""
    logits, labels = known(3000, 5, 2.0)
    mean = softmax(fit(logits, labels)(logits)).mean(axis=0)
    assert np.allclose(mean, np.bincount(labels) / 3000, atol=1e-5)


def test_more_freedom_fits_better_where_it_is_fitted(known):
    logits, labels = known(500, 5, 2.0)
    losses = [
        nll(f(logits, labels)(logits), labels) for f in (fit_temperature, fit_vector, fit_matrix)
    ]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
def test_a_penalty_pulls_towards_doing_nothing(known, fit):
    logits, labels = known(200, 4, 2.0)

    def distance(penalty):
        return float(np.abs(fit(logits, labels, penalty=penalty)(logits) - logits).max())

    assert distance(0.0) > distance(1.0) > distance(1000.0)
    assert distance(1e9) < 1e-3


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
def test_soft_targets_that_are_certain_are_labels(known, fit):
    logits, labels = known(300, 3, 2.0)
    assert np.allclose(fit(logits, labels).weight, fit(logits, np.eye(3)[labels]).weight)


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
def test_a_negative_penalty_is_refused(known, fit):
    with pytest.raises(InputError, match="at least 0, got -1"):
        fit(*known(30, 3, 2.0), penalty=-1)


def test_minus_infinity_has_no_linear_scaling(known):
    logits, labels = known(30, 3, 2.0)
    logits[11, (labels[11] + 1) % 3] = -np.inf
    with pytest.raises(InputError, match=r"finite logits .* row 11"):
        fit_vector(logits, labels)


def features_model(rows, classes, scale, *, shift=0.0, seed=0):
    """Logits of a model of 16 features that is `scale` times too sure, and labels.

    A shift moves the features.
    """
    rng, means = (
        np.random.default_rng(seed),
        np.random.default_rng(99).normal(size=(classes, 16)) * 0.6,
    )
    labels = rng.integers(0, classes, rows)
    x = means[labels] + rng.normal(size=(rows, 16)) + shift
    return (scale * (x @ means.T - 0.5 * (means**2).sum(axis=1))).astype(np.float32), labels


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
def test_correlated_logits_do_not_keep_the_fit_from_the_maximum(fit):
    """At a maximum the mean probability of a class is its frequency.

    L-BFGS on raw logits stopped at its limit here.
    """
    logits, labels = features_model(1500, 12, 2.0)
    mean = softmax(fit(logits, labels)(logits)).mean(axis=0)
    assert np.allclose(mean, np.bincount(labels) / 1500, atol=1e-5)


def test_a_fit_that_does_not_get_there_says_so(monkeypatch):
    monkeypatch.setattr(linear, "MOST_ITERATIONS", 3)
    with pytest.warns(
        UnfinishedFitWarning,
        match="expected the maximum of the likelihood within 3 steps, got a slope",
    ):
        fit_matrix(*features_model(300, 5, 2.0))


def test_directions_of_rounding_errors_are_not_fitted():
    """The logits lie in a space of 16 dimensions, but for rounding: 8 more would fit any labels."""
    logits, labels = features_model(1200, 24, 2.0)
    exact = features_model(1200, 24, 2.0)[0].astype(np.float64) + 1e-9 * np.random.default_rng(
        1
    ).normal(size=(1200, 24))
    one, two = (softmax(fit_matrix(z, labels)(logits)) for z in (logits, exact))
    assert np.abs(one - two).max() < 0.01


def gradient_descent(logits, labels, *, matrix):
    """The released code's baselines, by torch."""
    torch = pytest.importorskip("torch")
    z, y, classes = torch.tensor(logits), torch.tensor(labels), logits.shape[1]
    weight = (torch.eye(classes) if matrix else torch.ones(classes)).requires_grad_()
    bias = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.SGD([weight, bias], lr=0.01, momentum=0.9)
    for _ in range(5000):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(
            (z @ weight if matrix else z * weight) + bias, y
        ).backward()
        optimiser.step()
    return lambda z: (
        (z @ weight.detach().numpy() if matrix else z * weight.detach().numpy())
        + bias.detach().numpy()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "classes", "scale"), [(486, 65, 2.0), (260, 52, 0.7), (1500, 12, 3.0)]
)
@pytest.mark.parametrize("matrix", [False, True])
def test_as_released_is_gradient_descent_that_stops_early(rows, classes, scale, matrix):
    logits, labels = features_model(rows, classes, scale)
    target, truth = features_model(3000, classes, scale, shift=0.3, seed=1)
    fit = fit_matrix if matrix else fit_vector
    maps = (fit(logits, labels, reference=True), gradient_descent(logits, labels, matrix=matrix))
    ours, theirs = (ece(Outcomes.from_logits(each(target), truth)) for each in maps)
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_another_number_of_classes_is_refused(known):
    scaling = fit_vector(*known(30, 3, 2.0))
    with pytest.raises(InputError, match=r"expected logits for 3 classes, got shape \(2, 4\)"):
        scaling(np.zeros((2, 4)))


@pytest.mark.parametrize(
    "scaling",
    [
        TemperatureScaling(1.5, log_se=0.1, rows=10),
        TemperatureScaling(1e-4, log_se=math.inf, rows=10, bound="lower"),
        VectorScaling(np.array([1.0, 0.1]), np.array([0.3, -0.3])),
        MatrixScaling(np.array([[1.0, 0.1], [0.2, 1.0]]), np.array([0.3, -0.3])),
    ],
)
def test_json_and_back_is_the_same_map(scaling):
    text = json.dumps(scaling_to_dict(scaling), allow_nan=False)
    again = scaling_from_dict(json.loads(text))
    assert scaling_to_dict(again) == scaling_to_dict(scaling)
    logits = np.array([[1.0, 2.0], [5.0, -1.0]])
    assert np.array_equal(again(logits), scaling(logits))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected a scaling of kind"),
        ({"kind": "pickle"}, "expected a scaling of kind .*'pickle'"),
        ({"kind": "temperature"}, "expected the fields .*of a temperature scaling"),
        ({"kind": "temperature", "temperature": -1.0}, "positive temperature"),
        ({"kind": "temperature", "temperature": "hot"}, "expected"),
        ({"kind": "temperature", "temperature": 1.0, "bound": "sideways"}, "bound"),
        ({"kind": "vector", "weight": [1, 2], "bias": [1]}, "expected weight of shape"),
        ({"kind": "matrix", "weight": [["a"]], "bias": [1]}, "expected"),
        ({"kind": "vector", "weight": [1, None], "bias": [0, 0]}, "finite"),
    ],
)
def test_a_file_from_anyone_is_checked(value, message):
    with pytest.raises(InputError, match=message):
        scaling_from_dict(value)
