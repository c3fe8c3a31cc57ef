"""Street scenes.

Every number of the label maps, and the three data sets as they lie on disk, written small.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pseudocal.arrays import InputError
from pseudocal.lab.data import Scenes, label_map, street_names, streets, unlabelled_streets
from pseudocal.lab.data.street_scenes import lookup

# as published: Cityscapes' own table, and the maps that adaptation code uses for SYNTHIA
CITYSCAPES_19 = "7:0 8:1 11:2 12:3 13:4 17:5 19:6 20:7 21:8 22:9 23:10 24:11 25:12 26:13 27:14 28:15 31:16 32:17 33:18"
CITYSCAPES_16 = (
    "7:0 8:1 11:2 12:3 13:4 17:5 19:6 20:7 21:8 23:9 24:10 25:11 26:12 28:13 32:14 33:15"
)
SYNTHIA_19 = (
    "3:0 4:1 2:2 21:3 5:4 7:5 15:6 9:7 6:8 16:9 1:10 10:11 17:12 8:13 18:14 19:15 20:16 12:17 11:18"
)
SYNTHIA_16 = "3:0 4:1 2:2 21:3 5:4 7:5 15:6 9:7 6:8 1:9 10:10 17:11 8:12 19:13 12:14 11:15"


def pairs(text: str) -> dict[int, int]:
    return {int(a): int(b) for a, b in (item.split(":") for item in text.split())}


@pytest.mark.parametrize(
    ("dataset", "classes", "published"),
    [
        ("cityscapes", 19, CITYSCAPES_19),
        ("gta5", 19, CITYSCAPES_19),
        ("cityscapes", 16, CITYSCAPES_16),
        ("synthia", 19, SYNTHIA_19),
        ("synthia", 16, SYNTHIA_16),
    ],
)
def test_every_number_of_the_label_maps(dataset, classes, published):
    assert label_map(dataset, classes) == pairs(published)
    table = lookup(label_map(dataset, classes))
    ignored = set(range(256)) - set(pairs(published))
    assert (table[sorted(ignored)] == 255).all()


@pytest.mark.parametrize("dataset", ["cityscapes", "synthia"])
def test_thirteen_classes_are_sixteen_without_wall_fence_and_pole(dataset):
    names = [name for name in street_names(16) if name not in ("wall", "fence", "pole")]
    assert list(street_names(13)) == names
    sixteen, thirteen = label_map(dataset, 16), label_map(dataset, 13)
    assert {n: street_names(13)[k] for n, k in thirteen.items()} == {
        n: street_names(16)[k] for n, k in sixteen.items() if street_names(16)[k] in names
    }


def write(path: Path, array: np.ndarray, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    if mode == "P":  # GTA5's masks are palette images whose colours are no numbers
        image = Image.frombytes("P", image.size, array.tobytes())
        image.putpalette(list(range(255, -1, -1)) * 3)
    image.save(path)


MASK = np.array([[7, 8, 0], [24, 33, 34]], dtype=np.uint8)
FRAME = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)


@pytest.fixture
def disk(tmp_path):
    for city, number in (("ulm", 1), ("bonn", 2)):
        stem = f"{city}/{city}_{number:06}_000019"
        write(tmp_path / f"city/leftImg8bit/val/{stem}_leftImg8bit.png", FRAME)
        write(tmp_path / f"city/gtFine/val/{stem}_gtFine_labelIds.png", MASK)
    for number in (1, 2):
        write(tmp_path / f"gta/images/{number:05}.png", FRAME)
        write(tmp_path / f"gta/labels/{number:05}.png", MASK, "P")
    write(tmp_path / "synthia/RGB/0000000.png", FRAME)
    write(
        tmp_path / "synthia/synthia_mapped_to_cityscapes/0000000.png",
        np.array([[3, 4, 0], [10, 11, 14]], np.uint8),
    )
    return tmp_path


@pytest.mark.parametrize(
    ("dataset", "folder", "count"),
    [("cityscapes", "city", 2), ("gta5", "gta", 2), ("synthia", "synthia", 1)],
)
def test_frames_and_masks_as_they_lie_on_disk(disk, dataset, folder, count):
    found = streets(dataset, disk / folder)
    assert len(found) == len(found.masks) == count
    assert found.inputs.shape == (count, 3, 2, 3)
    np.testing.assert_array_equal(found.inputs[:1], FRAME.transpose(2, 0, 1)[None])
    np.testing.assert_array_equal(found.masks[0:1], [[[0, 1, 255], [11, 18, 255]]])
    assert found.classes == street_names(19)


def test_both_are_resized_and_masks_keep_their_numbers(disk):
    found = streets("gta5", disk / "gta", size=(4, 6))
    assert found.inputs[np.array([1])].shape == (1, 3, 4, 6)
    np.testing.assert_array_equal(found.masks[:1][0, ::2, ::2], [[0, 1, 255], [11, 18, 255]])


def test_a_target_has_no_masks_and_needs_none(disk):
    target = streets("cityscapes", disk / "city").unlabelled()
    assert not hasattr(target, "masks")
    assert len(target) == 2
    for path in (disk / "city/gtFine").rglob("*.png"):
        path.unlink()
    np.testing.assert_array_equal(
        unlabelled_streets("cityscapes", disk / "city").inputs[:1], target.inputs[:1]
    )


@pytest.mark.parametrize("part", [slice(None), np.array([1, 0])])
def test_one_frame_and_all_of_them_in_turn(disk, part):
    found = streets("gta5", disk / "gta")[part]
    for rows in (found.inputs, found.masks):
        np.testing.assert_array_equal(rows[0], rows[:1][0])
        np.testing.assert_array_equal(rows[-1], rows[1:][0])
        np.testing.assert_array_equal([rows[i] for i in range(len(rows))], rows[:])
        with pytest.raises(IndexError):
            rows[2]


def test_a_mask_of_another_size_than_its_frame(disk):
    write(disk / "gta/labels/00002.png", MASK.repeat(2, axis=0))
    found = streets("gta5", disk / "gta")
    assert found.masks[:1].shape == (1, 2, 3)
    with pytest.raises(
        InputError, match=r"a mask of 2 x 3 pixels, as its frame has, got 4 x 3 in .*00002.png"
    ):
        found.masks[:]
    assert streets("gta5", disk / "gta", size=(4, 6)).masks[:].shape == (
        2,
        4,
        6,
    )  # one odd file stops no training
    write(disk / "gta/images/00002.png", FRAME.repeat(2, axis=0))
    with pytest.raises(InputError, match="expected masks of one size"):
        streets("gta5", disk / "gta").masks[0:2]
    with pytest.raises(InputError, match="expected frames of one size"):
        streets("gta5", disk / "gta").inputs[0:2]


def test_parts_are_decoded_when_asked_for(disk):
    first, second = streets("gta5", disk / "gta").split(0.5)
    assert len(first) == len(second) == 1
    assert second.inputs[:].shape == (1, 3, 2, 3)
    assert second.masks[:].shape == (1, 2, 3)


def test_what_is_missing_is_named(disk):
    with pytest.raises(
        InputError, match=r"expected the frames of gta5 as .*images/\*.png, got none"
    ):
        streets("gta5", disk / "city")
    (disk / "gta/labels/00002.png").unlink()
    with pytest.raises(
        InputError, match=r"a mask for each of 2 frames, got 1 missing: .*00002.png"
    ):
        streets("gta5", disk / "gta")
    (disk / "synthia/synthia_mapped_to_cityscapes").rename(disk / "synthia/masks")
    said = (
        r"in .*parsed_LABELS or .*synthia_mapped_to_cityscapes or .*GT/LABELS, got no such folder"
    )
    with pytest.raises(InputError, match=said):
        streets("synthia", disk / "synthia")
    with pytest.raises(InputError, match="19, 16 or 13 classes"):
        street_names(12)


def test_scenes_in_memory_are_cut_into_arrays():
    made = Scenes(
        "noto",
        np.zeros((4, 3, 2, 2), np.uint8),
        np.zeros((4, 2, 2), np.uint8),
        ("background", "food"),
    )
    assert [len(part) for part in made.split(0.75)] == [3, 1]
    assert isinstance(made[:2].masks, np.ndarray)
