"""PseudoCal-same: mixup inside a predicted class, the ablation that shows why PseudoCal mixes across classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Labelled, Predictor
from pseudocal.batches import blend
from pseudocal.synthesis.pairs import Pairs


def mixup_same(predict: Predictor, pairs: Pairs, *, rng: np.random.Generator, lam: float = 0.65) -> Labelled:
    """Mix rows of one predicted class; the mix has that class.

    With many classes few pairs share one, so each row is paired anew with another row of its class.

    >>> x = np.array([[4.0, 0.0], [0.0, 4.0], [2.0, 0.0]])
    >>> mix = mixup_same(lambda x: x, Pairs.of(x, x, x, x), rng=np.random.default_rng(0), lam=0.75)
    >>> mix.logits, mix.labels  # the second row is the only one of its class
    (array([[3.5, 0. ],
           [2.5, 0. ]]), array([0, 0]))
    """
    pseudo = pairs.logits.argmax(axis=1)
    partner = _within_class(pseudo, rng)
    rows = np.flatnonzero(partner != np.arange(len(pairs)))
    kept = pairs[rows]
    if len(rows) == 0:
        return Labelled(kept.logits, pseudo[rows], kept.weights)
    mixed = predict(blend(pairs.rows, kept.first, pairs.first[partner[rows]], lam))
    return Labelled(mixed, pseudo[rows], kept.weights)


def _within_class(pseudo: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """A random partner of the same class for each row; the only one of its class is its own."""
    partner = np.arange(len(pseudo))
    for c in np.unique(pseudo):
        members = rng.permutation(np.flatnonzero(pseudo == c))
        partner[members] = np.roll(members, 1)
    return partner
