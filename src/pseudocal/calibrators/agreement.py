"""A second opinion: what the agreement of two models says of the accuracy of the first.

Two models agree on an input because the first is right, or because they share a mistake. How often they share one is
what mixes tell. A mix of two inputs that gets a class which neither model gives to either of the two is a mistake, for
sure; whether the second model makes the same one can be seen without labels. If the second agrees with a share r of
the first's mistakes, and with all that is right, then they agree on a = p + (1 - p) r of all inputs, and the accuracy
is p = (a - r) / (1 - r): Cohen's kappa, with shared mistakes in the place of chance.
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

SAME = 0.9  # shared mistakes: two models that share more of them are one, and their agreement says nothing
LEAN = 1 / 3  # where between kappa and the raw agreement the accuracy lay on the tasks of development
STEP = 1e-4  # in log T, for a slope


@dataclass(frozen=True)
class Mistakes:
    """Mixes on which the model is surely mistaken, and those of them on which a second one makes the same mistake.

    >>> Mistakes(8.0, 2.0, 8.0) + Mistakes(2.0, 1.0, 2.0)
    Mistakes(weight=10.0, shared=3.0, squares=10.0)
    """

    weight: float = 0.0
    shared: float = 0.0
    squares: float = 0.0  # of the weights: how many mistakes of equal weight they are worth

    def __add__(self, other: Mistakes) -> Mistakes:
        return Mistakes(self.weight + other.weight, self.shared + other.shared, self.squares + other.squares)


def find_mistakes(second: Predictor, pairs: Pairs, mixes: Labelled, lam: float) -> Mistakes:
    """Look for sure mistakes among the mixes of one batch of pairs, and ask the second model about these mixes.

    What it says of the two shares of each is known already: `pairs.opinions`.

    >>> x = np.array([[4.0, 0.0, 2.5], [0.0, 4.0, 2.5]])
    >>> pairs = Pairs(x, x, np.array([0]), np.array([1]), opinions=np.array([0, 1]))
    >>> mixes = Labelled(np.array([[2.4, 1.6, 2.5]]), np.array([0]))  # the third class, which neither of the two has
    >>> find_mistakes(lambda x: x, pairs, mixes, lam=0.6)
    Mistakes(weight=1.0, shared=1.0, squares=1.0)
    """
    assert pairs.opinions is not None
    kept, said = apart(pairs), mixes.logits.argmax(axis=1)
    own, other = kept.row_logits.argmax(axis=1), pairs.opinions
    sure = np.flatnonzero(
        surely_mistaken(said, [of[rows] for of in (own, other) for rows in (kept.first, kept.second)])
    )
    if len(sure) == 0:
        return Mistakes()
    kept = kept[sure]
    same = second(blend(kept.rows, kept.first, kept.second, lam)).argmax(axis=1) == said[sure]
    return mistakes_of(same, kept.weights)


def surely_mistaken(said: Classes, shares: Sequence[Classes]) -> NDArray[np.bool_]:
    """Which mixes have a class that no model gives to either of their shares.

    >>> surely_mistaken(np.array([2, 2, 1]), [np.array([0, 0, 0]), np.array([1, 2, 1])])
    array([ True, False, False])
    """
    return np.logical_and.reduce([said != share for share in shares])  # type: ignore[no-any-return]


def mistakes_of(same: NDArray[np.bool_], weights: Floats | None = None) -> Mistakes:
    """Count sure mistakes, of which the second model makes the `same`.

    >>> mistakes_of(np.array([True, False, False]))
    Mistakes(weight=3.0, shared=1.0, squares=3.0)
    """
    w = np.ones(len(same)) if weights is None else weights
    return Mistakes(float(w.sum()), float(w[same].sum()), float(np.square(w).sum()))


def count_mistakes(first: Sequence[Classes], second: Sequence[Classes], weights: Floats | None = None) -> Mistakes:
    """Count from classes alone: what each model says of the mixes, of their larger and of their smaller shares.

    Of three mixes the first is no sure mistake, since the second model gives the class to a share; the others are, and
    one of them is shared:

    >>> first = [np.array([2, 2, 2]), np.array([0, 0, 0]), np.array([1, 1, 1])]
    >>> second = [np.array([2, 2, 0]), np.array([2, 0, 0]), np.array([1, 1, 1])]
    >>> count_mistakes(first, second)
    Mistakes(weight=2.0, shared=1.0, squares=2.0)
    """
    said, *shares = first
    same, *other_shares = second
    sure = surely_mistaken(said, [*shares, *other_shares])
    return mistakes_of((same == said)[sure], None if weights is None else weights[sure])


@dataclass(frozen=True)
class Agreement:
    """How often two models agree, on real inputs and in their mistakes.

    >>> agreement = Agreement(rows=100, rate=0.6, mistakes=Mistakes(50.0, 10.0, 50.0))
    >>> agreement.shared, round(agreement.corrected, 4), round(agreement.accuracy, 4)
    (0.2, 0.5, 0.5333)
    """

    rows: int
    rate: float  # of agreement on real inputs
    mistakes: Mistakes

    @property
    def shared(self) -> float:
        """The share of the first model's mistakes that the second one makes as well."""
        return self.mistakes.shared / self.mistakes.weight if self.mistakes.weight else 0.0

    @property
    def empty(self) -> bool:
        """Whether the second model is no opinion of its own."""
        return self.shared > SAME

    @property
    def corrected(self) -> float:
        """Agreement less that on mistakes. Somewhat too low: the second model does not agree with all that is right."""
        return max(0.0, (self.rate - self.shared) / (1 - self.shared)) if self.shared < 1 else 0.0

    @property
    def accuracy(self) -> float:
        """The accuracy of the first model: between the corrected agreement and the raw one."""
        return self.corrected + LEAN * (self.rate - self.corrected)

    @property
    def error(self) -> float:
        """The standard error of `accuracy`: of the inputs and of the mistakes that were looked at."""
        r, by_rate = self.shared, (1 - LEAN) / (1 - self.shared) + LEAN if self.shared < 1 else 1.0
        by_shared = (1 - LEAN) * (1 - self.rate) / (1 - r) ** 2 if r < 1 else 0.0
        worth = self.mistakes.weight**2 / self.mistakes.squares if self.mistakes.squares else math.inf
        of_rate, of_shared = self.rate * (1 - self.rate) / max(self.rows, 1), r * (1 - r) / worth
        return math.sqrt(by_rate**2 * of_rate + by_shared**2 * of_shared)

    def temperature(self, real: Labelled) -> TemperatureScaling:
        """The temperature at which the mean confidence on real inputs is `accuracy`, with the error that makes."""
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
