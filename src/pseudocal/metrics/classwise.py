"""The calibration error of each class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Floats, InputError, Labels, Logits, as_labels, as_logits
from pseudocal.metrics.outcomes import bin_of, equal_width
from pseudocal.passes import (
    Chunk,
    Doubles,
    as_probabilities,
    logit_chunks,
    probability_chunks,
    sum_classes,
)


def classwise_ece(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    bins: int = 15,
) -> float:
    """The binned calibration error of each class's probability, averaged over the classes.

    It is known as class-wise ECE (Kull et al. 2019) and static calibration error (Nixon et al.
    2019). With many classes nearly every probability is close to zero, and so is the average.

    Both classes have a gap of 1/4: their probabilities are 3/4 and 1/4, and each is the label half
    of the time.

    >>> classwise_ece([0, 0, 1, 1], probabilities=[[0.75, 0.25]] * 4)
    0.25

    Args:
        labels: The true classes, of shape `(n,)`.
        logits: Logits of shape `(n, classes)`; pass either logits or probabilities.
        probabilities: Probabilities of shape `(n, classes)`.
        bins: The number of bins of equal width.

    """
    array, chunks = _read(logits, probabilities)
    labels = as_labels(labels, array)
    edges = equal_width(bins)
    gap = sum(_gaps(p, labels[rows], edges) for rows, p in chunks)
    return float(np.abs(gap).sum() / array.size)


def _read(
    logits: ArrayLike | None, probabilities: ArrayLike | None
) -> tuple[Floats, Iterator[tuple[slice, Chunk]]]:
    if logits is not None and probabilities is None:
        array = as_logits(logits)
        return array, _softmax_chunks(array)
    if probabilities is not None and logits is None:
        array = as_probabilities(probabilities)
        return array, probability_chunks(array)
    raise InputError(
        f"expected either logits or probabilities, got {'neither' if logits is None else 'both'}"
    )


def _softmax_chunks(logits: Logits) -> Iterator[tuple[slice, Chunk]]:
    for rows, z in logit_chunks(logits):
        z -= z.max(axis=0)
        np.exp(z, out=z)
        z /= sum_classes(z)
        yield rows, z


def _gaps(p: Chunk, labels: Labels, edges: Doubles) -> Doubles:
    """Predicted minus observed frequency, summed in each bin of each class: `(classes * bins,)`."""
    classes = len(p)
    bins = len(edges) - 1
    cell = bin_of(p, edges) + bins * np.arange(classes)[:, None]
    predicted = np.bincount(cell.ravel(), weights=p.ravel(), minlength=classes * bins).astype(
        np.float64
    )
    observed = np.bincount(cell[labels, np.arange(len(labels))], minlength=classes * bins)
    return predicted - observed
