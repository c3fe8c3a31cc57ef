"""What a model gives out is checked, whatever kind of model it is."""

from __future__ import annotations

import numpy as np
import pytest

from pseudocal import InputError, softmax
from pseudocal.predictors import Checked, as_predictor

X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)


def test_what_is_no_model_is_named():
    with pytest.raises(InputError, match=r"expected a model.* got str"):
        as_predictor("model.onnx")


def test_probabilities_by_mistake_are_refused():
    with pytest.raises(InputError, match=r"look like probabilities.*np\.log"):
        Checked(lambda x: softmax(x))(X)
    Checked(lambda x: softmax(x), doubt=False)(X)
    with pytest.raises(InputError, match=r"look like probabilities.*np\.log"):
        Checked(lambda x: softmax(x).round(2))(X)
    with pytest.raises(InputError, match=r"between 0 and 100; .*np\.log\(model\(x\) / 100\)"):
        Checked(lambda x: 100 * softmax(x))(X)


def test_maps_with_the_classes_last_are_refused():
    x = np.zeros((2, 3, 64, 96))
    with pytest.raises(InputError, match=r"width\), got \(2, 64, 96, 5\): are the classes last\?"):
        Checked(lambda x: np.zeros((2, 64, 96, 5)))(x)
    for right in ((2, 5, 64, 96), (2, 5, 16, 24), (2, 64, 64, 96)):
        Checked(lambda x, right=right: np.zeros(right))(x)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: x[:-1], "one row of logits for each of 40 inputs"),
        (lambda x: x[:, :1], "at least two classes"),
        (lambda x: np.where(np.arange(40)[:, None] == 7, np.nan, x), "NaN in row 7"),
        (lambda x: x[:, :, None], r"got shape \(40, 4, 1\)"),
    ],
)
def test_wrong_outputs_are_named(model, message):
    with pytest.raises(InputError, match=message):
        Checked(model)(X)


def test_the_number_of_classes_may_not_change():
    predict = Checked(lambda x: x[:, : 2 + (len(x) > 20)])
    predict(X)
    with pytest.raises(InputError, match=r"3 classes as before, got shape \(10, 2\)"):
        predict(X[:10])


def test_a_model_that_raises_half_way_says_where():
    def model(x):
        if len(x) == 10:
            raise RuntimeError("out of memory")
        return x

    predict = Checked(model)
    predict(X)
    with pytest.raises(RuntimeError, match="out of memory") as error:
        predict(X[:10])
    assert "a batch of shape (10, 4), after 40 rows" in error.value.__notes__[0]


def test_one_logit_is_accepted_when_said():
    assert Checked(lambda x: x[:, 0], binary=True)(X).shape == (40, 2)
    with pytest.raises(InputError, match="several independent sigmoids"):
        Checked(lambda x: x, binary=True)(X)
