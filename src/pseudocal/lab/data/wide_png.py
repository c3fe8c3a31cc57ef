"""PNG files of 16-bit colour, of which Pillow keeps the upper 8 bits only.

The class of a pixel is in the lower ones.

SYNTHIA's masks are such files: the first channel is the class, the second the instance. A file may
come from anyone, so its size is limited before anything is decompressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
WIDE_RGB = (16, 2, 0, 0, 0)  # bits, colour type, compression, filters, no interlacing
PIXEL_BYTES = 6
MAX_PIXELS = 2**26  # as much as Pillow decodes without a warning, or a little less


def is_wide(path: Path) -> bool:
    """Whether a file is a PNG of 16-bit colour, by its header."""
    with path.open("rb") as file:
        return file.read(8) == SIGNATURE and file.read(21)[16:18] == bytes(WIDE_RGB[:2])


def first_channel(path: Path) -> NDArray[np.uint16]:
    """Read the first channel of each pixel, `(height, width)`.

    Args:
        path: a PNG file of 16-bit colour without interlacing.

    """
    parts = list(_chunks(path))
    kind, head = parts[0] if parts else (b"", b"")
    if kind != b"IHDR" or len(head) != 13:
        raise InputError(f"expected a PNG file, got {path} without a header")
    width, height, *form = struct.unpack(">IIBBBBB", head)
    if tuple(form) != WIDE_RGB:
        raise InputError(
            f"expected a PNG of 16-bit colour without interlacing, got {path} with {form}"
        )
    if not 0 < width * height <= MAX_PIXELS:
        raise InputError(
            f"expected at most {MAX_PIXELS:,} pixels, got {width} x {height} in {path}"
        )
    size = height * (1 + PIXEL_BYTES * width)
    lines = np.frombuffer(
        _inflated([data for kind, data in parts if kind == b"IDAT"], size, path), np.uint8
    )
    lines = lines.reshape(height, 1 + PIXEL_BYTES * width)
    filters = lines[:, 0]
    pixels = lines[:, 1:].reshape(height, width, PIXEL_BYTES)
    if filters.max() > 4:
        raise InputError(f"expected filters from 0 to 4, got {filters.max()} in {path}")
    high, low = np.moveaxis(unfiltered(pixels[..., :2], filters), -1, 0)
    return np.asarray((high.astype(np.uint16) << 8) | low)


def unfiltered(pixels: NDArray[np.uint8], filters: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo the filters of a PNG.

    Each subtracts a prediction from the left, upper and upper left neighbour.

    A byte depends on the same byte of those neighbours only, so a diagonal is computed at a time.

    >>> pixels = np.array([[[3], [1]], [[1], [1]]], np.uint8)
    >>> left_then_upper = np.array([1, 2], np.uint8)
    >>> unfiltered(pixels, left_then_upper)[..., 0].tolist()
    [[3, 4], [4, 5]]

    Args:
        pixels: `(height, width, bytes)`, as they are filtered.
        filters: `(height,)`, the filter of each row: 0 none, 1 left, 2 upper, 3 their mean, 4
            Paeth's.

    """
    height, width, count = pixels.shape
    found = np.zeros((height + 1, width + 1, count), np.int16)  # with zeros above and to the left
    for diagonal in range(height + width - 1):
        rows = np.arange(max(0, diagonal - width + 1), min(diagonal + 1, height))
        columns = diagonal - rows
        left = found[rows + 1, columns]
        upper = found[rows, columns + 1]
        corner = found[rows, columns]
        guess = left + upper - corner
        off = [abs(guess - each) for each in (left, upper, corner)]
        paeth = np.where(
            (off[0] <= off[1]) & (off[0] <= off[2]), left, np.where(off[1] <= off[2], upper, corner)
        )
        predictions = (np.zeros_like(left), left, upper, (left + upper) // 2, paeth)
        found[rows + 1, columns + 1] = (
            pixels[rows, columns] + np.choose(filters[rows, None], predictions)
        ) % 256
    return found[1:, 1:].astype(np.uint8)


def _chunks(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and the content of each part of the file up to its end mark.

    A damaged part is refused.
    """
    with path.open("rb") as file:
        if file.read(8) != SIGNATURE:
            raise InputError(f"expected a PNG file, got {path}")
        while len(start := file.read(8)) == 8:
            length, kind = struct.unpack(">I4s", start)
            data = file.read(length) if length < 2**31 else b""
            if len(data) != length or file.read(4) != struct.pack(">I", zlib.crc32(kind + data)):
                raise InputError(
                    f"expected a whole PNG file, got {path} with a damaged part {kind!r}"
                )
            if kind == b"IEND":
                return
            yield kind, data


def _inflated(parts: list[bytes], size: int, path: Path) -> bytes:
    inflate = zlib.decompressobj()
    try:
        found = inflate.decompress(b"".join(parts), size + 1)
    except zlib.error as error:
        raise InputError(f"expected compressed pixels, got {path}: {error}") from error
    if len(found) != size:
        raise InputError(
            f"expected {size:,} bytes of pixels, got {'more' if len(found) > size else 'fewer'} in "
            f"{path}"
        )
    return found
