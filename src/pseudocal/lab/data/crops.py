"""Image files for training.

Decoded once, cropped at random for a step and at the centre for everything else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pseudocal.files import allocate_array, replacing
from pseudocal.lab.data.cache import cache_folder
from pseudocal.lab.data.domains import ImageArray, Indexable, Selection, Selector
from pseudocal.lab.data.images import ImageFiles, decoders

HAS_SUM = np.uint64(2**32)  # above a checksum of 32 bits: zero means that a row was never written


class Squares:
    """Whole squares before the crop, decoded once.

    They are kept in the cache folder, where processes and runs share them.

    A row counts only if its checksum fits, so a process that was killed leaves no half of an image
    behind.

    Args:
        files: the image files; their crop is not used.
        folder: the folder of the decoded images; None to decode them each time.

    """

    def __init__(self, files: ImageFiles, folder: Path | None) -> None:
        self.files = replace(files, crop=files.resize)
        self._seen = np.zeros(len(files), np.bool_)  # rows whose checksum this process has compared
        self._pixels: NDArray[Any] | None = None
        self._sums: NDArray[Any] | None = None
        if folder is not None:
            self._pixels = _mapped(folder / "pixels.npy", self.files.shape, np.uint8)
            self._sums = _mapped(folder / "sums.npy", (len(files),), np.uint64)

    def read(self, numbers: NDArray[np.intp]) -> list[ImageArray]:
        """Read or decode images `(3, side, side)`, several at a time."""
        return list(decoders().map(self._one, numbers.tolist()))

    def _one(self, number: int) -> ImageArray:
        if self._pixels is None or self._sums is None:
            return self.files[number]
        row: ImageArray = self._pixels[number]
        if not self._seen[number]:
            if self._sums[number] != _checksum(row):
                row[:] = self.files[number]
                self._sums[number] = _checksum(row)
            self._seen[number] = True
        return row


@dataclass(frozen=True, eq=False)
class Crops:
    """Some of the squares, cropped: like an array of their centres, and at random on request.

    Attributes:
        squares: the images before the crop.
        chosen: `(n,)`, the numbers of the images.
        crop: the side of what is kept, in pixels.

    """

    squares: Squares
    chosen: NDArray[np.intp]
    crop: int

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape that an array of all crops would have."""
        return (len(self), 3, self.crop, self.crop)

    def __getitem__(self, chosen: Selector, /) -> ImageArray:
        numbers = np.asarray(self.chosen[chosen])
        start = round((self.squares.files.resize - self.crop) / 2)
        centres = [
            _cut(square, start, start, self.crop)
            for square in self.squares.read(np.atleast_1d(numbers))
        ]
        return np.stack(centres) if numbers.ndim else centres[0]

    def random(self, numbers: NDArray[np.intp], rng: np.random.Generator) -> ImageArray:
        """Crop each image at a random place, and mirror half of them.

        Args:
            numbers: the images, counted among the chosen ones.
            rng: where the places come from.

        """
        margin = self.squares.files.resize - self.crop
        tops, lefts = rng.integers(0, margin + 1, (2, len(numbers)))
        mirrored = rng.random(len(numbers)) < 0.5
        cut = [
            _cut(square, top, left, self.crop)[..., :: -1 if mirror else 1]
            for square, top, left, mirror in zip(
                self.squares.read(self.chosen[numbers]), tops, lefts, mirrored, strict=True
            )
        ]
        return np.stack(cut)


def crops_of(inputs: Indexable) -> Crops | None:
    """Return image files, or some of them, as crops.

    None for images that have no margin to crop, such as arrays.

    Args:
        inputs: the inputs of a domain.

    """
    if isinstance(inputs, Crops):
        return inputs
    if isinstance(inputs, ImageFiles):
        return Crops(_squares(inputs), np.arange(len(inputs)), inputs.crop)
    if isinstance(inputs, Selection):
        whole = crops_of(inputs.inputs)
        return None if whole is None else replace(whole, chosen=whole.chosen[inputs.chosen])
    return None


@lru_cache(maxsize=8)
def _squares(files: ImageFiles) -> Squares:
    """Keep decoded images on disk if they take at most half of the free space there."""
    total = hashlib.sha256(f"{files.resize}\n".encode())
    for path in files.paths:
        found = os.stat(path)
        total.update(
            f"{path} {found.st_size} {found.st_mtime_ns}\n".encode("utf-8", "surrogateescape")
        )
    folder = cache_folder() / "decoded" / total.hexdigest()[:32]
    size = len(files) * 3 * files.resize**2
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fits = (folder / "pixels.npy").exists() or 2 * size <= shutil.disk_usage(folder).free
        return Squares(files, folder if fits else None)
    except OSError:  # a cache that cannot be written only costs time
        return Squares(files, None)


def _mapped(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Map a file into memory, of zeros at first.

    Its room is taken at once, since a full disk would end the process.
    """
    if not path.exists():
        with replacing(path) as aside:
            allocate_array(aside, shape, dtype)
    mapped: NDArray[Any] = np.load(path, mmap_mode="r+", allow_pickle=False)
    if mapped.shape != shape or mapped.dtype != dtype:
        raise OSError(f"expected an array of shape {shape}, got {mapped.shape} in {path}")
    return mapped


def _checksum(row: ImageArray) -> np.uint64:
    return np.uint64(zlib.crc32(np.ascontiguousarray(row).data)) | HAS_SUM


def _cut(square: ImageArray, top: int, left: int, side: int) -> ImageArray:
    return square[:, top : top + side, left : left + side]
