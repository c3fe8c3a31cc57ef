"""Image files, decoded when rows are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import listdir
from os.path import basename, dirname, isdir
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.pictures import PICTURE_SUFFIXES, as_rgb, picture_size, read_picture
from pseudocal.arrays import InputError, cores

if TYPE_CHECKING:
    from PIL.Image import Image

    from pseudocal.lab.data.domain import Pixels, Rows


@dataclass(frozen=True)
class Images:
    """Image files as rows `(3, crop, crop)`: each squashed to `resize` x `resize`, then cut to its centre.

    The squash ignores the aspect ratio, as the papers' test transform does. With `crop` equal to `resize` nothing is
    cut: a training loop that crops at random starts from there.
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
        """What an array of all rows would have; so a calibrator shuffles and reads these as it would an array."""
        return (len(self), 3, self.crop, self.crop)

    def __getitem__(self, rows: Rows, /) -> Pixels:
        """Decode rows, several at a time: Pillow works outside Python's lock."""
        numbers: NDArray[np.intp] = np.arange(len(self))[rows]
        if numbers.ndim == 0:
            return self._decode(self.paths[int(numbers)])
        pixels = np.empty((len(numbers), 3, self.crop, self.crop), np.uint8)
        with ThreadPoolExecutor(cores()) as pool:
            decoded = pool.map(self._decode, [self.paths[i] for i in numbers])
            for row, image in enumerate(decoded):
                pixels[row] = image
        return pixels

    def _decode(self, path: str) -> Pixels:
        image = read_image(path).resize((self.resize, self.resize), resample=2)  # bilinear
        start = round((self.resize - self.crop) / 2)
        end = start + self.crop
        return np.asarray(image.crop((start, start, end, end))).transpose(2, 0, 1)


def read_image(path: str | Path) -> Image:
    """Open an image as RGB; what cannot be read is named."""
    return as_rgb(read_picture(Path(path)))


def image_size(path: str | Path) -> tuple[int, int]:
    """The width and the height of an upright image, by what its header declares."""
    return picture_size(Path(path))


def is_image(path: str | Path) -> bool:
    """Whether a file is named like an image.

    >>> is_image("frame_0001.JPG"), is_image("Thumbs.db")
    (True, False)
    """
    return Path(path).suffix.lower() in PICTURE_SUFFIXES


def check_exist(paths: Sequence[str], origin: Path) -> None:
    """Refuse paths without a file, naming the first; each folder is listed once, so a network disk does not mind."""
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
