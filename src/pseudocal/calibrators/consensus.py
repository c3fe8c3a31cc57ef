"""What all usable second opinions say together.

A model's, or a surrogate's if there is no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pseudocal.calibrators.agreement import Agreement


@dataclass(frozen=True)
class Consensus:
    """What all usable second opinions say together.

    >>> one, other = (Agreement(10, 1000, rate, 0.2, 500.0) for rate in (0.6, 0.7))
    >>> both = Consensus((one, other))
    >>> one.accuracy < both.accuracy < other.accuracy, round(both.spread, 3)
    (True, 0.085)

    Attributes:
        agreements: The agreement with each usable second opinion.

    """

    agreements: tuple[Agreement, ...]

    @property
    def accuracy(self) -> float:
        """The mean of what they estimate."""
        return float(np.mean([agreement.accuracy for agreement in self.agreements]))

    @property
    def estimator(self) -> str:
        """The name of the temperature that follows.

        "agreement", or "surrogate" if that is the only opinion.
        """
        return "surrogate" if self.agreements[0].surrogate else "agreement"

    @property
    def at_chance(self) -> bool:
        """Whether no opinion agrees more often on real inputs than by shared mistakes and by chance."""
        return all(agreement.at_chance for agreement in self.agreements)

    @property
    def spread(self) -> float:
        """The standard deviation of what they estimate; 0 for one opinion."""
        return (
            float(np.std([a.accuracy for a in self.agreements], ddof=1))
            if len(self.agreements) > 1
            else 0.0
        )

    @property
    def error(self) -> float:
        """The standard error of `accuracy`.

        The opinions share their inputs, so they do not reduce it.
        """
        return float(np.mean([agreement.error for agreement in self.agreements]))


def consensus_of(agreements: Sequence[Agreement]) -> Consensus | None:
    """What the usable second opinions say together; None if there are none.

    A surrogate counts if no model does.
    """
    usable = [agreement for agreement in agreements if agreement.usable]
    heard = tuple(agreement for agreement in usable if not agreement.surrogate) or tuple(usable)
    return Consensus(heard) if heard else None
