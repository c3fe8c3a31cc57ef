"""Exact intervals of a share, of independent rows and of pixels that come image by image."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError
from pseudocal.metrics.blocks import Column


def clopper_pearson(right: ArrayLike, count: ArrayLike, level: float = 0.95) -> tuple[Column, Column]:
    """The interval of a share, exact however few there are; of none it is all of [0, 1].

    Two right out of two still leave room for doubt, down to the root of 0.025:

    >>> low, high = clopper_pearson([2, 0], [2, 0])
    >>> low.round(3), high
    (array([0.158, 0.   ]), array([1., 1.]))
    """
    from scipy.special import betaincinv

    tail, right = (1 - check_level(level)) / 2, np.asarray(right, dtype=np.float64)
    wrong = np.asarray(count, dtype=np.float64) - right
    low = np.where(right > 0, betaincinv(np.where(right > 0, right, 1), wrong + 1, tail), 0.0)
    high = np.where(wrong > 0, betaincinv(right + 1, np.where(wrong > 0, wrong, 1), 1 - tail), 1.0)
    return low, high


def independent_pixels(right: NDArray[np.int64], count: NDArray[np.int64], level: float = 0.95) -> Column:
    """As many independent pixels as would tell the share of right ones as well, of sums `(images, bins)`.

    It is p (1 - p) over the variance that the images show of p, less for few images (Korn and Graubard, 1998). Images
    count by their sizes n as (sum of n)^2 / (sum of n^2) of equal ones. If they show no variance, they count for a
    pixel each; of one image nothing is known.

    >>> pixels = np.full((4, 1), 100)
    >>> independent_pixels(pixels, pixels), independent_pixels(pixels[:1], pixels[:1])
    (array([4.]), array([0.]))
    """
    from scipy.special import stdtrit

    pixels = count.sum(axis=0)
    n = np.maximum(pixels, 1.0)
    share = right.sum(axis=0) / n
    images = n**2 / np.maximum((count**2.0).sum(axis=0), 1)
    several = images > 1
    others = np.where(several, images - 1, 1)
    variance = images / others * ((right - share * count) ** 2).sum(axis=0) / n**2
    tail = (1 - check_level(level)) / 2
    shows = variance > 1e-12 * share * (1 - share)  # and not what rounding leaves
    fewer = (stdtrit(np.maximum(n - 1, 1), tail) / stdtrit(others, tail)) ** 2
    found = np.where(shows, share * (1 - share) / np.where(shows, variance, 1) * fewer, images)
    return np.where(several, np.minimum(found, pixels), 0.0)


def check_level(level: float) -> float:
    """Refuse a confidence level that is not between 0 and 1."""
    if not 0 < level < 1:
        raise InputError(f"expected a level between 0 and 1, got {level!r}")
    return level
