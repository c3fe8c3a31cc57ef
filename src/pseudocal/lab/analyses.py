"""Analyses of the paper.

Whether mixup samples behave like the real inputs in them, one by one and in bins of confidence
(Figure 1b), the effect of lambda, what correct and wrong predictions contribute to the NLL that
temperature scaling minimises, and the ECE that chance alone leaves.

Except for the last two, inputs are predicted once and paired once, so every lambda mixes the same
pairs: results differ by lambda only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import (
    InputError,
    Labelled,
    Logits,
    Predictor,
    as_labels,
    as_logits,
    check_rows,
    check_temperature,
)
from pseudocal.batches import DEFAULT_BATCH_SIZE, count, cut, is_array, shuffled, take
from pseudocal.metrics import Outcomes, Reliability, ece
from pseudocal.mixup import Pairs, partners, with_different_classes
from pseudocal.mixup.mixup import mixup
from pseudocal.predictors import Checked, as_predictor
from pseudocal.randomness import Streams
from pseudocal.scaling import fit_temperature

LAMBDAS = (0.51, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)

__all__ = [
    "LAMBDAS",
    "Correspondence",
    "FactorisedNLL",
    "RealAndPseudo",
    "Swept",
    "calibrated_ece",
    "chance_correspondence",
    "correspondence",
    "factorised_nll",
    "lambda_sweep",
    "real_and_pseudo",
]


@dataclass(frozen=True)
class Correspondence:
    """How often a mixup sample is right exactly when the real input of its larger part is.

    Attributes:
        rate: the fraction of mixup samples for which both are right or both are wrong.
        accuracy: the accuracy of the model on the real inputs that have the larger part.
        pseudo_accuracy: the accuracy of the model on the mixup samples, by their labels.
        mixup_samples: the number of mixup samples.

    """

    rate: float
    accuracy: float
    pseudo_accuracy: float
    mixup_samples: int

    @property
    def chance(self) -> float:
        """The rate if mistakes on mixup samples were independent of those on real inputs."""
        return chance_correspondence(self.accuracy, self.pseudo_accuracy)


@dataclass(frozen=True, eq=False)
class RealAndPseudo:
    """Reliability diagrams of the real target and of the pseudo target (Figure 1b of the paper).

    Attributes:
        real: the diagram of the target with its true labels.
        pseudo: the diagram of the mixup samples with theirs.

    """

    real: Reliability
    pseudo: Reliability

    @property
    def gap(self) -> float:
        """How far apart both accuracies are at the same confidence.

        The mean of their absolute difference over bins that both have, by the number of real
        inputs; NaN if there is no such bin.
        """
        both = (self.real.count > 0) & (self.pseudo.count > 0)
        if not both.any():
            return math.nan
        difference = abs(self.real.accuracy[both] - self.pseudo.accuracy[both])
        return float(np.average(difference, weights=self.real.count[both]))


@dataclass(frozen=True)
class Swept:
    """PseudoCal at one lambda.

    Attributes:
        lam: the weight of the larger input of a mixup sample.
        labels: the labels of the mixup samples: "hard" or "soft".
        temperature: the temperature found.
        log_se: the standard error of its logarithm.
        mixup_samples: the number of mixup samples.
        pseudo_accuracy: the accuracy of the model on the mixup samples, by their labels.
        ece: the ECE of the target at this temperature, if its labels were given.

    """

    lam: float
    labels: Literal["hard", "soft"]
    temperature: float
    log_se: float
    mixup_samples: int
    pseudo_accuracy: float
    ece: float | None


@dataclass(frozen=True)
class FactorisedNLL:
    """The NLL at one temperature, by correct and wrong predictions (Eq. 2 of the paper).

    Attributes:
        temperature: the temperature.
        correct: the fraction of correct predictions.
        correct_nll: the mean NLL of the correct predictions; NaN if there are none.
        wrong_nll: the mean NLL of the wrong predictions; NaN if there are none.

    """

    temperature: float
    correct: float
    correct_nll: float
    wrong_nll: float

    @property
    def nll(self) -> float:
        """The NLL of all predictions: both means, weighted by their fractions."""
        parts = [(self.correct, self.correct_nll), (1 - self.correct, self.wrong_nll)]
        return sum(weight * nll for weight, nll in parts if weight > 0)


def chance_correspondence(accuracy: float, pseudo_accuracy: float) -> float:
    """The correspondence rate of independent mistakes: both right or both wrong by chance.

    >>> chance_correspondence(0.5, 0.75)
    0.5

    Args:
        accuracy: the accuracy on real inputs.
        pseudo_accuracy: the accuracy on mixup samples, by their labels.

    """
    return accuracy * pseudo_accuracy + (1 - accuracy) * (1 - pseudo_accuracy)


def calibrated_ece(reliability: Reliability) -> float:
    """The expected ECE of a perfectly calibrated model with these bins: what chance alone leaves.

    In each bin the number of right predictions is binomial, with the mean confidence as the
    probability. Its mean absolute deviation has a closed form (de Moivre). One prediction of
    confidence 1/2 is always off by 1/2, two are off by 1 half of the time:

    >>> one = Reliability(np.array([0.0, 1.0]), np.array([1]), np.array([0.5]), np.array([1]))
    >>> two = Reliability(np.array([0.0, 1.0]), np.array([2]), np.array([1.0]), np.array([1]))
    >>> round(calibrated_ece(one), 6), round(calibrated_ece(two), 6)
    (0.5, 0.25)

    Args:
        reliability: the bins; how many predictions of each are right makes no difference.

    """
    from scipy.stats import binom

    filled = reliability.count > 0
    n = reliability.count[filled]
    p = np.clip(reliability.confidence_sum[filled] / n, 0.0, 1.0)
    m = np.floor(n * p) + 1
    deviation = 2 * m * (1 - p) * binom.pmf(m, n, p)
    return float(deviation.sum() / n.sum())


def factorised_nll(
    logits: ArrayLike, labels: ArrayLike, temperatures: Sequence[float] = (1.0,)
) -> list[FactorisedNLL]:
    """Split the NLL that temperature scaling minimises into correct and wrong predictions.

    Correct predictions favour a small temperature, wrong ones a large temperature. Three of four
    predictions with a logit gap of 2 are right. At T = 2 / log 3 their confidence is 3/4, so the
    parts are log(4/3) and log 4:

    >>> (found,) = factorised_nll([[2.0, 0.0]] * 4, [0, 0, 0, 1], [2 / np.log(3)])
    >>> found.correct, round(found.correct_nll, 4), round(found.wrong_nll, 4)
    (0.75, 0.2877, 1.3863)
    >>> round(found.nll, 4)
    0.5623

    Args:
        logits: `(n, classes)`, of the target or of mixup samples.
        labels: `(n,)`, their labels.
        temperatures: the temperatures to evaluate.

    """
    z = as_logits(logits)
    check_rows(z)
    truth = as_labels(labels, z)
    right = z.argmax(axis=1) == truth
    found = []
    for temperature in temperatures:
        check_temperature(temperature)
        scaled = z.astype(np.float64) / temperature
        of_rows = np.logaddexp.reduce(scaled, axis=1) - scaled[np.arange(len(z)), truth]
        found.append(
            FactorisedNLL(
                float(temperature),
                float(right.mean()),
                float(of_rows[right].mean()) if right.any() else math.nan,
                float(of_rows[~right].mean()) if not right.all() else math.nan,
            )
        )
    return found


def correspondence(
    model: Any,
    target_inputs: Any,
    target_labels: ArrayLike,
    *,
    lam: float = 0.65,
    batch_size: int = DEFAULT_BATCH_SIZE,
    seed: int = 0,
) -> Correspondence:
    """How often a mixup sample is right exactly when the real input of its larger part is.

    This model predicts which of two numbers is larger, and a mixup sample has the same prediction
    as its larger part, so all mixup samples correspond. If every label is wrong, the model is
    wrong on the real inputs but right on the mixup samples, so none do.

    >>> x = 9 * np.eye(2)[np.random.default_rng(0).integers(0, 2, 100)]
    >>> correspondence(lambda x: x, x, x.argmax(axis=1))
    Correspondence(rate=1.0, accuracy=1.0, pseudo_accuracy=1.0, mixup_samples=...)
    >>> correspondence(lambda x: x, x, x.argmin(axis=1)).rate
    0.0

    Args:
        model: anything that `as_predictor` takes.
        target_inputs: one array.
        target_labels: `(n,)`, the true labels, which this evaluation needs.
        lam: the weight of the larger input of a mixup sample.
        batch_size: the size of the batches that pairs are drawn in.
        seed: the seed of the pairs.

    """
    predict = Checked(as_predictor(model))
    logits, paired = _logits_and_pairs(predict, target_inputs, batch_size, seed)
    truth = as_labels(target_labels, logits)
    real = np.concatenate([pairs.logits.argmax(axis=1) == truth[pairs.first] for pairs in paired])
    mixup_samples = [mixup(predict, pairs, lam=lam) for pairs in paired]
    mixed = np.concatenate([mix.logits.argmax(axis=1) == mix.labels for mix in mixup_samples])
    return Correspondence(
        float((real == mixed).mean()), float(real.mean()), float(mixed.mean()), len(mixed)
    )


def real_and_pseudo(
    model: Any,
    target_inputs: Any,
    target_labels: ArrayLike,
    *,
    temperature: float = 1.0,
    bins: int = 15,
    lam: float = 0.65,
    batch_size: int = DEFAULT_BATCH_SIZE,
    seed: int = 0,
) -> RealAndPseudo:
    """Compare the accuracy at each confidence, on the real target and on mixup samples.

    PseudoCal rests on their similarity. This model is always right, on real inputs and on mixup
    samples; with wrong labels it is right on the mixup samples only:

    >>> x = 9 * np.eye(2)[np.random.default_rng(0).integers(0, 2, 100)]
    >>> real_and_pseudo(lambda x: x, x, x.argmax(axis=1), bins=1).gap
    0.0
    >>> real_and_pseudo(lambda x: x, x, x.argmin(axis=1), bins=1).gap
    1.0

    Args:
        model: anything that `as_predictor` takes.
        target_inputs: one array.
        target_labels: `(n,)`, the true labels, which this evaluation needs.
        temperature: what both logits are divided by, such as PseudoCal's temperature.
        bins: the number of bins of equal width.
        lam: the weight of the larger input of a mixup sample.
        batch_size: the size of the batches that pairs are drawn in.
        seed: the seed of the pairs.

    """
    check_temperature(temperature)
    predict = Checked(as_predictor(model))
    logits, paired = _logits_and_pairs(predict, target_inputs, batch_size, seed)
    truth = as_labels(target_labels, logits)
    pseudo = _concatenated([mixup(predict, pairs, lam=lam) for pairs in paired])
    return RealAndPseudo(
        Reliability.of(Outcomes.from_logits(logits / temperature, truth), bins),
        Reliability.of(Outcomes.from_logits(pseudo.logits / temperature, pseudo.labels), bins),
    )


def lambda_sweep(
    model: Any,
    target_inputs: Any,
    target_labels: ArrayLike | None = None,
    *,
    lams: Sequence[float] = LAMBDAS,
    batch_size: int = DEFAULT_BATCH_SIZE,
    seed: int = 0,
) -> list[Swept]:
    """PseudoCal with hard and with soft labels at each lambda.

    One pass over the data, and one more per lambda.

    The closer a mixup sample is to one real input, the more confident the model may be, and the
    lower is the temperature:

    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> low, high = lambda_sweep(lambda x: 9 * x, x, lams=[0.51, 0.9])[::2]
    >>> (low.lam, high.lam), low.temperature > high.temperature
    ((0.51, 0.9), True)

    Args:
        model: anything that `as_predictor` takes.
        target_inputs: one array.
        target_labels: `(n,)`, the true labels, for the ECE only: no temperature depends on them.
        lams: the lambdas to try.
        batch_size: the size of the batches that pairs are drawn in.
        seed: the seed of the pairs.

    """
    predict = Checked(as_predictor(model))
    logits, paired = _logits_and_pairs(predict, target_inputs, batch_size, seed)
    truth = None if target_labels is None else Labelled(logits, as_labels(target_labels, logits))
    records = []
    for lam in lams:
        hard, soft = _mixed(predict, paired, lam)
        records += [_record(lam, "hard", hard, truth), _record(lam, "soft", soft, truth)]
    return records


def _logits_and_pairs(
    predict: Predictor, inputs: Any, batch_size: int, seed: int
) -> tuple[Logits, list[Pairs]]:
    """The logits of all inputs, and the pairs of inputs with different predicted classes."""
    if not is_array(inputs):
        raise InputError(f"expected target inputs as one array, got {type(inputs).__name__}")
    n = count(inputs)
    logits = np.concatenate([predict(take(inputs, rows)) for rows in cut(np.arange(n), batch_size)])
    partner = partners(n, batch_size=batch_size, seed=seed)
    batches = shuffled(n, batch_size, Streams(seed).order())
    kept = [
        pairs
        for rows in batches
        if len(pairs := with_different_classes(Pairs(inputs, logits, rows, partner[rows])))
    ]
    if not kept:
        raise InputError(
            f"expected target inputs with different predicted classes, got one class for all {n}"
        )
    return logits, kept


def _mixed(predict: Predictor, paired: list[Pairs], lam: float) -> tuple[Labelled, Labelled]:
    """The mixup samples with hard and with soft labels; the model sees them once."""
    hard = []
    soft = []
    for pairs in paired:
        mix = mixup(predict, pairs, lam=lam)
        hard.append(mix)
        soft.append(mixup(lambda _, seen=mix.logits: seen, pairs, lam=lam, labels="soft"))
    return _concatenated(hard), _concatenated(soft)


def _concatenated(parts: list[Labelled]) -> Labelled:
    return Labelled(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )


def _record(
    lam: float, labels: Literal["hard", "soft"], mixup_samples: Labelled, truth: Labelled | None
) -> Swept:
    scaling = fit_temperature(mixup_samples.logits, mixup_samples.labels)
    right = float((mixup_samples.logits.argmax(axis=1) == mixup_samples.labels).mean())
    error = (
        None if truth is None else ece(Outcomes.from_logits(scaling(truth.logits), truth.labels))
    )
    return Swept(lam, labels, scaling.temperature, scaling.log_se, len(mixup_samples), right, error)
