"""Bilinear resizing of logits, a few rows of pixels at a time: a small map need not be blown up to be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Maps

Between = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]


def resized_rows(image: Maps, size: tuple[int, int], rows: slice, *, align_corners: bool = False) -> Maps:
    """Some rows of one image `(classes, height, width)` resized to `size`, as float32.

    The centres of pixels are what is aligned, or with `align_corners` those of the corners.

    >>> resized_rows(np.array([[[0.0, 4.0]], [[0.0, 0.0]]]), (1, 4), slice(0, 1))[0]
    array([[0., 1., 3., 4.]], dtype=float32)

    A class is impossible, -inf, wherever an impossible one has a share. Pixels where every class is, such as padding,
    have none: what lies between them and others is that of the others.

    >>> resized_rows(np.array([[[0.0, 4.0, -np.inf]], [[0.0, -np.inf, -np.inf]]]), (1, 6), slice(0, 1))
    array([[[  0.,   1.,   3.,   4.,   4., -inf]],
    <BLANKLINE>
           [[  0., -inf, -inf, -inf, -inf, -inf]]], dtype=float32)
    """
    above, below, share = _between(image.shape[1], size[0], align_corners)
    first, last = above[rows][0], below[rows][-1]
    part = image[:, first : last + 1]
    down = (above[rows] - first, below[rows] - first, share[rows])
    across = _between(image.shape[2], size[1], align_corners)
    impossible: NDArray[np.bool_] = np.isneginf(part)
    if not impossible.any():
        return _bilinear(part, down, across)
    nothing: NDArray[np.bool_] = np.all(impossible, axis=0, keepdims=True)
    there = _bilinear(~nothing, down, across)
    wide = _bilinear(np.where(impossible, 0, part), down, across)
    np.divide(wide, there, out=wide, where=there > 0)
    wide[(_bilinear(impossible & ~nothing, down, across) > 0) | (there == 0)] = -np.inf
    return wide


def _bilinear(image: NDArray[Any], down: Between, across: Between) -> Maps:
    (above, below, rows), (left, right, columns) = down, across
    band = image[:, above].astype(np.float32)
    with np.errstate(invalid="ignore"):  # +inf and NaN, which are refused later
        band += (image[:, below] - band) * rows[:, None]
        wide = band.take(left, axis=2)
        wide += (band.take(right, axis=2) - wide) * columns
    return wide


def _between(old: int, new: int, corners: bool) -> Between:
    """For each new pixel the two old ones it lies between, and how far towards the second."""
    at = np.arange(new)
    place = at * ((old - 1) / max(new - 1, 1)) if corners else (at + 0.5) * (old / new) - 0.5
    place = np.clip(place, 0, old - 1)
    first = np.floor(place).astype(np.intp)
    return first, np.minimum(first + 1, old - 1), (place - first).astype(np.float32)
