"""Searches for the temperature that minimises a loss that is neither convex nor smooth.

A calibration error jumps whenever a row changes its bin, so there is no gradient to follow: `least`
evaluates it on a grid, then on finer grids around the best points. `released` does as the released
code of TransCal and PseudoCal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import TEMPERATURES, InputError

RANGE = (0.02, 200.0)  # beyond these temperatures every prediction is certain, or at chance level
CLOSER = 9  # points of the finer grid around each of the best points
ROUNDS = 8  # each grid is four times finer than the one before: from 3.6% to 5e-7


def least(loss: Callable[[float], float], *, points: int = 257, places: int = 6) -> float:
    """The temperature that minimises `loss`.

    It is searched on a grid in log T, then on finer grids around the best points.

    >>> round(least(lambda temperature: abs(temperature - 3.0)), 4)
    3.0

    Args:
        loss: A function of the temperature.
        points: The number of points of the first grid; a smooth loss needs fewer.
        places: The number of best points that are refined; a smooth loss needs only one.

    """
    low, high = np.log(RANGE)
    grid = np.linspace(low, high, points)
    width = grid[1] - grid[0]
    losses = _losses(loss, grid)
    for _ in range(ROUNDS):
        best = grid[np.argsort(losses, kind="stable")[:places]]
        around = (best[:, None] + np.linspace(-width, width, CLOSER)).ravel()
        around = np.setdiff1d(np.clip(around, low, high), best)
        grid = np.concatenate([best, around])
        losses = np.concatenate([np.sort(losses)[:places], _losses(loss, around)])
        width *= 2 / (CLOSER - 1)
    return float(np.exp(grid[losses.argmin()]))


def bound_at(temperature: float) -> Literal["lower", "upper"] | None:
    """The bound of the searched range that a temperature lies at, if it does.

    >>> bound_at(least(lambda temperature: temperature)), bound_at(3.0)
    ('lower', None)
    """
    if temperature <= RANGE[0] * (1 + 1e-6):
        return "lower"
    if temperature >= RANGE[1] * (1 - 1e-6):
        return "upper"
    return None


def released(loss: Callable[[float], float]) -> float:
    """The search of the released code of TransCal and PseudoCal.

    Nelder-Mead from 2 with its default tolerance.

    For a calibration error it may stall far from a minimum, and it may reach negative temperatures.
    Where all classes equally likely are best, it runs on for ever, and the largest temperature
    takes the place of what it returns.

    >>> round(released(lambda temperature: (temperature - 3.0) ** 2), 3)
    3.0
    >>> released(lambda temperature: -temperature)
    10000000000.0
    """
    from scipy.optimize import fmin

    def at(point: NDArray[np.float64]) -> float:
        return loss(float(point[0]))

    temperature = float(np.asarray(fmin(at, 2.0, disp=False))[0])
    if temperature <= 0:
        raise InputError(
            f"expected the released search to stay positive, got {temperature}: use reference=False"
        )
    return min(temperature, TEMPERATURES[1])


def _losses(loss: Callable[[float], float], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([loss(float(np.exp(at))) for at in grid])
