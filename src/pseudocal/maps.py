"""Maps: logits of every pixel, turned into rows of logits in bounded memory.

The logits of a frame of 1,024 x 2,048 pixels and 19 classes take 160 MB. Nothing here makes a
second copy of them: a predicted class takes one byte per pixel, and only the logits of sampled
pixels are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import (
    InputError,
    Labelled,
    Logits,
    Maps,
    as_maps,
    as_numpy,
    is_integer,
    work_dtype,
)

LOGITS_PER_BAND = 1 << 20
IGNORED = 255  # the label of ignored pixels in Cityscapes and similar datasets

ClassMaps = NDArray[np.integer[Any]]  # (n, height, width), in the smallest dtype that fits


def bands(maps: Maps) -> Iterator[slice]:
    """Slices of the image height, each with a bounded number of logits.

    >>> list(bands(np.zeros((1, 2, 3, 4))))
    [slice(0, 3, None)]
    """
    n, classes, height, width = maps.shape
    step = max(1, LOGITS_PER_BAND // (n * classes * width))
    return (slice(start, min(start + step, height)) for start in range(0, height, step))


def nothing(classes: int) -> int:
    """The class number that stands for "no class"."""
    return 255 if classes <= 255 else 65535


def predicted(maps: Maps) -> ClassMaps:
    """The predicted class of each pixel; pixels with -inf for every class get "no class".

    >>> predicted(np.array([[[[2.0, 0.0, -np.inf]], [[1.0, 3.0, -np.inf]]]]))
    array([[[  0,   1, 255]]], dtype=uint8)
    """
    n, classes, height, width = maps.shape
    found: ClassMaps = np.empty((n, height, width), dtype="uint8" if classes <= 255 else "uint16")
    for band in bands(maps):
        found[:, band] = maps[:, :, band].argmax(axis=1)
        found[:, band][np.isneginf(maps[:, :, band].max(axis=1))] = nothing(classes)
    return found


def check_maps(maps: Maps, first: int = 0) -> None:
    """Reject NaN and +inf; the error names the pixel. Images are counted from `first`."""
    for band in bands(maps):
        top = maps[:, :, band].max(axis=1)
        if not (top < np.inf).all():
            i, y, x = (int(k) for k in np.argwhere(~(top < np.inf))[0])
            what = "NaN" if np.isnan(top[i, y, x]) else "+inf"
            raise InputError(
                f"expected logits below +inf, got {what} in image {first + i} at "
                f"({band.start + y}, {x})"
            )


def rows_at(image: Maps, at: NDArray[np.intp]) -> Logits:
    """The logits `(m, classes)` of the pixels with flat indices `at` of one image `(classes, height, width)`.

    >>> rows_at(np.arange(8.0).reshape(2, 2, 2), np.array([0, 3]))
    array([[0., 4.],
           [3., 7.]])
    """
    rows = image.reshape(len(image), -1)[:, at].T
    return np.ascontiguousarray(rows, dtype=np.promote_types(image.dtype, np.float32))


def draw(
    at: NDArray[np.intp], pixels_per_image: int | None, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Sample at most `pixels_per_image` of the pixels `at` without replacement; None keeps all.

    >>> draw(np.array([0, 2, 3]), 3, np.random.default_rng(0))
    array([0, 2, 3])
    """
    n = pixels_per_image
    return at if n is None or len(at) <= n else rng.choice(at, n, replace=False, shuffle=False)


def by_rows(function: Callable[[Logits], Logits], maps: Maps) -> Maps:
    """Apply a function of rows of logits to maps, a band of pixels at a time.

    >>> by_rows(lambda z: z / 2, np.full((1, 2, 1, 1), 4.0)).ravel()
    array([2., 2.])
    """
    n, classes, _, width = maps.shape
    result = np.empty(maps.shape, dtype=work_dtype(maps))
    for band in bands(maps):
        rows = np.moveaxis(maps[:, :, band], 1, -1)  # (n, height, width, classes)
        result[:, :, band] = np.moveaxis(
            function(rows.reshape(-1, classes)).reshape(n, -1, width, classes), -1, 1
        )
    return result


