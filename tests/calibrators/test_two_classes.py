"""Three tasks of two classes with second opinions.

What is said is true, nothing harmful is applied, intervals hold.
"""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression

from pseudocal import PseudoCal
from pseudocal.calibrators import ReasonCode


def digits(*pair):
    """Two of the digits, with noise that the training did not have."""
    x, y = load_digits(return_X_y=True)
    kept = np.isin(y, pair)
    return x[kept] / 16, (y[kept] == pair[1]).astype(int), 0.4


def tumours():
    x, y = load_breast_cancer(return_X_y=True)
    return (x - x.mean(axis=0)) / x.std(axis=0), y, 1.0


@pytest.fixture(scope="module", params=["3 or 8", "1 or 7", "tumours"])
def task(request):
    x, y, noise = (
        tumours() if request.param == "tumours" else digits(*map(int, request.param.split(" or ")))
    )
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, test = order[:150], order[150:]
    drawn = rng.choice(train, size=len(train))
    model, second = (
        LogisticRegression(C=30.0, max_iter=1000).fit(x[rows], y[rows]) for rows in (train, drawn)
    )
    return model, second, x[test] + noise * rng.standard_normal(x[test].shape), y[test]


@pytest.mark.parametrize("opinions", [0, 1, 2])
def test_what_is_said_of_two_classes_is_true(task, opinions):
    model, second, x, y = task
    right = model.predict(x) == y
    agree = (model.predict(x) == second.predict(x)).mean()
    found = PseudoCal().fit(model, x, second_opinion=[second] * opinions)
    trust = found.trust
    assert trust.verdict == "caution"
    assert found.settings["estimator"] == "none"
    assert found.temperature == 1
    assert not trust.estimated_accuracy.known
    asked = PseudoCal(estimator="mixup").fit(model, x, second_opinion=[second] * opinions)
    estimate = asked.trust.estimated_accuracy
    assert estimate.known
    assert estimate.low <= right.mean() <= estimate.high
    codes = [reason.code for reason in trust.reasons]
    # neither class gets much more than half of the predictions
    expected = [ReasonCode.TWO_CLASSES]
    if opinions:
        expected.append(ReasonCode.SECOND_MODEL_TWO_CLASSES)
    assert codes == expected
    if opinions:
        numbers = trust.reasons[1].numbers
        assert numbers["agreement"] == pytest.approx(agree)
        assert right.mean() <= numbers["highest"]
