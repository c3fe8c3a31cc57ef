from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType

import numpy as np
import pytest

from pseudocal import InputError, softmax
from pseudocal.predictors import as_predictor

torch = pytest.importorskip("torch")
nn = torch.nn
ensemble = pytest.importorskip("sklearn.ensemble")
linear_model = pytest.importorskip("sklearn.linear_model")
multiclass = pytest.importorskip("sklearn.multiclass")
multioutput = pytest.importorskip("sklearn.multioutput")
svm = pytest.importorskip("sklearn.svm")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)


class Net(torch.nn.Module):  # type: ignore[name-defined]
    def __init__(self, wrap=lambda z: z):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 3)
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(self.head(self.body(x)))


class Output:
    def __init__(self, logits):
        self.logits = logits


def test_a_module_runs_in_eval_mode_and_is_left_as_it_was():
    net = Net().train()
    net.head.eval()  # a frozen part must stay frozen
    before = {k: v.clone() for k, v in net.state_dict().items()}
    predict = as_predictor(net)
    logits = predict(X)
    assert np.array_equal(logits, predict(torch.from_numpy(X)))
    assert np.allclose(logits, net.eval()(torch.from_numpy(X)).detach().numpy())
    net.train(), net.head.eval(), predict(X)
    assert net.training
    assert net.body[2].training
    assert not net.head.training
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_a_module_that_raises_is_left_as_it_was_too():
    net = Net().train()
    with pytest.raises(RuntimeError):
        as_predictor(net)(X[:, :2])
    assert net.training


@pytest.mark.parametrize(
    "wrap",
    [
        lambda z: (z, None),
        lambda z: [z],
        Output,
        lambda z: {"logits": z},
        lambda z: OrderedDict(out=z, aux=-z),
        lambda z: MappingProxyType({"aux": -z, "out": z}),
    ],
    ids=["tuple", "list", "object", "dict", "torchvision", "mapping"],
)
def test_logits_are_found_in_what_a_module_gives(wrap):
    assert np.array_equal(as_predictor(Net(wrap))(X), as_predictor(Net())(X))


def test_half_precision_modules_give_logits():
    assert as_predictor(Net().to(torch.bfloat16))(X).dtype == np.float32
    assert as_predictor(Net().double())(X).dtype == np.float64


def test_an_output_without_logits_is_named():
    with pytest.raises(InputError, match="got str"):
        as_predictor(Net(lambda z: "three"))(X)
    with pytest.raises(
        InputError, match="'logits' or 'out' from the module, got dict of aux, masks"
    ):
        as_predictor(Net(lambda z: {"aux": z, "masks": z}))(X)


def test_a_classifier_gives_the_logarithm_of_its_probabilities():
    model = linear_model.LogisticRegression().fit(X, Y)
    assert np.allclose(softmax(as_predictor(model)(X)), model.predict_proba(X), atol=1e-6)


def test_probabilities_of_zero_become_small_not_impossible():
    model = ensemble.RandomForestClassifier(5, random_state=0).fit(X, Y)
    logits = as_predictor(model)(X)
    assert np.isfinite(logits).all()
    assert logits.min() == pytest.approx(np.log(np.finfo(np.float32).eps))


def test_a_decision_function_serves_where_there_are_no_probabilities():
    assert as_predictor(linear_model.RidgeClassifier().fit(X, Y))(X).shape == (40, 3)
    binary = linear_model.RidgeClassifier().fit(X, Y > 0)
    logits = as_predictor(binary)(X)
    assert np.array_equal(logits.argmax(axis=1), binary.predict(X))


def test_several_outputs_of_a_classifier_are_refused():
    model = multioutput.MultiOutputClassifier(linear_model.LogisticRegression()).fit(
        X, np.stack([Y > 0, Y > 1], axis=1)
    )
    with pytest.raises(InputError, match="multi-label"):
        as_predictor(model)(X)


def test_independent_outputs_in_one_array_are_refused_too():
    several = np.stack([Y > 0, Y > 1], axis=1).astype(int)
    with pytest.raises(InputError, match="multi-label"):
        as_predictor(
            multiclass.OneVsRestClassifier(linear_model.LogisticRegression()).fit(X, several)
        )(X)


def test_decisions_that_are_not_one_for_each_class_are_refused():
    four = (X[:, 0] > 0) * 2 + (X[:, 1] > 0)
    with pytest.raises(InputError, match=r"each of 4 classes, got shape \(40, 6\)"):
        as_predictor(svm.SVC(decision_function_shape="ovo").fit(X, four))(X)
    with pytest.raises(InputError, match="each of 0 classes"):
        as_predictor(svm.OneClassSVM().fit(X))(X)
