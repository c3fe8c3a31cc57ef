"""Decode images and masks.

How each pixel format is read:

| pixels | read as |
|---|---|
| 8-bit grey or colour, 1-bit | stored |
| palette | the colours of the palette |
| CMYK, YCbCr | RGB as Pillow converts it, without a colour profile |
| transparency | dropped: the colour below it counts, as in most training pipelines |
| 16-bit grey | 0 to 65535 becomes 0 to 255, fractions are kept |
| 16-bit colour | the upper 8 bits of each number |
| floating-point grey | 0 to 1 becomes 0 to 255; other values are refused |
| 32-bit or signed integers, L*a*b*, several pages | refused: black and white are unknown |

EXIF rotation is applied. Only the first frame of an animation is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import check_regular
from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.skipped import one_line

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
# the EXIF tag, and Pillow's code of the transposition for each of its values
ORIENTATION = 0x0112
TURNS = (None, None, 0, 3, 1, 5, 4, 6, 2)
GREYS = {"1", "L"}
COLOURS = {"CMYK", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "YCbCr"}
SIXTEEN_BIT = {"I;16", "I;16B", "I;16L", "I;16N"}


def decode_image(source: Path | BinaryIO, *, least: int | None = None) -> Image:
    """Decode an image and turn it upright.

    The mode is "RGB" or "L", or "F" with values from 0 to 255.

    Args:
        source: the file, or its content.
        least: the pixels needed along the longer side, so that a JPEG can be decoded at a lower
            resolution; None for full resolution.

    """
    with _open(source) as image:
        name = _name(source)
        pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
        if pages > 1:
            raise InputError(f"{name} has {pages} pages: save each as an image file")
        if least is not None:
            image.draft("RGB", (least, least))
        image.load()
        return _upright(_plain(image, name), _orientation(image))


def as_rgb(image: Image) -> Image:
    """Convert an image from `decode_image` to 8-bit colour; fractions are rounded."""
    if image.mode == "F":
        image = _grey(np.rint(np.asarray(image)).astype(np.uint8))
    return image.convert("RGB")


def size_of_image(path: Path) -> tuple[int, int]:
    """Return the width and height of an image once it is upright, from its header."""
    with _open(path) as image:
        if image.format == "TIFF":  # Pillow rotates it while decoding
            image.load()
        width, height = image.size
        # EXIF may follow the pixels of a PNG, and Pillow would decode them to look for it
        exif_may_follow = image.format == "PNG" and "exif" not in image.info
        if width == height or (exif_may_follow and b"eXIf" not in path.read_bytes()):
            return (width, height)
        return (height, width) if _orientation(image) >= 5 else (width, height)


def read_mask(path: Path, size: tuple[int, int] | None = None) -> NDArray[Any]:
    """Read the integers of a mask, upright: the class of each pixel, or its palette index.

    A size, height and width, resizes it by nearest neighbour.
    """
    with _open_mask(path) as image:
        image.load()
        mask = _upright(image, _orientation(image))
        if size is not None:
            height, width = size
            mask = mask.resize((width, height), resample=0)
        return np.asarray(mask)


def mask_size(path: Path) -> tuple[int, int]:
    """Return the width and height that the header of a mask declares."""
    with _open_mask(path) as image:
        return image.size


@contextmanager
def _open_mask(path: Path) -> Iterator[Image]:
    with _open(path, "a mask") as image:
        if len(image.getbands()) != 1 or image.mode == "F":
            raise InputError(
                f"the mask {path} has {image.mode} pixels: save one integer per pixel, its class"
            )
        yield image


@contextmanager
def _open(source: Path | BinaryIO, what: str = "an image") -> Iterator[Image]:
    """Read the header of an image. Any error of its decoder becomes one that names the file."""
    pillow = require("PIL.Image", "cli")
    name = _name(source)
    limit = pillow.MAX_IMAGE_PIXELS
    if isinstance(source, Path):
        check_regular(source, what)
    # between its limit and twice that Pillow only warns; here both are refused before decoding
    bombs = (pillow.DecompressionBombError, pillow.DecompressionBombWarning)
    try:
        # given a path, Pillow maps some TIFFs into memory and then rotates them wrongly
        stream = source.open("rb") if isinstance(source, Path) else source
        with stream as file, pillow.open(file) as image:
            if limit is not None and image.width * image.height > limit:
                raise pillow.DecompressionBombError(f"{image.width} x {image.height}")
            yield image
    except InputError:
        raise
    except bombs as error:
        raise InputError(
            f"{name} has more than {limit:,} pixels ({error}): make it smaller"
        ) from error
    except require("PIL", "cli").UnidentifiedImageError as error:
        raise InputError(f"{name} is not {what} in a known format") from error
    except Exception as error:  # decoders may raise anything on a broken file
        raise InputError(f"{what} cannot be read: {name}: {one_line(error)}") from error


def _plain(image: Image, name: str) -> Image:
    """Convert an image to mode "RGB", "L" or "F", as the table at the top of this file says."""
    if image.mode in GREYS:
        return image.convert("L")
    if image.mode in COLOURS:
        if "transparency" in image.info:  # a palette with alpha values must go through RGBA
            image = image.convert("RGBA")
        return image.convert("RGB")
    if image.mode in SIXTEEN_BIT or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return _grey(np.asarray(image, dtype=np.float32) / np.float32(257))
    if image.mode != "F":
        raise InputError(
            f"{name} has {image.mode!r} pixels: save 8-bit, 16-bit or floating-point pixels"
        )
    values = np.asarray(image)
    low = values.min()
    high = values.max()
    if not (low >= 0 and high <= 1):  # also true for NaN
        raise InputError(
            f"{name} has pixels from {low} to {high}: scale them from 0 (black) to 1 (white)"
        )
    return _grey(values * np.float32(255))


def _grey(values: NDArray[Any]) -> Image:
    image: Image = require("PIL.Image", "cli").fromarray(values)
    return image


def _upright(image: Image, orientation: int) -> Image:
    turn = TURNS[orientation]
    return image if turn is None else image.transpose(turn)  # type: ignore[arg-type]


def _orientation(image: Image) -> int:
    """The EXIF orientation, from 1 to 8; 1 if it is absent or damaged, as viewers assume."""
    try:
        value = image.getexif().get(ORIENTATION, 1)
    except Exception:
        return 1
    return int(value) if value in range(1, 9) else 1


def _name(source: Path | BinaryIO) -> str:
    return str(source) if isinstance(source, Path) else "its content"
