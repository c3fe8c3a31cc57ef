"""Temperature scaling: divide the logits by the one number that makes their likelihood largest.

With b = 1/T the mean negative log-likelihood is convex, so its slope

    g(b) = mean over rows of  E_p[z] - z_y,        p = softmax(b z)

rises and has one root at most. Its derivatives are the variance and the third central moment of z under p, so one
pass over the data gives all that Halley's third-order step needs. The root is sought in log b, on a small sample
of rows first, then on larger ones, then on all of them: each starts so close to its answer that one pass is nearly
always enough, and the full data is read once or twice. Samples that are not needed for that are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Labels, Logits, as_labels, as_logits, check_temperature, work_dtype
from pseudocal.passes import is_mapped
from pseudocal.scaling.clustering import all_alone, clustering
from pseudocal.scaling.slope import NOTHING, Slope, slope

BOUNDS = (1e-4, 1e6)  # where the temperature is sought
LOG_B = (-math.log(BOUNDS[1]), -math.log(BOUNDS[0]))
FEWEST = 256  # no sample of rows is smaller than this
LARGEST_SAMPLE = 2**19  # nor larger than this, which is close enough for one pass over all rows to be the last
RUN = 64  # rows of a file that are read in one go: to fetch one costs as much
GROWTH = 16  # each sample of rows is so many times the one before
LOOKS_PER_HALVING = 4  # looks at the slope after which the bracket around its root is halved, whatever they said
CLOSE = 1e-6  # an error in log T that is none
CLOSE_ENOUGH = 1e-3  # an error in log T that is none beside the sampling error of a sample of rows


@dataclass(frozen=True)
class TemperatureScaling:
    """Divide logits by one number: confidence moves, the predicted class does not.

    >>> TemperatureScaling(2.0)(np.array([[2.0, 4.0]]))
    array([[1., 2.]])

    Attributes:
        temperature: what logits are divided by.
        log_se: the standard error of log T; NaN if it is not known.
        rows: how many rows it was fitted on.
        bound: "lower" or "upper" if the likelihood has its maximum beyond the range that was searched.
        groups: how many equal and independent groups the error rests on; None if every row is its own.
        skew: how far the error of 1 / T leans to one side.
        effective_rows: how many rows of equal influence the error rests on, where rows are independent: about as many
            as there were mistakes if those were few.

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

    def __call__(self, logits: ArrayLike) -> Logits:
        """Scale logits `(n, classes)`."""
        logits = as_logits(logits)
        return np.divide(logits, self.temperature, dtype=work_dtype(logits))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The range that holds the temperature of the population with probability `level`.

        It speaks of sampling error alone: whether these rows resemble those that the scaling will be used on is
        another question.

        It is symmetric in 1 / T: where few mistakes were seen, T comes out small and its error too, and more room is
        needed above (`benchmarks/clusters.py`).

        >>> low, high = TemperatureScaling(2.0, log_se=0.1).interval()
        >>> round(low, 3), round(high, 3)                                        # 2 / 1.196 and 2 / 0.804
        (1.672, 2.488)

        An error that comes from few groups is itself known badly, and the interval is Student's. Where one or two of
        them hold most of the mistakes, it leaves more room above:

        >>> low, high = TemperatureScaling(2.0, log_se=0.1, groups=5).interval()
        >>> round(low, 3), round(high, 3)
        (1.565, 2.769)
        >>> low, high = TemperatureScaling(2.0, log_se=0.1, groups=5, skew=-0.2).interval()
        >>> round(low, 3), round(high, 3)
        (1.619, 3.129)

        So it is where a few rows, mostly mistakes, decide:

        >>> low, high = TemperatureScaling(2.0, log_se=0.1, effective_rows=4).interval()
        >>> round(low, 3), round(high, 3)
        (1.565, 2.769)
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
        return (self.temperature / (1 - below), math.inf if above >= 1 else self.temperature / (1 - above))


