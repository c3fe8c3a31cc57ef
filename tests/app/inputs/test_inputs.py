"""Inputs: reading ahead, images, what is settled and what assumed."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.app.inputs.ground_truth import read_ground_truth
from pseudocal.app.inputs.images import decode_image
from pseudocal.app.inputs.preprocessing import (
    Preprocessing,
    preprocessing_for,
    preprocessing_of_second,
)
from pseudocal.app.inputs.sets import ArraySet, open_images, read_batches
from pseudocal.app.inputs.tables import chosen_columns, read_columns, read_table
from pseudocal.batches import unread_batches
from pseudocal.extras import MissingExtraError
from pseudocal.skipped import Skipped


class Slow:
    """Inputs that take a while to read; every seventh cannot be."""

    def __init__(self, n: int, seconds: float = 0.0, bad: bool = False) -> None:
        self.n, self.seconds, self.bad = n, seconds, bad
        self.read_at: list[float] = []

    def __len__(self) -> int:
        return self.n

    def name(self, i: int) -> str:
        return f"input {i}"

    def read(self, i: int):
        time.sleep(self.seconds)
        self.read_at.append(i)
        if self.bad and i % 7 == 0:
            raise OSError("broken")
        return np.full(2, i)

    def image_file(self, i: int):
        return None


def batches(inputs, order=None, **settings):
    order = np.arange(len(inputs)) if order is None else order
    unread = unread_batches(order, settings.pop("batch_size", 8))
    usual: dict[str, Any] = {"workers": 2, "unreadable": Skipped(len(inputs))}
    return read_batches(inputs, unread, **(usual | settings))


@pytest.mark.parametrize("batch_size", [1, 2, 8, 30, 100])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_row_once_and_in_order(batch_size, workers):
    order = np.random.default_rng(0).permutation(30)
    read = list(batches(Slow(30), order, batch_size=batch_size, workers=workers))
    np.testing.assert_array_equal(np.concatenate([batch.rows for batch in read]), order)
    np.testing.assert_array_equal(np.concatenate([batch.inputs for batch in read])[:, 0], order)


def test_bad_rows_are_skipped_and_named():
    unreadable = Skipped(30, most=0.2)
    rows = np.concatenate(
        [batch.rows for batch in batches(Slow(30, bad=True), unreadable=unreadable)]
    )
    assert sorted(set(range(30)) - set(rows.tolist())) == [0, 7, 14, 21, 28]
    assert unreadable.why["input 7"] == "broken"


def test_reading_runs_beside_whoever_uses_the_batches():
    inputs = Slow(64, seconds=0.01)
    stream = batches(inputs, workers=2)
    first = next(stream).rows
    deadline = (
        time.monotonic() + 30
    )  # while nobody asks for more, the next batch is read all the same
    while len(inputs.read_at) < 2 * len(first) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(inputs.read_at) >= 2 * len(first)
    stream.close()


def test_no_more_is_read_than_two_batches_ahead():
    inputs = Slow(1000)
    stream = batches(inputs)
    next(stream)
    stream.close()
    assert len(inputs.read_at) <= 4 * 8


def test_images_of_any_mode_become_three_channels(tmp_path):
    from PIL import Image

    for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16"):
        Image.new(mode, (20, 10)).save(
            tmp_path / f"{mode.replace(';', '')}.{'jpg' if mode == 'CMYK' else 'png'}"
        )
    inputs = open_images(str(tmp_path), Preprocessing((8, 8)))
    assert {inputs.read(i).shape for i in range(len(inputs))} == {(3, 8, 8)}


def test_layout_size_and_normalisation(tmp_path):
    from PIL import Image

    Image.new("RGB", (40, 20), (255, 0, 51)).save(tmp_path / "a.png")
    image = decode_image(tmp_path / "a.png")
    mean = (0.5,)
    std = (0.5, 0.25, 0.2)
    first = Preprocessing((4, 6), mean=mean, std=std).array_of(image)
    np.testing.assert_allclose(first[:, 0, 0], [1, -2, -1.5], rtol=1e-5)
    last = Preprocessing((4, 6), mean=mean, std=std, layout="nhwc").array_of(image)
    np.testing.assert_array_equal(last, first.transpose(1, 2, 0))


def test_the_user_comes_first_then_the_preprocessor_then_the_shape():
    known = {"size": (32, 32), "mean": (0.1,)}
    preprocessing, assumed = preprocessing_for((3, 16, 16), known, {"mean": (0.2,)})
    assert preprocessing.size == (32, 32)
    assert preprocessing.mean == (0.2,)
    assert assumed == ["std", "resize"]


@pytest.mark.parametrize(
    ("shape", "given", "setting"),
    [
        ((None, None, None), {"size": (8, 8)}, "layout"),
        ((3, 3, 3), {}, "layout"),
        ((3, None, None), {}, "size"),
        (None, {}, "size"),
        ((30,), {}, None),
        ((3, 8, 8), {"mean": (1.0, 2.0)}, "mean"),
        ((3, 8, 8), {"mean": (127.0,), "std": (64.0,)}, "mean"),  # of pixels from 0 to 255
        ((3, 8, 64), {"layout": "nhwc"}, "layout"),
        ((3, 8, 8), {"std": (0.0,)}, "std"),
        ((3, 8, 8), {"std": (1e-320,)}, "std"),
        ((3, 8, 8), {"size": (0, 8)}, "size"),
        ((3, 8, 8), {"crop_pct": 1.5}, "crop_pct"),
    ],
)
def test_an_error_names_the_setting_that_is_missing_or_wrong(shape, given, setting):
    with pytest.raises(InputError) as refused:
        preprocessing_for(shape, {}, given)
    assert refused.value.setting == setting


def test_pixels_that_are_not_scaled_have_such_a_mean():
    made, _ = preprocessing_for((3, 8, 8), {}, {"mean": (127.0,), "std": (64.0,), "scale": 1.0})
    assert made.mean == (127.0,)


@pytest.mark.parametrize(
    "given", [{"mean": (127.0,)}, {"mean": (-1.0,)}, {"std": (64.0,)}, {"std": (-1.0,)}]
)
def test_mean_and_std_of_scaled_pixels_are_from_0_to_1(given):
    with pytest.raises(InputError, match="divide the mean and the std by 255") as refused:
        preprocessing_for((3, 8, 8), {}, given)
    assert refused.value.setting == next(iter(given))


def test_a_mean_of_three_colours_is_not_that_of_a_grey_second_opinion():
    first = Preprocessing((8, 8), mean=(0.485, 0.456, 0.406), std=(0.25,))
    said = "the second opinion takes images of 1 channel: expected mean as 1 number, got 3"
    with pytest.raises(InputError, match=said) as refused:
        preprocessing_of_second(first, (1, 8, 8), {}, {})
    assert refused.value.setting == "second_preprocessing"
    made = preprocessing_of_second(first, (1, 8, 8), {}, {"mean": (0.5,)})
    assert (made.mean, made.channels) == ((0.5,), 1)


def test_a_second_opinion_gets_no_size_that_it_does_not_take():
    first = Preprocessing((224, 224))
    assert preprocessing_of_second(first, (3, None, None), {}, {"size": (224, 224)}).size == (
        224,
        224,
    )
    with pytest.raises(InputError, match=r"takes images of shape \(3, 260, 260\), .* \(3, 224"):
        preprocessing_of_second(first, (3, 260, 260), {}, {"size": (224, 224)})


def test_a_second_model_is_cropped_where_the_first_is_stretched():
    stretched = Preprocessing((224, 224), resize="stretch")
    second = preprocessing_of_second(stretched, None, {}, {"crop_pct": 0.875})
    assert (second.resize, second.edge) == ("crop", 256)


def test_whole_numbers_become_floats_since_rows_are_mixed():
    assert ArraySet(np.zeros((2, 3), dtype=np.uint8), "uint8").read(0).dtype == np.float32
    assert ArraySet(np.zeros((2, 3), dtype=np.float64), "float16").read(0).dtype == np.float16


@pytest.mark.parametrize(
    ("size", "wanted"), [((64, 96), (64, 96)), ((128, 192), (64, 96)), ((64, 96), (32, 96))]
)
def test_a_image_is_cut_no_more_than_it_must_be(tmp_path, size, wanted):
    """One that has the size is left as it is, a larger one of the same shape is made smaller, else one side is cut."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = decode_image(tmp_path / "a.png")
    found = Preprocessing(wanted, layout="nhwc", scale=1.0).array_of(image)
    expected = Image.fromarray(pixels)
    if size[1] != wanted[1]:
        expected = expected.resize(wanted[::-1], Image.Resampling.BILINEAR)
    top = (expected.height - wanted[0]) // 2
    np.testing.assert_array_equal(
        found, np.asarray(expected, dtype=np.float32)[top : top + wanted[0]]
    )


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (np.zeros((3, 2)), "one label for each input"),
        (np.array([0.0, 1.5, 1.0]), "whole class numbers .* got 1.5"),
    ],
)
def test_labels_that_are_none(tmp_path, labels, problem):
    np.save(tmp_path / "y.npy", labels)
    with pytest.raises(InputError, match=problem):
        read_ground_truth(tmp_path / "y.npy", ["a", "b", "c"])


