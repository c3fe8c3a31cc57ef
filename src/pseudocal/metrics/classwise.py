"""The calibration error of each class."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Labels, as_labels, as_weights
from pseudocal.metrics.outcomes import bin_of, equal_width
from pseudocal.passes import Chunk, Doubles, as_probabilities, probability_chunks


def classwise_ece(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    *,
    weights: ArrayLike | None = None,
) -> float:
    """The binned calibration error of each class's probability, averaged over the classes.

    It is known as class-wise ECE (Kull et al. 2019) and static calibration error (Nixon et al.
    2019). With many classes nearly every probability is close to zero, and so is the average. It
    needs the probabilities of all classes, so it has no version for `Outcomes`.

    Both classes have a gap of 1/4: their probabilities are 3/4 and 1/4, and each is the label half
    of the time.

    >>> classwise_ece([[0.75, 0.25]] * 4, [0, 0, 1, 1])
    0.25

    Args:
        probabilities: Probabilities of shape `(n, classes)`, or those of the second of two classes,
            of shape `(n,)`.
        labels: The true classes, of shape `(n,)`.
        bins: The number of bins of equal width.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.

    """
    array = as_probabilities(probabilities)
    labels = as_labels(labels, array)
    n, classes = array.shape
    edges = equal_width(bins)
    weight = np.ones(n) if weights is None else as_weights(weights, n)
    gap = sum(_gaps(p, labels[rows], weight[rows], edges) for rows, p in probability_chunks(array))
    return float(np.abs(gap).sum() / (classes * weight.sum()))


def _gaps(p: Chunk, labels: Labels, weights: Doubles, edges: Doubles) -> Doubles:
    """Predicted minus observed frequency, summed in each bin of each class: `(classes * bins,)`."""
    classes = len(p)
    bins = len(edges) - 1
    cell = bin_of(p, edges) + bins * np.arange(classes)[:, None]
    predicted = np.bincount(cell.ravel(), (weights * p).ravel(), classes * bins)
    observed = np.bincount(cell[labels, np.arange(len(labels))], weights, classes * bins)
    return np.asarray(predicted - observed, dtype=np.float64)