def labelled_pixels(
    maps: ArrayLike,
    labels: ArrayLike,
    *,
    pixels_per_image: int | None = 20_000,
    ignore: int | None = IGNORED,
    rng: np.random.Generator,
) -> Labelled:
    """Sample labelled pixels, at most `pixels_per_image` per image, as rows of logits.

    If the labels `(n, height, width)` have a higher resolution than the logits, each logit takes
    the label at its centre, so a model is fitted at its own resolution. Pixels with -inf for every
    class, such as padding, are left out. Each row is weighted by the number of pixels it
    represents.

    >>> z = np.zeros((1, 2, 1, 3))
    >>> rows = labelled_pixels(z, np.array([[[0, 255, 1]]]), rng=np.random.default_rng(0))
    >>> rows.labels, len(set(rows.groups.tolist()))
    (array([0, 1]), 1)
    """
    images = as_maps(maps)
    wanted = at_size(as_masks(labels, len(images)), images.shape[2:])
    parts = []
    for image, mask in zip(images, wanted, strict=True):
        valid = np.ones(mask.shape, dtype=bool) if ignore is None else mask != ignore
        check_classes(mask, valid, len(image))
        valid &= image.max(axis=0) != -np.inf
        parts.append(_rows(image, mask, valid, pixels_per_image, rng))
    return joined(parts)


def sampled(
    maps: Maps, classes: ClassMaps, pixels_per_image: int | None, rng: np.random.Generator
) -> Labelled:
    """Rows of random pixels, labelled with their predicted classes."""
    images = zip(maps, classes, strict=True)
    return joined(
        [_rows(z, labels, labels != nothing(len(z)), pixels_per_image, rng) for z, labels in images]
    )


def _rows(
    image: Maps,
    labels: ClassMaps,
    valid: NDArray[np.bool_],
    pixels_per_image: int | None,
    rng: np.random.Generator,
) -> Labelled:
    candidates = np.flatnonzero(valid)
    at = draw(candidates, pixels_per_image, rng)
    weight = len(candidates) / max(1, len(at))
    return Labelled(
        rows_at(image, at),
        labels.reshape(-1)[at].astype(np.int64),
        np.full(len(at), weight),
        np.full(len(at), new_group(rng)),
    )


def new_group(rng: np.random.Generator) -> np.int64:
    """A random group number for an image, so that independent workers do not use the same number twice."""
    return rng.integers(2**63, dtype=np.int64)


def joined(parts: list[Labelled]) -> Labelled:
    """Concatenate sets of rows that all have weights and groups."""
    columns = zip(*((p.logits, p.labels, p.weights, p.groups) for p in parts), strict=True)
    return Labelled(*(np.concatenate(column) for column in columns))


def as_masks(labels: ArrayLike, n: int) -> ClassMaps:
    """Convert to class numbers `(n, height, width)`; a single mask becomes a batch of one."""
    masks = as_numpy(labels, "labels")
    masks = masks[None] if masks.ndim == 2 else masks
    if masks.ndim != 3 or len(masks) != n or 0 in masks.shape:
        raise InputError(f"expected labels of shape ({n}, height, width), got shape {masks.shape}")
    if not is_integer(masks):
        raise InputError(f"expected labels that are integers, got dtype {masks.dtype}")
    return masks


def check_classes(
    mask: ClassMaps, valid: NDArray[np.bool_], classes: int, *, top: int = 0, where: str = ""
) -> None:
    """Reject labels that are neither a class nor ignored.

    `top` is the image row at which the mask begins.
    """
    bad = valid & ((mask < 0) | (mask >= classes))
    if bad.any():
        y, x = np.argwhere(bad)[0].tolist()
        place = f"({top + y}, {x})" + (f" in {where}" if where else "")
        raise InputError(
            f"expected labels from 0 to {classes - 1} or the ignored one, got {mask[y, x]} at "
            f"{place}"
        )


def at_size(masks: ClassMaps, size: tuple[int, ...]) -> ClassMaps:
    """Resize masks: each new pixel takes the label nearest to its centre.

    >>> at_size(np.array([[[1, 2, 3, 4]]]), (1, 2))
    array([[[2, 4]]])
    """
    if masks.shape[1:] == tuple(size):
        return masks
    rows, columns = (
        np.minimum(((np.arange(new) + 0.5) * old / new).astype(np.intp), old - 1)
        for new, old in zip(size, masks.shape[1:], strict=True)
    )
    return masks[:, rows[:, None], columns]