def _leaning(quantile: float, skew: float) -> float:
    """The quantile of a studentized sum whose terms are skewed: the root of Hall's cubic.

    >>> _leaning(2.0, 0.0), round(_leaning(2.0, -0.2), 3), round(_leaning(-2.0, -0.2), 3)
    (2.0, 2.396, -1.754)
    """
    return 3 / skew * (math.cbrt(1 + skew * (quantile - skew / 6)) - 1) if abs(skew) > 1e-9 else quantile


def fit_temperature(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None, groups: ArrayLike | None = None
) -> TemperatureScaling:
    """Find the temperature under which the labels are most likely.

    Any floating dtype, memory layout or memory map will do; nothing of the input's size is allocated. A class at
    -inf is an impossible class.

    Three of four predictions are right at logit gap 2, so the gap should be log 3:

    >>> scaling = fit_temperature([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> round(scaling.temperature, 6), round(2 / math.log(3), 6)
    (1.820478, 1.820478)

    The standard error is the sandwich estimate, which holds for models that are wrong as well. Weights are
    importance weights: two rows of weight one tell more than one row of weight two. `groups` `(n,)` are numbers that
    rows share which are not independent, such as pixels of one image: the temperature is the same, its error is that
    of so many independent groups. Of one group nothing is known, and groups of one row each are no groups. Where a
    row belongs to two groups, as a mix of two images does, groups are `(n, 2)`.

    >>> twice = fit_temperature([[2.0, 0.0]] * 8, [0, 0, 0, 1] * 2, groups=[0, 1, 2, 3] * 2)
    >>> round(twice.temperature, 6), round(twice.groups, 6)
    (1.820478, 4.0)

    Args:
        logits: `(n, classes)`, of any floating type; a memory map will do.
        labels: class numbers `(n,)`, or soft targets `(n, classes)`.
        weights: how much each row counts, `(n,)`; one each when absent.
        groups: the group of each row, `(n,)`, or its two groups, `(n, 2)`; every row its own when absent.

    """
    logits = as_logits(logits)
    targets = as_targets(labels, logits)
    row_weights = None if weights is None else _near_one(as_weights(weights, len(logits)))
    guesses, there = [0.0], NOTHING
    for rows in _samples(len(logits), RUN if is_mapped(logits) else 1):
        if rows is not None and 0.5 * (3 * there.log_se()) ** 3 < CLOSE:
            continue  # from here one step on all rows will do
        close = CLOSE if rows is None else CLOSE_ENOUGH
        log_b, there = _root(partial(slope, logits, targets, row_weights, rows), guesses, close)
        # a sample of rows that are all right points to an end: all rows are asked there once, then as if it were not
        guesses = [log_b, guesses[-1]] if log_b in LOG_B else [log_b]
    bound: Literal["lower", "upper"] | None = {LOG_B[0]: "upper", LOG_B[1]: "lower"}.get(log_b)  # type: ignore[assignment]
    temperature = BOUNDS[bound == "upper"] if bound else math.exp(-log_b)
    fitted = TemperatureScaling(temperature, there.log_se(), len(logits), bound, effective_rows=there.effective)
    return fitted if groups is None else _clustered(fitted, logits, targets, row_weights, groups)


def _clustered(
    fitted: TemperatureScaling, logits: Logits, targets: Labels, weights: Floats | None, groups: ArrayLike
) -> TemperatureScaling:
    """The same with the standard error of rows that come in groups."""
    numbers = np.asarray(groups)
    if numbers.shape not in ((len(logits),), (len(logits), 2)) or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(
            f"expected groups as {len(logits)} integers, one for each row, or as pairs of them, "
            f"got {numbers.dtype} of shape {numbers.shape}"
        )
    if all_alone(numbers):
        return fitted
    times, count, skew = clustering(logits, targets, weights, numbers, 1 / fitted.temperature)
    return replace(fitted, log_se=fitted.log_se * times, groups=count, skew=skew)


