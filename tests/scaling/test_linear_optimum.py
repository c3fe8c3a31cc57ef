"""`fit_vector` and `fit_matrix` on random problems: at the maximum of the likelihood, whatever was added to the logits.

What is missing to the maximum is measured independently, by Newton's method on the scaled logits: half of g H^-1 g,
with the exact slope g and the exact second derivative H of the loss.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest

from pseudocal import fit_matrix, fit_temperature, fit_vector, softmax

OFFSETS = (0.0, 100.0, -1e4)
SCALES = (0.02, 1.0, 20.0)


class Problem(NamedTuple):
    """Logits and labels of one number."""

    logits: np.ndarray
    labels: np.ndarray


def problem(number: int, largest: int = 8) -> Problem:
    """Labels drawn from a softmax of logits with a bias, and the logits multiplied and shifted afterwards."""
    rng = np.random.default_rng(number)
    classes = int(rng.integers(2, largest))
    n = int(math.exp(rng.uniform(math.log(50 * classes), math.log(3000))))
    z = rng.normal(size=(n, classes)) * rng.uniform(0.7, 1.4, classes) + rng.normal(size=classes)
    labels = (
        z * rng.uniform(0.3, 1.2) + rng.normal(size=classes) * 0.5 + rng.gumbel(size=z.shape)
    ).argmax(axis=1)
    offset = rng.choice(OFFSETS) * (1 if rng.random() < 0.5 else rng.normal(size=classes))
    return Problem(z * rng.choice(SCALES) + offset, labels)


def nll(logits: np.ndarray, labels: np.ndarray) -> float:
    """The mean negative log-likelihood."""
    return float(-np.log(softmax(logits)[np.arange(len(labels)), labels]).mean())


def missing(scaled: np.ndarray, logits: np.ndarray, labels: np.ndarray, *, matrix: bool) -> float:
    """By how much another Newton step would lower the loss."""
    n, classes = logits.shape
    p = softmax(scaled)
    standard = (logits - logits.mean(axis=0)) / logits.std(axis=0)
    ones = np.ones((n, 1))
    if matrix:
        features = [np.hstack([standard, ones])] * classes
    else:
        features = [np.hstack([standard[:, [c]], ones]) for c in range(classes)]
    error = p - np.eye(classes)[labels]
    slope = np.concatenate([x.T @ error[:, c] for c, x in enumerate(features)]) / n
    second = np.block(
        [
            [x.T @ (y * (p[:, [c]] * ((c == d) - p[:, [d]]))) / n for d, y in enumerate(features)]
            for c, x in enumerate(features)
        ]
    )
    return float(slope @ np.linalg.pinv(second, rcond=1e-10) @ slope) / 2


def excesses(numbers: range, *, matrix: bool) -> dict[int, tuple[float, float]]:
    """For each problem: what is missing to the maximum, and how much worse it is than a temperature."""
    fit = fit_matrix if matrix else fit_vector
    found = {}
    for number in numbers:
        logits, labels = problem(number, largest=6 if matrix else 8)
        scaled = fit(logits, labels)(logits)
        worse = nll(scaled, labels) - nll(fit_temperature(logits, labels)(logits), labels)
        found[number] = (missing(scaled, logits, labels, matrix=matrix), worse)
    return found


@pytest.mark.parametrize("matrix", [False, True])
def test_is_the_maximum_of_the_likelihood(matrix):
    found = excesses(range(275), matrix=matrix)
    assert {
        number: each for number, each in found.items() if each[0] > 1e-8 or each[1] > 1e-12
    } == {}


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
def test_is_no_worse_than_a_temperature_where_there_is_no_maximum(fit):
    """If all predictions are right, the likelihood rises with the weights without end."""
    for seed in range(20):
        logits = np.random.default_rng(seed).normal(size=(40, 3)) - 100
        labels = logits.argmax(axis=1)
        assert nll(fit(logits, labels)(logits), labels) <= nll(
            fit_temperature(logits, labels)(logits), labels
        )


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
@pytest.mark.parametrize("penalty", [0.0, 0.01])
def test_single_precision_at_a_large_offset(known, fit, penalty):
    """Near 10,000 neighbours in float32 are 0.001 apart: that much is lost before the fit, and nothing after it."""
    logits, labels = known(1000, 4, 2.0)
    shifted = (0.02 * logits - 10_000).astype(np.float32)
    scaling = fit(shifted, labels, penalty=penalty)
    same = fit(shifted.astype(np.float64), labels, penalty=penalty)
    assert scaling(shifted).dtype == np.float32
    p = softmax(scaling(shifted))
    assert np.allclose(
        p, softmax(same(shifted.astype(np.float64))), atol=1e-5 if penalty == 0 else 1e-3
    )
    assert np.allclose(
        p.mean(axis=0), np.bincount(labels) / len(labels), atol=1e-5 if penalty == 0 else 0.1
    )


@pytest.mark.parametrize("fit", [fit_vector, fit_matrix])
@pytest.mark.parametrize("penalty", [1e-4, 0.1, 10.0])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_a_penalty_is_on_the_map_of_the_logits_as_given(known, fit, penalty, offset):
    """A small change of the weights or of the bias in any direction raises the loss with its penalty."""
    logits, labels = known(300, 3, 2.0)
    logits = logits + offset
    fitted = fit(logits, labels, penalty=penalty)
    one = np.eye(3) if fit is fit_matrix else np.ones(3)

    def loss(weight, bias):
        scaled = type(fitted)(weight, bias)(logits)
        return nll(scaled, labels) + penalty * (np.sum((weight - one) ** 2) + np.sum(bias**2))

    least, rng = loss(fitted.weight, fitted.bias), np.random.default_rng(0)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(30):
            weight = fitted.weight + size * rng.normal(size=fitted.weight.shape)
            centred = (
                fitted.bias - (weight - fitted.weight).sum(axis=0) * offset
            )  # most of what the weights do
            assert loss(weight, fitted.bias + size * rng.normal(size=3)) > least - 1e-9
            assert loss(weight, centred if fit is fit_matrix else fitted.bias) > least - 1e-9
