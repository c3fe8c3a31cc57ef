"""Labelled pixels of a stream as rows, for the calibrators that take labelled logits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pseudocal.arrays import InputError, Labelled, check_pixels_per_image
from pseudocal.maps import IGNORED, labelled_pixels
from pseudocal.predictors import Checked, as_predictor
from pseudocal.randomness import Streams
from pseudocal.reservoir import Reservoir


def pixel_rows(
    model: Any,
    batches: Iterable[tuple[Any, Any]],
    *,
    pixels_per_image: int | None = 20_000,
    ignore: int | None = IGNORED,
    memory: int = 2**27,
    seed: int = 0,
) -> Labelled:
    """Random pixels of images with masks, `(inputs, masks)` a batch.

    What a model that labels every pixel says of them can go wherever labelled logits go, and which rows are of one
    image goes with them:

    >>> import numpy as np
    >>> from pseudocal.calibrators import tempscal
    >>> images, masks = np.array([[2.0, 0.0]] * 4).reshape(4, 2, 1, 1), np.array([0, 0, 0, 1]).reshape(4, 1, 1)
    >>> tempscal(pixel_rows(lambda x: x, [(images, masks)]))
    Calibration(tempscal: T = 1.820 in [...], from 4 rows)

    Args:
        model: it labels every pixel.
        batches: images and their masks.
        pixels_per_image: at most so many pixels of each image; None for all.
        ignore: the label of pixels that do not count.
        memory: bytes that all of the rows may take.
        seed: the seed of the sample.

    """
    check_pixels_per_image(pixels_per_image)
    predict = Checked(as_predictor(model))
    streams = Streams(seed)
    reservoir = Reservoir(memory, streams.kept_real())
    for number, (x, masks) in enumerate(map(_checked, batches)):
        maps = predict(x)
        if maps.ndim != 4:
            raise InputError(f"expected logits of every pixel (n, classes, h, w), got shape {maps.shape}")
        reservoir.add(
            labelled_pixels(maps, masks, pixels_per_image=pixels_per_image, ignore=ignore, rng=streams.real(number))
        )
    if reservoir.seen == 0:
        raise InputError("expected images with at least one pixel that is not ignored, got none")
    return reservoir.labelled


def _checked(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        shape = f" of shape {tuple(batch.shape)}" if hasattr(batch, "shape") else ""
        raise InputError(f"expected batches of (images, masks), got {type(batch).__name__}{shape}")
    return batch[0], batch[1]
