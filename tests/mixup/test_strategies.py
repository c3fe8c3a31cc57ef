"""The eight alternatives of the ablation.

What each makes, and that all run through the same fit.
"""

from functools import partial

import numpy as np
import pytest

from pseudocal import PseudoCal
from pseudocal.arrays import InputError
from pseudocal.mixup import (
    STRATEGIES,
    Pairs,
    cutmix,
    filtered_pl,
    manifoldmix,
    mixup_beta,
    mixup_same,
    moco_v2,
    pseudo_label,
    randaug,
)
from pseudocal.mixup.mixup import mixup
from pseudocal.predictors import as_predictor


def tensor(x):
    return pytest.importorskip("torch").as_tensor(x)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((40, 1, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    ).eval()


@pytest.fixture
def pairs(images, model):
    logits = as_predictor(model)(images)
    partner = np.roll(np.arange(len(images)), 1)
    return Pairs.of(images, images[partner], logits, logits[partner], np.arange(1.0, 41.0))


@pytest.fixture
def bound(model):
    """The table, with what some entries need.

    This model was never trained and is sure of nothing.
    """
    return STRATEGIES | {
        "ManifoldMix": partial(manifoldmix, module=model, layer="1"),
        "Filtered-PL": partial(filtered_pl, threshold=0.23),
    }


def test_the_table_is_the_papers():
    assert len(STRATEGIES) == 9, "count your own variant here"
    assert list(STRATEGIES)[-1] == "PseudoCal"


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_run_through_the_same_fit(name, bound, model, images):
    first, again = (PseudoCal().fit(model, images, strategy=bound[name]) for _ in range(2))
    assert first.temperature == again.temperature  # the seed decides
    assert first.counts["mixup_samples"] > 0


def test_a_strategy_that_gives_nothing(model, images):
    with pytest.raises(
        InputError, match="at least one row from the strategy, got none of 40 pairs"
    ):
        PseudoCal().fit(model, images, strategy=filtered_pl)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("kind", [np.asarray, tensor])
def test_arrays_and_tensors_alike(name, kind, bound, model, pairs, rng):
    given = Pairs.of(
        kind(pairs.x), kind(pairs.partner), pairs.logits, pairs.partner_logits, pairs.weights
    )
    before = np.array(pairs.x)
    mix = bound[name](as_predictor(model), given, rng=rng)
    assert mix.logits.shape == (len(mix), 5)
    assert mix.labels.shape == mix.weights.shape == (len(mix),)
    np.testing.assert_array_equal(before, np.asarray(given.x))  # inputs are left alone


def test_pseudocal_in_the_table_is_mixup(model, pairs, rng, images):
    predict = as_predictor(model)
    np.testing.assert_array_equal(
        STRATEGIES["PseudoCal"](predict, pairs, rng=rng).logits, mixup(predict, pairs).logits
    )
    plain = PseudoCal(epochs=1).fit(model, images)
    assert (
        PseudoCal().fit(model, images, strategy=STRATEGIES["PseudoCal"]).temperature
        == plain.temperature
    )


def test_mixup_same_stays_in_a_class(rng):
    x = np.random.default_rng(1).normal(size=(300, 4))
    mix = mixup_same(lambda x: x, Pairs.of(x, x, x, x), rng=rng)
    assert len(mix) == 300
    assert (
        mix.logits.argmax(axis=1) == mix.labels
    ).all()  # a linear model, whose classes are convex
    np.testing.assert_allclose(mix.logits.sum(), x.sum())  # each row leads once and follows once


def test_mixup_same_where_no_two_rows_share_a_class(rng):
    x = np.eye(4)
    assert len(mixup_same(lambda x: x, Pairs.of(x, x, x, x), rng=rng)) == 0


def test_mixup_beta_draws_shares_from_beta(rng):
    from scipy.stats import beta, kstest

    x = np.tile([1.0, 0.0], (4000, 1))
    mix = mixup_beta(lambda x: x, Pairs.of(x, 1 - x, x, 1 - x), rng=rng)
    folded = mix.logits[:, 0]  # the larger part
    assert (
        kstest(folded, lambda s: 2 * (beta.cdf(s, 0.3, 0.3) - 0.5)).pvalue > 1e-4
    )  # a wrong distribution gives 1e-100
    assert (mix.labels == 0).all()


def test_cutmix_pastes_a_box(rng, images):
    zeros, ones = np.zeros((200, 3, 20, 20)), np.ones((200, 3, 20, 20))
    logits = np.tile([1.0, 0.0], (200, 1))
    seen = []

    def spy(x):
        seen.append(x)
        return np.tile([1.0, 0.0], (len(x), 1))

    cutmix(spy, Pairs.of(zeros, ones, logits, 1 - logits), rng=rng, lam=0.65)
    fraction = seen[0].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(fraction, 0.36)  # 12 by 12 of 20 by 20
    assert (seen[0][:, :1] == seen[0]).all()  # the same box in every channel
    assert seen[0].mean(axis=(0, 1)).min() > 0  # no corner is out of reach
    assert len({x.tobytes() for x in seen[0]}) > 50  # each pair has a box of its own


def test_cutmix_wants_images(rng):
    x = np.eye(2)
    with pytest.raises(InputError, match="expected images"):
        cutmix(lambda x: x, Pairs.of(x, x[::-1], x, x[::-1]), rng=rng)


def test_manifoldmix_at_a_linear_layer_is_mixup(rng):
    """A linear layer mixup samples its outputs as its inputs are mixed."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    predict = as_predictor(model)
    pairs = Pairs.of(x, np.roll(x, 1, axis=0), predict(x), predict(np.roll(x, 1, axis=0)))
    first = manifoldmix(predict, pairs, module=model, layer="0", rng=rng)
    np.testing.assert_allclose(first.logits, mixup(predict, pairs).logits, atol=1e-6)
    last = manifoldmix(predict, pairs, module=model, layer="2")
    kept = pairs.logits.argmax(axis=1) != pairs.partner_logits.argmax(axis=1)
    np.testing.assert_allclose(
        last.logits, (0.65 * pairs.logits + 0.35 * pairs.partner_logits)[kept], atol=1e-6
    )
    assert not any(m._forward_hooks for m in model.modules())


def test_manifoldmix_names_the_layers(model, pairs):
    with pytest.raises(InputError, match=r"one of 0, 1, 2, 3, got 'fc'"):
        manifoldmix(as_predictor(model), pairs, module=model, layer="fc")


def test_manifoldmix_of_a_layer_that_is_not_passed(model, pairs):
    torch = pytest.importorskip("torch")
    other = torch.nn.Sequential(torch.nn.Linear(1, 1))
    with pytest.raises(InputError, match="returns one tensor, once per pass"):
        manifoldmix(as_predictor(model), pairs, module=other, layer="0")


def test_pseudo_labels_are_always_right(model, pairs):
    mix = pseudo_label(as_predictor(model), pairs)
    assert (mix.logits.argmax(axis=1) == mix.labels).all()
    sure = filtered_pl(as_predictor(model), pairs, threshold=0.23)
    assert 0 < len(sure) < len(mix)


def test_pseudo_labels_end_at_the_bound(model, images):
    assert PseudoCal().fit(model, images, strategy=pseudo_label).bound == "lower"


@pytest.mark.parametrize("strategy", [randaug, moco_v2])
class TestAugmentation:
    def test_labels_are_those_of_the_plain_images(self, strategy, model, pairs, rng):
        mix = strategy(as_predictor(model), pairs, rng=rng)
        np.testing.assert_array_equal(mix.labels, pairs.logits.argmax(axis=1))
        assert abs(mix.logits - pairs.logits).max() > 0.01

    def test_the_seed_decides_and_the_state_of_torch_stays(self, strategy, model, pairs):
        torch = pytest.importorskip("torch")
        state = torch.get_rng_state()
        first, again = (
            strategy(as_predictor(model), pairs, rng=np.random.default_rng(3)) for _ in range(2)
        )
        np.testing.assert_array_equal(first.logits, again.logits)
        assert torch.equal(state, torch.get_rng_state())

    def test_normalised_inputs(self, strategy, pairs):
        """The model sees the same pixels, normalised, when it is told how they were."""
        pytest.importorskip("kornia")
        seen = []

        def spy(x):
            seen.append(np.asarray(x))
            return np.zeros((len(x), 5))

        normalised = Pairs.of(
            (pairs.x - 0.4) / 0.2, pairs.partner, pairs.logits, pairs.partner_logits
        )
        strategy(spy, pairs, rng=np.random.default_rng(0))
        strategy(spy, normalised, rng=np.random.default_rng(0), mean=0.4, std=0.2)
        np.testing.assert_allclose(0.2 * seen[1] + 0.4, seen[0], atol=1e-2)
        assert seen[0].min() >= 0
        assert seen[0].max() <= 1

    def test_colour_images(self, strategy, rng):
        pytest.importorskip("kornia")
        x = np.random.default_rng(0).random((6, 3, 16, 16)).astype(np.float32)
        logits = np.eye(6)[:, :3] + 1.0
        mix = strategy(
            lambda x: x.mean(axis=(2, 3)),
            Pairs.of(x, x, logits, logits),
            rng=rng,
            std=(1.0, 0.5, 1.0),
        )
        assert mix.logits.shape == (6, 3)

    def test_not_images(self, strategy, rng):
        pytest.importorskip("kornia")
        x = np.zeros((2, 5, 4, 4))
        with pytest.raises(InputError, match="expected images of shape"):
            strategy(lambda x: x, Pairs.of(x, x, np.eye(2), np.eye(2)), rng=rng)


@pytest.mark.parametrize("kind", [np.asarray, tensor])
def test_integer_images_are_mixed_as_numbers(kind):
    """Shares between 0 and 1 must not be rounded to the pixels' own type."""
    x = kind(np.array([[200, 0], [0, 200]], dtype=np.uint8))
    logits = np.array([[2.0, 0.0], [0.0, 2.0]])
    swapped = x[[1, 0]]
    mix = mixup_beta(
        lambda x: np.asarray(x),
        Pairs.of(x, swapped, logits, logits[::-1]),
        rng=np.random.default_rng(0),
    )
    assert np.allclose(mix.logits.sum(axis=1), 200)
    assert (mix.logits.max(axis=1) > 99).all()


@pytest.mark.parametrize("strategy", [randaug, moco_v2])
def test_images_out_of_range_are_refused(strategy):
    pytest.importorskip("kornia")
    x = np.full((2, 1, 8, 8), 255.0, dtype=np.float32)
    with pytest.raises(InputError, match=r"between 0 and 1 .* got values from 255 to 255"):
        strategy(
            lambda x: x,
            Pairs.of(x, x, x[:, 0, 0, :2], x[:, 0, 0, :2]),
            rng=np.random.default_rng(0),
        )
