"""The report of a model that labels every pixel: what it says and shows of images."""

from __future__ import annotations

import base64
import io

import numpy as np

from pseudocal.app.report import page


def test_thin_lines_are_by_image_or_not_there(made):
    labelled, mixed = made.make_segmented(labelled=True), made.make_segmented()
    bins = labelled["reliability"]["before"]
    last = np.array(bins["high"][-1]) - bins["low"][-1]
    assert 0.1 < last < 0.9  # of 12 images
    assert 1.96 * np.sqrt(1 / bins["count"][-1]) < 0.05  # of so many pixels it would be narrow
    html = page(labelled)
    assert "Thin lines are 95% intervals, by image" in html
    assert html.count('class="whisker"') > 5
    html = page(mixed)
    assert "Thin lines" not in html
    assert "whisker" not in html.partition("</style>")[2]
    assert "95% interval</th>" not in html
    assert "None" not in html
    assert "Thin lines are 95% intervals." in page(made.make_content())


def test_maps_have_names_and_a_picture_of_their_size(made, tmp_path):
    from PIL import Image

    Image.fromarray(np.zeros((400, 800, 3), np.uint8)).save(tmp_path / "wide.jpg")
    content = made.make_segmented([tmp_path / "wide.jpg"], labelled=True)
    for item in content["segmentation"]["maps"]:
        for key in ("picture", "before", "after", "correct"):
            shown = Image.open(io.BytesIO(base64.b64decode(item[key].partition(",")[2])))
            assert shown.size == (320, 160)
    html = page(content)
    for title in ("image", "confidence before", "confidence after", "right or wrong"):
        assert html.count(f"<figcaption>{title}</figcaption>") == 6
    assert "black pixels are ignored" in html
    assert "right where predicted" in content["segmentation"]["header"]
    assert "the share that are of it" in html
    assert "black pixels are ignored" not in page(made.make_segmented())
