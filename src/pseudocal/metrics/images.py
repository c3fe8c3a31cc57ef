"""Intervals of the metrics of segmentation: images are what is drawn again, for pixels of one are not independent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.metrics.blocks import Column
from pseudocal.metrics.intervals import Interval, ends
from pseudocal.metrics.proportions import check_level
from pseudocal.metrics.segmented import Segmented

Draws = Column  # (resamples, images): how often each image is drawn
LIMITS = {"accuracy": (0.0, 1.0), "nll": (0.0, np.inf), "brier": (0.0, 2.0), "ece": (0.0, 1.0), "miou": (0.0, 1.0)}


def image_interval(
    metric: str, seen: Segmented, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Interval:
    """The interval of a metric by its name, as of so many images rather than of so many pixels.

    All pixels of an image are right or wrong together here, so it is that of two coins, however many pixels there are:

    >>> right, wrong = (Segmented.of(np.zeros((1, 2, 9, 9)), np.full((1, 9, 9), k)) for k in (0, 1))
    >>> interval = image_interval("accuracy", right + wrong)
    >>> interval.low, interval.high
    (0.0, 1.0)

    Of a single image nothing is known of others: the interval is all that the metric can be.

    >>> print(image_interval("accuracy", right))
    1.0000 [0.0000, 1.0000]
    """
    value, draws, slack = _resampled(metric, seen, level, resamples, seed)
    low, high = ends(value, draws, level)
    least, most = LIMITS[metric]
    if _with_pixels(seen).sum() == 1:
        return Interval(value, least, most)
    return Interval(value, max(least, low - slack), min(most, max(least, high)))


def image_change(
    metric: str, before: Segmented, after: Segmented, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Interval:
    """The interval of the change of a metric on the same images; of a single one nothing is known."""
    if before.images != after.images:
        raise InputError(f"expected the same images before and after, got {before.images} and {after.images} of them")
    (old, old_draws, old_slack), (new, new_draws, new_slack) = (
        _resampled(metric, seen, level, resamples, seed) for seen in (before, after)
    )
    low, high = ends(new - old, new_draws - old_draws, level)
    if _with_pixels(before).sum() == 1:
        least, most = LIMITS[metric]
        return Interval(new - old, least - most, most - least)
    return Interval(new - old, low - new_slack, high + old_slack)


def _resampled(metric: str, seen: Segmented, level: float, resamples: int, seed: int) -> tuple[float, Column, float]:
    """The value, the values of images drawn with replacement, and how much lower the truth may lie than they show.

    If the model were calibrated, the gaps of an image would be as likely with the other sign. Unless the calibration
    error is beyond what such signs give by chance, it may be zero.
    """
    if metric not in METRICS:
        raise InputError(f"expected a metric among {', '.join(METRICS)}, got {metric!r}")
    check_level(level)
    if resamples < 2:
        raise InputError(f"expected at least two resamples, got {resamples}")
    value, counts = getattr(seen, metric), _with_pixels(seen)
    n, rng = int(counts.sum()), np.random.default_rng(seed)
    drawn = np.zeros((resamples, seen.images))
    drawn[:, counts] = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
    draws = METRICS[metric](seen, drawn)
    if metric != "ece":
        return value, draws, 0.0
    signs = np.random.default_rng([seed, 1]).choice([-1.0, 1.0], size=(resamples, n))
    chance = np.abs(signs @ (seen.confidence_sum - seen.correct_sum)[counts]).sum(axis=1) / seen.pixels
    beyond = value > np.quantile(chance, (1 + level) / 2)
    return value, draws, 0.0 if beyond else max(0.0, 2 * value - float(draws.mean()))


def _with_pixels(seen: Segmented) -> NDArray[np.bool_]:
    """Which images have a pixel that counts; the others tell nothing, and none is drawn."""
    counted: NDArray[np.bool_] = seen.count.sum(axis=1) > 0
    return counted


def _mean(part: Callable[[Segmented], Column]) -> Callable[[Segmented, Draws], Column]:
    return lambda seen, drawn: (drawn @ part(seen)) / (drawn @ seen.count.sum(1))


def _ece(seen: Segmented, drawn: Draws) -> Column:
    gaps: Column = np.abs(drawn @ (seen.confidence_sum - seen.correct_sum)).sum(axis=1)
    return np.asarray(gaps / (drawn @ seen.count.sum(1)))


def _miou(seen: Segmented, drawn: Draws) -> Column:
    hits, called, labelled = (drawn @ part for part in (seen.hits, seen.called, seen.labelled))
    union = called + labelled - hits
    mean: Column = np.nanmean(np.divide(hits, union, out=np.full(union.shape, np.nan), where=union > 0), axis=1)
    return mean


METRICS: dict[str, Callable[[Segmented, Draws], Column]] = {
    "accuracy": _mean(lambda seen: seen.correct_sum.sum(1)),
    "nll": _mean(lambda seen: seen.nll_sum),
    "brier": _mean(lambda seen: seen.brier_sum),
    "ece": _ece,
    "miou": _miou,
}
