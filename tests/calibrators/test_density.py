import sys

import numpy as np
import pytest

from pseudocal.arrays import InputError
from pseudocal.calibrators.baselines.importance import DensityRatio, density_ratio
from pseudocal.extras import MissingExtraError


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
    pytest.importorskip("sklearn")
    ratio = density_ratio(normal(0.0, n_source, 0), normal(0.8, n_target, 1), reference=reference)
    x = normal(0.3, 500, 2)
    np.testing.assert_allclose(np.log(ratio(x)), 0.8 * x[:, 0] - 0.32, atol=0.3)


def test_weights_average_to_one_over_the_source():
    pytest.importorskip("sklearn")
    weights = density_ratio(normal(0.0, 5000, 0), normal(1.0, 3000, 1))(normal(0.0, 5000, 2))
    assert weights.mean() == pytest.approx(1, abs=0.1)


def test_the_scale_of_a_feature_does_not_matter():
    pytest.importorskip("sklearn")
    source, target, scale = normal(0.0, 500, 0), normal(0.5, 500, 1), np.array([1e-3, 1.0, 1e4])
    plain = density_ratio(source, target)(source)
    np.testing.assert_allclose(
        density_ratio(source * scale, target * scale)(source * scale), plain, rtol=1e-2
    )


def test_a_seed_repeats_the_bootstrap():
    pytest.importorskip("sklearn")
    source, target = normal(0.0, 300, 0), normal(0.5, 500, 1)
    first, again, other = (
        density_ratio(source, target, reference=True, seed=seed).slope for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_domains_that_a_plane_parts_give_finite_weights():
    pytest.importorskip("sklearn")
    source, target = normal(-50.0, 100, 0), normal(50.0, 100, 1)
    for reference in (False, True):
        assert np.isfinite(
            density_ratio(source, target, reference=reference)(np.concatenate([source, target]))
        ).all()


def test_a_constant_feature_is_harmless():
    pytest.importorskip("sklearn")
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


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(MissingExtraError, match=r"pseudocal\[sklearn\]"):
        density_ratio(np.zeros((3, 2)), np.ones((3, 2)))
