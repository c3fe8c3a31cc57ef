"""What a model that labels every pixel says of an image as a whole: a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Maps
from pseudocal.maps import nothing, predicted
from pseudocal.metrics.maps import confidence_map

COLUMNS = ("file", "class", "class_name", "class_share", "confidence_before", "confidence_after", "shares")


class ImageRow(NamedTuple):
    """The share of each class, and the mean confidence before and after."""

    shares: NDArray[np.float64]  # (classes,)
    before: float
    after: float


def pixel_confidences(image: Maps, temperature: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The class of each pixel that has one, and its confidence before and after.

    >>> classes, before, after = pixel_confidences(np.array([[[2 * np.log(3)]], [[0.0]]]), temperature=2.0)
    >>> classes, before.round(3), after.round(3)
    (array([0], dtype=uint8), array([0.9]), array([0.75]))
    """
    said = predicted(image[None])[0]
    counts = said != nothing(len(image))
    before, after = (confidence_map(image, t)[counts].astype(np.float64) for t in (1.0, temperature))
    return said[counts], before, after


def image_row(image: Maps, temperature: float) -> ImageRow:
    """One image `(classes, height, width)` in few numbers.

    >>> image_row(np.array([[[9.0, 9.0, 0.0, 9.0]], [[0.0, 0.0, 9.0, 0.0]]]), 2.0).shares
    array([0.75, 0.25])
    """
    said, before, after = pixel_confidences(image, temperature)
    shares = np.bincount(said, minlength=len(image)) / max(1, len(said))
    return ImageRow(shares, float(before.mean()), float(after.mean()))


def image_columns(names: list[str], rows: Sequence[ImageRow], classes: Sequence[str]) -> list[Any]:
    """A table of images in the order of `COLUMNS`.

    >>> image_columns(["a.png"], [ImageRow(np.array([0.25, 0.75]), 0.9, 0.8)], ["sky", "road"])[:4]
    [['a.png'], array([1]), ['road'], array([0.75])]
    """
    shares = np.stack([row.shares for row in rows])
    top = shares.argmax(axis=1)
    named = [classes[i] if i < len(classes) else "" for i in top]
    before, after = (np.array(column) for column in zip(*((row.before, row.after) for row in rows), strict=True))
    return [names, top, named, shares.max(axis=1), before, after, shares]
