"""Image files, decoded when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import listdir
from os.path import basename, dirname, isdir
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, cores
from pseudocal.extras import require

if TYPE_CHECKING:
    from PIL.Image import Image

    from pseudocal.lab.data.domains import ImageArray, Selector

Used = TypeVar("Used")

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True)
class ImageFiles:
    """Image files as arrays `(3, crop, crop)`: each is resized to a square, then cropped to its centre.

    Resizing ignores the aspect ratio, as the papers' test transform does.

    Attributes:
        paths: the files.
        resize: the side of the square in pixels.
        crop: the side of the centre that is kept; equal to `resize` to keep all.

    """

    paths: tuple[str, ...]
    resize: int = 256
    crop: int = 224

    def __post_init__(self) -> None:
        if not 0 < self.crop <= self.resize:
            raise InputError(f"expected a crop from 1 to resize={self.resize}, got {self.crop}")

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape that an array of all images would have; so calibrators treat these like an array."""
        return (len(self), 3, self.crop, self.crop)

    def __getitem__(self, chosen: Selector, /) -> ImageArray:
        """Decode images in several threads: Pillow releases Python's lock."""
        numbers: NDArray[np.intp] = np.arange(len(self))[chosen]
        if numbers.ndim == 0:
            return self._decode(self.paths[int(numbers)])
        pixels = np.empty((len(numbers), 3, self.crop, self.crop), np.uint8)
        with ThreadPoolExecutor(cores()) as pool:
            decoded = pool.map(self._decode, [self.paths[i] for i in numbers])
            for i, image in enumerate(decoded):
                pixels[i] = image
        return pixels

    def _decode(self, path: str) -> ImageArray:
        image = read_image(path).resize((self.resize, self.resize), resample=2)  # bilinear
        start = round((self.resize - self.crop) / 2)
        end = start + self.crop
        return np.asarray(image.crop((start, start, end, end))).transpose(2, 0, 1)


def read_image(path: str | Path) -> Image:
    """Read an image as RGB."""
    return _with_image(path, _rgb)


def image_size(path: str | Path) -> tuple[int, int]:
    """The width and the height in the header of an image; nothing is decoded."""
    return _with_image(path, lambda image: image.size)


def _with_image(path: str | Path, use: Callable[[Image], Used]) -> Used:
    image_module = require("PIL.Image", "data")
    limit = image_module.MAX_IMAGE_PIXELS
    # Pillow only warns between its limit and twice that; here both are refused before anything is decoded.
    bombs = (image_module.DecompressionBombError, image_module.DecompressionBombWarning)
    try:
        with image_module.open(path) as image:
            if limit is not None and image.width * image.height > limit:
                raise image_module.DecompressionBombError(f"{image.width} x {image.height}")
            return use(image)
    except bombs as error:
        raise InputError(f"expected an image of at most {limit} pixels, got {path} ({error})") from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise InputError(f"expected a readable image, got {path} ({error})") from error


def _rgb(image: Image) -> Image:
    # A palette with an alpha value for each colour turns into RGB by way of RGBA only.
    return (image.convert("RGBA") if "transparency" in image.info else image).convert("RGB")


def is_image(path: str | Path) -> bool:
    """Whether a file is named like an image.

    >>> is_image("frame_0001.JPG"), is_image("Thumbs.db")
    (True, False)
    """
    return Path(path).suffix.lower() in IMAGE_SUFFIXES


def check_exist(paths: Sequence[str], origin: Path) -> None:
    """Refuse paths without a file; each folder is listed once, which is quick on a network disk too."""
    names: dict[str, set[str]] = {}
    missing = [path for path in paths if basename(path) not in _names_in(dirname(path), names)]
    if missing:
        raise InputError(
            f"expected the {len(paths)} images named in {origin}, got {len(missing)} missing, the first {missing[0]}; "
            "where the paths begin with a folder of another machine, pass prefix=(old, new)"
        )


def _names_in(folder: str, known: dict[str, set[str]]) -> set[str]:
    if folder not in known:
        known[folder] = set(listdir(folder)) if isdir(folder) else set()
    return known[folder]
