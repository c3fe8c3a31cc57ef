"""Pixels of a segmentation model's images, sampled for a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.images import size_of_image
from pseudocal.app.inputs.sets import ImageSet, InputSet
from pseudocal.app.inputs.tables import read_array
from pseudocal.arrays import InputError, Logits, Maps, as_maps
from pseudocal.maps import IGNORED, as_masks, at_size, draw, nothing, predicted, rows_at
from pseudocal.metrics.images import image_row
from pseudocal.randomness import Streams

MOST_PIXELS = 20_000  # of an image
PIXELS_MEMORY = 2**26  # bytes of pixel logits, unless there are more images than that has room for
SHOWN_MAPS = 6  # images that are kept pixel by pixel, in low resolution
LARGEST_IMAGE = 2**40  # pixels
MAP_SIDE = 320  # pixels of the longer side of these
OF_IMAGES = ("pixels", "fractions", "before")  # columns of a sample with a row for each image

Whole = NDArray[np.int64]


class Frame(NamedTuple):
    """The part of an image that a map of logits covers, in pixels of the image."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, eq=False)
class PixelSample:
    """Random pixels of each image, about equally many of all, and sums over all pixels of each."""

    logits: Logits  # the logits of each pixel, `(n, classes)`
    image: Whole  # the number of its image, from 0, `(n,)`
    at: Whole  # its flat index in the map of logits, `(n,)`
    y: Whole  # its line in the image as it is shown, from the top, `(n,)`
    x: Whole  # its column, from the left, `(n,)`
    ground_truth: Whole  # its class, for evaluation only, `IGNORED` where unknown, `(n,)`
    pixels: Whole  # the number of pixels of each image that have a prediction, `(images,)`
    fractions: NDArray[Any]  # the fraction of each class among them, `(images, classes)`
    before: NDArray[Any]  # their mean confidence before calibration, `(images,)`

    @classmethod
    def of(
        cls,
        image: Maps,
        number: int,
        *,
        most: int,
        frame: Frame | None,
        mask: NDArray[Any] | None = None,
    ) -> PixelSample:
        """Draw pixels of one image `(classes, height, width)`.

        Args:
            image: its logits.
            number: its number in the data. The same image and number give the same pixels.
            most: how many to draw.
            frame: what the map covers of the image; None if the map is all there is.
            mask: the true classes, for evaluation only.

        """
        row = image_row(image, 1.0)
        classes, height, width = image.shape
        candidates = np.flatnonzero(predicted(image[None])[0] != nothing(classes))
        at = np.sort(draw(candidates, most, Streams(0).asked(number)))
        left, top, right, bottom = frame or Frame(0, 0, width, height)
        y = (top + (at // width + 0.5) * (bottom - top) / height).astype(np.int64)
        x = (left + (at % width + 0.5) * (right - left) / width).astype(np.int64)
        if len(at):
            # Where the map is finer than the image, keep one logit of each pixel of the image.
            one = np.sort(np.unique(np.stack([y, x]), axis=1, return_index=True)[1])
            at, y, x = at[one], y[one], x[one]
        known = np.full(len(at), IGNORED, dtype=np.int64)
        if mask is not None:
            known = at_size(as_masks(mask, 1), (height, width))[0].reshape(-1)[at].astype(np.int64)
        return cls(
            logits=rows_at(image, at),
            image=np.zeros(len(at), dtype=np.int64),
            at=at.astype(np.int64),
            y=y,
            x=x,
            ground_truth=known,
            pixels=np.array([len(candidates)]),
            fractions=np.asarray(row.fractions, dtype=np.float64)[None],
            before=np.array([row.before], dtype=np.float64),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[PixelSample]) -> PixelSample:
        """Join images in order."""
        first = np.cumsum([0, *(len(part.pixels) for part in parts)])
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}
        columns["image"] = [part.image + start for part, start in zip(parts, first, strict=False)]
        return cls(**{name: np.concatenate(column) for name, column in columns.items()})

    def sorted_by(self, numbers: NDArray[np.intp]) -> PixelSample:
        """The images in the order of their numbers."""
        order = np.argsort(numbers, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        columns = self.arrays() | {"image": place[self.image]}
        rows = np.argsort(columns["image"], kind="stable")
        chosen = dict.fromkeys(columns, rows) | dict.fromkeys(OF_IMAGES, order)
        return PixelSample(**{name: column[chosen[name]] for name, column in columns.items()})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All columns by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def save(self, path: Path, shown: Sequence[tuple[Maps, NDArray[Any] | None]]) -> None:
        """Write everything but the logits."""
        if not len(self.at):
            raise InputError("no pixel of any image has a prediction")
        columns = self.arrays()
        del columns["logits"]
        columns |= {f"map_{i}": image for i, (image, _) in enumerate(shown)}
        columns |= {f"mask_{i}": mask for i, (_, mask) in enumerate(shown) if mask is not None}
        np.savez(path, **columns)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path, logits: Logits, images: int) -> PixelSample:
        """Read what `save` wrote of so many images."""
        names = [each.name for each in fields(cls) if each.name != "logits"]
        columns = {name: np.asarray(read_array(path, name)) for name in names}
        sample = cls(logits=logits, **columns)
        sample.check(path, images)
        return sample

    def check(self, path: Path | str, images: int) -> None:
        """Refuse columns that do not fit together: they may come from anyone."""
        logits = self.logits
        columns = self.arrays()
        del columns["logits"]
        shapes = {"pixels": (images,), "before": (images,), "fractions": (images, logits.shape[1])}
        for name, column in columns.items():
            shape = shapes.get(name, (len(logits),))
            kind = "f" if name in ("fractions", "before") else "i"
            if column.shape != shape or column.dtype.kind != kind:
                raise InputError(
                    f"{path} has {name} as {column.dtype} of shape {column.shape}, not {shape}"
                )
        image = columns["image"]
        in_order = not np.any(np.diff(image) < 0)
        if not len(image) or image.min() < 0 or image.max() >= images or not in_order:
            raise InputError(f"{path} has pixels of other images than 0 to {images - 1}, in order")
        if min(columns[name].min() for name in ("at", "y", "x", "pixels")) < 0:
            raise InputError(f"{path} has a negative position or number of pixels")
        if columns["pixels"].max(initial=0) > LARGEST_IMAGE:
            raise InputError(f"{path} has an image of {columns['pixels'].max():,} pixels")
        truth = columns["ground_truth"]
        if truth.min() < 0 or np.any((truth >= logits.shape[1]) & (truth != IGNORED)):
            raise InputError(f"{path} has a ground truth beyond {logits.shape[1]} classes")
        for name in ("fractions", "before"):
            if not np.all((columns[name] >= 0) & (columns[name] <= 1) | np.isnan(columns[name])):
                raise InputError(f"{path} has {name} that are not from 0 to 1")


def load_shown_maps(path: Path, classes: int) -> Iterator[tuple[Maps, NDArray[Any] | None]]:
    """The maps of the first images, in low resolution, with their true classes if known."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        names = set(arrays.files)
    for i in range(SHOWN_MAPS):
        if f"map_{i}" not in names:
            return
        image = as_maps(read_array(path, f"map_{i}")[None])[0]
        mask = None
        if f"mask_{i}" in names:
            mask = np.asarray(read_array(path, f"mask_{i}"))
        if len(image) != classes or (mask is not None and mask.shape != image.shape[1:]):
            raise InputError(f"{path} has a map of shape {image.shape} for {classes} classes")
        yield image, mask


def frame_of(inputs: InputSet, i: int) -> Frame | None:
    """What the model sees of image i; None if it is no image file."""
    if not isinstance(inputs, ImageSet):
        return None
    return Frame(*inputs.preprocessing.covered(*size_of_image(inputs.paths[i])))


def sample_image(
    inputs: InputSet, i: int, image: Maps, total: int, mask: NDArray[Any] | None = None
) -> PixelSample:
    """Draw pixels of image i.

    Args:
        inputs: the images.
        i: its number.
        image: its logits.
        total: the number of images in the whole run.
        mask: its true classes, for evaluation only.

    """
    most = pixels_each(total, len(image))
    return PixelSample.of(np.asarray(image), i, most=most, frame=frame_of(inputs, i), mask=mask)


def pixels_each(images: int, classes: int) -> int:
    """How many pixels of each image to keep.

    >>> pixels_each(100, 19), pixels_each(10_000, 19)
    (8830, 88)
    """
    return int(np.clip(PIXELS_MEMORY // (4 * images * classes), 1, MOST_PIXELS))


def small_maps(image: Maps, mask: NDArray[Any] | None) -> tuple[Maps, NDArray[Any] | None]:
    """Every k-th pixel of a map and of its mask: enough to be shown.

    >>> small_maps(np.zeros((3, 400, 641)), None)[0].shape
    (3, 133, 214)
    """
    step = -(-max(image.shape[1:]) // MAP_SIDE)
    every = (..., slice(step // 2, None, step), slice(step // 2, None, step))
    known = None
    if mask is not None:
        known = at_size(as_masks(mask, 1), image.shape[1:])[0][every]
    return image[every].copy(), known  # not a view, which would hold the whole batch
