"""Bilinear resizing of logits, a few rows of pixels at a time: a small map need not be blown up to be looked at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Maps


def resized_rows(image: Maps, size: tuple[int, int], rows: slice, *, align_corners: bool = False) -> Maps:
    """Some rows of one image `(classes, height, width)` resized to `size`, as float32.

    The centres of pixels are what is aligned, or with `align_corners` those of the corners.

    >>> resized_rows(np.array([[[0.0, 4.0]], [[0.0, 0.0]]]), (1, 4), slice(0, 1))[0]
    array([[0., 1., 3., 4.]], dtype=float32)
    """
    above, below, down = (part[rows] for part in _between(image.shape[1], size[0], align_corners))
    left, right, across = _between(image.shape[2], size[1], align_corners)
    band = image[:, above].astype(np.float32)
    band += (image[:, below] - band) * down[:, None]
    wide = band.take(left, axis=2)
    wide += (band.take(right, axis=2) - wide) * across
    return wide


def _between(old: int, new: int, corners: bool) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """For each new pixel the two old ones it lies between, and how far towards the second."""
    at = np.arange(new)
    place = at * ((old - 1) / max(new - 1, 1)) if corners else (at + 0.5) * (old / new) - 0.5
    place = np.clip(place, 0, old - 1)
    first = np.floor(place).astype(np.intp)
    return first, np.minimum(first + 1, old - 1), (place - first).astype(np.float32)
