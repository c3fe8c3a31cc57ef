"""The logits of one image `(classes, height, width)`.

Resizing, confidence maps, images and summary statistics.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Maps, as_maps, check_temperature
from pseudocal.maps import IGNORED, as_masks, at_size, bands, nothing, predicted
from pseudocal.metrics.outcomes import check_level
from pseudocal.passes import Doubles

RgbImage = NDArray[np.uint8]  # (height, width) grey, or (height, width, 3)
Neighbours = tuple[
    NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]
]  # two pixels, weight of the second
GREEN = (38, 139, 87)
RED = (200, 45, 45)
BLACK = (0, 0, 0)


def confidence_map(image: ArrayLike, temperature: float = 1.0) -> Floats:
    """The probability of each pixel's predicted class `(height, width)`, at the resolution of the logits.

    >>> confidence_map(np.array([[[2 * np.log(3)]], [[0.0]]]), temperature=2.0).round(3)
    array([[0.75]], dtype=float32)

    It is NaN where every class is at -inf, as in padding.

    Args:
        image: The logits of one image, of shape `(classes, height, width)`.
        temperature: The number that the logits are divided by.

    """
    image = _one(image)
    scale = np.float32(1 / check_temperature(temperature))
    found = np.empty(image.shape[1:], dtype=np.float32)
    for band in bands(image[None]):
        z = image[:, band].astype(np.float32)
        with np.errstate(invalid="ignore"):
            z -= z.max(axis=0)
        z *= scale
        found[band] = 1 / np.exp(z, out=z).sum(axis=0)
    return found


def confidence_image(image: ArrayLike, temperature: float = 1.0) -> RgbImage:
    """The confidence of each pixel as a grey value.

    White is certain, black is chance level or padding.

    >>> confidence_image(np.array([[[100.0, 0.0, -np.inf]], [[0.0, 0.0, -np.inf]]]))
    array([[255,   0,   0]], dtype=uint8)

    Args:
        image: The logits of one image, of shape `(classes, height, width)`.
        temperature: The number that the logits are divided by.

    """
    guess = 1 / len(_one(image))
    fraction = (confidence_map(image, temperature) - guess) / (1 - guess)
    return np.asarray(np.clip(np.rint(255 * np.nan_to_num(fraction)), 0, 255), dtype=np.uint8)


def correct_image(image: ArrayLike, labels: ArrayLike, *, ignore: int | None = IGNORED) -> RgbImage:
    """An image that is green where the prediction is right, red where it is wrong, black where there is no label.

    >>> correct_image(np.array([[[1.0, 1.0]], [[0.0, 0.0]]]), [[0, 255]]).tolist()
    [[[38, 139, 87], [0, 0, 0]]]

    Args:
        image: The logits of one image, of shape `(classes, height, width)`.
        labels: The class of each pixel; resized to the logits if needed.
        ignore: The label of ignored pixels; None if there are none.

    """
    image = _one(image)
    mask = at_size(as_masks(labels, 1), image.shape[1:])[0]
    right = predicted(image[None])[0] == mask
    shown = np.where(right[..., None], np.array(GREEN, np.uint8), np.array(RED, np.uint8))
    if ignore is not None:
        shown[mask == ignore] = BLACK
    return shown


class ImageRow(NamedTuple):
    """A summary of one image: a row of the table of predictions.

    Attributes:
        fractions: The fraction of pixels of each class, of shape `(classes,)`.
        before: The mean confidence of the pixels before calibration; NaN if no pixel has a class.
        after: The mean confidence after calibration.

    """

    fractions: NDArray[np.float64]
    before: float
    after: float


def pixel_confidences(
    image: Maps, temperature: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The class of each pixel that has one, and its confidence before and after calibration.

    >>> classes, before, after = pixel_confidences(np.array([[[2 * np.log(3)]], [[0.0]]]), temperature=2.0)
    >>> classes, before.round(3), after.round(3)
    (array([0], dtype=uint8), array([0.9]), array([0.75]))
    """
    classes = predicted(image[None])[0]
    valid = classes != nothing(len(image))
    before, after = (confidence_map(image, t)[valid].astype(np.float64) for t in (1.0, temperature))
    return classes[valid], before, after


def image_row(image: Maps, temperature: float) -> ImageRow:
    """The summary of one image `(classes, height, width)`.

    >>> image_row(np.array([[[9.0, 9.0, 0.0, 9.0]], [[0.0, 0.0, 9.0, 0.0]]]), 2.0).fractions
    array([0.75, 0.25])
    """
    return row_of_pixels(*pixel_confidences(image, temperature), classes=len(image))


def row_of_pixels(pixels: NDArray[Any], before: Floats, after: Floats, *, classes: int) -> ImageRow:
    """The summary of an image from its `pixel_confidences`.

    >>> row_of_pixels(np.array([0, 0, 1, 0]), np.full(4, 0.75), np.full(4, 0.5), classes=2)
    ImageRow(fractions=array([0.75, 0.25]), before=0.75, after=0.5)
    """
    fractions = np.bincount(pixels, minlength=classes) / max(1, len(pixels))
    if len(pixels) == 0:
        return ImageRow(fractions, np.nan, np.nan)
    return ImageRow(fractions, float(before.mean()), float(after.mean()))


