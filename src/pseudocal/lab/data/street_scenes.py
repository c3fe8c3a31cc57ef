"""Cityscapes, GTA5 and SYNTHIA on disk: frames and masks, decoded when they are needed.

Cityscapes and GTA5 number their classes alike, SYNTHIA in its own way. Models of 19 classes are
trained on GTA5, of 16 on SYNTHIA; the 13-class score of SYNTHIA leaves out wall, fence and pole.
Numbers that are not mapped are ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.images import read_mask
from pseudocal.arrays import InputError
from pseudocal.lab.data.builtin_scenes import Scenes
from pseudocal.lab.data.cache import cache_folder, read_checked, write_checked
from pseudocal.lab.data.domains import ImageArray, Selector, Unlabelled
from pseudocal.lab.data.images import image_size, read_image
from pseudocal.lab.data.wide_png import first_channel, is_wide
from pseudocal.maps import IGNORED

Size = tuple[int, int]  # height, width


# name, number in Cityscapes and GTA5, number in SYNTHIA; in the order of the 19 train ids
STREET_CLASSES = (
    ("road", 7, 3),
    ("sidewalk", 8, 4),
    ("building", 11, 2),
    ("wall", 12, 21),
    ("fence", 13, 5),
    ("pole", 17, 7),
    ("traffic light", 19, 15),
    ("traffic sign", 20, 9),
    ("vegetation", 21, 6),
    ("terrain", 22, 16),
    ("sky", 23, 1),
    ("person", 24, 10),
    ("rider", 25, 17),
    ("car", 26, 8),
    ("truck", 27, 18),
    ("bus", 28, 19),
    ("train", 31, 20),
    ("motorcycle", 32, 12),
    ("bicycle", 33, 11),
)
CLASSES_SKIPPED: dict[int, tuple[str, ...]] = {
    19: (),
    16: ("terrain", "truck", "train"),
    13: ("terrain", "truck", "train", "wall", "fence", "pole"),
}
LABEL_COLUMN = {"cityscapes": 1, "gta5": 1, "synthia": 2}


@dataclass(frozen=True)
class StreetLayout:
    """Where frames and masks are, and how the name of a frame becomes that of its mask."""

    frames: str
    masks: tuple[str, ...]  # folders in use; the first that exists is read
    ending: tuple[str, str]


STREET_LAYOUTS = {
    "cityscapes": StreetLayout(
        "leftImg8bit/{split}", ("gtFine/{split}",), ("_leftImg8bit.png", "_gtFine_labelIds.png")
    ),
    "gta5": StreetLayout("images", ("labels",), (".png", ".png")),
    "synthia": StreetLayout(
        "RGB", ("parsed_LABELS", "synthia_mapped_to_cityscapes", "GT/LABELS"), (".png", ".png")
    ),
}


def streets(
    dataset: str,
    root: str | Path,
    *,
    split: str = "val",
    classes: int = 19,
    size: Size | None = None,
) -> Scenes:
    """Frames of a data set with the class of each pixel.

        source = streets("gta5", "/data/gta5", size=(720, 1280))
        target = streets("cityscapes", "/data/cityscapes").unlabelled()

    Args:
        dataset: "cityscapes", "gta5" or "synthia".
        root: the folder of the data set.
        split: the part of Cityscapes to read: "train", "val" or "test".
        classes: 19, 16 or 13.
        size: height and width to resize to, frames bilinearly and masks by the nearest pixel. By
            default images keep their size, and frames of different sizes can only be read one at a
            time.

    """
    frames, layout = _frame_files(dataset, root, split)
    tried = [Path(root) / folder.format(split=split) for folder in layout.masks]
    folder = next((each for each in tried if each.is_dir()), None)
    if folder is None:
        where = " or ".join(map(str, tried))
        raise InputError(f"expected the masks of {dataset} in {where}, got no such folder")
    top = Path(root) / layout.frames.format(split=split)
    names = [
        str(path.relative_to(top)).removesuffix(layout.ending[0]) + layout.ending[1]
        for path in frames
    ]
    masks = [folder / name for name in names]
    missing = [path for path in masks if not path.is_file()]
    if missing:
        raise InputError(
            f"expected a mask for each of {len(frames)} frames, got {len(missing)} missing: "
            f"{missing[0]}"
        )
    table = lookup(label_map(dataset, classes))
    return Scenes(
        dataset,
        FrameFiles(frames, size),
        MaskFiles(masks, size, table, frames),
        street_names(classes),
    )


def unlabelled_streets(
    dataset: str, root: str | Path, *, split: str = "val", size: Size | None = None
) -> Unlabelled:
    """Frames without masks, which need not exist.

    Args:
        dataset: "cityscapes", "gta5" or "synthia".
        root: the folder of the data set.
        split: the part of Cityscapes to read: "train", "val" or "test".
        size: height and width to resize to, bilinearly; by default frames keep their size.

    """
    return Unlabelled(dataset, FrameFiles(_frame_files(dataset, root, split)[0], size))


@dataclass(frozen=True, eq=False)
class FrameFiles:
    """Image files of one size, or resized to it."""

    paths: Sequence[Path]
    size: Size | None = None

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that an array of all frames would have."""
        width, height = image_size(self.paths[0])
        return (len(self), 3, *(self.size or (height, width)))

    def __getitem__(self, chosen: Selector, /) -> ImageArray:
        return _stacked(self._decode, len(self), chosen, "frames")

    def _decode(self, i: int) -> ImageArray:
        image = read_image(self.paths[i])
        if self.size is not None:
            image = image.resize((self.size[1], self.size[0]), resample=2)  # bilinear
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


