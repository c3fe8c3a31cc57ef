from __future__ import annotations

import numpy as np
from PIL import Image

from pseudocal import PseudoCal
from pseudocal.lab.data import ImageFiles
from pseudocal.lab.data.domains import select


def test_lazy_images_are_calibrated_as_an_array_is(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(30):
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(
            tmp_path / f"{i:02}.png"
        )
    lazy = ImageFiles(tuple(str(tmp_path / f"{i:02}.png") for i in range(30)), resize=8, crop=8)

    def model(x):
        return np.stack([x[:, c].mean(axis=(1, 2)) for c in range(3)], axis=1) / 10

    np.testing.assert_array_equal(lazy[3], lazy[3:4][0])
    np.testing.assert_array_equal([lazy[i] for i in range(len(lazy))], lazy[:])
    expected = PseudoCal().fit(model, lazy[:]).scaling
    assert PseudoCal().fit(model, lazy).scaling == expected
    assert PseudoCal().fit(model, select(lazy, np.arange(30))).scaling == expected
