"""CutMix: mixing by area rather than by brightness (Yun et al., ICCV 2019)."""

from __future__ import annotations

import math

import numpy as np

from pseudocal.arrays import InputError, Labelled, Predictor
from pseudocal.synthesis.mixup import check_share
from pseudocal.synthesis.pairs import Pairs, apart


def cutmix(predict: Predictor, pairs: Pairs, *, rng: np.random.Generator, lam: float = 0.65) -> Labelled:
    """Paste a box of the partner, a share `1 - lam` of the area, into images that the model tells apart from it.

    The last two axes of the inputs are taken to be height and width. Each pair has a box of its own, which lies wholly
    inside the image, so that the share is what it says (CutMix in training lets it stick out).

    >>> x = np.stack([np.zeros((1, 4, 4)), np.ones((1, 4, 4))])
    >>> logits = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> area = lambda x: np.stack([1 - x.mean(axis=(1, 2, 3)), x.mean(axis=(1, 2, 3))], axis=1)
    >>> mix = cutmix(area, Pairs(x, logits, np.array([0, 1]), np.array([1, 0])), rng=np.random.default_rng(0), lam=0.75)
    >>> mix.logits, mix.labels  # a box of 2 by 2 is a quarter
    (array([[0.75, 0.25],
           [0.25, 0.75]]), array([0, 1]))
    """
    if len(pairs.rows.shape) < 3:
        raise InputError(f"expected images with height and width as their last two axes, got shape {pairs.rows.shape}")
    kept = apart(pairs)
    if len(kept) == 0:
        return Labelled(kept.logits, np.empty(0, dtype=np.intp), kept.weights)
    mixed, partner = kept.x, kept.partner
    height, width = mixed.shape[-2:]
    check_share(lam)
    tall, wide = (max(1, round(side * math.sqrt(1 - lam))) for side in (height, width))
    tops, lefts = (rng.integers(side - box + 1, size=len(kept)) for side, box in ((height, tall), (width, wide)))
    for i, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        box = (i, ..., slice(top, top + tall), slice(left, left + wide))
        mixed[box] = partner[box]
    return Labelled(predict(mixed), kept.logits.argmax(axis=1), kept.weights)
