"""Image files, decoded when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from os import listdir
from os.path import basename, dirname, isdir
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.images import IMAGE_SUFFIXES, as_rgb, decode_image, size_of_image
from pseudocal.arrays import InputError, cores

if TYPE_CHECKING:
    from PIL.Image import Image

    from pseudocal.lab.data.domains import ImageArray, Selector


@dataclass(frozen=True)
class ImageFiles:
    """Image files as arrays `(3, crop, crop)`.

    Each is resized to a square, then cropped to its centre.

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
        """The shape that an array of all images would have.

        So calibrators treat these like an array.
        """
        return (len(self), 3, self.crop, self.crop)

    def __getitem__(self, chosen: Selector, /) -> ImageArray:
        """Decode images in several threads: Pillow releases Python's lock."""
        numbers: NDArray[np.intp] = np.arange(len(self))[chosen]
        if numbers.ndim == 0:
            return self._decode(self.paths[int(numbers)])
        pixels = np.empty((len(numbers), 3, self.crop, self.crop), np.uint8)
        for i, image in enumerate(decoders().map(self._decode, [self.paths[i] for i in numbers])):
            pixels[i] = image
        return pixels

    def _decode(self, path: str) -> ImageArray:
        image = read_image(path).resize((self.resize, self.resize), resample=2)  # bilinear
        start = round((self.resize - self.crop) / 2)
        end = start + self.crop
        return np.asarray(image.crop((start, start, end, end))).transpose(2, 0, 1)


@lru_cache(maxsize=1)
def decoders() -> ThreadPoolExecutor:
    """Return the threads of this process that decode images, one for each core."""
    return ThreadPoolExecutor(cores(), "decoder")


def read_image(path: str | Path) -> Image:
    """Read an image as RGB, upright."""
    return as_rgb(decode_image(Path(path)))


def image_size(path: str | Path) -> tuple[int, int]:
    """The width and the height of the upright image, from its header."""
    return size_of_image(Path(path))


def is_image(path: str | Path) -> bool:
    """Whether a file is named like an image.

    >>> is_image("frame_0001.JPG"), is_image("Thumbs.db")
    (True, False)
    """
    return Path(path).suffix.lower() in IMAGE_SUFFIXES


def check_exist(paths: Sequence[str], origin: Path) -> None:
    """Refuse paths without a file.

    Each folder is listed once, which is quick on a network disk too.
    """
    names: dict[str, set[str]] = {}
    missing = [path for path in paths if basename(path) not in _names_in(dirname(path), names)]
    if missing:
        raise InputError(
            f"expected the {len(paths)} images named in {origin}, got {len(missing)} missing, the "
            f"first {missing[0]}; "
            "where the paths begin with a folder of another machine, pass prefix=(old, new)"
        )


def _names_in(folder: str, known: dict[str, set[str]]) -> set[str]:
    if folder not in known:
        known[folder] = set(listdir(folder)) if isdir(folder) else set()
    return known[folder]
