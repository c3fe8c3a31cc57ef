"""What rows that move together, such as pixels of one image, do to the standard error of a temperature.

The sandwich adds up squared slopes of rows; of groups it adds up the squares of their sums. Each sum is divided by the
share of the information that lies outside its group, since a group pulls the fit towards itself (CR3, the jackknife).
Few or unequal groups leave the error itself uncertain: Student's degrees of freedom are those of as many equal groups
as would tell as much (Satterthwaite), given how far rows of one group are seen to go together. And a few groups with
sure mistakes may hold most of the evidence for a high temperature: how skewed the sums are bends the interval (Hall).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, Labels, Logits
from pseudocal.passes import block_starts
from pseudocal.scaling.slope import IMPOSSIBLE, at_target

# Where a row belongs to two groups. Very many groups would take all of it off, add nothing for their number and need no
# floor; with 20 to 200, on six kinds of simulated images, these three keep 95% intervals at 93 to 98%
# (`benchmarks/clusters.py` has three of the six, and one that was drawn later).
TWICE, FEW, FLOOR = 0.85, 3, 0.5
Groups = NDArray[np.int64]  # (n,), or (n, 2) where rows belong to two
Members = NDArray[np.intp]  # (sides, n): the number of the group that each row belongs to, or of both


class Clustering(NamedTuple):
    """What groups make of the error of 1 / T."""

    times: float  # larger than for rows that are independent
    groups: float  # of equal size, that would tell as much
    skew: float  # of the error's distribution


def clustering(logits: Logits, targets: Labels, weights: Floats | None, groups: Groups, b: float) -> Clustering:
    """What groups of rows `(n,)` do to the standard error; with `(n, 2)` each row belongs to two.

    Where a row belongs to two groups, all rows that share a group move together.

    Two rows of either group say the same, so there is half as much evidence, and either group is half of all:

    >>> z, y = np.array([[2.0, 0.0]] * 4), np.array([0, 0, 1, 1])
    >>> times, count, skew = clustering(z, y, None, np.array([0, 0, 1, 1]), 1e-9)
    >>> round(times**2, 6), count, round(abs(skew), 6)                          # 2 / (1 - 1 / 2)^2
    (8.0, 2.0, 0.0)
    """
    n = len(groups)
    found, numbers = np.unique(groups, return_inverse=True)
    members = numbers.reshape(n, -1).T
    both = np.unique(members[0] * len(found) + members[-1], return_inverse=True)[1]
    w = np.ones(n) if weights is None else weights
    slopes, information = _row_slopes(logits, targets, w, b)
    plain, sums = slopes @ slopes, _pulls(members, slopes, information)
    if plain == 0 or not np.isfinite(sums).all():
        return Clustering(math.inf, float(len(found)), 0.0)
    squares = sums @ sums
    if len(members) == 2:  # those that share a group, less most of those that share both and were counted twice
        same, count = _pulls(both[None], slopes, information), _kish(_sums(members, w))
        squares = max(squares - TWICE * (same @ same), FLOOR * (same @ same)) * count / max(count - FEW, 1)
    skew = -(sums**3).sum() / max((sums @ sums) ** 1.5, 1e-300)
    return Clustering(math.sqrt(squares / plain), _equal_groups(members, slopes, w), float(skew))


def all_alone(groups: Groups) -> bool:
    """Whether no two rows belong to the same group, or to the same two.

    >>> all_alone(np.array([[0, 1], [1, 2]])), all_alone(np.array([0, 1, 0]))
    (True, False)
    """
    order = np.lexsort(groups.T if groups.ndim == 2 else [groups])
    sorted_groups = groups[order].reshape(len(groups), -1)
    return bool((sorted_groups[1:] != sorted_groups[:-1]).any(axis=1).all())


def _sums(members: Members, rows: Floats) -> Floats:
    """The sum over the rows of each group."""
    return np.bincount(members.ravel(), np.tile(rows, len(members))).astype(np.float64, copy=False)


def _pulls(members: Members, slopes: Floats, information: Floats) -> Floats:
    """The sum over each group as it would be if the others alone had made the fit; infinite where there are none."""
    outside = 1 - _sums(members, information) / max(information.sum(), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _sums(members, slopes) / np.where(outside > 1e-12, outside, 0.0)


def _equal_groups(members: Members, slopes: Floats, w: Floats) -> float:
    """The number of groups with sums of one variance whose squares would add up as reliably.

    The variance of a group's sum grows with its rows if they are independent, and with their square if they say the
    same. Here one group has four rows and the other two, which say the same; then they do not:

    >>> members = np.array([[0, 0, 0, 0, 1, 1]])
    >>> round(_equal_groups(members, np.array([1.0, 1, 1, 1, -1, -1]), np.ones(6)), 4)    # (16 + 4)^2 / (16^2 + 4^2)
    1.4706
    >>> round(_equal_groups(members, np.array([1.0, -1, 1, -1, 1, -1]), np.ones(6)), 4)   # (4 + 2)^2 / (4^2 + 2^2)
    1.8
    """
    if_independent = _sums(members, w**2)
    if_the_same = _sums(members, w) ** 2
    seen = (_sums(members, slopes) ** 2).sum() * (w @ w) / (slopes @ slopes)
    room = max((if_the_same - if_independent).sum(), 1e-300)
    correlation = float(np.clip((seen - if_independent.sum()) / room, 0, 1))
    variance = if_independent + correlation * (if_the_same - if_independent)
    return _kish(variance)


def _kish(shares: Floats) -> float:
    """How many equal shares would be as even.

    >>> _kish(np.array([1.0, 1.0, 0.0])), _kish(np.array([3.0, 1.0]))
    (2.0, 1.6)
    """
    return float(shares.sum() ** 2 / (shares @ shares))


def _row_slopes(
    logits: Logits, targets: Labels, weights: Floats, b: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weighted slope of each row and how it changes, in b z."""
    slopes, information = np.empty((2, len(logits)))
    starts = block_starts(logits.shape)
    for start in starts:
        at = slice(start, start + starts.step)
        x = np.maximum(logits[at], IMPOSSIBLE, dtype=np.float64) * b
        x -= x.max(axis=1, keepdims=True)
        p = np.exp(x)
        p /= p.sum(axis=1, keepdims=True)
        mean = np.einsum("rc,rc->r", p, x)
        slopes[at] = mean - at_target(x, targets[at])
        information[at] = np.einsum("rc,rc,rc->r", p, x, x) - mean**2
    return slopes * weights, information * weights
