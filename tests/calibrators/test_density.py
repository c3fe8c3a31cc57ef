import sys
import tracemalloc

import numpy as np
import pytest

from pseudocal.arrays import InputError
from pseudocal.calibrators.baselines.importance import DensityRatio, density_ratio


def normal(mean, n, seed, features=3):
    return np.random.default_rng(seed).normal(size=(n, features)) + np.array(
        [mean, *[0.0] * (features - 1)]
    )


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(("n_source", "n_target"), [(8000, 8000), (8000, 2000), (2000, 8000)])
def test_normal_densities(n_source, n_target, reference):
    """log ratio = m x - m^2 / 2, however many rows there are on either side.

    Equal sizes crash the released code.
    """
    ratio = density_ratio(normal(0.0, n_source, 0), normal(0.8, n_target, 1), reference=reference)
    x = normal(0.3, 500, 2)
    np.testing.assert_allclose(np.log(ratio(x)), 0.8 * x[:, 0] - 0.32, atol=0.3)


def test_weights_average_to_one_over_the_source():
    weights = density_ratio(normal(0.0, 5000, 0), normal(1.0, 3000, 1))(normal(0.0, 5000, 2))
    assert weights.mean() == pytest.approx(1, abs=0.1)


def test_the_scale_of_a_feature_does_not_matter():
    source, target, scale = normal(0.0, 500, 0), normal(0.5, 500, 1), np.array([1e-3, 1.0, 1e4])
    plain = density_ratio(source, target)(source)
    np.testing.assert_allclose(
        density_ratio(source * scale, target * scale)(source * scale), plain, rtol=1e-2
    )


def test_a_seed_repeats_the_bootstrap():
    source, target = normal(0.0, 300, 0), normal(0.5, 500, 1)
    first, again, other = (
        density_ratio(source, target, reference=True, seed=seed).slope for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_domains_that_a_plane_parts_give_finite_weights():
    source, target = normal(-50.0, 100, 0), normal(50.0, 100, 1)
    for reference in (False, True):
        assert np.isfinite(
            density_ratio(source, target, reference=reference)(np.concatenate([source, target]))
        ).all()


def test_a_constant_feature_is_harmless():
    source, target = (
        np.column_stack([x, np.full(len(x), 7.0)]) for x in (normal(0.0, 99, 0), normal(1.0, 99, 1))
    )
    assert density_ratio(source, target).slope[-1] == 0


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (np.zeros((3, 2)), np.zeros((3, 4)), "as many target as source features, 2, got 4"),
        (
            np.zeros(3),
            np.zeros((3, 4)),
            r"source features of shape \(n, features\), got shape \(3,\)",
        ),
        (
            np.zeros((2, 1)),
            np.array([[0.0], [np.nan]]),
            "target features that are finite, got nan in row 1",
        ),
    ],
)
def test_mistakes(source, target, message):
    with pytest.raises(InputError, match=message):
        density_ratio(source, target)


def test_other_features_than_it_was_learnt_from():
    with pytest.raises(InputError, match="rows of 2 features"):
        DensityRatio(np.zeros(2), 0.0)(np.zeros((5, 3)))


@pytest.mark.parametrize("reference", [False, True])
def test_the_optimum_is_that_of_scikit_learn(reference):
    linear_model = pytest.importorskip("sklearn.linear_model")
    source = normal(0.0, 700, 0, 6) * np.array([1, 9, 1, 0.1, 1, 5])
    target = normal(0.7, 500, 1, 6) * np.array([1, 9, 1, 0.1, 1, 5])
    rows = np.concatenate([source, target])
    domain = np.repeat([0, 1], [700, 500])
    mean, scale, weights = rows.mean(axis=0), rows.std(axis=0), None
    if reference:
        mean, scale = np.zeros(6), np.ones(6)
        drawn = np.bincount(np.random.default_rng(3).integers(500, size=700), minlength=500)
        weights = np.concatenate([np.ones(700), drawn])
    model = linear_model.LogisticRegression(class_weight=None if reference else "balanced")
    model.fit((rows - mean) / scale, domain, sample_weight=weights)
    found = density_ratio(source, target, reference=reference, seed=3)
    np.testing.assert_allclose(found.slope, model.coef_[0] / scale, rtol=1e-6, atol=1e-8)
    offset = model.intercept_[0] - mean @ (model.coef_[0] / scale)
    assert found.offset == pytest.approx(offset, abs=1e-6)


@pytest.mark.parametrize("reference", [False, True])
def test_no_copy_of_the_features_is_made(reference):
    rng = np.random.default_rng(0)
    source = rng.standard_normal((60_000, 128), dtype=np.float32)
    target = rng.standard_normal((20_000, 128), dtype=np.float32)
    density_ratio(source[:100], target[:50], reference=reference)  # imports count as memory too
    tracemalloc.start()
    density_ratio(source, target, reference=reference)(source)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < (source.nbytes + target.nbytes) / 2


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    assert density_ratio(np.zeros((3, 2)), np.ones((3, 2))).slope.shape == (2,)
