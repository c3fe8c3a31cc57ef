from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.special import softmax as reference

from pseudocal import InputError, binary_logits, softmax
from pseudocal.app.models.model import UntrustedError
from pseudocal.arrays import (
    as_logits,
    check_not_probabilities,
    looks_like_probabilities,
    probability_scale,
)
from pseudocal.stored import ChangedFileError


def test_softmax_agrees_with_scipy_and_keeps_the_precision():
    z = np.random.default_rng(0).normal(size=(50, 7)) * 30
    assert np.allclose(softmax(z), reference(z, axis=1), rtol=1e-12)
    assert softmax(z.astype(np.float16)).dtype == np.float32
    assert softmax([[1000, 0], [0, 1000]]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_log_probabilities_are_logits():
    p = np.array([[0.2, 0.8], [0.5, 0.5]])
    assert np.allclose(softmax(np.log(p)), p)


def test_one_logit_is_two_columns():
    z = np.array([[0.3], [-2.0]])
    assert np.allclose(softmax(binary_logits(z))[:, 1], 1 / (1 + np.exp(-z[:, 0])))


def test_several_sigmoids_are_refused_with_the_reason():
    with pytest.raises(InputError, match=r"several independent sigmoids .*multi-label"):
        binary_logits(np.zeros((4, 3)))


def test_logits_are_not_copied():
    z = np.zeros((4, 3), dtype=np.float32)
    assert as_logits(z) is z


@pytest.mark.parametrize(
    ("rows", "answer"), [([[0.2, 0.8]], True), ([[0.2, 0.9]], False), ([[-0.1, 1.1]], False)]
)
def test_probabilities_are_recognised(rows, answer):
    assert looks_like_probabilities(np.array(rows)) is answer


def test_tensors_are_logits_too():
    torch = pytest.importorskip("torch")
    z = torch.tensor([[1.0, 2.0]], requires_grad=True)
    assert np.array_equal(as_logits(z), [[1.0, 2.0]])
    assert as_logits(z.to(torch.bfloat16)).dtype == np.float32


@pytest.mark.parametrize("kind", [InputError, UntrustedError, ChangedFileError])
def test_an_error_keeps_its_setting_when_it_is_pickled(kind):
    error = kind("two arrays", setting="field", value="NAME")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.message, again.setting, again.value) == ("two arrays", "field", "NAME")
    assert str(again) == "two arrays; set field=NAME"
    assert str(error.reworded("three arrays")) == "three arrays; set field=NAME"


def test_an_error_without_a_setting_is_its_message():
    error = pickle.loads(pickle.dumps(InputError("two arrays")))
    assert (str(error), error.setting, error.value) == ("two arrays", None, None)


def test_huge_logits_are_not_taken_for_probabilities():
    check_not_probabilities(np.full((5, 3), 3e38, dtype=np.float32))  # whose sums overflow


P = softmax(np.random.default_rng(0).normal(size=(100, 10)) * 2)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 100])
def test_probabilities_of_any_number_of_rows_are_refused(n):
    for p in (P, P.astype(np.float32)):
        with pytest.raises(InputError, match=r"sums of 1\): .*np\.log\(probabilities\)"):
            check_not_probabilities(p[:n])
    check_not_probabilities(np.log(P[:n]))


def test_rounded_probabilities_are_refused():
    rounded = P.round(2)
    assert np.abs(rounded.sum(axis=1) - 1).max() > 0.01
    with pytest.raises(InputError, match=r"sums from 0\.97 to 1\.0\d\): .*np\.log"):
        check_not_probabilities(rounded)
    check_not_probabilities(rounded[:3])  # may be logits that were written by hand


@pytest.mark.parametrize("digits", [1, 10])
def test_percentages_are_refused(digits):
    with pytest.raises(InputError, match=r"look like percentages .*np\.log\(percentages / 100\)"):
        check_not_probabilities((100 * P).round(digits))


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 1]],
        [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]],  # written by hand
        [[0.2, 0.9]],
        [[0.25, 0.65, 0.2]] * 10,
        [[100.0, 0.0], [0.0, 100.0]] * 10,
        [[30.0, 70.0]],
    ],
)
def test_logits_are_not_taken_for_probabilities(rows):
    assert probability_scale(np.array(rows)) is None


def test_random_logits_are_not_taken_for_probabilities():
    rng = np.random.default_rng(0)
    for rows in (1, 4, 20):
        few = rng.random((2000, rows, 3))
        assert not any(probability_scale(z) for z in few)  # all between 0 and 1
        assert not any(probability_scale(z) for z in 100 * few)