def as_targets(labels: ArrayLike, logits: Logits) -> Labels:
    """See `labels` as class indices `(n,)` or as soft targets `(n, classes)` whose rows sum to one."""
    targets = np.asarray(labels)
    if targets.ndim != 2:
        return as_labels(targets, logits)
    if targets.shape != logits.shape:
        raise InputError(f"expected soft targets of shape {logits.shape}, got shape {targets.shape}")
    bad = ~((targets >= 0).all(axis=1) & np.isclose(targets.sum(axis=1, dtype=np.float64), 1, atol=1e-3))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"expected soft targets that are non-negative and sum to one in each row, got {targets[row]} in row {row}"
        )
    return targets


def as_weights(weights: ArrayLike, n: int) -> Floats:
    """See `weights` as `(n,)` non-negative numbers that are not all zero."""
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (n,):
        raise InputError(f"expected weights of shape ({n},), one for each row, got shape {array.shape}")
    if not (np.isfinite(array).all() and (array >= 0).all() and array.any()):
        raise InputError("expected weights that are finite, non-negative and not all zero, got others")
    return array


def _near_one(weights: Floats) -> Floats:
    """Weights times a power of two, which changes no digit: their squares neither overflow nor vanish.

    >>> _near_one(np.array([2.0**1000, 0.0, 2.0**998]))
    array([0.5  , 0.   , 0.125])
    """
    return np.ldexp(weights, -math.frexp(weights.max())[1])


def _samples(n: int, run: int = 1) -> Iterator[NDArray[np.intp] | None]:
    """Ever larger samples of rows, sorted and spread evenly, in runs; the last, None, stands for all of them."""
    rng = np.random.default_rng(0)
    sizes = sorted({min(n // GROWTH**k, LARGEST_SAMPLE) for k in range(1, 20) if n // GROWTH**k >= FEWEST})
    for size in sizes:
        runs = size // run
        first = np.arange(runs) * (n / runs) + rng.random(runs) * (n / runs - run + 1)
        yield (first.astype(np.intp)[:, None] + np.arange(run)).ravel()
    yield None


def _root(slope_at: Callable[[float], Slope], guesses: Sequence[float], close: float) -> tuple[float, Slope]:
    """Where the rising slope crosses zero, or the end of the range that it points out of; and the slope close by.

    The guesses are looked at first, in order. From the last of them on Halley's step is taken while it stays inside
    the bracket and shrinks the slope well. Else the end of the range that the slope points to is looked at, once; and
    from then on the middle of the bracket, whenever Halley's step leads out of it.

    Whatever the slopes are, after every `LOOKS_PER_HALVING` looks comes one at the middle, which halves the bracket.
    The range is 23 wide and 2^25 times `CLOSE`, so a hundred looks are the most there can be.
    """
    (low, high), unseen, last = LOG_B, set(LOG_B), math.inf
    log_b, *others = guesses
    look = 0
    while high - low > close:
        look += 1
        unseen.discard(log_b)
        slope = slope_at(math.exp(log_b))
        if slope.value == 0 == slope.first:  # flat: all is right beyond doubt, or the logits say nothing at all
            return (LOG_B[1] if slope_at(math.exp(LOG_B[0])).value < 0 else 0.0), NOTHING
        if log_b == LOG_B[slope.value <= 0]:
            return log_b, NOTHING
        low, high = (low, log_b) if slope.value > 0 else (log_b, high)
        step, error = slope.step()
        inside = low <= log_b + step <= high
        if inside and error < close:
            return log_b + step, slope
        end = low if slope.value > 0 else high
        if others:
            log_b = others.pop(0)
        elif look % LOOKS_PER_HALVING == 0:
            log_b = (low + high) / 2
        elif end in unseen:
            log_b = log_b + step if inside and abs(slope.value) < last / 8 else end
        else:
            log_b = log_b + step if inside else (low + high) / 2
        last = abs(slope.value)
    return log_b, slope_at(math.exp(log_b))
