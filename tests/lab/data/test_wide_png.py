"""PNG files of 16-bit colour.

Written here with each filter, read back, and damaged in every way.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pseudocal.arrays import InputError
from pseudocal.lab.data import street_scenes, streets
from pseudocal.lab.data.wide_png import MAX_PIXELS, first_channel, is_wide


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def filtered(pixels: np.ndarray, kind: int) -> np.ndarray:
    """The bytes of all rows after a filter of PNG, written out from the standard's definition."""
    height, width, count = pixels.shape
    out = np.zeros_like(pixels)
    for r in range(height):
        for c in range(width):
            for b in range(count):
                left = int(pixels[r, c - 1, b]) if c else 0
                up = int(pixels[r - 1, c, b]) if r else 0
                corner = int(pixels[r - 1, c - 1, b]) if r and c else 0
                guess = left + up - corner
                paeth = min(
                    (left, up, corner), key=lambda each: abs(guess - each)
                )  # the first of equals
                out[r, c, b] = (
                    int(pixels[r, c, b]) - (0, left, up, (left + up) // 2, paeth)[kind]
                ) % 256
    return out


def wide_png(values: np.ndarray, kinds: list[int]) -> bytes:
    """A PNG of 16-bit colour, each row with its filter."""
    height, width, _ = values.shape
    pixels = values.astype(">u2").view(np.uint8).reshape(height, width, 6)
    by_kind = {kind: filtered(pixels, kind) for kind in set(kinds)}
    lines = b"".join(bytes([kind]) + by_kind[kind][row].tobytes() for row, kind in enumerate(kinds))
    head = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    body = zlib.compress(lines)
    cut = len(body) // 2
    parts = [
        chunk(b"IHDR", head),
        chunk(b"IDAT", body[:cut]),
        chunk(b"IDAT", body[cut:]),
        chunk(b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


VALUES = np.random.default_rng(0).integers(0, 2**16, (7, 9, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mask.png"


@pytest.mark.parametrize(
    "kinds", [[0] * 7, [1] * 7, [2] * 7, [3] * 7, [4] * 7, [4, 3, 2, 1, 0, 4, 3]]
)
def test_the_first_channel_comes_back_whatever_the_filter(path, kinds):
    path.write_bytes(wide_png(VALUES, kinds))
    np.testing.assert_array_equal(first_channel(path), VALUES[..., 0])
    assert is_wide(path)
    with Image.open(
        path
    ) as theirs:  # keeps the upper bytes: a check that the file is a PNG as others read it
        np.testing.assert_array_equal(np.asarray(theirs)[..., 0], VALUES[..., 0] >> 8)


def test_other_files_are_not_wide(path):
    Image.fromarray(np.zeros((2, 3, 3), np.uint8)).save(path)
    assert not is_wide(path)
    with pytest.raises(
        InputError, match=r"expected a PNG of 16-bit colour without interlacing, got .* with \[8, 2"
    ):
        first_channel(path)
    path.write_bytes(b"")
    assert not is_wide(path)


def test_what_is_damaged_is_refused(path):
    whole = wide_png(VALUES, [4] * 7)
    for content in (
        whole[:20],
        whole[:200],
        whole[:100] + b"x" + whole[101:],
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match="expected"):
            first_channel(path)


@pytest.mark.parametrize(
    ("width", "said"), [(2**31 - 1, f"at most {MAX_PIXELS:,} pixels"), (9000, "bytes of pixels")]
)
def test_a_file_that_promises_or_holds_too_much_is_refused(path, width, said):
    head = struct.pack(">IIBBBBB", width, 7, 16, 2, 0, 0, 0)
    bomb = chunk(b"IDAT", zlib.compress(bytes(10**6)))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + bomb + chunk(b"IEND", b""))
    with pytest.raises(InputError, match=said):
        first_channel(path)


@pytest.mark.parametrize("size", [None, (4, 6)])
def test_the_masks_of_synthia_as_downloaded(tmp_path, cache, monkeypatch, size):
    numbers = np.array([[3, 4, 0], [10, 11, 14]])
    mask = np.stack([numbers, numbers * 300, numbers * 0], axis=-1)  # class, instance, nothing
    for folder, content in (("GT/LABELS", wide_png(mask, [4, 4])), ("RGB", None)):
        (tmp_path / folder).mkdir(parents=True)
        file = tmp_path / folder / "0000000.png"
        file.write_bytes(content) if content else Image.fromarray(
            np.zeros((2, 3, 3), np.uint8)
        ).save(file)
    found = streets("synthia", tmp_path, size=size)
    step = 1 if size is None else 2
    np.testing.assert_array_equal(found.masks[0][::step, ::step], [[0, 1, 255], [11, 18, 255]])
    read_once = found.masks[0]
    with monkeypatch.context() as patch:
        patch.setattr(street_scenes, "first_channel", None)  # it is not decoded again
        np.testing.assert_array_equal(found.masks[0], read_once)
    for kept in (cache / "masks").iterdir():
        kept.write_bytes(b"damaged")
    np.testing.assert_array_equal(found.masks[0], read_once)
