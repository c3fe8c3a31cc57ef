"""CPCS: temperature scaling of source data that is weighted to look like the target (Park et al., AISTATS 2020).

Under covariate shift, where p(y | x) is the same in both domains, a source row of weight p_target(x) / p_source(x)
stands for target rows. CPCS minimises the so weighted Brier score, which bounds the calibration error from above.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Floats, Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, gaps
from pseudocal.calibrators.rivals.search import bound_at, least, released
from pseudocal.scaling import TemperatureScaling
from pseudocal.scaling.temperature import as_weights


def cpcs(source: Labelled, ratio: ArrayLike, *, reference: bool = False) -> Calibration:
    """The temperature of least Brier score on source rows that count as much as `ratio` says.

    Rows with the wrong label count nothing here, so the logits cannot be too sure: T is at the end of its range.

    >>> source = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 1, 1]))
    >>> cpcs(source, [1.0, 1.0, 0.0, 0.0]).temperature < 0.1
    True

    Three of four right in weight, so the gap of 2 should be log 3, and T = 2 / log 3:

    >>> round(cpcs(source, [3.0, 3.0, 1.0, 1.0]).temperature, 4)
    1.8205

    Args:
        source: labelled source validation logits.
        ratio: the density ratio at each source row, known or from `density_ratio`.
        reference: whether to search as the released code does, which stays near 2 if it must.

    """
    source = checked(source)
    loss = _weighted_brier(source, as_weights(ratio, len(source)))
    temperature = released(loss) if reference else least(loss, points=65, places=1)
    bound = None if reference else bound_at(temperature)
    return Calibration("cpcs", TemperatureScaling(temperature, rows=len(source), bound=bound), {"reference": reference})


def _weighted_brier(source: Labelled, weights: Floats) -> Callable[[float], float]:
    """The weighted mean of sum_c (p_c - y_c)^2 = sum_c p_c^2 - 2 p_y + 1, as a function of the temperature."""
    below, row = gaps(source.logits), np.arange(len(source))
    share = weights / weights.sum()

    def loss(temperature: float) -> float:
        p = np.exp(below / temperature)
        total = p.sum(axis=1)
        squares = np.einsum("ij,ij->i", p, p) / total**2
        return float(share @ (squares - 2 * p[row, source.labels] / total + 1))

    return loss
