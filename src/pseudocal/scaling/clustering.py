"""The cluster-robust standard error of a temperature, for rows that are correlated, such as pixels of one image.

The sandwich estimate sums the squared slopes of the rows; with groups it sums the squares of each
group's total. Each total is divided by the fraction of the information outside its group, since a
group pulls the fit towards itself (CR3, the jackknife). With few or unequal groups the standard
error is itself uncertain: the degrees of freedom of Student's t follow from the equivalent number
of equal groups (Satterthwaite), given the observed correlation within groups. And a few groups with
confident mistakes may hold most of the evidence for a high temperature: the interval is corrected
for the skewness of the totals (Hall).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, Labels, Logits
from pseudocal.passes import block_starts
from pseudocal.scaling.slope import IMPOSSIBLE, at_target

# Corrections where a row belongs to two groups. With very many groups they would be 1, 0 and 0.
# With 20 to 200 groups, on six kinds of simulated images, these values keep the coverage of 95%
# intervals at 93 to 98% (`benchmarks/clusters.py` has three of the six, and one that was added
# later).
TWICE, FEW, FLOOR = 0.85, 3, 0.5
Groups = NDArray[np.int64]  # (n,), or (n, 2) if each row belongs to two groups
Members = NDArray[np.intp]  # (1, n) or (2, n): the group or groups of each row, numbered from 0


class Clustering(NamedTuple):
    """The effect of groups on the standard error of 1 / T.

    Attributes:
        times: The factor by which the error is larger than for independent rows.
        groups: The equivalent number of groups of equal size.
        skew: The skewness of the error's distribution.

    """

    times: float
    groups: float
    skew: float


def clustering(
    logits: Logits, targets: Labels, weights: Floats | None, groups: Groups, b: float
) -> Clustering:
    """The effect of groups `(n,)` on the standard error.

    With `(n, 2)` each row belongs to two groups.

    Rows that share a group are correlated.

    The two rows of each group are equal here, so there is half as much evidence, and each group is
    half of the data:

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
    plain = slopes @ slopes
    sums = _pulls(members, slopes, information)
    if plain == 0 or not np.isfinite(sums).all():
        return Clustering(math.inf, float(len(found)), 0.0)
    squares = sums @ sums
    if (
        len(members) == 2
    ):  # rows that share both groups were counted twice: subtract most of their contribution
        same = _pulls(both[None], slopes, information)
        count = _kish(_sums(members, w))
        squares = (
            max(squares - TWICE * (same @ same), FLOOR * (same @ same))
            * count
            / max(count - FEW, 1)
        )
    skew = -(sums**3).sum() / max((sums @ sums) ** 1.5, 1e-300)
    return Clustering(math.sqrt(squares / plain), _equal_groups(members, slopes, w), float(skew))


def all_alone(groups: Groups) -> bool:
    """Whether no two rows belong to the same group, or to the same two groups.

    >>> all_alone(np.array([[0, 1], [1, 2]])), all_alone(np.array([0, 1, 0]))
    (True, False)
    """
    order = np.lexsort(groups.T if groups.ndim == 2 else [groups])
    sorted_groups = groups[order].reshape(len(groups), -1)
    return bool((sorted_groups[1:] != sorted_groups[:-1]).any(axis=1).all())


def _sums(members: Members, rows: Floats) -> Floats:
    """The total of each group."""
    return np.bincount(members.ravel(), np.tile(rows, len(members))).astype(np.float64, copy=False)


def _pulls(members: Members, slopes: Floats, information: Floats) -> Floats:
    """The total of each group if the fit had been made without it.

    Infinite if there is no other group.
    """
    outside = 1 - _sums(members, information) / max(information.sum(), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _sums(members, slopes) / np.where(outside > 1e-12, outside, 0.0)


def _equal_groups(members: Members, slopes: Floats, w: Floats) -> float:
    """The number of equal groups that would estimate the variance as reliably.

    The variance of a group's total grows with its number of rows if they are independent, and with
    the square of that number if they are all equal. Here one group has four rows and the other two;
    first they are equal, then not:

    >>> members = np.array([[0, 0, 0, 0, 1, 1]])
    >>> round(_equal_groups(members, np.array([1.0, 1, 1, 1, -1, -1]), np.ones(6)), 4)    # (16 + 4)^2 / (16^2 + 4^2)
    1.4706
    >>> round(_equal_groups(members, np.array([1.0, -1, 1, -1, 1, -1]), np.ones(6)), 4)   # (4 + 2)^2 / (4^2 + 2^2)
    1.8
    """
    if_independent = _sums(members, w**2)
    if_equal = _sums(members, w) ** 2
    observed = (_sums(members, slopes) ** 2).sum() * (w @ w) / (slopes @ slopes)
    largest = max((if_equal - if_independent).sum(), 1e-300)
    correlation = float(np.clip((observed - if_independent.sum()) / largest, 0, 1))
    variance = if_independent + correlation * (if_equal - if_independent)
    return _kish(variance)


def _kish(fractions: Floats) -> float:
    """The effective number of shares: how many equal shares would be as evenly spread (Kish).

    >>> _kish(np.array([1.0, 1.0, 0.0])), _kish(np.array([3.0, 1.0]))
    (2.0, 1.6)
    """
    return float(fractions.sum() ** 2 / (fractions @ fractions))


def _row_slopes(
    logits: Logits, targets: Labels, weights: Floats, b: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weighted slope of each row and its derivative, in b z."""
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
