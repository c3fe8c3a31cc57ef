"""The metrics: each takes `Outcomes` and gives one number; `classwise_ece` needs all probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Floats, InputError, Labels, Logits, as_labels, as_logits
from pseudocal.metrics.chunks import Chunk, Doubles, as_probabilities, logit_chunks, probability_chunks, sum_classes
from pseudocal.metrics.outcomes import Outcomes
from pseudocal.metrics.reliability import Reliability, bin_of, equal_width

Metric = Callable[[Outcomes], float]


def accuracy(outcomes: Outcomes) -> float:
    """The share of predictions that are right."""
    return float(outcomes.correct.mean())


def nll(outcomes: Outcomes) -> float:
    """The mean negative log-likelihood of the labels, in nats; inf if an impossible class was the label."""
    return float(outcomes.nll.mean())


def brier(outcomes: Outcomes, classes: int | None = None) -> float:
    """The mean squared error between probabilities and one-hot labels, summed over the classes (Brier, 1950).

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25]], labels=[1])
    >>> brier(outcomes), brier(outcomes, classes=2)
    (1.125, 0.5625)

    The appendix of the PseudoCal paper defines the mean over the classes, which `classes` divides by; its figures
    and its official code have the sum, and so does scikit-learn for more than two classes.
    """
    if classes is not None and classes < 2:
        raise InputError(f"expected at least two classes, got {classes}")
    return float(outcomes.brier.mean()) / (classes or 1)


def ece(outcomes: Outcomes, bins: int = 15) -> float:
    """The expected calibration error over bins of equal width (Naeini et al. 2015, Guo et al. 2017).

    It is biased upwards: chance alone gives a perfectly calibrated model about sqrt(bins / n) / 3.

    >>> ece(Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 1, 1]))
    0.25
    """
    return Reliability.of(outcomes, bins).ece


def equal_mass_ece(outcomes: Outcomes, bins: int = 15) -> float:
    """The expected calibration error over bins of equally many rows ("adaptive ECE").

    Rows of the same confidence share a bin, so that their order does not matter.
    """
    return Reliability.equal_mass(outcomes, bins).ece


def mce(outcomes: Outcomes, bins: int = 15) -> float:
    """The maximum calibration error: the gap of the worst bin, even if it holds a single row."""
    return Reliability.of(outcomes, bins).mce


def debiased_l2(outcomes: Outcomes, bins: int = 15) -> float:
    """The root mean squared calibration error over bins of equal mass, without its bias (Kumar et al. 2019).

    The squared gap of a bin overstates the true one by the variance of its accuracy, which is known: a (1 - a) / n.
    An estimate below zero becomes zero. A bin of a single row says nothing and counts as calibrated.

    Here the gap is 1/4 and the variance (1/2 * 1/2) / 3, more than the square of the gap:

    >>> debiased_l2(Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 1, 1]))
    0.0
    """
    binned = Reliability.equal_mass(outcomes, bins)
    right, count = binned.accuracy, binned.count
    variance = right * (1 - right) / np.maximum(count - 1, 1)
    square = np.where(count > 1, (binned.confidence - right) ** 2 - variance, 0.0)
    return float(np.sqrt(max(0.0, np.average(square, weights=count))))


def overconfidence(outcomes: Outcomes) -> float:
    """Mean confidence minus accuracy: above zero the model is overconfident."""
    return float(outcomes.confidence.mean() - outcomes.correct.mean())


def aurc(outcomes: Outcomes) -> float:
    """The area under the risk-coverage curve: the error rate of the k surest predictions, averaged over k.

    It says how well confidence ranks right predictions above wrong ones. Rows of the same confidence share their
    error rate, which is the average over all orders of them.

    Errors 0, 1/2, 1/2 in order of confidence, so risks of 0, 1/4 and 1/3:

    >>> round(aurc(Outcomes.from_probabilities([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4]], labels=[0, 1, 0])), 6)
    0.194444
    """
    _, group, size = np.unique(-outcomes.confidence, return_inverse=True, return_counts=True)
    errors = np.repeat(np.bincount(group, ~outcomes.correct) / size, size)  # surest first
    return float((np.cumsum(errors) / np.arange(1, len(errors) + 1)).mean())


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "nll": nll,
    "brier": brier,
    "ece": ece,
    "equal_mass_ece": equal_mass_ece,
    "mce": mce,
    "debiased_l2": debiased_l2,
    "overconfidence": overconfidence,
    "aurc": aurc,
}


def score(outcomes: Outcomes) -> dict[str, float]:
    """Every metric by its name, for tables.

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 0, 1])
    >>> score(outcomes)["accuracy"], score(outcomes)["ece"]
    (0.75, 0.0)
    """
    return {name: metric(outcomes) for name, metric in METRICS.items()}


def classwise_ece(
    labels: ArrayLike, *, logits: ArrayLike | None = None, probabilities: ArrayLike | None = None, bins: int = 15
) -> float:
    """The binned calibration error of each class's probability, averaged over the classes.

    Known as class-wise ECE (Kull et al. 2019) and static calibration error (Nixon et al. 2019). With many classes
    nearly every probability is near zero, and so is the average.

    Both classes have a gap of 1/4: one is given 3/4, the other 1/4, and each is the label half of the time.

    >>> classwise_ece([0, 0, 1, 1], probabilities=[[0.75, 0.25]] * 4)
    0.25

    Args:
        labels: the true classes `(n,)`.
        logits: `(n, classes)`; give either these or the probabilities.
        probabilities: `(n, classes)`, rows that sum to one.
        bins: the number of bins of equal width.

    """
    array, chunks = _read(logits, probabilities)
    labels, edges = as_labels(labels, array), equal_width(bins)
    gap = sum(_gaps(p, labels[rows], edges) for rows, p in chunks)
    return float(np.abs(gap).sum() / array.size)


def _read(logits: ArrayLike | None, probabilities: ArrayLike | None) -> tuple[Floats, Iterator[tuple[slice, Chunk]]]:
    if logits is not None and probabilities is None:
        array = as_logits(logits)
        return array, _softmax_chunks(array)
    if probabilities is not None and logits is None:
        array = as_probabilities(probabilities)
        return array, probability_chunks(array)
    raise InputError(f"expected either logits or probabilities, got {'neither' if logits is None else 'both'}")


def _softmax_chunks(logits: Logits) -> Iterator[tuple[slice, Chunk]]:
    for rows, z in logit_chunks(logits):
        z -= z.max(axis=0)
        np.exp(z, out=z)
        z /= sum_classes(z)
        yield rows, z


def _gaps(p: Chunk, labels: Labels, edges: Doubles) -> Doubles:
    """Probability minus occurrence, summed in each bin of each class: `(classes * bins,)`."""
    classes, bins = len(p), len(edges) - 1
    cell = bin_of(p, edges) + bins * np.arange(classes)[:, None]
    said = np.bincount(cell.ravel(), weights=p.ravel(), minlength=classes * bins).astype(np.float64)
    occurred = np.bincount(cell[labels, np.arange(len(labels))], minlength=classes * bins)
    return said - occurred
