"""Pseudo-Label and Filtered-PL: real target rows, labelled by the model (Lee 2013; Sohn et al., NeurIPS 2020)."""

from __future__ import annotations

import numpy as np

from pseudocal.arrays import Labelled, Predictor, softmax
from pseudocal.synthesis.pairs import Pairs


def pseudo_label(predict: Predictor, pairs: Pairs, *, rng: np.random.Generator | None = None) -> Labelled:
    """Real rows with their predictions as labels: every one of them is right, so the model cannot be too sure.

    >>> x = np.array([[4.0, 0.0], [0.0, 4.0]])
    >>> pseudo_label(lambda x: x, Pairs.of(x, x, x, x)).labels
    array([0, 1])

    The temperature that fits them is zero, or the lower bound of the search: the ECE is then the error rate, which
    is what the paper's ablation reports. Nothing is predicted again and nothing is drawn.
    """
    return Labelled(pairs.logits, pairs.logits.argmax(axis=1), pairs.weights)


def filtered_pl(
    predict: Predictor, pairs: Pairs, *, rng: np.random.Generator | None = None, threshold: float = 0.95
) -> Labelled:
    """Real rows that the model is sure of, with their predictions as labels; 0.95 is FixMatch's threshold.

    >>> x = np.array([[4.0, 0.0], [0.0, 1.0]])
    >>> len(filtered_pl(lambda x: x, Pairs.of(x, x, x, x)))
    1
    """
    return pseudo_label(predict, pairs[np.flatnonzero(softmax(pairs.logits).max(axis=1) >= threshold)])
