"""Mixup of images whose every pixel has a class: each pixel is a sample, each pair of images a group of them."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, Labelled, Maps, Predictor
from pseudocal.batches import blend
from pseudocal.pixels import ClassMaps, bands, draw, joined, new_group, predicted, rows_at
from pseudocal.synthesis.pairs import Pairs


def mixup_pixels(
    predict: Predictor,
    pairs: Pairs,
    *,
    lam: float,
    labels: Literal["hard", "soft"],
    pixels: int | None,
    rng: np.random.Generator,
) -> Labelled:
    """Mix pairs of images; keep pixels that the model tells apart, and label each by the larger share's.

    Of each pair at most `pixels` are drawn, and each then stands for as many as it was drawn from.

    >>> x = np.array([[[[4.0, 4.0]], [[0.0, 0.0]]], [[[4.0, 0.0]], [[0.0, 4.0]]]])    # (n, classes, 1, 2)
    >>> pairs = Pairs(x, x[::-1], predicted(x), predicted(x[::-1]))
    >>> mix = mixup_pixels(lambda x: x, pairs, lam=0.75, labels="hard", pixels=None, rng=np.random.default_rng(0))
    >>> mix.logits, mix.labels                                    # the two images agree on their first pixel
    (array([[3., 1.],
           [1., 3.]]), array([0, 1]))
    """
    first, second = _classes(pairs.logits), _classes(pairs.partner_logits)
    differ = _apart(first, second)
    rows = np.flatnonzero(differ.any(axis=(1, 2)))
    if len(rows) == 0:
        return Labelled(np.empty((0, 2)), np.empty(0, dtype=np.int64))
    kept = pairs[rows]
    said = first[rows] if labels == "hard" else _surest(kept, lam)
    mixed = predict(blend(kept.x, kept.partner, lam))
    parts = []
    for i, image in enumerate(mixed):
        at = draw(differ[rows[i]], pixels, rng)
        weight = (1.0 if kept.weights is None else float(kept.weights[i])) * np.count_nonzero(differ[rows[i]]) / len(at)
        target = said[i].reshape(-1)[at].astype(np.int64)
        parts.append(
            Labelled(rows_at(image, at), target, np.full(len(at), weight), np.full(len(at), new_group(rng)))
        )
    return joined(parts)


def _classes(said: Maps | ClassMaps) -> ClassMaps:
    """What the model said of each pixel, from its logits or kept as classes alone."""
    return predicted(said) if said.ndim == 4 else said  # type: ignore[arg-type, return-value]


def _apart(first: ClassMaps, second: ClassMaps) -> NDArray[np.bool_]:
    none = np.iinfo(first.dtype).max
    differ: NDArray[np.bool_] = (first != second) & (first != none) & (second != none)
    return differ


def _surest(pairs: Pairs, lam: float) -> ClassMaps:
    """The class of the largest mixed probability at each pixel."""
    first, second = pairs.logits, pairs.partner_logits  # (n, classes, height, width)
    found: ClassMaps = np.empty((len(first), *first.shape[2:]), dtype=np.uint8 if first.shape[1] <= 255 else np.uint16)
    for band in bands(first):
        shares = lam * _softmax(first[:, :, band]) + (1 - lam) * _softmax(second[:, :, band])
        found[:, band] = shares.argmax(axis=1)
    return found


def _softmax(maps: Maps) -> Floats:
    shifted = np.exp(maps - maps.max(axis=1, keepdims=True))
    normed: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return normed
