"""Cityscapes, GTA5 and SYNTHIA as they lie on disk: frames and masks, decoded when rows are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.pictures import read_mask
from pseudocal.arrays import InputError
from pseudocal.lab.data.builtin_scenes import Scenes
from pseudocal.lab.data.domain import Pixels, Rows, Unlabelled
from pseudocal.lab.data.images import image_size, read_image
from pseudocal.lab.data.label_maps import label_map, lookup, street_names

Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class Layout:
    """Where frames and masks lie below the root, and how a frame's name becomes its mask's."""

    frames: str
    masks: tuple[str, ...]  # folders that people have, the first that is there is read
    ending: tuple[str, str]
    hint: str = ""  # for who has other folders


LAYOUTS = {
    "cityscapes": Layout("leftImg8bit/{split}", ("gtFine/{split}",), ("_leftImg8bit.png", "_gtFine_labelIds.png")),
    "gta5": Layout("images", ("labels",), (".png", ".png")),
    "synthia": Layout(
        "RGB",
        ("parsed_LABELS", "synthia_mapped_to_cityscapes"),
        (".png", ".png"),
        "; GT/LABELS, as downloaded, must be parsed to one number a pixel first: the class is the first channel",
    ),
}


def streets(
    dataset: str, root: str | Path, *, split: str = "val", classes: int = 19, size: Size | None = None
) -> Scenes:
    """Frames of a data set with the class of each pixel; `split` is for Cityscapes alone.

    `size` resizes both, frames bilinearly and masks by the nearest pixel. Without it they are read as they are, and
    frames of several sizes can only be asked for one at a time.

        source = streets("gta5", "/data/gta5", size=(720, 1280))
        target = streets("cityscapes", "/data/cityscapes").unlabelled()
    """
    frames, layout = _frames(dataset, root, split)
    tried = [Path(root) / folder.format(split=split) for folder in layout.masks]
    folder = next((each for each in tried if each.is_dir()), None)
    if folder is None:
        where = " or ".join(map(str, tried))
        raise InputError(f"expected the masks of {dataset} in {where}, got no such folder{layout.hint}")
    top = Path(root) / layout.frames.format(split=split)
    names = [str(path.relative_to(top)).removesuffix(layout.ending[0]) + layout.ending[1] for path in frames]
    masks = [folder / name for name in names]
    missing = [path for path in masks if not path.is_file()]
    if missing:
        raise InputError(f"expected a mask for each of {len(frames)} frames, got {len(missing)} missing: {missing[0]}")
    table = lookup(label_map(dataset, classes))
    return Scenes(dataset, Frames(frames, size), Masks(masks, size, table, frames), street_names(classes))


def unlabelled_streets(dataset: str, root: str | Path, *, split: str = "val", size: Size | None = None) -> Unlabelled:
    """Frames alone; nobody looks for masks."""
    return Unlabelled(dataset, Frames(_frames(dataset, root, split)[0], size))


@dataclass(frozen=True, eq=False)
class Frames:
    """Image files of one size, or resized to it."""

    paths: Sequence[Path]
    size: Size | None = None

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        """What an array of all rows would have."""
        width, height = image_size(self.paths[0])
        return (len(self), 3, *(self.size or (height, width)))

    def __getitem__(self, rows: Rows, /) -> Pixels:
        return _rows(self._decode, len(self), rows, "frames")

    def _decode(self, i: int) -> Pixels:
        image = read_image(self.paths[i])
        if self.size is not None:
            image = image.resize((self.size[1], self.size[0]), resample=2)  # bilinear
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


@dataclass(frozen=True, eq=False)
class Masks:
    """Mask files as class numbers, 255 where a pixel does not count."""

    paths: Sequence[Path]
    size: Size | None = None
    table: NDArray[np.uint8] = field(default_factory=lambda: np.arange(65536).astype(np.uint8))
    frames: Sequence[Path] | None = None  # whose sizes they must have, unless all are resized to one

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Rows, /) -> Pixels:
        return _rows(self._decode, len(self), rows, "masks")

    def _decode(self, i: int) -> Pixels:
        path = self.paths[i]
        if self.frames is not None and self.size is None:
            _check_sizes(path, self.frames[i])
        numbers = read_mask(path, self.size)
        return np.asarray(self.table[numbers], dtype=np.uint8)


def _frames(dataset: str, root: str | Path, split: str) -> tuple[list[Path], Layout]:
    if dataset not in LAYOUTS:
        raise InputError(f"expected a data set among {', '.join(LAYOUTS)}, got {dataset!r}")
    layout = LAYOUTS[dataset]
    folder = Path(root) / layout.frames.format(split=split)
    found = sorted(path for path in folder.rglob("*") if path.name.endswith(layout.ending[0]))
    if not found:
        raise InputError(f"expected the frames of {dataset} as {folder}/*{layout.ending[0]}, got none")
    return found, layout


def _check_sizes(mask: Path, frame: Path) -> None:
    (across, down), (width, height) = image_size(mask), image_size(frame)
    if (across, down) != (width, height):
        raise InputError(
            f"expected a mask of {height} x {width} pixels, as its frame has, got {down} x {across} in {mask}"
        )


def _rows(decode: Callable[[int], Pixels], n: int, rows: Rows, what: str) -> Pixels:
    """Some of n images as one array, or a single one where `rows` is a number."""
    numbers = np.arange(n)[rows]
    if numbers.ndim == 0:
        return decode(int(numbers))
    images = [decode(i) for i in numbers.tolist()]
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise InputError(
            f"expected {what} of one size, got {sorted(shapes)}: ask for them one at a time, or give a size"
        )
    return np.stack(images)
