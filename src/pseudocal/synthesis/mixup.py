"""Pseudo-target synthesis by mixup: Algorithm 1 of the PseudoCal paper."""

from __future__ import annotations

from typing import Literal

import numpy as np

from pseudocal.arrays import InputError, Labelled, Predictor, softmax
from pseudocal.batches import blend
from pseudocal.synthesis.mixup_pixels import mixup_pixels
from pseudocal.synthesis.pairs import Pairs, apart


def check_share(lam: float) -> None:
    """Refuse a larger share that is not larger."""
    if not 0.5 < lam < 1:
        raise InputError(f"expected lam, the larger share, between 0.5 and 1, got {lam}")


def mixup(
    predict: Predictor,
    pairs: Pairs,
    *,
    lam: float = 0.65,
    labels: Literal["hard", "soft"] = "hard",
    pixels: int | None = 20_000,
    rng: np.random.Generator | None = None,  # for pixels alone: the pairs are drawn already
) -> Labelled:
    """Mix pairs that the model tells apart; label each mix by its larger share.

    Pairs that share a predicted class are dropped: only mixes across a boundary come out both right and wrong, as
    real target predictions do. "hard" labels a mix with the predicted class of its larger share; "soft" with the
    class of the largest mixed probability, which is another one where the larger share was the less sure.

    >>> identity = lambda x: x
    >>> x = np.array([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    >>> mix = mixup(identity, Pairs(x, x, np.array([0, 1, 2]), np.array([1, 0, 0])), lam=0.75)
    >>> mix.logits, mix.labels  # the third pair shares its class
    (array([[3., 1.],
           [1., 3.]]), array([0, 1]))

    Of images whose every pixel has a class, the pixels are mixed, at most `pixels` of each pair.
    """
    check_share(lam)
    if pairs.row_logits.ndim > 2:
        rng = rng or np.random.default_rng(0)
        return mixup_pixels(predict, pairs, lam=lam, labels=labels, pixels=pixels, rng=rng)
    kept = apart(pairs)
    if len(kept) == 0:
        return Labelled(kept.logits, np.empty(0, dtype=np.intp), kept.weights)
    mixed = predict(blend(kept.rows, kept.first, kept.second, lam))
    if labels == "hard":
        return Labelled(mixed, kept.logits.argmax(axis=1), kept.weights)
    shares = lam * softmax(kept.logits) + (1 - lam) * softmax(kept.partner_logits)
    return Labelled(mixed, shares.argmax(axis=1), kept.weights)
