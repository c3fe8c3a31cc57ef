"""Survey: which rows of the target to ask a person about, so that a few represent all of them.

Rows are ordered so that neighbours have similar predicted classes and similar confidences: along a Hilbert curve
through the plane of the two. Questions are spread evenly along that order, at multiples of the golden ratio from a
random start. This has three consequences. Each row is equally likely to be chosen, so no weights are needed. A few
questions cover coarse groups of classes and ranges of confidence, many cover each single class. And the first n
questions do not depend on n: asking for more keeps the existing answers, and all of them together are spread as evenly
as if they had been drawn at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError, Logits, Maps, as_logits, as_maps, check_pixels_per_image, check_rows
from pseudocal.calibrators.confidence import confidences
from pseudocal.maps import check_maps, draw, nothing, predicted, rows_at

RowNumbers = NDArray[np.intp]

GOLDEN = 0.6180339887498949  # any number of steps of this size around a circle leaves no large gap
PLASTIC = (0.7548776662466927, 0.5698402909980532)  # the same in two dimensions
BITS = 16  # bits of each coordinate of the Hilbert curve


def ask(logits: ArrayLike, n: int, *, seed: int = 0, groups: ArrayLike | None = None) -> RowNumbers:
    """The rows to ask a person about, in the order in which to ask.

    With eight rows of two classes, four questions cover each class twice:

    >>> logits = [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [0.0, 4.0]]
    >>> ask(logits, 4)
    array([6, 3, 5, 2])

    More questions begin with the same ones:

    >>> ask(logits, 6)
    array([6, 3, 5, 2, 0, 4])

    Args:
        logits: The logits of the whole target, of shape `(rows, classes)`.
        n: The number of rows to ask about.
        seed: The seed of the random start. The rows depend on the logits, the seed and the groups only.
        groups: Group numbers `(rows,)`, equal for rows that are not independent, such as pixels of one image.
            Questions are spread over the groups first.

    Returns:
        `n` distinct row numbers.

    """
    z = as_logits(logits)
    check_rows(z)
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= len(z):
        raise InputError(f"expected a number of rows to ask about from 1 to {len(z)}, got {n!r}")
    if seed < 0:
        raise InputError(f"expected a seed of at least 0, got {seed}")
    order = survey_order(z)
    rng = np.random.default_rng(seed)
    if groups is None:
        return order[_spread(len(z), int(n), rng)]
    return _spread_over_groups(order, as_row_groups(groups, len(z)), int(n), rng)


def survey_order(logits: Logits) -> RowNumbers:
    """Row numbers along a Hilbert curve through the plane of predicted class and confidence.

    Both coordinates are ranks. Classes are ranked by their mean confidence, so that neighbouring classes are similar.
    """
    classes, confidence = logits.argmax(axis=1), confidences(logits)
    count = np.bincount(classes, minlength=logits.shape[1])
    mean = np.bincount(classes, weights=confidence, minlength=logits.shape[1]) / np.maximum(count, 1)
    by_mean = np.argsort(mean, kind="stable")
    middle = np.empty(len(count))
    middle[by_mean] = (np.cumsum(count[by_mean]) - count[by_mean] / 2) / len(classes)
    rank = np.empty(len(classes))
    rank[np.lexsort((classes, confidence))] = (np.arange(len(classes)) + 0.5) / len(classes)
    return np.argsort(hilbert(middle[classes], rank), kind="stable")


def hilbert(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.int64]:
    """The positions of points `(x, y)` of the unit square along the Hilbert curve.

    The curve visits the four quarters one after the other:

    >>> quarters = hilbert(np.array([0.2, 0.2, 0.7, 0.7]), np.array([0.2, 0.7, 0.7, 0.2]))
    >>> quarters >> (2 * BITS - 2)
    array([0, 1, 2, 3])
    """
    column, row = ((np.clip(c, 0, 1 - 2.0**-BITS) * 2**BITS).astype(np.int64) for c in (x, y))
    found = np.zeros(len(column), dtype=np.int64)
    for bit in range(BITS - 1, -1, -1):
        right, upper = (column >> bit) & 1, (row >> bit) & 1
        found += ((3 * right) ^ upper) << (2 * bit)
        flip, swap = (upper == 0) & (right == 1), upper == 0
        mask = (1 << BITS) - 1
        column, row = np.where(flip, mask - column, column), np.where(flip, mask - row, row)
        column, row = np.where(swap, row, column), np.where(swap, column, row)
    return found


def _spread(size: int, n: int, rng: np.random.Generator) -> RowNumbers:
    """`n` distinct positions out of `size`, evenly spread, each equally likely."""
    start, places = rng.random(), np.empty(0, dtype=np.intp)
    steps = n
    while len(places) < n:  # if n is close to `size`, some steps hit a position that is taken
        at = ((start + GOLDEN * np.arange(steps)) % 1 * size).astype(np.intp)
        places = _first_met(np.minimum(at, size - 1))
        steps *= 2
    return places[:n]


def _spread_over_groups(order: RowNumbers, groups: NDArray[np.intp], n: int, rng: np.random.Generator) -> RowNumbers:
    """Like `_spread`, in two dimensions: over the groups, weighted by their rows, and over the rows within each."""
    by_group = order[np.argsort(groups[order], kind="stable")]
    count = np.bincount(groups)
    first = np.cumsum(count) - count
    across, along = rng.random(2)
    shuffled = rng.permutation(len(count))  # neighbouring groups may be similar, such as frames of a film
    ends = np.cumsum(count[shuffled])
    taken, steps = np.empty(0, dtype=np.intp), n
    while len(taken) < n:
        k = np.arange(steps)
        at = np.minimum((across + PLASTIC[0] * k) % 1 * len(order), len(order) - 1)
        group = shuffled[np.searchsorted(ends, at, side="right")]
        within = ((along + PLASTIC[1] * k) % 1 * count[group]).astype(np.intp)
        taken = _first_met(first[group] + np.minimum(within, count[group] - 1))
        steps *= 2
    return by_group[taken[:n]]


def _first_met(places: RowNumbers) -> RowNumbers:
    """The positions without repetitions, in order."""
    return places[np.sort(np.unique(places, return_index=True)[1])]


def as_row_groups(groups: ArrayLike, n: int) -> NDArray[np.intp]:
    """Groups numbered from zero, one for each of `n` rows."""
    numbers = np.asarray(groups)
    if numbers.shape != (n,) or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"expected groups as {n} integers, got {numbers.dtype} of shape {numbers.shape}")
    found: NDArray[np.intp] = np.unique(numbers, return_inverse=True)[1]
    return found


@dataclass(frozen=True, eq=False)
class PixelPool:
    """Sampled pixels of many images as rows, to ask a person about some of them.

    Attributes:
        logits: The logits of each pixel, of shape `(n, classes)`.
        images: The number of its image, from 0, of shape `(n,)`.
        y: Its line in the map of logits, from the top, of shape `(n,)`.
        x: Its column, from the left, of shape `(n,)`.

    """

    logits: Logits
    images: RowNumbers
    y: RowNumbers
    x: RowNumbers


def pixel_pool(batches: Iterable[ArrayLike], *, pixels_per_image: int = 500, seed: int = 0) -> PixelPool:
    """Sample pixels of each image, from which `ask(pool.logits, n, groups=pool.images)` chooses the questions.

    Pixels with -inf for every class, such as padding, are left out. Large and small images count the same.

    >>> pool = pixel_pool([np.zeros((2, 3, 4, 5)), np.zeros((1, 3, 4, 5))], pixels_per_image=6)
    >>> pool.logits.shape, pool.images.max()
    ((18, 3), np.int64(2))

    Args:
        batches: Batches of maps, of shape `(images, classes, height, width)`.
        pixels_per_image: The largest number of pixels to sample from each image.
        seed: The seed of the sample.

    """
    check_pixels_per_image(pixels_per_image)
    rng, parts, number = np.random.default_rng(seed), [], 0
    for batch in batches:
        maps: Maps = as_maps(batch)
        check_maps(maps)
        for image, classes in zip(maps, predicted(maps), strict=True):
            at = draw(np.flatnonzero(classes != nothing(len(image))), pixels_per_image, rng)
            y, x = np.unravel_index(at, classes.shape)
            parts.append((rows_at(image, at), np.full(len(at), number, dtype=np.intp), y, x))
            number += 1
    if not any(len(part[0]) for part in parts):
        raise InputError(f"expected maps with at least one pixel that has a class, got none in {number} images")
    return PixelPool(*(np.concatenate(column) for column in zip(*parts, strict=True)))
