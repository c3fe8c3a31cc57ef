"""A second opinion: the accuracy of a model, estimated from its agreement with a second model.

Two models agree on an input because the first is right, or because both make the same mistake. How
often they share a mistake can be measured on mixup samples. If the first model predicts for a mixup
sample a class that neither model predicts for either of the two inputs, that is certainly wrong;
whether the second makes the same mistake needs no labels. Let a be the agreement on real inputs, p
the accuracy of the first model, r the fraction of its mistakes that the second makes too, and q the
fraction of what it gets right that the second gets right too. Then

    a = p q + (1 - p) r.

If the second model is right wherever the first is, q = 1 and p = (a - r) / (1 - r): Cohen's kappa
with mistakes in common instead of chance. It is not, so p is a little higher: a fifth of the way
from there to a.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, Inputs, Labelled, Logits, Predictor
from pseudocal.batches import blend
from pseudocal.calibrators.confidence import confidences, predictions
from pseudocal.mixup.pairs import Classes, Pairs, with_different_classes

SAME = 0.9  # two models that share more of their mistakes than this are practically the same model
# two models that agree beyond chance on no more than this fraction may have different classes
UNRELATED = 0.05
# how far the accuracy lies from kappa towards the agreement; chosen on the development tasks
LEAN = 0.2
# how much of kappa (1 - kappa) is taken off for a surrogate; chosen on the development tasks too
SURROGATE_BIAS = 0.15
# a surrogate beside second models counts if its estimate differs by more than this: elsewhere it adds
# nothing (development families, `docs/evaluation/index.md`)
DIFFERENT = 0.2
# of the first model's own mean confidence in the estimate; chosen on the development families
OWN_WEIGHT = 0.15
# confidences are rounded to this, so that their sum is exact, however it is divided among workers
CONFIDENCE_STEP = 2.0**-26
# the weight, in mistakes, with which the fraction of each class is shrunk to that of all classes
PRIOR_MISTAKES = 3.0


@dataclass(frozen=True, eq=False)
class Opinion:
    """What one second model says, counted by the class that the first model predicts.

    Opinions of two parts add up.

    >>> (Opinion.empty(3) + Opinion.empty(3)).mistakes.tolist()
    [0.0, 0.0, 0.0]

    Attributes:
        inputs: The number of real inputs, of shape `(classes,)`.
        agreed: The number of real inputs on which the second model agrees.
        second_confidence: The sum of the second model's confidences on real inputs.
        mistakes: The weight of the mixup samples that the first model certainly predicts wrongly.
        shared: The weight of those on which the second model makes the same mistake.
        squares: The sum of the squared weights of the mistakes, for their effective number.

    """

    inputs: Floats
    agreed: Floats
    second_confidence: Floats
    mistakes: Floats
    shared: Floats
    squares: Floats

    @classmethod
    def empty(cls, classes: int) -> Opinion:
        """No counts."""
        return cls(*np.zeros((6, classes)))

    def __add__(self, other: Opinion) -> Opinion:
        return Opinion(
            *(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True))
        )


def count_agreement(logits: Logits, second_logits: Logits) -> Opinion:
    """Count on which real inputs two models agree.

    >>> logits = np.array([[2.0, 0.0], [2.0, 0.0]])
    >>> opinion = count_agreement(logits, np.array([[9.0, 0.0], [0.0, 9.0]]))
    >>> opinion.inputs.tolist(), opinion.agreed.tolist()
    ([2.0, 0.0], [1.0, 0.0])
    """
    own = logits.argmax(axis=1)
    classes = logits.shape[1]
    agrees = own == second_logits.argmax(axis=1)
    confident = np.round(confidences(second_logits) / CONFIDENCE_STEP) * CONFIDENCE_STEP
    inputs, agreed, confidence = _by_class(own, (np.ones(len(own)), agrees, confident), classes)
    empty = Opinion.empty(classes)
    return replace(empty, inputs=inputs, agreed=agreed, second_confidence=confidence)


@dataclass(frozen=True, eq=False)
class Suspects:
    """The mixup samples that a model predicts as a class that it gives to neither input.

    >>> x = np.array([[4.0, 0.0, 2.5], [0.0, 4.0, 2.5]])
    >>> pairs = Pairs(x, x, np.array([0]), np.array([1]))
    >>> mixup_samples = Labelled(np.array([[2.4, 1.6, 2.5]]), np.array([0]))
    >>> suspects = Suspects.of(pairs, mixup_samples, lam=0.6)
    >>> suspects.predicted, suspects.inputs
    (array([2]), array([[2.4, 1.6, 2.5]]))

    Attributes:
        pairs: The pairs that they are made of.
        predicted: The class that the model predicts for each.
        inputs: The mixup samples; None if there are none.

    """

    pairs: Pairs
    predicted: Classes
    inputs: Inputs | None

    @classmethod
    def of(cls, pairs: Pairs, mixup_samples: Labelled, lam: float) -> Suspects:
        """Those of a batch."""
        if len(mixup_samples) == 0:
            none = np.empty(0, dtype=np.intp)
            return cls(pairs[none], none, None)
        mixed = with_different_classes(pairs)
        own = pairs.outputs.argmax(axis=1)
        predicted = mixup_samples.logits.argmax(axis=1)
        at = np.flatnonzero(certain_errors(predicted, [own[mixed.first], own[mixed.second]]))
        mixed = mixed[at]
        inputs = blend(mixed.inputs, mixed.first, mixed.second, lam) if len(at) else None
        return cls(mixed, predicted[at], inputs)

    def __len__(self) -> int:
        return len(self.predicted)

    def predicted_by(self, predict: Predictor) -> Logits | None:
        """What another model says of them; None if there are none."""
        return None if self.inputs is None else predict(self.inputs)


def find_mistakes(suspects: Suspects, second_logits: Sequence[Logits | None]) -> list[Opinion]:
    """Count certain mistakes: those to which no second model gives a class of its inputs either.

    >>> x = np.array([[4.0, 0.0, 2.5], [0.0, 4.0, 2.5]])
    >>> pairs = Pairs(x, x, np.array([0]), np.array([1]), opinions=np.array([[0], [1]]))
    >>> mixup_samples = Labelled(np.array([[2.4, 1.6, 2.5]]), np.array([0]))
    >>> suspects = Suspects.of(pairs, mixup_samples, lam=0.6)
    >>> [opinion] = find_mistakes(suspects, [suspects.predicted_by(lambda x: x)])
    >>> opinion.mistakes.tolist(), opinion.shared.tolist()
    ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0])

    Args:
        suspects: What the model predicts as a class of neither input.
        second_logits: The logits of each second model for them.

    """
    pairs = suspects.pairs
    classes = pairs.outputs.shape[1]
    opinions = []
    for column, logits in enumerate(second_logits):
        if logits is None or pairs.opinions is None:
            opinions.append(Opinion.empty(classes))
            continue
        theirs = pairs.opinions[:, column]  # the classes that it predicts for the inputs
        wrong = certain_errors(suspects.predicted, [theirs[pairs.first], theirs[pairs.second]])
        same = logits.argmax(axis=1) == suspects.predicted
        weights = None if pairs.weights is None else pairs.weights[wrong]
        opinions.append(count_mistakes(suspects.predicted[wrong], same[wrong], classes, weights))
    return opinions


def certain_errors(predicted: Classes, of_inputs: Sequence[Classes]) -> NDArray[np.bool_]:
    """Which mixup samples get a class that no model predicts for either of their inputs.

    >>> certain_errors(np.array([2, 2, 1]), [np.array([0, 0, 0]), np.array([1, 2, 1])])
    array([ True, False, False])
    """
    return np.logical_and.reduce([predicted != classes for classes in of_inputs])  # type: ignore[no-any-return]


def count_mistakes(
    predicted: Classes, same: NDArray[np.bool_], classes: int, weights: Floats | None = None
) -> Opinion:
    """Count certain mistakes by predicted class.

    `same` marks those that the second model makes too.

    >>> opinion = count_mistakes(np.array([0, 2, 2]), np.array([True, True, False]), classes=3)
    >>> opinion.mistakes.tolist(), opinion.shared.tolist()
    ([1.0, 0.0, 2.0], [1.0, 0.0, 1.0])
    """
    w = np.ones(len(predicted)) if weights is None else weights
    mistakes, shared, squares = _by_class(predicted, (w, w * same, w * w), classes)
    return replace(Opinion.empty(classes), mistakes=mistakes, shared=shared, squares=squares)


def _by_class(predicted: Classes, weights: Iterable[NDArray[Any]], classes: int) -> list[Floats]:
    return [np.bincount(predicted, weight, classes).astype(np.float64) for weight in weights]


def expected_accuracy(a: float, r: float, *, surrogate: bool = False) -> float:
    """The accuracy that agreement `a` and the fraction `r` of shared mistakes imply.

    Of 60% agreement and 20% shared mistakes, kappa is (0.6 - 0.2) / (1 - 0.2) = 0.5; a fifth of the
    way to 0.6 is 0.52. A surrogate has learned mistakes that mixup samples do not show, so for it
    the accuracy is a little below kappa.

    >>> round(expected_accuracy(0.6, 0.2), 4), round(expected_accuracy(0.9, 0.2), 4), expected_accuracy(0.1, 0.2)
    (0.52, 0.88, 0.0)
    >>> round(expected_accuracy(0.6, 0.2, surrogate=True), 4)  # 0.5 - 0.15 * 0.5 * 0.5
    0.4625
    """
    if r >= 1:
        return 0.0
    kappa = (a - r) / (1 - r)
    if surrogate:
        return max(0.0, kappa) * (1 - SURROGATE_BIAS * (1 - kappa))
    return max(0.0, kappa + LEAN * (a - kappa))


@dataclass(frozen=True)
class Agreement:
    """How often two models agree, on real inputs and in their mistakes.

    >>> agreement = Agreement(classes=10, rows=100, rate=0.6, shared=0.2, mistakes=50.0)
    >>> round(agreement.accuracy, 4), round(agreement.error, 4)
    (0.52, 0.0648)

    Attributes:
        classes: The number of classes.
        rows: The number of real inputs.
        rate: The fraction of real inputs on which the models agree.
        shared: The fraction of the first model's mistakes that the second model makes too.
        mistakes: The effective number of certain mistakes on mixup samples that `shared` rests on.
        second_confidence: The mean confidence of the second model; NaN for a surrogate, which has
            none.
        surrogate: Whether the second opinion is a surrogate of the first model.
        from_second: Whether the features of the surrogate are the logits of a second model: then it
            counts beside that model only.

    """

    classes: int
    rows: int
    rate: float
    shared: float
    mistakes: float
    second_confidence: float = math.nan
    surrogate: bool = False
    from_second: bool = False

    @property
    def too_similar(self) -> bool:
        """Whether the second model is too similar to the first to be a second opinion."""
        return self.shared > SAME

    @property
    def is_binary(self) -> bool:
        """Whether shared mistakes cannot be seen.

        With two classes no mixup sample can be mistaken for a third one.
        """
        return self.classes == 2

    @property
    def at_chance(self) -> bool:
        """Whether it agrees on real inputs no more often than by shared mistakes and by chance."""
        return self.implied(self.rate, self.shared) <= 1 / self.classes + self.error

    @property
    def unrelated(self) -> bool:
        """Whether it agrees no more often than any two models: its classes may be other ones."""
        chance = 1 / self.classes
        above_chance = (self.rate - chance) / (1 - chance)
        return not self.surrogate and above_chance <= UNRELATED

    @property
    def usable(self) -> bool:
        """Whether the estimate and a temperature can be taken from it.

        Features that do not tell the classes apart make a surrogate that is at chance, whatever the
        model is like.
        """
        if self.too_similar or self.is_binary:
            return False
        return not (self.at_chance if self.surrogate else self.unrelated)

    @property
    def rate_error(self) -> float:
        """The standard error of `rate`."""
        return _standard_error(self.rate, self.rows)

    @property
    def accuracy(self) -> float:
        """The estimated accuracy of the first model.

        It is never at chance nor at one: no temperature reaches those.
        """
        least = 1 / self.classes
        room = min(self.error, (1 - least) / 2)  # of very few inputs the error may be larger
        return float(np.clip(self.implied(self.rate, self.shared), least + room, 1 - room))

    @property
    def error(self) -> float:
        """The standard error of `accuracy`, from the number of inputs and of mistakes.

        Never below that of the rate.
        """
        a, r = self.rate, self.shared
        of_rate = self.rate_error
        of_shared = _standard_error(r, self.mistakes)
        by_rate = self.implied(min(a + of_rate, 1), r) - self.implied(max(a - of_rate, 0), r)
        by_shared = self.implied(a, max(r - of_shared, 0)) - self.implied(a, min(r + of_shared, 1))
        return max(of_rate, math.hypot(by_rate, by_shared) / 2)

    def implied(self, a: float, r: float) -> float:
        """The accuracy that an agreement and shared mistakes imply."""
        return expected_accuracy(a, r, surrogate=self.surrogate)


def agreement_of(opinion: Opinion, real: Labelled) -> Agreement:
    """The agreement that the counts of a second model amount to.

    Mixup samples err towards other classes than real inputs do, so the shared mistakes of each
    class are weighted by how much the first model doubts its real predictions of that class. Of no
    mistakes, half count as shared.

    >>> real = Labelled(np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), np.array([0, 0]))
    >>> opinion = count_agreement(real.logits, np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    >>> agreement_of(opinion, real).rate
    0.5

    Args:
        opinion: The counts of one second model.
        real: The first model's logits of real inputs, or of a sample of them.

    """
    predicted = predictions(real.logits)
    classes = real.logits.shape[1]
    doubt = np.bincount(predicted, weights=1 - confidences(real.logits), minlength=classes)
    rows = float(opinion.inputs.sum())
    mistakes = float(opinion.mistakes.sum())
    # how many mistakes a unit of weight is worth
    worth = mistakes / float(opinion.squares.sum()) if mistakes else 1.0
    overall = (worth * float(opinion.shared.sum()) + 1) / (worth * mistakes + 2)
    of_class = (worth * opinion.shared + PRIOR_MISTAKES * overall) / (
        worth * opinion.mistakes + PRIOR_MISTAKES
    )
    return Agreement(
        classes=classes,
        rows=int(rows),
        rate=float(opinion.agreed.sum()) / rows,
        shared=float(np.average(of_class, weights=doubt)) if doubt.any() else overall,
        mistakes=worth * mistakes,
        second_confidence=float(opinion.second_confidence.sum()) / rows,
    )


@dataclass(frozen=True)
class Consensus:
    """What all usable second opinions say together.

    >>> one, other = (Agreement(10, 1000, rate, 0.2, 500.0) for rate in (0.6, 0.7))
    >>> both = Consensus((one, other))
    >>> one.accuracy < both.accuracy < other.accuracy, round(both.spread, 3)
    (True, 0.085)

    Attributes:
        agreements: The agreement with each usable second model, or that with a surrogate if there
            is none.
        surrogate_beside: The agreement with a surrogate beside second models, if there is one.
        confidence: The mean confidence of the first model, which counts a little; None to ignore it.
        dominance: By how much the largest fraction of predictions of one class exceeds one over the
            number of classes.

    """

    agreements: tuple[Agreement, ...]
    surrogate_beside: Agreement | None = None
    confidence: float | None = None
    dominance: float = 0.0

    @classmethod
    def of(
        cls,
        agreements: Iterable[Agreement],
        confidence: float | None = None,
        dominance: float = 0.0,
    ) -> Consensus | None:
        """What the usable ones among second opinions say together; None if there are none.

        Beside a second model, a surrogate at chance counts too: it may be the only sign of a
        collapse.

        >>> model = Agreement(10, 1000, rate=0.9, shared=0.2, mistakes=500.0)
        >>> surrogate = Agreement(10, 1000, rate=0.3, shared=0.2, mistakes=500.0, surrogate=True)
        >>> both = Consensus.of([surrogate, model])
        >>> both.agreements == (model,), both.surrogate_beside == surrogate, Consensus.of([])
        (True, True, None)

        Args:
            agreements: The agreement with each second opinion.
            confidence: As in the class.
            dominance: As in the class.

        """
        given = tuple(agreements)
        models = tuple(each for each in given if each.usable and not each.surrogate)
        surrogates = tuple(each for each in given if each.surrogate)
        if models:
            beside = [each for each in surrogates if not each.too_similar]
            return cls(models, beside[0] if beside else None, confidence, dominance)
        alone = tuple(each for each in surrogates if each.usable and not each.from_second)
        return cls(alone, None, confidence, dominance) if alone else None

    @property
    def accuracy(self) -> float:
        """The estimated accuracy.

        It is the mean of what second models estimate; a surrogate that differs much counts as much.
        The model's own confidence has a weight of 15%: it errs in other ways than agreement.

        >>> model = Agreement(10, 1000, rate=0.9, shared=0.2, mistakes=500.0)
        >>> surrogate = Agreement(10, 1000, rate=0.6, shared=0.2, mistakes=500.0, surrogate=True)
        >>> round(model.accuracy, 3), round(surrogate.accuracy, 3)
        (0.88, 0.462)
        >>> round(Consensus((model,), surrogate).accuracy, 3)
        0.671
        >>> round(Consensus((model,), confidence=0.98).accuracy, 3)  # 0.85 * 0.88 + 0.15 * 0.98
        0.895
        """
        found = self.of_agreements
        if self.surrogate_beside is not None and self.difference > DIFFERENT:
            found = (found + self.surrogate_beside.accuracy) / 2
        if self.confidence is None:
            return found
        return (1 - OWN_WEIGHT) * found + OWN_WEIGHT * self.confidence

    @property
    def own_weight(self) -> float:
        """The weight of the first model's own confidence in `accuracy`."""
        return 0.0 if self.confidence is None else OWN_WEIGHT

    @property
    def of_agreements(self) -> float:
        """The mean of what `agreements` estimate."""
        return float(np.mean([agreement.accuracy for agreement in self.agreements]))

    @property
    def difference(self) -> float:
        """How far the estimate of a surrogate is from that of the second models beside it."""
        if self.surrogate_beside is None:
            return 0.0
        return abs(self.of_agreements - self.surrogate_beside.accuracy)

    @property
    def estimator(self) -> str:
        """The name of the temperature that follows.

        "agreement", or "surrogate" if that is the only opinion.
        """
        return "surrogate" if self.agreements[0].surrogate else "agreement"

    @property
    def rate(self) -> float:
        """How often the first model agrees with the opinions, on average."""
        return float(np.mean([agreement.rate for agreement in self.agreements]))

    @property
    def at_chance(self) -> bool:
        """Whether no opinion agrees more often than by shared mistakes and by chance."""
        return all(agreement.at_chance for agreement in self.agreements)

    @property
    def spread(self) -> float:
        """The standard deviation of what they estimate; 0 for one opinion."""
        if len(self.agreements) == 1:
            return 0.0
        return float(np.std([agreement.accuracy for agreement in self.agreements], ddof=1))

    @property
    def error(self) -> float:
        """The standard error of `accuracy`.

        The opinions share their inputs, so they do not reduce it.
        """
        return float(np.mean([agreement.error for agreement in self.agreements]))


def _standard_error(rate: float, n: float) -> float:
    """The standard error of a rate among n; above zero at a rate of 0 and 1 too."""
    smoothed = (rate * n + 1) / (n + 2)
    return math.sqrt(smoothed * (1 - smoothed) / (n + 2))
