"""Pictures that travel inside a page, as data addresses."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from pseudocal.app.inputs.pictures import as_rgb, read_picture
from pseudocal.app.report.sections import MapPictures
from pseudocal.arrays import InputError, Maps
from pseudocal.extras import require
from pseudocal.metrics import confidence_picture, correct_picture
from pseudocal.metrics.images import Picture

SIDE = 112  # pixels, at most, of the longer side of a thumbnail
MAP_SIDE = 320  # and of a map
TINY = 64  # pixels; a picture of such sides is enlarged where it is shown large, and a JPEG's traces with it
SIZES = ((640, 85), (640, 70), (512, 70), (512, 55), (384, 55), (256, 45), (160, 40))  # side and quality, best first


def thumbnail(path: Path, side: int = SIDE) -> str | None:
    """Return a small JPEG of a picture as a data URL; None if the picture cannot be read any more."""
    try:
        small = as_rgb(read_picture(path, least=side))
    except InputError:  # a page without one picture is still a page
        return None
    small.thumbnail((side, side))
    return _address(small, "JPEG", quality=82)


def picture_within(path: Path, room: int) -> str | None:
    """Return a picture to be shown large, in the best quality that fits; None if it cannot be read.

    Args:
        path: the file.
        room: the largest number of characters of its data URL; the lowest quality may exceed it.

    """
    try:
        image = as_rgb(read_picture(path, least=SIZES[0][0]))
    except InputError:  # as for a thumbnail
        return None
    if max(image.size) <= TINY:
        return _address(image, "PNG")
    address = ""
    for side, quality in SIZES:
        image.thumbnail((side, side))
        address = _address(image, "JPEG", quality=quality, optimize=True)
        if len(address) <= room:
            break
    return address


def map_pictures(image: Maps, name: str, temperature: float, picture: Path | None, mask: Any) -> MapPictures:
    """Draw one image `(classes, height, width)` pixel by pixel and, given a mask, where the model is right."""
    return MapPictures(
        name=name,
        picture=None if picture is None else thumbnail(picture, MAP_SIDE),
        before=_drawn(confidence_picture(image)),
        after=_drawn(confidence_picture(image, temperature)),
        correct=None if mask is None else _drawn(correct_picture(image, mask)),
    )


def _drawn(pixels: Picture) -> str:
    """Encode pixels as a PNG; the pixels of a small picture become squares, so that no browser blurs them."""
    square = max(1, MAP_SIDE // max(pixels.shape[:2]))
    image = require("PIL.Image", "cli").fromarray(pixels.repeat(square, axis=0).repeat(square, axis=1))
    image.thumbnail((MAP_SIDE, MAP_SIDE))
    return _address(image, "PNG")


def _address(image: Any, kind: str, **options: Any) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
