import numpy as np
import pytest

from pseudocal import softmax
from pseudocal.arrays import InputError
from pseudocal.calibrators import mc_dropout

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 4)
    )


X = np.random.default_rng(0).normal(size=(70, 6)).astype(np.float32)


def plain(model):
    with torch.inference_mode():
        return model.eval()(torch.as_tensor(X)).numpy()


def test_the_mean_over_many_passes(model):
    """Dropping half of the inputs of one linear layer.

    The mean logit is the plain one, the softmax is softer.
    """
    expected = plain(model)
    logits = mc_dropout(model, X, passes=100)
    assert abs(softmax(logits) - softmax(expected)).max() < 0.1
    assert softmax(logits).max(axis=1).mean() < softmax(expected).max(axis=1).mean()


def test_a_seed_repeats_it_and_leaves_the_state_of_torch_alone(model):
    state = torch.get_rng_state()
    first, again, other = (mc_dropout(model, X, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("training", [True, False])
def test_the_module_is_left_as_it_was_found(model, training):
    model.train(training)
    statistics = model[1].running_mean.clone()
    mc_dropout(model, X)
    assert all(m.training is training for m in model.modules())
    assert torch.equal(model[1].running_mean, statistics)  # batch norm was in eval mode
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_batch_norm_uses_its_running_statistics(model):
    model[3].p = 1e-12  # dropout layers that drop nothing, for all that one can see
    np.testing.assert_allclose(softmax(mc_dropout(model, X)), softmax(plain(model)), rtol=1e-4)


def test_a_loader_and_an_array_are_read_in_order(model):
    model[3].p = 1e-12
    batches = [(torch.as_tensor(X[:40]), "labels"), (torch.as_tensor(X[40:]), "labels")]
    np.testing.assert_allclose(
        mc_dropout(model, batches), mc_dropout(model, X, batch_size=7), atol=1e-5
    )


@pytest.mark.parametrize(
    "module", [nn.Linear(6, 4), nn.Sequential(nn.Dropout(0.0), nn.Linear(6, 4))]
)
def test_without_dropout(module):
    with pytest.raises(InputError, match="expected a module with dropout layers"):
        mc_dropout(module, X)


def test_not_a_module():
    with pytest.raises(InputError, match="expected a torch module"):
        mc_dropout(lambda x: x, X)


def test_mistakes(model):
    with pytest.raises(InputError, match="at least two passes, got 1"):
        mc_dropout(model, X, passes=1)
    with pytest.raises(InputError, match="at least one batch"):
        mc_dropout(model, [])
