"""What a calibration keeps of its target, so that a person can be asked and answers be taken without predicting again.

| file          | content |
|---------------|---------|
| `target.json` | what the inputs are called, and how the model was opened |
| `probe.npy`   | two inputs to try a calibrated model on |
| `logits.npy`  | a row for each row of the predictions; of a segmenter, a row for each pixel that was kept |
| `pixels.npz`  | of a segmenter: where these pixels are, and sums over all pixels of each image |
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs import ImageSet, InputSet
from pseudocal.app.inputs.images import size_of_image
from pseudocal.app.inputs.tables import ARRAYS, map_array, read_array
from pseudocal.app.inputs.texts import open_texts
from pseudocal.app.models.files import CODE
from pseudocal.app.report import ImageSummary, PredictionTable, image_table
from pseudocal.app.report.images import MAP_SIDE
from pseudocal.app.report.predictions import Target
from pseudocal.arrays import InputError, Labelled, Logits, Maps, as_maps, check_rows
from pseudocal.calibrators.confidence import confidences
from pseudocal.files import brief, is_inside, own_file
from pseudocal.maps import IGNORED, as_masks, at_size, draw, nothing, predicted, rows_at
from pseudocal.metrics.images import ImageRow
from pseudocal.randomness import Streams

MOST_PIXELS = 500  # of an image
PIXELS_MEMORY = (
    2**26
)  # bytes of logits of pixels, at most, unless there are more images than that has room for

RANGES_OF_PIXELS = {
    "at": (0, 2**31),
    "y": (0, 2**31),
    "x": (0, 2**31),
    "pixels": (0, 2**31),
    "fractions": (0, 1),
    "before": (0, 1),
}

Whole = NDArray[np.int64]


class Frame(NamedTuple):
    """The part of an image that the logits of a map cover, in pixels of the image.

    Attributes:
        left: its left edge.
        top: its upper edge.
        right: its right edge.
        bottom: its lower edge.

    """

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, eq=False)
class KeptPixels:
    """Random pixels of each image, all images about the same number, and sums over all pixels of each.

    Attributes:
        logits: the logits of each pixel, `(n, classes)`.
        image: the number of its image, from 0, `(n,)`.
        at: its flat index in the map of logits, `(n,)`.
        y: its line in the image as it is shown, from the top, `(n,)`.
        x: its column, from the left, `(n,)`.
        labels: its class for evaluation only, `IGNORED` without one, `(n,)`.
        pixels: the number of pixels of each image that have a prediction, `(images,)`.
        fractions: the fraction of each class among them, `(images, classes)`.
        before: their mean confidence before calibration, `(images,)`.

    """

    logits: Logits
    image: Whole
    at: Whole
    y: Whole
    x: Whole
    labels: Whole
    pixels: Whole
    fractions: NDArray[Any]
    before: NDArray[Any]

    @classmethod
    def of(
        cls,
        image: Maps,
        row: ImageRow,
        number: int,
        *,
        most: int,
        frame: Frame | None,
        mask: Any = None,
    ) -> KeptPixels:
        """Draw pixels of one image `(classes, height, width)`.

        Args:
            image: its logits.
            row: the sums over its pixels.
            number: its number in the data. The same image and number give the same pixels.
            most: how many to draw.
            frame: what the map covers of the image; None to speak of the map itself.
            mask: the true classes, for evaluation only.

        """
        classes, height, width = image.shape
        candidates = np.flatnonzero(predicted(image[None])[0] != nothing(classes))
        at = np.sort(draw(candidates, most, Streams(0).asked(number)))
        left, top, right, bottom = frame or Frame(0, 0, width, height)
        y = (top + (at // width + 0.5) * (bottom - top) / height).astype(np.int64)
        x = (left + (at % width + 0.5) * (right - left) / width).astype(np.int64)
        if len(
            at
        ):  # of two logits within one pixel of a small image a person can be asked about one
            one = np.sort(np.unique(np.stack([y, x]), axis=1, return_index=True)[1])
            at = at[one]
            y = y[one]
            x = x[one]
        known = (
            None if mask is None else at_size(as_masks(mask, 1), (height, width))[0].reshape(-1)[at]
        )
        return cls(
            logits=rows_at(image, at),
            image=np.zeros(len(at), dtype=np.int64),
            at=at.astype(np.int64),
            y=y,
            x=x,
            labels=np.full(len(at), IGNORED, dtype=np.int64)
            if known is None
            else known.astype(np.int64),
            pixels=np.array([len(candidates)]),
            fractions=np.asarray(row.fractions, dtype=np.float64)[None],
            before=np.array([row.before], dtype=np.float64),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[KeptPixels]) -> KeptPixels:
        """Join images in order."""
        first = np.cumsum([0, *(len(part.pixels) for part in parts)])
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}
        columns["image"] = [part.image + start for part, start in zip(parts, first, strict=False)]
        return cls(**{name: np.concatenate(column) for name, column in columns.items()})

    def save(self, folder: Path, shown: Sequence[tuple[Maps, NDArray[Any] | None]] = ()) -> None:
        """Write `logits.npy` and `pixels.npz`.

        Args:
            folder: where to write them.
            shown: the `small_maps` of the first images.

        """
        if not len(self.at):
            raise InputError("expected at least one pixel that has a prediction, got none")
        columns: dict[str, Any] = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name != "logits"
        }
        maps = {f"map_{i}": image for i, (image, _) in enumerate(shown)}
        masks = {f"mask_{i}": mask for i, (_, mask) in enumerate(shown) if mask is not None}
        np.save(folder / "logits.npy", self.logits)
        np.savez(folder / "pixels.npz", **(columns | maps | masks))

    @classmethod
    def load(cls, folder: Path, logits: Logits, images: int) -> KeptPixels:
        """Read what `save` wrote of so many images."""
        path = own_file(folder, "pixels.npz")
        names = [f.name for f in fields(cls) if f.name != "logits"]
        columns = {name: np.asarray(read_array(path, name)) for name in names}
        shapes = {"pixels": (images,), "before": (images,), "fractions": (images, logits.shape[1])}
        for name, column in columns.items():
            shape = shapes.get(name, (len(logits),))
            if column.shape != shape or column.dtype.kind != (
                "f" if name in ("fractions", "before") else "i"
            ):
                raise InputError(
                    f"expected {name} of shape {shape} in {path}, got {column.dtype} of {column.shape}"
                )
        if (
            columns["image"].min() < 0
            or columns["image"].max() >= images
            or np.any(np.diff(columns["image"]) < 0)
        ):
            raise InputError(
                f"expected pixels of images 0 to {images - 1}, in order, got others in {path}"
            )
        for name, (low, high) in RANGES_OF_PIXELS.items():
            if len(columns[name]) and not (
                low <= columns[name].min() and columns[name].max() <= high
            ):
                raise InputError(f"expected {name} from {low} to {high} in {path}, got others")
        known = columns["labels"][columns["labels"] != IGNORED]
        if len(known) and not (known.min() >= 0 and known.max() < logits.shape[1]):
            raise InputError(
                f"expected labels below {logits.shape[1]} in {path}, got {known.min()} to {known.max()}"
            )
        return cls(logits=logits, **columns)


@dataclass(frozen=True, eq=False)
class KeptTarget:
    """What a calibration has kept of its target.

    Attributes:
        folder: where it is.
        target: what the inputs are called, and how the model was opened.
        logits: what can be asked about, a row each.
        pixels: where the rows are, if they are pixels.

    """

    folder: Path
    target: Target
    logits: Logits
    pixels: KeptPixels | None

    @classmethod
    def load(cls, folder: Path) -> KeptTarget:
        """Read it; logits are a memory map."""
        target = Target.load(folder)
        logits: Logits = map_array(own_file(folder, "logits.npy"))
        of_pixels = os.path.lexists(folder / "pixels.npz")
        images = len(target.names)
        if logits.ndim != 2 or len(logits) == 0 or not (of_pixels or len(logits) == images):
            raise InputError(
                f"expected logits of {images} inputs in {folder}, got shape {logits.shape}"
            )
        classes = logits.shape[1]
        if logits.dtype.kind != "f" or classes < 2:
            raise InputError(
                f"expected logits of two classes or more in {folder}, got {logits.dtype} of {classes}"
            )
        check_rows(logits)
        if target.labels is not None and max(target.labels) >= classes:
            raise InputError(
                f"expected labels below {classes} in {folder}, got {max(target.labels)}"
            )
        return cls(
            folder, target, logits, KeptPixels.load(folder, logits, images) if of_pixels else None
        )

    @property
    def groups(self) -> Whole | None:
        """The image of each row, if rows are pixels."""
        return None if self.pixels is None else self.pixels.image

    @property
    def names(self) -> Sequence[str]:
        """What each row is called, as an answer names it."""
        kept, names = self.pixels, self.target.names
        if kept is None:
            return names
        spots = zip(kept.image.tolist(), kept.y.tolist(), kept.x.tolist(), strict=True)
        return [spot_name(names[i], y, x) for i, y, x in spots]

    def said_of(self, probe: Logits | Maps) -> tuple[Logits, Logits]:
        """What a model says of the first inputs, and what was kept of them, as rows that can be compared."""
        if self.pixels is None or probe.ndim != 4:
            return probe, self.logits[: len(probe)]
        image, at = self.pixels.image, self.pixels.at
        if any(at[image == i].max(initial=0) >= one[0].size for i, one in enumerate(probe)):
            return probe[:1, :, 0, 0], self.logits[:2]  # maps of another size
        rows = np.concatenate([rows_at(one, at[image == i]) for i, one in enumerate(probe)])
        return rows, self.logits[: len(rows)]

    def shown_maps(self) -> Iterator[tuple[Maps, NDArray[Any] | None]]:
        """The maps of the first images, in low resolution, with their true classes if those are known."""
        path = own_file(self.folder, "pixels.npz")
        with np.load(path, allow_pickle=False) as file:
            names = set(file.files)
        for i in range(len(self.target.names)):
            if f"map_{i}" not in names:
                return
            image = as_maps(read_array(path, f"map_{i}")[None])[0]
            mask = np.asarray(read_array(path, f"mask_{i}")) if f"mask_{i}" in names else None
            if len(image) != self.logits.shape[1] or (
                mask is not None and mask.shape != image.shape[1:]
            ):
                raise InputError(
                    f"expected maps of {self.logits.shape[1]} classes in {path}, got shape {image.shape}"
                )
            yield image, mask


def check_paths(target: Target, folder: Path, trust_paths: bool) -> None:
    """Refuse to read what a folder from somebody else names outside itself.

    What this user wrote on this machine is signed. `module:function` is never imported from a
    record, and the file of saved outputs is not opened again.

    Args:
        target: the record.
        folder: the folder that it was read from.
        trust_paths: whether the user trusts the paths.

    """
    named = [*(target.image_files or ()), *(() if target.data is None else (target.data,))]
    if not target.saved and not CODE.fullmatch(target.model):
        named.append(target.model)
    outside = [path for path in named if not is_inside(path, folder)]
    if outside and not trust_paths and not target.signed:
        raise InputError(
            f"expected files of {folder} alone, since you did not write it on this machine, got "
            f"{brief(outside[0])} in target.json: look at it first",
            setting="trust_paths",
            value="True",
        )


def texts_of(target: Target) -> list[str] | None:
    """The texts that were predicted.

    None if the inputs are no texts, or cannot be read any more.
    """
    known = target.saved or target.field is not None
    if target.data is None or not known or Path(target.data).suffix.lower() in ARRAYS:
        return None
    try:
        texts = open_texts(Path(target.data), None if target.saved else target.field).texts
        rows = range(len(target.names)) if target.saved else map(int, target.names)
        return [texts[row] for row in rows]
    except (
        ValueError,
        IndexError,
    ):  # other data than those that were predicted: a page without the texts is still a page
        return None


def image_tables(summary: ImageSummary, kept: KeptTarget) -> Iterator[PredictionTable]:
    """Yield the table of a segmenter again, image by image, and summarise the pixels that were kept.

    Classes and the confidence before calibration are those of all pixels. How much the confidence
    changes is known from the pixels that were kept.
    """
    pixels, target, t = kept.pixels, kept.target, summary.calibration.temperature
    assert pixels is not None
    labelled = bool((pixels.labels != IGNORED).any())
    first = np.searchsorted(pixels.image, np.arange(len(target.names) + 1))
    image_files = (
        [None] * len(target.names)
        if target.image_files is None
        else [Path(path) for path in target.image_files]
    )
    for i, (name, image_file) in enumerate(zip(target.names, image_files, strict=True)):
        some = slice(first[i], first[i + 1])
        z = np.array(kept.logits[some])
        after = float(pixels.before[i])
        if len(z):
            after += float((confidences(z, t) - confidences(z, 1.0)).mean())
            weights = np.full(len(z), pixels.pixels[i] / len(z))
            summary.add_sample(Labelled(z, z.argmax(axis=1), weights))
        if len(z) and labelled:
            summary.measure(z.T[:, None], pixels.labels[some][None])
        row = ImageRow(pixels.fractions[i], float(pixels.before[i]), float(np.clip(after, 0, 1)))
        summary.add_row(name, row, image_file=image_file)
        yield image_table([name], [row], target.classes)
    for name, image_file, (image, mask) in zip(
        target.names, image_files, kept.shown_maps(), strict=False
    ):
        summary.show(image, name, image_file=image_file, mask=mask)


def spot_name(name: str, y: object, x: object) -> str:
    """What a pixel is called.

    >>> spot_name("frame.png", 3, 4)
    'frame.png (y 3, x 4)'
    """
    return f"{name} (y {y}, x {x})"


def frame_of(inputs: InputSet, i: int) -> Frame | None:
    """Return what the model sees of image i; None if it is no image file."""
    if not isinstance(inputs, ImageSet):
        return None
    return Frame(*inputs.preprocessing.covered(*size_of_image(inputs.paths[i])))


def pixels_each(images: int, classes: int) -> int:
    """Return how many pixels of each image to keep.

    >>> pixels_each(100, 19), pixels_each(10_000, 19)
    (500, 88)
    """
    return int(np.clip(PIXELS_MEMORY // (4 * images * classes), 1, MOST_PIXELS))


def small_maps(image: Maps, mask: NDArray[Any] | None) -> tuple[Maps, NDArray[Any] | None]:
    """Take every k-th pixel of a map and of its mask: enough to be shown.

    >>> small_maps(np.zeros((3, 400, 641)), None)[0].shape
    (3, 133, 214)
    """
    step = -(-max(image.shape[1:]) // MAP_SIDE)
    every = (..., slice(step // 2, None, step), slice(step // 2, None, step))
    known = None if mask is None else at_size(as_masks(mask, 1), image.shape[1:])[0][every]
    return image[every].copy(), known  # not a view, which would hold the whole batch
