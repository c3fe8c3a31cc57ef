"""CPCS.

Temperature scaling on source data that is weighted to represent the target (Park et al., AISTATS
2020).

Under covariate shift, where p(y | x) is the same in both domains, source rows weighted by
p_target(x) / p_source(x) represent the target. CPCS minimises the weighted Brier score, which is an
upper bound on the calibration error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Floats, Labelled, softmax
from pseudocal.calibrators.baselines.search import bound_at, least, released
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import below_top, checked
from pseudocal.scaling import TemperatureScaling
from pseudocal.scaling.temperature import as_weights


def cpcs(source: Labelled, ratio: ArrayLike, *, reference: bool = False) -> Calibration:
    """The temperature that minimises the weighted Brier score on source rows.

    Wrong predictions have weight zero here, so the logits cannot be overconfident and T is at its
    lower bound:

    >>> source = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 1, 1]))
    >>> cpcs(source, [1.0, 1.0, 0.0, 0.0]).temperature < 0.1
    True

    Three quarters of the weight are right, so the gap of 2 should be log 3, and T = 2 / log 3:

    >>> round(cpcs(source, [3.0, 3.0, 1.0, 1.0]).temperature, 4)
    1.8205

    Args:
        source: Labelled logits of the source validation set.
        ratio: The density ratio of each source row, such as `density_ratio(...)(source_features)`.
        reference: Whether to search as the released code does, which may stop near its starting
            point, T = 2.

    """
    source = checked(source)
    loss = _weighted_brier(source, as_weights(ratio, len(source)))
    temperature = released(loss) if reference else least(loss, points=65, places=1)
    bound = None if reference else bound_at(temperature)
    return Calibration(
        "cpcs",
        TemperatureScaling(temperature, rows=len(source), bound=bound),
        {"reference": reference},
    )


def _weighted_brier(source: Labelled, weights: Floats) -> Callable[[float], float]:
    """The weighted mean of sum_c (p_c - y_c)^2 = sum_c p_c^2 - 2 p_y + 1, as a function of the temperature."""
    below = below_top(source.logits)
    row = np.arange(len(source))
    fraction = weights / weights.sum()

    def loss(temperature: float) -> float:
        p = softmax(
            below / temperature
        )  # finite at negative temperatures too, which the released search tries
        return float(fraction @ (np.einsum("ij,ij->i", p, p) - 2 * p[row, source.labels] + 1))

    return loss
