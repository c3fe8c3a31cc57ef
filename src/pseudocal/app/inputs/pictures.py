"""Where a picture is decoded, for the command and for the lab: what each kind of pixel means, and which way is up.

| pixels                           | read as |
|----------------------------------|---------|
| 8-bit grey or colour, 1-bit      | as they are |
| palette                          | the colours of the palette |
| CMYK, YCbCr                      | RGB as Pillow converts it, without a colour profile |
| transparency                     | dropped: the colour below it counts, as for most training pipelines |
| 16-bit grey                      | 0 to 65535 becomes 0 to 255, fractions are kept |
| 16-bit colour                    | the upper 8 bits of each number |
| floating-point grey              | 0 to 1 becomes 0 to 255; other values are refused |
| 32-bit or signed integers, L*a*b*, a TIFF of several pages | refused: nobody says what is black and what is white |

EXIF rotation is applied. Of an animation the first frame is read.
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
from pseudocal.omissions import one_line

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
ORIENTATION = 0x0112  # the EXIF tag
TURNS = (None, None, 0, 3, 1, 5, 4, 6, 2)  # Pillow's number of the transposition for each value of the tag
GREYS = {"1", "L"}
COLOURS = {"CMYK", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "YCbCr"}
SIXTEEN_BIT = {"I;16", "I;16B", "I;16L", "I;16N"}


def read_picture(source: Path | BinaryIO, *, least: int | None = None) -> Image:
    """Decode a picture, upright: an image of mode "RGB" or "L", or of mode "F" with values from 0 to 255.

    Args:
        source: the file, or its content.
        least: what is needed of the longer side, so that a JPEG need not be decoded whole; None for all of it.

    """
    with _open(source) as image:
        name = _name(source)
        pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
        if pages > 1:
            raise InputError(f"expected one picture in a file, got {pages} pages in {name}")
        if least is not None:
            image.draft("RGB", (least, least))
        image.load()
        return _upright(_plain(image, name), _orientation(image))


def as_rgb(image: Image) -> Image:
    """An image of `read_picture` in 8-bit colour; a fraction is rounded."""
    if image.mode == "F":
        grey = np.rint(np.asarray(image)).astype(np.uint8)
        image = require("PIL.Image", "cli").fromarray(grey)
    return image.convert("RGB")


def picture_size(path: Path) -> tuple[int, int]:
    """The width and the height of an upright picture, by what its header says."""
    with _open(path) as image:
        if image.format == "TIFF":  # Pillow turns it while it decodes
            image.load()
        width, height = image.size
        late = image.format == "PNG" and "exif" not in image.info  # then Pillow decodes all pixels to look behind them
        if width == height or (late and b"eXIf" not in path.read_bytes()):
            return (width, height)
        return (height, width) if _orientation(image) >= 5 else (width, height)


def read_mask(path: Path, size: tuple[int, int] | None = None) -> NDArray[Any]:
    """The numbers of a mask, upright: the class of each pixel, or its index where there is a palette.

    Args:
        path: the file.
        size: the height and the width to resize it to, by the nearest pixel; None leaves it as it is.

    """
    with _open_mask(path) as image:
        image.load()
        upright = _upright(image, _orientation(image))
        return np.asarray(upright if size is None else upright.resize((size[1], size[0]), resample=0))


def mask_size(path: Path) -> tuple[int, int]:
    """The width and the height that the header of a mask declares."""
    with _open_mask(path) as image:
        return image.size


@contextmanager
def _open_mask(path: Path) -> Iterator[Image]:
    with _open(path, "a mask") as image:
        if len(image.getbands()) != 1 or image.mode == "F":
            raise InputError(f"expected a mask of one whole number a pixel, got {path} of {image.mode} pixels")
        yield image


@contextmanager
def _open(source: Path | BinaryIO, what: str = "a picture") -> Iterator[Image]:
    """Read the header of a picture; whatever its decoder raises becomes an `InputError` that names it."""
    pillow = require("PIL.Image", "cli")
    name, limit = _name(source), pillow.MAX_IMAGE_PIXELS
    if isinstance(source, Path):
        check_regular(source, what)
    # Pillow only warns between its limit and twice that; here both are refused before anything is decoded
    bombs = (pillow.DecompressionBombError, pillow.DecompressionBombWarning)
    try:  # Pillow maps some TIFFs into memory if it gets a path, and then turns them wrongly
        with source.open("rb") if isinstance(source, Path) else source as file, pillow.open(file) as image:
            if limit is not None and image.width * image.height > limit:
                raise pillow.DecompressionBombError(f"{image.width} x {image.height}")
            yield image
    except InputError:
        raise
    except bombs as error:
        raise InputError(f"expected {what} of at most {limit:,} pixels, got {name} ({error})") from error
    except require("PIL", "cli").UnidentifiedImageError as error:
        raise InputError(f"expected {what} that can be read, got {name}: no kind of picture that is known") from error
    except Exception as error:  # decoders raise whatever they like on a broken file
        raise InputError(f"expected {what} that can be read, got {name}: {one_line(error)}") from error


def _plain(image: Image, name: str) -> Image:
    """An image of mode "RGB", "L" or "F", as the table at the top says."""
    if image.mode in GREYS:
        return image.convert("L")
    if image.mode in COLOURS:  # a palette with an alpha value for each colour becomes RGB by way of RGBA only
        return (image.convert("RGBA") if "transparency" in image.info else image).convert("RGB")
    if image.mode in SIXTEEN_BIT or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return _grey(np.asarray(image, dtype=np.float32) / np.float32(257))
    if image.mode != "F":
        raise InputError(f"expected 8-bit, 16-bit or floating-point pixels, got {name} of {image.mode!r} pixels")
    values = np.asarray(image)
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):  # nor NaN
        raise InputError(f"expected floating-point pixels from 0 (black) to 1 (white), got {low} to {high} in {name}")
    return _grey(values * np.float32(255))


def _grey(values: NDArray[np.float32]) -> Image:
    image: Image = require("PIL.Image", "cli").fromarray(values)
    return image


def _upright(image: Image, orientation: int) -> Image:
    turn = TURNS[orientation]
    return image if turn is None else image.transpose(turn)  # type: ignore[arg-type]


def _orientation(image: Image) -> int:
    """The value of the EXIF tag, from 1 to 8; 1 where there is none or where EXIF is damaged, as viewers do."""
    try:
        value = image.getexif().get(ORIENTATION, 1)
    except Exception:
        return 1
    return int(value) if value in range(1, 9) else 1


def _name(source: Path | BinaryIO) -> str:
    return str(source) if isinstance(source, Path) else "its content"
