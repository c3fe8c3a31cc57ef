"""A second opinion: the accuracy of a model, estimated from its agreement with a second model.

Two models agree on an input because the first is right, or because both make the same mistake. How often they share a
mistake can be measured on mixes. If the first model predicts for a mix a class that neither model predicts for either
of the two inputs, the prediction is certainly wrong; whether the second model makes the same mistake can be seen
without labels. If the second model shares a fraction r of the first one's mistakes and agrees with everything it gets
right, they agree on a = p + (1 - p) r of all inputs, so the accuracy is p = (a - r) / (1 - r). This is Cohen's kappa
with shared mistakes instead of chance agreement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, Labelled, Predictor
from pseudocal.batches import blend
from pseudocal.calibrators.confidence import confidences, match_confidence
from pseudocal.scaling import TemperatureScaling
from pseudocal.synthesis.pairs import Classes, Pairs, apart

SAME = 0.9  # two models that share more of their mistakes than this are practically the same model
LEAN = 1 / 3  # where the accuracy lay between kappa (0) and the raw agreement (1) on the development tasks
STEP = 1e-4  # step in log T for a numerical derivative


@dataclass(frozen=True)
class Mistakes:
    """Mixes that the model certainly predicts wrongly, and those on which a second model makes the same mistake.

    >>> Mistakes(8.0, 2.0, 8.0) + Mistakes(2.0, 1.0, 2.0)
    Mistakes(weight=10.0, shared=3.0, squares=10.0)

    Attributes:
        weight: The total weight of the mistakes.
        shared: The total weight of the shared mistakes.
        squares: The sum of the squared weights, for the effective number of mistakes.

    """

    weight: float = 0.0
    shared: float = 0.0
    squares: float = 0.0

    def __add__(self, other: Mistakes) -> Mistakes:
        return Mistakes(self.weight + other.weight, self.shared + other.shared, self.squares + other.squares)


def find_mistakes(second: Predictor, pairs: Pairs, mixes: Labelled, lam: float) -> Mistakes:
    """Find certain mistakes among the mixes of one batch, and predict only these mixes with the second model.

    Its predictions for the inputs of each pair are known already: `pairs.opinions`.

    >>> x = np.array([[4.0, 0.0, 2.5], [0.0, 4.0, 2.5]])
    >>> pairs = Pairs(x, x, np.array([0]), np.array([1]), opinions=np.array([0, 1]))
    >>> mixes = Labelled(np.array([[2.4, 1.6, 2.5]]), np.array([0]))  # predicted as the third class
    >>> find_mistakes(lambda x: x, pairs, mixes, lam=0.6)
    Mistakes(weight=1.0, shared=1.0, squares=1.0)
    """
    assert pairs.opinions is not None
    kept, predicted = apart(pairs), mixes.logits.argmax(axis=1)
    both = (kept.outputs.argmax(axis=1), pairs.opinions)  # of the first and of the second model
    shares = [classes[rows] for classes in both for rows in (kept.first, kept.second)]
    mistaken = np.flatnonzero(surely_mistaken(predicted, shares))
    if len(mistaken) == 0:
        return Mistakes()
    kept = kept[mistaken]
    same = second(blend(kept.inputs, kept.first, kept.second, lam)).argmax(axis=1) == predicted[mistaken]
    return mistakes_of(same, kept.weights)


def surely_mistaken(predicted: Classes, shares: Sequence[Classes]) -> NDArray[np.bool_]:
    """Which mixes are predicted as a class that no model predicts for either of their inputs.

    >>> surely_mistaken(np.array([2, 2, 1]), [np.array([0, 0, 0]), np.array([1, 2, 1])])
    array([ True, False, False])
    """
    return np.logical_and.reduce([predicted != share for share in shares])  # type: ignore[no-any-return]


def mistakes_of(same: NDArray[np.bool_], weights: Floats | None = None) -> Mistakes:
    """Count certain mistakes; `same` marks those that the second model makes too.

    >>> mistakes_of(np.array([True, False, False]))
    Mistakes(weight=3.0, shared=1.0, squares=3.0)
    """
    w = np.ones(len(same)) if weights is None else weights
    return Mistakes(float(w.sum()), float(w[same].sum()), float(np.square(w).sum()))


def count_mistakes(first: Sequence[Classes], second: Sequence[Classes], weights: Floats | None = None) -> Mistakes:
    """Count mistakes from classes: each model's predictions for the mixes, their larger and their smaller shares.

    The first of three mixes is not a certain mistake, since the second model predicts its class for one of the inputs.
    The other two are, and one of them is shared:

    >>> first = [np.array([2, 2, 2]), np.array([0, 0, 0]), np.array([1, 1, 1])]
    >>> second = [np.array([2, 2, 0]), np.array([2, 0, 0]), np.array([1, 1, 1])]
    >>> count_mistakes(first, second)
    Mistakes(weight=2.0, shared=1.0, squares=2.0)
    """
    predicted, *shares = first
    second_predicted, *second_shares = second
    mistaken = surely_mistaken(predicted, [*shares, *second_shares])
    return mistakes_of((second_predicted == predicted)[mistaken], None if weights is None else weights[mistaken])


@dataclass(frozen=True)
class Agreement:
    """How often two models agree, on real inputs and in their mistakes.

    >>> agreement = Agreement(rows=100, rate=0.6, mistakes=Mistakes(50.0, 10.0, 50.0))
    >>> agreement.shared, round(agreement.corrected, 4), round(agreement.accuracy, 4)
    (0.2, 0.5, 0.5333)

    Attributes:
        rows: The number of real inputs.
        rate: The fraction of real inputs on which the models agree.
        mistakes: The certain mistakes of the first model on mixes.

    """

    rows: int
    rate: float
    mistakes: Mistakes

    @property
    def shared(self) -> float:
        """The fraction of the first model's mistakes that the second model makes too."""
        return self.mistakes.shared / self.mistakes.weight if self.mistakes.weight else 0.0

    @property
    def empty(self) -> bool:
        """Whether the second model is too similar to the first to be a second opinion."""
        return self.shared > SAME

    @property
    def corrected(self) -> float:
        """Agreement corrected for shared mistakes. Slightly low: the second model is not right on every such input."""
        return max(0.0, (self.rate - self.shared) / (1 - self.shared)) if self.shared < 1 else 0.0

    @property
    def accuracy(self) -> float:
        """The estimated accuracy of the first model: between the corrected and the raw agreement."""
        return self.corrected + LEAN * (self.rate - self.corrected)

    @property
    def error(self) -> float:
        """The standard error of `accuracy`, from the number of inputs and of mistakes."""
        r, by_rate = self.shared, (1 - LEAN) / (1 - self.shared) + LEAN if self.shared < 1 else 1.0
        by_shared = (1 - LEAN) * (1 - self.rate) / (1 - r) ** 2 if r < 1 else 0.0
        worth = self.mistakes.weight**2 / self.mistakes.squares if self.mistakes.squares else math.inf
        of_rate, of_shared = self.rate * (1 - self.rate) / max(self.rows, 1), r * (1 - r) / worth
        return math.sqrt(by_rate**2 * of_rate + by_shared**2 * of_shared)

    def temperature(self, real: Labelled) -> TemperatureScaling:
        """The temperature at which the mean confidence on real inputs equals `accuracy`, with its standard error."""
        fitted = match_confidence(real.logits, self.accuracy)
        if fitted.bound:
            return fitted
        up, down = (confidences(real.logits, fitted.temperature * math.exp(step)).mean() for step in (STEP, -STEP))
        slope = abs(float(up - down)) / (2 * STEP)
        return replace(fitted, log_se=self.error / slope if slope else math.inf)


def agreement_of(real: Labelled, mistakes: Mistakes) -> Agreement:
    """The agreement on real inputs whose labels are the second model's predictions.

    >>> real = Labelled(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]))
    >>> agreement_of(real, Mistakes()).rate
    0.5
    """
    agrees = real.logits.argmax(axis=1) == real.labels
    return Agreement(len(real), float(np.average(agrees, weights=real.weights)), mistakes)
