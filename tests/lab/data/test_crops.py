from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pseudocal.lab.data import Crops, crops_of, image_folder
from pseudocal.lab.data.crops import _squares


@pytest.fixture
def domain(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PSEUDOCAL_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for label in "ab":
        (tmp_path / "data" / label).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / label / f"{i}.png")
    _squares.cache_clear()
    return image_folder(tmp_path / "data", resize=16, crop=12)


def test_crops_are_the_images_and_so_are_those_of_a_split(domain) -> None:
    crops = crops_of(domain.inputs)
    assert isinstance(crops, Crops)
    assert crops.shape == domain.inputs.shape
    np.testing.assert_array_equal(crops[np.array([3, 0])], domain.inputs[np.array([3, 0])])
    np.testing.assert_array_equal(crops[5], domain.inputs[5])
    half = domain.split(0.5, seed=1)[1]
    np.testing.assert_array_equal(crops_of(half.inputs)[:], half.inputs[:])
    assert crops_of(np.zeros((2, 3, 4, 4), np.uint8)) is None


def test_images_are_decoded_once(domain, monkeypatch) -> None:
    before = crops_of(domain.inputs)[:]
    monkeypatch.setattr("pseudocal.lab.data.images.read_image", None)
    np.testing.assert_array_equal(crops_of(domain.inputs)[:], before)
    _squares.cache_clear()  # as in another process
    np.testing.assert_array_equal(crops_of(domain.inputs)[:], before)


def test_half_an_image_in_the_cache_is_decoded_again(domain, tmp_path: Path) -> None:
    before = crops_of(domain.inputs)[:]
    (path,) = tmp_path.glob("cache/decoded/*/pixels.npy")
    np.load(path, mmap_mode="r+")[2, :, 8:] = 0
    _squares.cache_clear()
    np.testing.assert_array_equal(crops_of(domain.inputs)[:], before)


def test_a_changed_file_is_decoded_again_and_a_full_disk_only_costs_time(
    domain, monkeypatch
) -> None:
    crops_of(domain.inputs)[:]
    Image.new("RGB", (9, 9), "red").save(domain.inputs.paths[0])
    _squares.cache_clear()
    assert (crops_of(domain.inputs)[0][0] == 255).all()
    _squares.cache_clear()
    monkeypatch.setattr(
        "pseudocal.lab.data.crops.shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})
    )
    Image.new("RGB", (9, 9), "lime").save(domain.inputs.paths[0])
    assert (crops_of(domain.inputs)[0][1] == 255).all()


def test_random_crops_are_parts_of_the_square_and_half_are_mirrored(domain) -> None:
    crops = crops_of(domain.inputs)
    square = crops.squares.read(np.array([0]))[0]
    found = crops.random(np.zeros(400, np.intp), np.random.default_rng(0))
    views = {
        (top, left, mirror): square[:, top : top + 12, left : left + 12][..., :: -1 if mirror else 1].tobytes()
        for top in range(5) for left in range(5) for mirror in (False, True)
    }  # fmt: skip
    names = {pixels: name for name, pixels in views.items()}
    seen = [names[image.tobytes()] for image in found]
    assert len(set(seen)) == 50
    assert 150 < sum(mirror for _, _, mirror in seen) < 250
    np.testing.assert_array_equal(
        found, crops.random(np.zeros(400, np.intp), np.random.default_rng(0))
    )
