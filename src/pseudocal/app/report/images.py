"""Images that travel inside a page, as data addresses."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.images import as_rgb, decode_image
from pseudocal.app.report.record import MapImages
from pseudocal.arrays import InputError, Maps
from pseudocal.extras import require
from pseudocal.metrics import confidence_image, correct_image
from pseudocal.metrics.images import RgbImage

SIDE = 112  # pixels, at most, of the longer side of a thumbnail
MAP_SIDE = 320  # and of a map
# pixels; an image of such sides is enlarged where it is shown large, and a JPEG's traces with it
TINY = 64
# what is shown around a pixel: at least so many pixels, one part in so many of the shorter side of
# the image, and how large that is drawn
CROP_LEAST = 24
CROP_PARTS = 6
CROP_SIDE = 320
NEAREST = 0  # Pillow's code of a filter
# side and quality, best first
SIZES = ((640, 85), (640, 70), (512, 70), (512, 55), (384, 55), (256, 45), (160, 40))


def thumbnail(path: Path, side: int = SIDE) -> str | None:
    """Return a small JPEG of an image as a data URL; None if the image cannot be read any more."""
    small = _read(path, side)
    if small is None:
        return None
    small.thumbnail((side, side))
    return _address(small, "JPEG", quality=82)


def _read(path: Path, least: int | None = None) -> Any:
    """Decode an image; None if it cannot be read: a page without one image is still a page."""
    try:
        return as_rgb(decode_image(path, least=least))
    except InputError:
        return None


def image_within(path: Path, room: int) -> str | None:
    """Return an image to be shown large, in the best quality that fits; None if it cannot be read.

    Its data URL has at most `room` characters, unless the lowest quality has more.
    """
    image = _read(path, SIZES[0][0])
    return None if image is None else _within(image, room)


def marked_within(
    frame: Path | RgbImage, pixel: tuple[int, int], room: int
) -> tuple[str, str] | None:
    """Return a frame with a mark around a pixel, and what is around the pixel, enlarged.

    None if it cannot be read. Both data URLs have at most `room` characters, as in `image_within`.
    """
    image = _read(frame) if isinstance(frame, Path) else _image(frame)
    if image is None:
        return None
    y = min(pixel[0], image.height - 1)
    x = min(pixel[1], image.width - 1)
    side = max(CROP_LEAST, min(image.size) // CROP_PARTS)
    left = min(max(0, x - side // 2), max(0, image.width - side))
    top = min(max(0, y - side // 2), max(0, image.height - side))
    part = image.crop((left, top, min(left + side, image.width), min(top + side, image.height)))
    grown = max(1, CROP_SIDE // side)
    around = _enlarged(part, grown)
    _mark(around, (x - left + 0.5) * grown, (y - top + 0.5) * grown, max(4, grown))
    # a small frame is enlarged, or the mark would be larger than the objects
    larger = max(1, SIZES[0][0] // (2 * max(image.size)))
    whole = _enlarged(image, larger)
    scale = min(1.0, SIZES[0][0] / max(whole.size))
    whole.thumbnail((SIZES[0][0], SIZES[0][0]))
    _mark(whole, (x + 0.5) * larger * scale, (y + 0.5) * larger * scale, 7)
    return _within(whole, 2 * room // 3), _within(around, room // 3)


def as_frame(array: NDArray[Any]) -> RgbImage:
    """Turn an input of a model into pixels `(height, width, 3)`.

    Its smallest value becomes black, its largest white.

    >>> as_frame(np.array([[[-1.0, 1.0]]])).tolist()
    [[[0, 0, 0], [255, 255, 255]]]
    """
    values = np.asarray(array, dtype=np.float64)
    if values.ndim not in (2, 3):
        raise InputError(
            f"frames must have shape (channels, height, width) to be shown, not {values.shape}"
        )
    if values.ndim == 2:
        values = values[..., None]
    elif values.shape[0] in (1, 3):
        values = np.moveaxis(values, 0, -1)
    elif values.shape[-1] not in (1, 3):  # channels that are no colours
        values = values.mean(axis=0)[..., None]
    low = float(values.min())
    high = float(values.max())
    grey = np.rint(255 * (values - low) / max(high - low, 1e-12)).astype(np.uint8)
    return np.repeat(grey, 3 // grey.shape[-1], axis=-1)


def _mark(image: Any, x: float, y: float, gap: float) -> None:
    """Draw four short lines that point at a spot and leave it free, white on black."""
    pen = require("PIL.ImageDraw", "cli").Draw(image)
    for colour, width in (("black", 5), ("white", 2)):
        for across, down in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            near = (x + gap * across, y + gap * down)
            far = (x + (gap + 14) * across, y + (gap + 14) * down)
            pen.line((*near, *far), colour, width)


def _enlarged(image: Any, times: int) -> Any:
    """A copy in which every pixel is a square."""
    return image.resize((times * image.width, times * image.height), NEAREST)


def _image(pixels: RgbImage) -> Any:
    return require("PIL.Image", "cli").fromarray(pixels)


def _within(image: Any, room: int) -> str:
    """Encode an image in the best quality that fits; it may become smaller."""
    if max(image.size) <= TINY:
        return _address(image, "PNG")
    address = ""
    for side, quality in SIZES:
        image.thumbnail((side, side))
        address = _address(image, "JPEG", quality=quality, optimize=True)
        if len(address) <= room:
            break
    return address


def map_images(
    image: Maps, name: str, temperature: float, image_file: Path | None, mask: Any
) -> MapImages:
    """Draw one image `(classes, height, width)` pixel by pixel.

    Given a mask, also where the model is right.
    """
    return MapImages(
        name=name,
        image=None if image_file is None else thumbnail(image_file, MAP_SIDE),
        before=_drawn(confidence_image(image)),
        after=_drawn(confidence_image(image, temperature)),
        correct=None if mask is None else _drawn(correct_image(image, mask)),
    )


def _drawn(pixels: RgbImage) -> str:
    """Encode pixels as a PNG.

    The pixels of a small image become squares: browsers would blur them.
    """
    square = max(1, MAP_SIDE // max(pixels.shape[:2]))
    image = _enlarged(_image(pixels), square)
    image.thumbnail((MAP_SIDE, MAP_SIDE))
    return _address(image, "PNG")


def _address(image: Any, kind: str, **options: Any) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    content = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/{kind.lower()};base64,{content}"
