from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pseudocal.arrays import InputError
from pseudocal.lab.data import ImageFiles, image_folder, image_list, unlabelled_folder


def save(path: Path, pixels: object, **options: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path, **options)
    return str(path)


def write(root: Path, *names: str) -> None:
    for name in names:
        save(root / name, np.zeros((2, 2, 3)))


def test_folder_orders_classes_by_name_as_asked(tmp_path: Path) -> None:
    write(tmp_path, "TV/1.jpg", "Table/1.jpg", "Table/2.PNG", "Bed/deep/1.jpg")
    (tmp_path / "Bed/Thumbs.db").write_bytes(b"no image")
    (tmp_path / ".hidden").mkdir()
    folder = image_folder(tmp_path)
    assert folder.classes == ("Bed", "TV", "Table")  # as sorted() and ImageFolder
    assert folder.labels.tolist() == [0, 1, 2, 2]
    assert image_folder(tmp_path, ignore_case=True).classes == ("Bed", "Table", "TV")
    assert folder.name == tmp_path.name


def test_folder_errors_say_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a folder, got .*absent, which is missing"):
        image_folder(tmp_path / "absent")
    with pytest.raises(InputError, match="got an empty folder"):
        image_folder(tmp_path)
    (tmp_path / "Bed").mkdir()
    with pytest.raises(
        InputError, match=r"expected images as .*/<class>/<image>, got no image in .*Bed"
    ):
        image_folder(tmp_path)
    with pytest.raises(InputError, match=r"expected images below .*, got Bed/"):
        unlabelled_folder(tmp_path)


def test_unlabelled_folder_takes_any_tree(tmp_path: Path) -> None:
    write(tmp_path, "1.jpg", "a/2.jpg", "a/b/3.jpg")
    assert unlabelled_folder(tmp_path).inputs[:].shape == (3, 3, 224, 224)


def test_list_takes_labels_from_lines_and_names_from_folders(tmp_path: Path) -> None:
    write(tmp_path, "Real World/Alarm Clock/0 1.jpg", "Real World/Bed/1.jpg")
    (tmp_path / "list.txt").write_text(
        "Real World/Alarm Clock/0 1.jpg 1\n\nReal World/Bed/1.jpg\t0\r\n"
    )
    domain = image_list(tmp_path / "list.txt")
    assert domain.labels.tolist() == [1, 0]
    assert domain.classes == ("Bed", "Alarm Clock")
    assert domain.inputs[:].shape == (2, 3, 224, 224)


def test_list_of_a_flat_folder_names_classes_by_number(tmp_path: Path) -> None:
    write(tmp_path, "flat/1.jpg", "flat/2.jpg")
    (tmp_path / "list.txt").write_text("flat/1.jpg 2\nflat/2.jpg 0\n")
    assert image_list(tmp_path / "list.txt").classes == ("0", "1", "2")
    assert image_list(tmp_path / "list.txt", classes=["x", "y", "z"]).classes == ("x", "y", "z")


def test_list_paths_are_found_below_root_and_moved_by_prefix(tmp_path: Path) -> None:
    write(tmp_path, "data/Bed/1.jpg")
    (tmp_path / "relative.txt").write_text("Bed/1.jpg 0\n")
    (tmp_path / "theirs.txt").write_text("/home/someone/data/Bed/1.jpg 0\n")
    (tmp_path / "ours.txt").write_text(f"{tmp_path}/data/Bed/1.jpg 0\n")
    moved = image_list(tmp_path / "theirs.txt", prefix=("/home/someone", str(tmp_path)))
    below = image_list(tmp_path / "relative.txt", root=tmp_path / "data")
    absolute = image_list(tmp_path / "ours.txt", root="/elsewhere")
    assert moved.inputs == below.inputs == absolute.inputs
    with pytest.raises(
        InputError, match=r"1 missing, the first /home/someone/data/Bed/1.jpg; .*prefix="
    ):
        image_list(tmp_path / "theirs.txt")


@pytest.mark.parametrize(
    "line", ["Bed/1.jpg", "Bed/1.jpg Bed", "Bed/1.jpg -1", "Bed/1.jpg 1.5", "7", "Bed/1.jpg ²"]
)
def test_malformed_line_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, "Bed/1.jpg")
    (tmp_path / "list.txt").write_text(f"Bed/1.jpg 0\n\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        image_list(tmp_path / "list.txt")
    assert f"list.txt, line 3, got {line!r}" in str(error.value)


def test_list_that_is_empty_absent_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"empty\.txt, got none"):
        image_list(tmp_path / "empty.txt")
    with pytest.raises(InputError, match=r"expected a list file in UTF-8, got .*binary\.txt"):
        image_list(tmp_path / "binary.txt")
    with pytest.raises(InputError, match=r"got .*absent\.txt"):
        image_list(tmp_path / "absent.txt")


def test_images_are_squashed_then_cut_to_the_centre(tmp_path: Path) -> None:
    wide = np.zeros((8, 32, 3))
    wide[:, :, 0] = np.arange(32) * 8  # red grows to the right, whatever the height
    path = save(tmp_path / "wide.png", wide)
    whole = ImageFiles((path,), resize=256, crop=256)[:]
    cut = ImageFiles((path,))[:]
    assert whole.shape == (1, 3, 256, 256)
    assert cut.shape == (1, 3, 224, 224)
    assert (cut == whole[:, :, 16:240, 16:240]).all()
    assert np.ptp(whole[0, 0], axis=0).max() == 0
    assert (np.diff(whole[0, 0, 0].astype(int)) >= 0).all()


def test_images_of_all_kinds_become_rgb(tmp_path: Path) -> None:
    grey = save(tmp_path / "grey.png", np.full((4, 4), 77))
    alpha = save(tmp_path / "alpha.png", np.dstack([np.full((4, 4, 3), 77), np.full((4, 4), 128)]))
    palette = Image.fromarray(np.full((4, 4, 3), 77, np.uint8)).quantize(4)
    palette.save(tmp_path / "palette.png", transparency=b"\x80\xff")
    paths = (grey, alpha, str(tmp_path / "palette.png"))
    assert (ImageFiles(paths, 4, 4)[np.array([2, 0, 1])] == 77).all()


def test_unreadable_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("not an image")
    whole = Path(
        save(tmp_path / "whole.png", np.random.default_rng(0).integers(0, 255, (64, 64, 3)))
    ).read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    for name in ("text.jpg", "half.png", "absent.png"):
        with pytest.raises(
            InputError,
            match=rf"an image.*{name}|{name} is not an image",
        ):
            ImageFiles((str(tmp_path / name),))[:]


@pytest.mark.parametrize("times", [1.5, 3])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # as at a user's
def test_decompression_bomb_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: float
) -> None:
    path = save(tmp_path / "bomb.png", np.zeros((30, 40)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(1200 / times))
    with pytest.raises(InputError, match=r"bomb.png has more than \d+ pixels"):
        ImageFiles((path,))[:]


def test_crop_must_fit() -> None:
    with pytest.raises(InputError, match="expected a crop from 1 to resize=10, got 11"):
        ImageFiles((), 10, 11)


def test_a_slip_of_the_pen_does_not_name_billions_of_classes(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "list.txt").write_text("a.png 99999999999\n")
    with pytest.raises(InputError, match="expected labels below 1,000,000, got 99999999999"):
        image_list(tmp_path / "list.txt")
