"""Images say what they say: every kind of pixel against known values, and which way is up."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.app.inputs.images import as_rgb, decode_image, mask_size, read_mask, size_of_image
from pseudocal.app.inputs.preprocessing import Preprocessing
from pseudocal.lab.data.images import read_image
from pseudocal.lab.data.street_scenes import MaskFiles

Image = pytest.importorskip("PIL.Image")

ROW = np.array([[0, 100, 255]], dtype=np.uint8)


def values(path, channels=3):
    """An image as a model of its own size sees it, from 0 to 255, channels last."""
    width, height = size_of_image(path)
    preprocessing = Preprocessing(
        (height, width), channels=channels, layout="nhwc", scale=1.0, resize="stretch"
    )
    return preprocessing.array_of(decode_image(path))


def saved(image, path, **settings):
    image.save(path, **settings)
    return path


def grey(rows):
    return np.repeat(np.asarray(rows, dtype=np.float32)[:, :, None], 3, axis=2)


def test_8_bit_grey_and_colour_are_read_as_they_are(tmp_path):
    path = saved(Image.fromarray(ROW), tmp_path / "grey.png")
    np.testing.assert_array_equal(values(path), grey(ROW))
    np.testing.assert_array_equal(values(path, channels=1), ROW[:, :, None])
    colours = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    path = saved(Image.fromarray(colours), tmp_path / "colour.png")
    np.testing.assert_array_equal(values(path), colours)
    luma = np.asarray(Image.fromarray(colours).convert("L"))
    np.testing.assert_array_equal(values(path, channels=1)[:, :, 0], luma)


def test_one_bit_is_black_and_white(tmp_path):
    path = saved(
        Image.fromarray(ROW).point(lambda v: 255 * (v > 50)).convert("1"), tmp_path / "a.png"
    )
    np.testing.assert_array_equal(values(path), grey([[0, 255, 255]]))


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_16_bit_grey_keeps_its_range_and_its_fractions(tmp_path, name):
    path = saved(
        Image.fromarray(np.array([[0, 30000, 30001, 65535]], dtype=np.uint16)), tmp_path / name
    )
    np.testing.assert_allclose(values(path), grey([[0, 30000 / 257, 30001 / 257, 255]]), rtol=1e-6)
    np.testing.assert_allclose(values(path, channels=1)[0, 1], 116.7315, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(read_image(path))[0, :, 0], [0, 117, 117, 255])


def test_16_bit_colour_gives_its_upper_bits(tmp_path):
    cv = np.array([[[0x1234, 0xFFFF, 0x00FF]]], dtype=">u2")
    (tmp_path / "a.ppm").write_bytes(b"P6 1 1 65535\n" + cv.tobytes())
    np.testing.assert_allclose(values(tmp_path / "a.ppm"), [[[0x12, 0xFF, 0]]], atol=1)


def test_floats_from_0_to_1_are_black_to_white(tmp_path):
    path = saved(Image.fromarray(np.array([[0, 0.25, 1]], dtype=np.float32)), tmp_path / "a.tif")
    np.testing.assert_allclose(values(path), grey([[0, 63.75, 255]]))
    assert as_rgb(decode_image(path)).getpixel((1, 0)) == (64, 64, 64)


@pytest.mark.parametrize("bad", [[0, 3071.5], [-0.1, 1], [0, np.nan]])
def test_other_floats_are_refused_by_name(tmp_path, bad):
    path = saved(Image.fromarray(np.array([bad], dtype=np.float32)), tmp_path / "ct.tif")
    with pytest.raises(
        InputError,
        match=r"ct.tif has pixels from .*: scale them from 0 \(black\) to 1",
    ):
        decode_image(path)


def test_32_bit_whole_numbers_are_refused_by_name(tmp_path):
    path = saved(Image.fromarray(np.array([[0, 70000]], dtype=np.int32)), tmp_path / "deep.tif")
    with pytest.raises(
        InputError,
        match=r"deep.tif has 'I' pixels: save 8-bit, 16-bit or floating-point pixels",
    ):
        decode_image(path)


def test_lab_colour_is_refused_by_name(tmp_path):
    path = saved(Image.new("LAB", (2, 2)), tmp_path / "lab.tif")
    with pytest.raises(InputError, match=r"lab.tif has 'LAB' pixels"):
        decode_image(path)


def test_several_pages_are_refused_and_of_an_animation_the_first_is_read(tmp_path):
    first, second = (Image.new("L", (2, 2), value) for value in (10, 200))
    path = saved(first, tmp_path / "stack.tif", save_all=True, append_images=[second])
    with pytest.raises(InputError, match=r"stack.tif has 2 pages"):
        decode_image(path)
    path = saved(first, tmp_path / "moving.gif", save_all=True, append_images=[second])
    np.testing.assert_array_equal(values(path), grey(np.full((2, 2), 10)))


def test_a_palette_gives_its_colours(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([1, 2, 3, 200, 100, 50])
    image.putdata([1, 0])
    path = saved(image, tmp_path / "a.png")
    np.testing.assert_array_equal(values(path), [[[200, 100, 50], [1, 2, 3]]])
    path = saved(image, tmp_path / "see-through.png", transparency=bytes([0, 128]))
    np.testing.assert_array_equal(values(path), [[[200, 100, 50], [1, 2, 3]]])


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_of_transparency_the_colour_below_counts(tmp_path, mode):
    pixels: list[tuple[int, ...]] = (
        [(200, 100, 50, 0), (1, 2, 3, 255)] if mode == "RGBA" else [(77, 0), (5, 255)]
    )
    image = Image.new(mode, (2, 1))
    image.putdata(pixels)
    expected = [[p[:3] if mode == "RGBA" else (p[0],) * 3 for p in pixels]]
    np.testing.assert_array_equal(values(saved(image, tmp_path / "a.png")), expected)


def test_cmyk_is_ink(tmp_path):
    image = Image.new("CMYK", (3, 1))
    image.putdata([(0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 255)])  # paper, cyan, black
    np.testing.assert_array_equal(
        values(saved(image, tmp_path / "a.tif")), [[[255] * 3, [0, 255, 255], [0] * 3]]
    )


UPRIGHT = np.array([[10, 20, 30], [40, 50, 60]], dtype=np.uint8)
STORED = {  # what a camera writes for each value of the tag, by the definition of EXIF
    1: UPRIGHT,
    2: UPRIGHT[:, ::-1],
    3: UPRIGHT[::-1, ::-1],
    4: UPRIGHT[::-1],
    5: UPRIGHT.T,
    6: np.rot90(UPRIGHT),
    7: UPRIGHT[::-1, ::-1].T,
    8: np.rot90(UPRIGHT, -1),
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp"])
def test_exif_rotation_is_applied(tmp_path, orientation, name):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(np.ascontiguousarray(STORED[orientation]))
    path = saved(
        image, tmp_path / name, exif=exif, **({"lossless": True} if name == "a.webp" else {})
    )
    assert size_of_image(path) == (3, 2)
    np.testing.assert_array_equal(values(path), grey(UPRIGHT))
    np.testing.assert_array_equal(np.asarray(read_image(path))[:, :, 0], UPRIGHT)
    if name == "a.png":
        np.testing.assert_array_equal(read_mask(path), UPRIGHT)


def test_exif_behind_the_pixels_of_a_png_is_found(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(Image.fromarray(np.ascontiguousarray(STORED[6])), tmp_path / "a.png", exif=exif)
    content = path.read_bytes()
    start = content.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(content[start : start + 4])
    path.write_bytes(
        content[:start] + content[end:-12] + content[start:end] + content[-12:]
    )  # the last chunk is IEND
    assert size_of_image(path) == (3, 2)
    np.testing.assert_array_equal(values(path), grey(UPRIGHT))


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x63\0\0", b"Exif\0\0rubbish"]
)
def test_an_orientation_that_is_none_turns_nothing(tmp_path, exif):
    path = saved(Image.fromarray(UPRIGHT), tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(values(path), grey(UPRIGHT))


@pytest.mark.parametrize(("dtype", "name"), [(np.uint8, "a.png"), (np.uint16, "b.png")])
def test_masks_are_numbers(tmp_path, dtype, name):
    numbers = np.array([[0, 1, 18], [255, 2, 3]], dtype=dtype)
    path = saved(Image.fromarray(numbers), tmp_path / name)
    assert mask_size(path) == (3, 2)
    np.testing.assert_array_equal(read_mask(path), numbers)
    np.testing.assert_array_equal(
        read_mask(path, (4, 6)), numbers.repeat(2, axis=0).repeat(2, axis=1)
    )
    np.testing.assert_array_equal(MaskFiles([path])[0], numbers)


def test_a_mask_with_a_palette_is_its_indices(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([9, 9, 9, 200, 100, 50])
    image.putdata([1, 0])
    np.testing.assert_array_equal(read_mask(saved(image, tmp_path / "a.png")), [[1, 0]])


def test_a_mask_in_colour_is_refused(tmp_path):
    path = saved(Image.new("RGB", (2, 2)), tmp_path / "a.png")
    for read in (read_mask, mask_size):
        with pytest.raises(
            InputError,
            match=r"the mask .*a.png has RGB pixels: save one integer per pixel",
        ):
            read(path)


def test_what_is_no_image_is_named(tmp_path):
    (tmp_path / "text.png").write_text("hello")
    whole = saved(
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)),
        tmp_path / "a.png",
    )
    (tmp_path / "half.png").write_bytes(whole.read_bytes()[:1000])
    os.mkfifo(tmp_path / "pipe.png")
    for name, why in (
        ("text.png", "is not an image in a known format"),
        ("half.png", "truncated"),
        ("none.png", "no such file"),
    ):
        with pytest.raises(InputError, match=rf"an image.*{name}.*{why}|{name} {why}"):
            decode_image(tmp_path / name)
    with pytest.raises(InputError, match=r"expected an image, got .*pipe.png: a pipe or a device"):
        decode_image(tmp_path / "pipe.png")
    with pytest.raises(InputError, match="its content is not an image"):
        decode_image(io.BytesIO(b"hello"))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # as in the command
@pytest.mark.parametrize("times", [1.5, 3])
def test_a_image_that_declares_too_many_pixels_is_not_decoded(tmp_path, monkeypatch, times):
    path = saved(Image.new("L", (40, 30)), tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(1200 / times))
    with pytest.raises(InputError, match=r"bomb.png has more than [\d,]+ pixels"):
        decode_image(path)


def test_a_small_image_says_the_same_as_the_whole(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(
        Image.new("RGB", (400, 200), (200, 100, 50)), tmp_path / "a.jpg", exif=exif, quality=95
    )
    small, whole = decode_image(path, least=50), decode_image(path)
    assert whole.size == (200, 400)
    assert 50 <= small.height < 400
    np.testing.assert_allclose(small.getpixel((5, 5)), whole.getpixel((5, 5)), atol=2)
