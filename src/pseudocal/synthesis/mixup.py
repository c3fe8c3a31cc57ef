"""Pseudo-target synthesis by mixup: Algorithm 1 of the PseudoCal paper."""

from __future__ import annotations

from typing import Literal

import numpy as np

from pseudocal.arrays import Batch, Labelled, Predictor, softmax
from pseudocal.synthesis.pairs import Pairs


def mixup(predict: Predictor, pairs: Pairs, *, lam: float = 0.65, labels: Literal["hard", "soft"] = "hard") -> Labelled:
    """Mix pairs that the model tells apart; label each mix by its larger share.

    Pairs that share a predicted class are dropped: only mixes across a boundary come out both right and wrong, as
    real target predictions do. "hard" labels a mix with the predicted class of its larger share; "soft" with the
    class of the largest mixed probability, which is another one where the larger share was the less sure.

    >>> identity = lambda x: x
    >>> x = np.array([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    >>> mix = mixup(identity, Pairs(x, x[[1, 0, 0]], x, x[[1, 0, 0]]), lam=0.75)
    >>> mix.logits, mix.labels  # the third pair shares its class
    (array([[3., 1.],
           [1., 3.]]), array([0, 1]))
    """
    kept = pairs[np.flatnonzero(pairs.logits.argmax(axis=1) != pairs.partner_logits.argmax(axis=1))]
    if len(kept) == 0:
        return Labelled(kept.logits, np.empty(0, dtype=np.intp), kept.weights)
    mixed = predict(_mix(kept.x, kept.partner, lam))
    if labels == "hard":
        return Labelled(mixed, kept.logits.argmax(axis=1), kept.weights)
    shares = lam * softmax(kept.logits) + (1 - lam) * softmax(kept.partner_logits)
    return Labelled(mixed, shares.argmax(axis=1), kept.weights)


def _mix(x: Batch, partner: Batch, lam: float) -> Batch:
    """Lam x + (1 - lam) partner. Both are copies of rows that nobody else holds, so that floats are mixed in place."""
    if isinstance(x, np.ndarray) and np.issubdtype(x.dtype, np.floating):
        x *= lam
        partner *= 1 - lam
        x += partner
        return x
    return lam * x + (1 - lam) * partner
