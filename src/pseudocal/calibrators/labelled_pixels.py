"""Labelled pixels of a stream of images as rows, for calibrators that take labelled logits."""

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
    """Sample labelled pixels from batches `(images, masks)`.

    The result can be used wherever labelled logits are; its groups are the images:

    >>> import numpy as np
    >>> from pseudocal.calibrators import tempscal
    >>> images, masks = np.array([[2.0, 0.0]] * 4).reshape(4, 2, 1, 1), np.array([0, 0, 0, 1]).reshape(4, 1, 1)
    >>> tempscal(pixel_rows(lambda x: x, [(images, masks)]))
    Calibration(tempscal: T = 1.820 in [...], from 4 rows)

    Args:
        model: A segmentation model.
        batches: Pairs of images and their masks.
        pixels_per_image: The largest number of pixels to sample from each image; None for all.
        ignore: The label of ignored pixels; None if there are none.
        memory: The most bytes that the rows may take.
        seed: The seed of the sample.

    """
    check_pixels_per_image(pixels_per_image)
    predict = Checked(as_predictor(model))
    streams = Streams(seed)
    reservoir = Reservoir(memory, streams.kept_real())
    for number, (x, masks) in enumerate(map(_checked, batches)):
        maps = predict(x)
        if maps.ndim != 4:
            raise InputError(
                f"expected logits of every pixel (n, classes, h, w), got shape {maps.shape}"
            )
        reservoir.add(
            labelled_pixels(
                maps,
                masks,
                pixels_per_image=pixels_per_image,
                ignore=ignore,
                rng=streams.real(number),
            )
        )
    if reservoir.seen == 0:
        raise InputError("expected images with at least one pixel that is not ignored, got none")
    return reservoir.labelled


def _checked(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        shape = f" of shape {tuple(batch.shape)}" if hasattr(batch, "shape") else ""
        raise InputError(f"expected batches of (images, masks), got {type(batch).__name__}{shape}")
    return batch[0], batch[1]