def test_labels_as_whole_floats(tmp_path):
    np.save(tmp_path / "y.npy", np.array([0.0, 2.0]))
    np.testing.assert_array_equal(read_ground_truth(tmp_path / "y.npy", ["a", "b"]), [0, 2])


def test_a_csv_is_read_without_pyarrow(tmp_path, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    path = tmp_path / "x.csv"
    path.write_bytes(
        b'\xef\xbb\xbfid,size, label,review\r\n1,0.5,cat,"Two\nlines, ""really"""\r\n\r\n2,,dog,\r\n'
    )
    columns = read_columns(path)
    assert list(columns) == ["id", "size", "label", "review"]
    assert [column.dtype.kind for column in columns.values()] == ["i", "f", "O", "O"]
    assert columns["review"].tolist() == ['Two\nlines, "really"', ""]
    np.testing.assert_array_equal(columns["size"], [0.5, np.nan])
    np.testing.assert_array_equal(read_ground_truth(path, ["a", "b"], ["dog", "cat"]), [1, 0])
    with pytest.raises(
        InputError, match=r"expected finite numbers, got nan in row 1, column 'size'"
    ):
        read_table(path, ["id", "size"])
    (tmp_path / "x.parquet").touch()
    with pytest.raises(MissingExtraError, match=r"pip install 'pseudocal\[parquet\]'"):
        read_columns(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", "1 cells in line 3, 2 in the first line"),
        ('a,b\n1,"2\n', "unexpected end of data"),
        ("", "an empty file"),
        ("a;b\n0,5;1\n", "semicolons between the cells"),
    ],
)
def test_a_damaged_csv_is_refused(tmp_path, content, message):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_columns(tmp_path / "x.csv")


@pytest.mark.parametrize(("wanted", "hint"), [("f_0", True), ("g_0", False)])
def test_columns_whose_spaces_lightgbm_replaced_are_explained(tmp_path, wanted, hint):
    (tmp_path / "rows.csv").write_text("f 0,f 1\n1,2\n")
    with pytest.raises(InputError, match=f"has no columns {wanted}, only f 0, f 1") as error:
        chosen_columns(tmp_path / "rows.csv", [wanted])
    assert ("; LightGBM replaced the spaces" in str(error.value)) == hint
