"""Small images that travel inside the page."""

from __future__ import annotations

import base64
import io

import numpy as np

from pseudocal.app.report.images import thumbnail


def test_a_thumbnail_of_a_large_photograph_looks_like_it(tmp_path):
    from PIL import Image

    across, down = np.meshgrid(np.linspace(0, 255, 1600), np.linspace(0, 255, 1200))
    photograph = Image.fromarray(np.stack([across, down, 255 - across], axis=2).astype(np.uint8))
    photograph.save(tmp_path / "a.jpg", quality=95)
    small = Image.open(
        io.BytesIO(base64.b64decode(thumbnail(tmp_path / "a.jpg").partition(",")[2]))
    )
    assert small.size == (112, 84)
    assert (
        np.abs(np.asarray(small, float) - np.asarray(photograph.resize((112, 84)), float)).mean()
        < 2
    )


def test_an_image_that_cannot_be_read_any_more_is_skipped(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no image")
    assert thumbnail(tmp_path / "a.jpg") is None
    assert thumbnail(tmp_path / "gone.jpg") is None
