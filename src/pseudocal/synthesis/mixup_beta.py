"""Mixup-Beta: mixup with a share drawn anew for each pair, as mixup is used in training (Zhang et al., ICLR 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np

from pseudocal.arrays import Batch, Floats, InputError, Labelled, Predictor
from pseudocal.synthesis.pairs import Pairs, apart


def mixup_beta(predict: Predictor, pairs: Pairs, *, rng: np.random.Generator, alpha: float = 0.3) -> Labelled:
    """Mix pairs that the model tells apart, with shares from Beta(alpha, alpha); label each by its larger share.

    Most shares of Beta(0.3, 0.3) are near 0 or 1, so most mixes are nearly one of the two.

    >>> x = np.array([[4.0, 0.0]] * 1000)
    >>> mix = mixup_beta(lambda x: x, Pairs.of(x, x[:, ::-1], x, x[:, ::-1]), rng=np.random.default_rng(0))
    >>> shares = mix.logits[:, 0] / 4
    >>> bool(shares.min() >= 0.5), round(float((shares > 0.9).mean()), 1), mix.labels.max()
    (True, 0.6, np.int64(0))
    """
    kept = apart(pairs)
    shares = rng.beta(alpha, alpha, len(kept))
    shares = np.maximum(shares, 1 - shares)  # which of the two is called the first was a toss already
    if len(kept) == 0:
        return Labelled(kept.logits, np.empty(0, dtype=np.intp), kept.weights)
    x, partner = kept.x, kept.partner
    mixed = predict(_column(shares, x) * x + _column(1 - shares, x) * partner)
    return Labelled(mixed, kept.logits.argmax(axis=1), kept.weights)


def _column(values: Floats, x: Batch) -> Any:
    """One number for each row, in the kind of array that the inputs are."""
    shaped = values.reshape(-1, *[1] * (len(x.shape) - 1))
    if hasattr(x, "tocsr"):
        raise InputError("expected dense inputs, whose rows take shares of their own, got a sparse matrix")
    if hasattr(x, "new_tensor"):  # a torch tensor: shares in its own precision, or in float32 for integers
        return x.new_tensor(shaped, dtype=x.dtype if x.is_floating_point() else x.new_empty(0).float().dtype)
    return shaped.astype(np.result_type(x.dtype, np.float32)) if isinstance(x, np.ndarray) else shaped
