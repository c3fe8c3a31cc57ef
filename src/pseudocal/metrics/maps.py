"""Confidence and correctness as images: where in a picture the model is sure, and where it is right."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Maps, as_maps, check_temperature
from pseudocal.maps import IGNORED, as_masks, at_size, bands, predicted

Picture = NDArray[np.uint8]  # (height, width) grey, or (height, width, 3)
RIGHT, WRONG, UNKNOWN = (38, 139, 87), (200, 45, 45), (0, 0, 0)


def confidence_map(image: ArrayLike, temperature: float = 1.0) -> Floats:
    """The probability of each pixel's predicted class `(height, width)`, at the resolution of the logits.

    >>> confidence_map(np.array([[[2 * np.log(3)]], [[0.0]]]), temperature=2.0).round(3)
    array([[0.75]], dtype=float32)

    It is NaN where every class is at -inf, as in padding.
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


def confidence_picture(image: ArrayLike, temperature: float = 1.0) -> Picture:
    """The confidence of each pixel in grey: white is sure, black is as good as a guess, and padding.

    >>> confidence_picture(np.array([[[100.0, 0.0, -np.inf]], [[0.0, 0.0, -np.inf]]]))
    array([[255,   0,   0]], dtype=uint8)
    """
    guess = 1 / len(_one(image))
    share = (confidence_map(image, temperature) - guess) / (1 - guess)
    return np.asarray(np.clip(np.rint(255 * np.nan_to_num(share)), 0, 255), dtype=np.uint8)


def correct_picture(image: ArrayLike, labels: ArrayLike, *, ignore: int | None = IGNORED) -> Picture:
    """Green where the model is right, red where it is wrong, black where nobody says.

    >>> correct_picture(np.array([[[1.0, 1.0]], [[0.0, 0.0]]]), [[0, 255]]).tolist()
    [[[38, 139, 87], [0, 0, 0]]]
    """
    image = _one(image)
    mask = at_size(as_masks(labels, 1), image.shape[1:])[0]
    right = predicted(image[None])[0] == mask
    shown = np.where(right[..., None], np.array(RIGHT, np.uint8), np.array(WRONG, np.uint8))
    if ignore is not None:
        shown[mask == ignore] = UNKNOWN
    return shown


def _one(image: ArrayLike) -> Maps:
    """See the logits of one image as `(classes, height, width)`; a batch of one is one too.

    >>> _one(np.zeros((1, 3, 4, 4))).shape
    (3, 4, 4)
    """
    maps = as_maps(image)
    if len(maps) > 1:
        raise InputError(f"expected the logits of one image (classes, height, width), got a batch of {len(maps)}")
    one: Maps = maps[0]
    return one