@dataclass(frozen=True, eq=False)
class MaskFiles:
    """Mask files as class numbers, 255 where a pixel does not count."""

    paths: Sequence[Path]
    size: Size | None = None
    table: NDArray[np.uint8] = field(default_factory=lambda: np.arange(65536).astype(np.uint8))
    # whose sizes they must have, unless all are resized to one
    frames: Sequence[Path] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, chosen: Selector, /) -> ImageArray:
        return _stacked(self._decode, len(self), chosen, "masks")

    def _decode(self, i: int) -> ImageArray:
        path = self.paths[i]
        if self.frames is not None and self.size is None:
            _check_sizes(path, self.frames[i])
        if is_wide(path):
            # SYNTHIA's, as downloaded: the class is the first of three numbers of 16 bits
            return _nearest(self.table[_wide_classes(path)], self.size)
        return np.asarray(self.table[read_mask(path, self.size)], dtype=np.uint8)


def _wide_classes(path: Path) -> NDArray[np.uint16]:
    """Decode a mask of 16-bit colour once, which takes longer than a step of training.

    The cache folder keeps it.
    """
    found = path.stat()
    name = f"{path.resolve()} {found.st_size} {found.st_mtime_ns}".encode(
        "utf-8", "surrogateescape"
    )
    kept = cache_folder() / "masks" / f"{hashlib.sha256(name).hexdigest()[:32]}.npz"
    arrays = read_checked(kept)
    if arrays is None:
        arrays = {"classes": first_channel(path)}
        with suppress(InputError):  # a cache that cannot be written only costs time
            write_checked(kept, arrays)
    return arrays["classes"]


def _nearest(mask: NDArray[np.uint8], size: Size | None) -> NDArray[np.uint8]:
    """Resize a mask by the nearest pixel."""
    if size is None:
        return mask
    rows, columns = (
        ((np.arange(n) + 0.5) * m / n).astype(int) for n, m in zip(size, mask.shape, strict=True)
    )
    return np.asarray(mask[rows[:, None], columns])


def _frame_files(dataset: str, root: str | Path, split: str) -> tuple[list[Path], StreetLayout]:
    if dataset not in STREET_LAYOUTS:
        raise InputError(f"expected a data set among {', '.join(STREET_LAYOUTS)}, got {dataset!r}")
    layout = STREET_LAYOUTS[dataset]
    folder = Path(root) / layout.frames.format(split=split)
    found = sorted(path for path in folder.rglob("*") if path.name.endswith(layout.ending[0]))
    if not found:
        raise InputError(
            f"expected the frames of {dataset} as {folder}/*{layout.ending[0]}, got none"
        )
    return found, layout


def _check_sizes(mask: Path, frame: Path) -> None:
    width, height = image_size(frame)
    mask_width, mask_height = image_size(mask)
    if (mask_width, mask_height) != (width, height):
        raise InputError(
            f"expected a mask of {height} x {width} pixels, as its frame has, "
            f"got {mask_height} x {mask_width} in {mask}"
        )


def _stacked(
    decode: Callable[[int], ImageArray], n: int, chosen: Selector, what: str
) -> ImageArray:
    """Some of n images as one array, or a single image if `chosen` is a number."""
    numbers = np.arange(n)[chosen]
    if numbers.ndim == 0:
        return decode(int(numbers))
    images = [decode(i) for i in numbers.tolist()]
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise InputError(
            f"expected {what} of one size, got {sorted(shapes)}: ask for them one at a time, or "
            "give a size"
        )
    return np.stack(images)


def street_names(classes: int = 19) -> tuple[str, ...]:
    """Return the names of 19, 16 or 13 classes in order.

    >>> street_names(16)[9], len(street_names(13))
    ('sky', 13)

    Args:
        classes: 19, 16 or 13.

    """
    if classes not in CLASSES_SKIPPED:
        raise InputError(f"expected 19, 16 or 13 classes of street scenes, got {classes}")
    return tuple(name for name, *_ in STREET_CLASSES if name not in CLASSES_SKIPPED[classes])


def label_map(dataset: str, classes: int = 19) -> dict[int, int]:
    """Map the numbers in the mask files of a data set to class numbers.

    >>> label_map("cityscapes")[24], label_map("synthia", 16)[10]     # person
    (11, 10)

    Args:
        dataset: "cityscapes", "gta5" or "synthia".
        classes: 19, 16 or 13.

    """
    if dataset not in LABEL_COLUMN:
        raise InputError(f"expected a data set among {', '.join(LABEL_COLUMN)}, got {dataset!r}")
    numbers = {row[0]: int(row[LABEL_COLUMN[dataset]]) for row in STREET_CLASSES}
    return {numbers[name]: k for k, name in enumerate(street_names(classes))}


def lookup(mapping: dict[int, int]) -> NDArray[np.uint8]:
    """A table `(65536,)` that turns a mask file's numbers into classes, and all others into 255.

    >>> lookup({7: 0, 8: 1})[np.array([[7, 8, 0]])]
    array([[  0,   1, 255]], dtype=uint8)
    """
    table = np.full(65536, IGNORED, dtype=np.uint8)
    table[list(mapping)] = list(mapping.values())
    return table