def resized_rows(
    image: Maps, size: tuple[int, int], rows: slice, *, align_corners: bool = False
) -> Maps:
    """Some rows of one image `(classes, height, width)`, resized bilinearly to `size`, as float32.

    The outer edges of the two images are aligned, or with `align_corners` the centres of their
    corner pixels.

    >>> resized_rows(np.array([[[0.0, 4.0]], [[0.0, 0.0]]]), (1, 4), slice(0, 1))[0]
    array([[0., 1., 3., 4.]], dtype=float32)

    A class at -inf is impossible, also in each new pixel that the old one contributes to. Pixels
    where every class is impossible, such as padding, contribute nothing.

    >>> resized_rows(np.array([[[0.0, 4.0, -np.inf]], [[0.0, -np.inf, -np.inf]]]), (1, 6), slice(0, 1))
    array([[[  0.,   1.,   3.,   4.,   4., -inf]],
    <BLANKLINE>
           [[  0., -inf, -inf, -inf, -inf, -inf]]], dtype=float32)
    """
    above, below, fraction = _neighbours(image.shape[1], size[0], align_corners)
    first = above[rows][0]
    last = below[rows][-1]
    part = image[:, first : last + 1]
    down = (above[rows] - first, below[rows] - first, fraction[rows])
    across = _neighbours(image.shape[2], size[1], align_corners)
    impossible: NDArray[np.bool_] = np.isneginf(part)
    if not impossible.any():
        return _bilinear(part, down, across)
    padding: NDArray[np.bool_] = np.all(impossible, axis=0, keepdims=True)
    weight = _bilinear(~padding, down, across)
    resized = _bilinear(np.where(impossible, 0, part), down, across)
    np.divide(resized, weight, out=resized, where=weight > 0)
    resized[(_bilinear(impossible & ~padding, down, across) > 0) | (weight == 0)] = -np.inf
    return resized


def _bilinear(image: NDArray[Any], down: Neighbours, across: Neighbours) -> Maps:
    (above, below, rows), (left, right, columns) = down, across
    band = image[:, above].astype(np.float32)
    with np.errstate(invalid="ignore"):  # +inf and NaN are rejected later
        band += (image[:, below] - band) * rows[:, None]
        wide = band.take(left, axis=2)
        wide += (band.take(right, axis=2) - wide) * columns
    return wide


def _neighbours(old: int, new: int, corners: bool) -> Neighbours:
    """For each new pixel along one axis.

    The two old pixels it lies between, and the weight of the second.
    """
    at = np.arange(new)
    place = at * ((old - 1) / max(new - 1, 1)) if corners else (at + 0.5) * (old / new) - 0.5
    place = np.clip(place, 0, old - 1)
    first = np.floor(place).astype(np.intp)
    return first, np.minimum(first + 1, old - 1), (place - first).astype(np.float32)


def _one(image: ArrayLike) -> Maps:
    """Convert to the logits `(classes, height, width)` of one image.

    A batch of one is accepted too.

    >>> _one(np.zeros((1, 3, 4, 4))).shape
    (3, 4, 4)
    """
    maps = as_maps(image)
    if len(maps) > 1:
        raise InputError(
            f"expected the logits of one image (classes, height, width), got a batch of {len(maps)}"
        )
    one: Maps = maps[0]
    return one


def independent_pixels(
    right: NDArray[np.int64], count: NDArray[np.int64], level: float = 0.95
) -> Doubles:
    """The effective sample size of each bin.

    The number of independent pixels that would estimate its accuracy as well.

    It is p (1 - p) divided by the variance of p between images, and less if there are few images
    (Korn and Graubard, 1998). Images of sizes n count as (sum of n)^2 / (sum of n^2) images of
    equal size. If the images do not vary, each counts as one pixel. With a single image the size is
    zero.

    >>> pixels = np.full((4, 1), 100)
    >>> independent_pixels(pixels, pixels), independent_pixels(pixels[:1], pixels[:1])
    (array([4.]), array([0.]))

    Args:
        right: The number of correct pixels of each image and bin, `(images, bins)`.
        count: The number of pixels of each image and bin, `(images, bins)`.
        level: The level of the interval that the size is used for.

    """
    from scipy.special import stdtrit

    pixels = count.sum(axis=0)
    n = np.maximum(pixels, 1.0)
    fraction = right.sum(axis=0) / n
    images = n**2 / np.maximum((count**2.0).sum(axis=0), 1)
    several = images > 1
    others = np.where(several, images - 1, 1)
    variance = images / others * ((right - fraction * count) ** 2).sum(axis=0) / n**2
    tail = (1 - check_level(level)) / 2
    shows = variance > 1e-12 * fraction * (1 - fraction)  # more than rounding errors
    fewer = (stdtrit(np.maximum(n - 1, 1), tail) / stdtrit(others, tail)) ** 2
    found = np.where(
        shows, fraction * (1 - fraction) / np.where(shows, variance, 1) * fewer, images
    )
    return np.where(several, np.minimum(found, pixels), 0.0)
