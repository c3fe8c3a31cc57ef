"""Temperature scaling: divide the logits by the number that maximises the likelihood of the labels.

In b = 1/T the mean negative log-likelihood is convex, so its slope

    g(b) = mean over rows of  E_p[z] - z_y,        p = softmax(b z)

increases and has at most one root. Its derivatives are the variance and the third central moment of
z under p, so one pass over the data gives all that Halley's third-order step needs. The root is
searched in log b, first on a small sample of rows, then on larger ones, then on all rows. Each
search starts so close to the root that one pass is nearly always enough, and the full data is read
once or twice. Samples that would not help are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import (
    Floats,
    InputError,
    Labels,
    Logits,
    as_labels,
    as_logits,
    as_numpy,
    as_weights,
    check_not_probabilities,
    check_temperature,
    is_integer,
    is_real,
    work_dtype,
)
from pseudocal.passes import is_mapped
from pseudocal.scaling.clustering import all_alone, clustering
from pseudocal.scaling.slope import NOTHING, Slope, slope

BOUNDS = (1e-4, 1e6)  # the range of temperatures that is searched
LOG_B = (-math.log(BOUNDS[1]), -math.log(BOUNDS[0]))
FEWEST = 256  # the smallest sample of rows
LARGEST_SAMPLE = 2**19  # the largest sample: after it, one pass over all rows is enough
KEYS_AT_ONCE = 1 << 15  # rows whose keys are computed at a time
GOLDEN = np.uint32(0x9E3779B9)  # the golden ratio times 2^32: its multiples are spread evenly
RUN = 64  # consecutive rows of a memory map that are read together: reading one row costs as much
GROWTH = 16  # each sample has this many times the rows of the one before
LOOKS_PER_HALVING = 4  # evaluations of the slope after which the bracket is halved in any case
CLOSE = 1e-6  # tolerance in log T
CLOSE_ENOUGH = 1e-3  # tolerance in log T on a sample of rows, small beside its sampling error


@dataclass(frozen=True)
class TemperatureScaling:
    """Divide the logits by one number: the confidence changes, the predicted class does not.

    >>> TemperatureScaling(2.0)(np.array([[2.0, 4.0]]))
    array([[1., 2.]])

    Attributes:
        temperature: The number that logits are divided by.
        log_se: The standard error of log T; NaN if it was not fitted.
        rows: The number of rows it was fitted on.
        bound: "lower" or "upper" if the maximum of the likelihood lies outside the range that was
            searched.
        groups: The equivalent number of equal, independent groups of rows; None if all rows are
            independent.
        skew: The skewness of the error of 1 / T, if there are groups.
        effective_rows: The number of equally informative rows that would make the standard error as
            reliable, if rows are independent. If mistakes are few, it is about their number.

    """

    temperature: float
    log_se: float = math.nan
    rows: int = 0
    bound: Literal["lower", "upper"] | None = None
    groups: float | None = None
    skew: float = 0.0
    effective_rows: float = math.inf

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if self.bound not in (None, "lower", "upper"):
            raise InputError(f"expected bound 'lower', 'upper' or None, got {self.bound!r}")

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal, where NaN equals NaN (Python 3.13 and later deny it)."""
        if not isinstance(other, TemperatureScaling):
            return NotImplemented
        pairs = zip(astuple(self), astuple(other), strict=True)
        return all(one == two or (one != one and two != two) for one, two in pairs)

    def __call__(self, logits: ArrayLike) -> Logits:
        """Scale logits `(n, classes)`."""
        logits = as_logits(logits)
        return np.divide(logits, self.temperature, dtype=work_dtype(logits))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval of the temperature.

        It covers sampling error only, not a difference between these rows and those that the
        scaling is used on.

        It is symmetric in 1 / T: with few mistakes both T and its standard error are estimated too
        small, so the interval must reach further up (`benchmarks/clusters.py`).

        >>> low, high = TemperatureScaling(2.0, log_se=0.1).interval()
        >>> round(low, 3), round(high, 3)                                        # 2 / 1.196 and 2 / 0.804
        (1.672, 2.488)

        With few groups the standard error is itself uncertain, so the interval uses Student's t. If
        one or two groups hold most of the mistakes, it reaches further up:

        >>> low, high = TemperatureScaling(2.0, log_se=0.1, groups=5).interval()
        >>> round(low, 3), round(high, 3)
        (1.565, 2.769)
        >>> low, high = TemperatureScaling(2.0, log_se=0.1, groups=5, skew=-0.2).interval()
        >>> round(low, 3), round(high, 3)
        (1.619, 3.129)

        The same holds if a few rows, mostly mistakes, dominate:

        >>> low, high = TemperatureScaling(2.0, log_se=0.1, effective_rows=4).interval()
        >>> round(low, 3), round(high, 3)
        (1.565, 2.769)

        Args:
            level: The confidence level.

        """
        from scipy.special import ndtri, stdtrit

        if not 0 < level < 1:
            raise InputError(f"expected a level between 0 and 1, got {level}")
        if self.bound is not None:
            return (0.0, math.inf)
        freedom = self.effective_rows if self.groups is None else self.groups - 1
        few = 0 < freedom < math.inf
        quantile = float(stdtrit(freedom, (1 + level) / 2) if few else ndtri((1 + level) / 2))
        above = max(_leaning(quantile, self.skew), 0.0) * self.log_se
        below = min(_leaning(-quantile, self.skew), 0.0) * self.log_se
        return (
            self.temperature / (1 - below),
            math.inf if above >= 1 else self.temperature / (1 - above),
        )


def _leaning(quantile: float, skew: float) -> float:
    """The quantile of a studentised sum of skewed terms: the root of Hall's cubic.

    >>> _leaning(2.0, 0.0), round(_leaning(2.0, -0.2), 3), round(_leaning(-2.0, -0.2), 3)
    (2.0, 2.396, -1.754)
    """
    return (
        3 / skew * (math.cbrt(1 + skew * (quantile - skew / 6)) - 1)
        if abs(skew) > 1e-9
        else quantile
    )


def fit_temperature(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> TemperatureScaling:
    """Fit a temperature by maximum likelihood.

    Nothing of the size of the logits is allocated.

    Three of four predictions with a logit gap of 2 are right, so the gap should be log 3:

    >>> scaling = fit_temperature([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> round(scaling.temperature, 6), round(2 / math.log(3), 6)
    (1.820478, 1.820478)

    The standard error is the sandwich estimate, which is valid for misspecified models too. Groups
    do not change the temperature, only its standard error; with a single group it is infinite.

    >>> twice = fit_temperature([[2.0, 0.0]] * 8, [0, 0, 0, 1] * 2, groups=[0, 1, 2, 3] * 2)
    >>> round(twice.temperature, 6), round(twice.groups, 6)
    (1.820478, 4.0)

    Args:
        logits: Logits of shape `(n, classes)`, of any floating dtype; may be a memory map. A class
            at -inf is impossible. Rows that look like probabilities are refused: pass their
            logarithm.
        labels: Class indices `(n,)` or soft targets `(n, classes)`.
        weights: Importance weights `(n,)`: two rows of weight one carry more evidence than one row
            of weight two.
        groups: Group numbers `(n,)`, equal for rows that are not independent, such as pixels of one
            image; `(n, 2)` if each row belongs to two groups, as a mixup sample of two images does.

    """
    z = as_logits(logits)
    check_not_probabilities(z)
    return fit_any_logits(z, labels, weights=weights, groups=groups)


def fit_any_logits(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> TemperatureScaling:
    """`fit_temperature`, even if the logits look like probabilities."""
    logits = as_logits(logits)
    targets = as_targets(labels, logits)
    row_weights = None if weights is None else _near_one(as_weights(weights, len(logits)))
    guesses = [0.0]
    at_root = NOTHING
    for rows in _samples(logits):
        if rows is not None and 0.5 * (3 * at_root.log_se()) ** 3 < CLOSE:
            continue  # the guess is close enough for one step on all rows
        close = CLOSE if rows is None else CLOSE_ENOUGH
        log_b, at_root = _root(partial(slope, logits, targets, row_weights, rows), guesses, close)
        # if all predictions of a sample are right, its root is a bound: try it once, then the guess
        # before it
        guesses = [log_b, guesses[-1]] if log_b in LOG_B else [log_b]
    temperature, bound = _temperature_at(log_b)
    fitted = TemperatureScaling(
        temperature, at_root.log_se(), len(logits), bound, effective_rows=at_root.effective
    )
    return fitted if groups is None else _clustered(fitted, logits, targets, row_weights, groups)


def _temperature_at(log_b: float) -> tuple[float, Literal["lower", "upper"] | None]:
    """T = 1 / b, and which bound of T it lies at; b is smallest where T is largest."""
    if log_b == LOG_B[0]:
        return BOUNDS[1], "upper"
    if log_b == LOG_B[1]:
        return BOUNDS[0], "lower"
    return math.exp(-log_b), None


def _clustered(
    fitted: TemperatureScaling,
    logits: Logits,
    targets: Labels,
    weights: Floats | None,
    groups: ArrayLike,
) -> TemperatureScaling:
    """The same scaling with a cluster-robust standard error."""
    numbers = as_numpy(groups, "groups")
    if numbers.shape not in ((len(logits),), (len(logits), 2)) or not is_integer(numbers):
        raise InputError(
            f"expected groups as {len(logits)} integers, one for each row, or as pairs of them, "
            f"got {numbers.dtype} of shape {numbers.shape}"
        )
    if all_alone(numbers):
        return fitted
    times, count, skew = clustering(logits, targets, weights, numbers, 1 / fitted.temperature)
    return replace(fitted, log_se=fitted.log_se * times, groups=count, skew=skew)


def as_targets(labels: ArrayLike, logits: Logits) -> Labels:
    """Convert to class indices `(n,)` or to soft targets `(n, classes)` whose rows sum to one."""
    targets = as_numpy(labels, "labels")
    if targets.ndim != 2:
        return as_labels(targets, logits)
    if targets.shape != logits.shape:
        raise InputError(
            f"expected soft targets of shape {logits.shape}, got shape {targets.shape}"
        )
    if not is_real(targets) and targets.dtype != bool:
        raise InputError(f"expected soft targets that are real numbers, got dtype {targets.dtype}")
    bad = ~(
        (targets >= 0).all(axis=1) & np.isclose(targets.sum(axis=1, dtype=np.float64), 1, atol=1e-3)
    )
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            "expected soft targets that are non-negative and sum to one in each row, got "
            f"{targets[row]} in row {row}"
        )
    return targets


def _near_one(weights: Floats) -> Floats:
    """Scale weights by a power of two, which is exact, so that their squares neither overflow nor underflow.

    >>> _near_one(np.array([2.0**1000, 0.0, 2.0**998]))
    array([0.5  , 0.   , 0.125])
    """
    return np.ldexp(weights, -math.frexp(weights.max())[1])


def _samples(logits: Logits) -> Iterator[NDArray[np.intp] | None]:
    """Samples of increasing size: sorted row numbers. The last is None and means all rows.

    The content of a row decides whether it is in a sample, so the order of the rows makes no difference to the fit. In
    a memory map, of which every row would have to be read, and if many rows are equal, the position decides.
    """
    n = len(logits)
    sizes = sorted(
        {min(n // GROWTH**k, LARGEST_SAMPLE) for k in range(1, 20) if n // GROWTH**k >= FEWEST}
    )
    if is_mapped(logits) or not sizes:
        yield from (_spread_evenly(n, size, RUN) for size in sizes)
    else:
        rows, keys = _smallest_keys(logits[:, -1], sizes[-1] / n)
        for size in sizes:
            chosen = rows[keys < size / n]
            yield chosen if size / 2 < len(chosen) < 2 * size else _spread_evenly(n, size)
    yield None


def _smallest_keys(column: Floats, below: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The numbers whose keys are below a limit, by position, and their keys.

    A key is the fractional part of a multiple of the golden ratio: the number's bits are taken as an integer. Keys look
    like random numbers from 0 to 1, and equal numbers have equal keys.
    """
    rows, keys = [], []
    for start in range(0, len(column), KEYS_AT_ONCE):
        with np.errstate(over="ignore"):  # numbers that are infinite in float32 are equal here
            bits = column[start : start + KEYS_AT_ONCE].astype(np.float32).view(np.uint32)
        bits *= GOLDEN
        found = np.flatnonzero(bits < np.uint32(below * 2**32))
        rows.append(start + found)
        keys.append(bits[found] / 2**32)
    return np.concatenate(rows), np.concatenate(keys)


def _spread_evenly(n: int, size: int, run: int = 1) -> NDArray[np.intp]:
    """Row numbers in runs, one run at a random place of each of many equal parts."""
    rng = np.random.default_rng(0)
    runs = size // run
    first = np.arange(runs) * (n / runs) + rng.random(runs) * (n / runs - run + 1)
    return (first.astype(np.intp)[:, None] + np.arange(run)).ravel()


def _root(
    slope_at: Callable[[float], Slope], guesses: Sequence[float], close: float
) -> tuple[float, Slope]:
    """The root of the increasing slope, or the bound beyond which it lies.

    And the slope near the root.

    The guesses are tried first, in order. After the last of them Halley's step is taken as long as
    it stays inside the bracket and reduces the slope enough. Otherwise the bound that the slope
    points to is tried, once; after that, the middle of the bracket whenever Halley's step leads out
    of it.

    In any case every `LOOKS_PER_HALVING` evaluations are followed by one at the middle, which
    halves the bracket. The range is 23 wide, which is less than 2^25 times `CLOSE`, so there are at
    most about a hundred evaluations.
    """
    (low, high), unseen, last = LOG_B, set(LOG_B), math.inf
    log_b, *others = guesses
    look = 0
    while high - low > close:
        look += 1
        unseen.discard(log_b)
        found = slope_at(math.exp(log_b))
        if (
            found.value == 0 == found.first
        ):  # flat: all predictions are right and certain, or the logits are constant
            return (LOG_B[1] if slope_at(math.exp(LOG_B[0])).value < 0 else 0.0), NOTHING
        if log_b == LOG_B[found.value <= 0]:
            return log_b, NOTHING
        low, high = (low, log_b) if found.value > 0 else (log_b, high)
        step, error = found.step()
        inside = low <= log_b + step <= high
        if inside and error < close:
            return log_b + step, found
        end = low if found.value > 0 else high
        if others:
            log_b = others.pop(0)
        elif look % LOOKS_PER_HALVING == 0:
            log_b = (low + high) / 2
        elif end in unseen:
            log_b = log_b + step if inside and abs(found.value) < last / 8 else end
        else:
            log_b = log_b + step if inside else (low + high) / 2
        last = abs(found.value)
    return log_b, slope_at(math.exp(log_b))
