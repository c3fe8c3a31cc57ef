"""One pass over labelled logits: the slope of their likelihood in the inverse temperature b, and how it bends.

For one row with p = softmax(b z) the negative log-likelihood has the slope E_p[z] - z_y; the slope's own derivatives
in b are the variance and the third central moment of z under p. So four sums over the classes tell everything:
sum e, sum e x, sum e x^2, sum e x^3, with x = b z, shifted where something would overflow, and e = exp(x).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, InputError, Labels, Logits, check_rows, work_dtype
from pseudocal.passes import block_starts, in_strips, let_go, picked, row_sums, scaled

SAFE = 1e17  # rows whose sum e is neither above this nor below its inverse need no shift: nothing that counts is lost
# Large samples would take all of it off. In streams of 50 to 200 images that left the error 7% too small, and intervals
# of 95% held the truth 90% of the time (`benchmarks/clusters.py`).
TWICE = 0.75
Groups = NDArray[np.int64]  # (n,), or (n, 2) where rows belong to two
IMPOSSIBLE = -1e100  # stands in for -inf in float64: exp gives 0, and 0 * IMPOSSIBLE is 0 rather than NaN


class Slope(NamedTuple):
    """The mean slope at b, its first two derivatives in log b, and the standard error of the mean slope."""

    value: float
    first: float
    second: float
    error: float

    def step(self) -> tuple[float, float]:
        """Halley's step in log b towards the root, and a bound on the error that it leaves.

        A third-order step leaves (bend^2 + a third derivative) * step^3. The third derivative is not computed; on
        softmax likelihoods of 2 to 1,000 classes, right and wrong models, all of it came to 0.16 to 0.55 step^3.

        >>> Slope(value=0.1, first=1.0, second=0.0, error=0.0).step()
        (-0.1, 0.0005...)
        """
        if self.first <= 0:
            return math.copysign(math.inf, -self.value), math.inf
        newton = -self.value / self.first
        bend = newton * self.second / (2 * self.first)
        if abs(bend) > 0.5:
            return newton, math.inf
        return newton / (1 + bend), abs(newton) * (bend**2 + 0.5 * newton**2)

    def log_se(self) -> float:
        """The sandwich estimate of the standard error of log b, and so of log T."""
        return self.error / self.first if self.first > 0 else math.inf


def slope(logits: Logits, targets: Labels, weights: Floats | None, rows: NDArray[np.intp] | None, b: float) -> Slope:
    """Read `rows` (all if None) once, on several cores, block by block.

    Block sums are added in a fixed order: the number of cores does not change a digit.
    """
    starts = block_starts(logits.shape, None if rows is None else len(rows))
    size = starts.step

    def strip(mine: range) -> NDArray[np.float64]:
        scratch = np.empty((2, size, logits.shape[1]), dtype=work_dtype(logits))
        sums = np.empty((len(mine), 5))
        with np.errstate(all="ignore"):  # what overflows shows in the sums and is done again with care
            for k, start in enumerate(mine):
                at: Any = slice(start, start + size) if rows is None else rows[start : start + size]
                z, y, w = _rows(logits, at), _rows(targets, at), None if weights is None else weights[at]
                sums[k] = _sums(z, y, w, b, scratch)
                if not np.isfinite(sums[k]).all():
                    z = _without_infinities(z, y, np.arange(start, start + len(z)) if rows is None else at)
                    sums[k] = _sums(z, y, w, b, np.empty((2, *z.shape)))
                if rows is None:
                    let_go(logits, start, start + len(z))
        return sums

    sums = np.concatenate(in_strips(starts, strip))
    weight, mean, variance, third, squares = sums.sum(axis=0).tolist()
    if weight == 0:  # a sample of rows may hold none that count
        return Slope(0.0, 0.0, 0.0, math.inf)
    scale = 1 / (b * weight)
    return Slope(scale * mean, scale * variance, scale * (variance + third), scale * math.sqrt(squares))


class Clustering(NamedTuple):
    """How many times larger the standard error is for rows of one group moving together, and how many groups tell."""

    times: float
    groups: float


def clustering(logits: Logits, targets: Labels, weights: Floats | None, groups: Groups, b: float) -> Clustering:
    """What groups of rows `(n,)` do to the standard error; with `(n, 2)` each row belongs to two.

    The sandwich adds up squared slopes of rows; of groups it adds up the squares of their sums. Each sum is divided by
    the share of the information that lies outside its group, since a group pulls the fit towards itself (CR3, the
    jackknife). Where a row belongs to two groups, all rows that share a group move together, and no less is assumed
    than that rows of the same two do. `groups` is the number of equally large groups that would tell as much.

    Two rows of either group say the same, so there is half as much evidence, and either group is half of all:

    >>> z, y = np.array([[2.0, 0.0]] * 4), np.array([0, 0, 1, 1])
    >>> times, count = clustering(z, y, None, np.array([0, 0, 1, 1]), 1e-9)
    >>> round(times**2, 6), count                                               # 2 / (1 - 1 / 2)^2
    (8.0, 2.0)
    """
    n, sides = len(groups), groups.size // len(groups)
    found, group = np.unique(groups, return_inverse=True)
    group = group.reshape(n, sides).T  # (sides, n)
    together = np.unique(group[0] * len(found) + group[-1], return_inverse=True)[1]
    slopes, information = _row_slopes(logits, targets, weights, b)
    clustered, plain = _squares(together, slopes, information), float(slopes @ slopes)
    if sides == 2:  # those that share a group, less most of those that share both and were counted twice
        sharing = _squares(group.ravel(), np.tile(slopes, 2), np.tile(information, 2), 2)
        clustered = max(clustered, sharing - TWICE * clustered)
    mass = np.bincount(group.ravel(), np.tile(np.ones(n) if weights is None else weights, sides))
    variance = mass**1.25  # that of a group's sum grows with its mass, or its square if its rows say the same
    count = float(variance.sum() ** 2 / (variance @ variance))
    return Clustering(math.sqrt(clustered / plain) if plain else math.inf, count)


def _squares(group: NDArray[np.intp], slopes: Floats, information: Floats, sides: int = 1) -> float:
    """Squared sums over groups, each as it would be if the others alone had made the fit."""
    sums, share = np.bincount(group, slopes), np.bincount(group, information) * (sides / max(information.sum(), 1e-300))
    if share.max() >= 1 - 1e-12:
        return math.inf
    return float(((sums / (1 - share)) ** 2).sum())


def all_alone(groups: Groups) -> bool:
    """Whether no two rows belong to the same group, or to the same two.

    >>> all_alone(np.array([[0, 1], [1, 2]])), all_alone(np.array([0, 1, 0]))
    (True, False)
    """
    order = np.lexsort(groups.T if groups.ndim == 2 else [groups])
    sorted_groups = groups[order].reshape(len(groups), -1)
    return bool((sorted_groups[1:] != sorted_groups[:-1]).any(axis=1).all())


def _row_slopes(
    logits: Logits, targets: Labels, weights: Floats | None, b: float
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
        slopes[at] = mean - _at_target(x, targets[at])
        information[at] = np.einsum("rc,rc,rc->r", p, x, x) - mean**2
    return (slopes, information) if weights is None else (slopes * weights, information * weights)


def _rows(array: NDArray[Any], at: Any) -> NDArray[Any]:
    return array[at] if isinstance(at, slice) else picked(array, at)


def _sums(z: Logits, targets: Labels, weights: Floats | None, b: float, scratch: Floats) -> NDArray[np.float64]:
    """Sums over the rows of one block: weight, slope, its two derivatives, squared weighted slope, all in b z."""
    x, e = scratch[:, : len(z)]
    sums = np.empty((4, len(z)), dtype=e.dtype)
    scaled(z, b, x)
    np.exp(x, out=e)
    row_sums(e, sums[0])
    if not (sums[0].min() > 1 / SAFE and sums[0].max() < SAFE):
        x -= x.max(axis=1, keepdims=True)
        np.exp(x, out=e)
        row_sums(e, sums[0])
    for moment in sums[1:]:
        e *= x
        row_sums(e, moment)
    sums[1:] /= sums[0]
    return _totals(sums[1:].astype(np.float64), _at_target(x, targets), weights)


def _totals(moments: Floats, at_target: Floats, weights: Floats | None) -> NDArray[np.float64]:
    """Add up rows of which E[x], E[x^2] and E[x^3] are known: weight, slope, variance, third moment, slope squared."""
    m1, m2, m3 = moments
    slopes = m1 - at_target
    if weights is None:
        weight, second, third, weighted = float(len(m1)), m2.sum(), m3.sum(), m1
    else:
        weight, second, third, weighted = weights.sum(), weights @ m2, weights @ m3, weights * m1
        slopes *= weights
    third += 2 * ((weighted * m1) @ m1) - 3 * (weighted @ m2)
    return np.array([weight, slopes.sum(), second - weighted @ m1, third, slopes @ slopes])


def _at_target(x: Floats, targets: Labels) -> Floats:
    """The value of `x` at each row's label, or its mean under the row's soft target."""
    if targets.ndim == 2:
        mean: Floats = np.einsum("rc,rc->r", x, targets, dtype=np.float64)
        return mean
    return x.reshape(-1).take(targets + np.arange(0, x.size, x.shape[1])).astype(np.float64)


def _without_infinities(z: Logits, targets: Labels, row: NDArray[np.intp]) -> Logits:
    """Write impossible classes as finite numbers in float64; refuse what has no likelihood, naming the row."""
    check_rows(z, row)
    careful = np.maximum(z, IMPOSSIBLE, dtype=np.float64)
    impossible = _at_target(careful, targets) <= IMPOSSIBLE / 1e6
    if impossible.any():
        i = int(np.argmax(impossible))
        raise InputError(
            f"expected labels of possible classes, got one whose logit is -inf in row {row[i]}; if these are logs of "
            "probabilities that were rounded to zero, floor them first: np.log(np.maximum(p, 1e-7))"
        )
    return careful
