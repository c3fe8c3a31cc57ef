"""A metric of independent units that can be resampled: rows, groups of rows, or images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError, as_numpy, is_integer
from pseudocal.metrics.outcomes import Outcomes
from pseudocal.metrics.scores import METRICS, Metric
from pseudocal.metrics.segmented import Segmented
from pseudocal.passes import Doubles

UnitNumbers = NDArray[np.intp]  # (n,), numbered from zero
Draws = Doubles  # (resamples, images): how often each image is drawn


def sample_of(
    metric: Metric | str, seen: Outcomes | Segmented, groups: ArrayLike | None = None
) -> MetricSample:
    """A metric of rows or of images, by name or, for rows, as a function.

    >>> half = Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 1, 0, 1])
    >>> sample = sample_of("accuracy", half, groups=[0, 0, 1, 1])
    >>> sample.value, len(sample), sample.units
    (0.5, 4, 2)

    Args:
        metric: The name of the metric, or a function of `Outcomes`.
        seen: The outcomes of rows, or a `Segmented` of images.
        groups: Group numbers `(n,)`, equal for rows that are not independent. For rows only.

    """
    names: tuple[str, ...] = tuple(IMAGE_METRICS) if isinstance(seen, Segmented) else tuple(METRICS)
    if metric not in names if isinstance(metric, str) else isinstance(seen, Segmented):
        raise InputError(f"expected a metric among {', '.join(names)}, got {metric!r}")
    if isinstance(seen, Outcomes):
        function = METRICS[metric] if isinstance(metric, str) else metric
        return RowSample(function, seen, as_groups(groups, len(seen)))
    if groups is not None:
        raise InputError(
            f"expected no groups with images, since each image is a unit, got {groups!r}"
        )
    return ImageSample(str(metric), seen)


@dataclass(frozen=True)
class RowSample:
    """A metric of rows, or of groups of rows that are resampled as a whole.

    Attributes:
        metric: A function of `Outcomes`.
        outcomes: The rows.
        groups: The group of each row; None if all rows are independent.

    """

    metric: Metric
    outcomes: Outcomes
    groups: UnitNumbers | None = None
    noun = "rows"

    def __len__(self) -> int:
        return len(self.outcomes)

    @property
    def name(self) -> str | None:
        """The name of the metric in `METRICS`; None if it is not there."""
        function = self.metric.func if isinstance(self.metric, partial) else self.metric
        return next((name for name, known in METRICS.items() if known is function), None)

    @property
    def units(self) -> int:
        """How many independent units there are."""
        return len(self) if self.groups is None else int(self.groups.max()) + 1

    @property
    def value(self) -> float:
        """The metric of all rows."""
        return self.metric(self.outcomes)

    def draws(self, resamples: int, rng: Generator) -> Doubles:
        """The metric of `resamples` bootstrap samples. Equal generators draw equal units."""
        n = self.units
        if self.groups is None:
            return np.array(
                [self.metric(self.outcomes[rng.integers(n, size=n)]) for _ in range(resamples)]
            )
        order = np.argsort(self.groups, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(self.groups))[:-1])
        drawn = (
            np.concatenate([members[g] for g in rng.integers(n, size=n)]) for _ in range(resamples)
        )
        return np.array([self.metric(self.outcomes[rows]) for rows in drawn])

    def draws_if_calibrated(self, resamples: int, rng: Generator) -> Doubles:
        """The metric of `resamples` random outcomes of a calibrated model with the same confidences."""
        return np.array([self.metric(self._calibrated(rng)) for _ in range(resamples)])

    def _calibrated(self, rng: Generator) -> Outcomes:
        """Random outcomes of a calibrated model (Bröcker and Smith, 2007).

        The dependence between rows of a group is not known. But if the model were calibrated, the
        gaps of a group would be as likely with the opposite sign, so r is replaced by c - s (c - r)
        with a random sign s per group.
        """
        outcomes = self.outcomes
        if self.groups is None:
            return replace(outcomes, correct=rng.random(len(outcomes)) < outcomes.confidence)
        sign = rng.choice([-1.0, 1.0], size=self.units)[self.groups]
        right: NDArray[Any] = outcomes.confidence - sign * (outcomes.confidence - outcomes.correct)
        return replace(outcomes, correct=right)


@dataclass(frozen=True)
class ImageSample:
    """A metric of images, which are resampled as a whole.

    The pixels of one image are not independent.

    Attributes:
        name: The name of the metric.
        seen: The sums of each image.

    """

    name: str
    seen: Segmented
    noun = "images"

    def __len__(self) -> int:
        return self.seen.images

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Which images have a pixel that is not ignored. The others are not drawn."""
        counted: NDArray[np.bool_] = self.seen.count.sum(axis=1) > 0
        return counted

    @property
    def units(self) -> int:
        """How many independent units there are."""
        return int(self.counted.sum())

    @property
    def value(self) -> float:
        """The metric of all images."""
        return float(getattr(self.seen, self.name))

    def draws(self, resamples: int, rng: Generator) -> Doubles:
        """The metric of `resamples` bootstrap samples. Equal generators draw equal images."""
        n = self.units
        drawn = np.zeros((resamples, len(self)))
        drawn[:, self.counted] = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
        return IMAGE_METRICS[self.name](self.seen, drawn)

    def draws_if_calibrated(self, resamples: int, rng: Generator) -> Doubles:
        """The ECE with a random sign for the gaps of each image, `resamples` times.

        If the model were calibrated, the gaps of an image would be as likely with the opposite
        sign.
        """
        signs = rng.choice([-1.0, 1.0], size=(resamples, self.units))
        gaps = (self.seen.confidence_sum - self.seen.correct_sum)[self.counted]
        chance: Doubles = np.abs(signs @ gaps).sum(axis=1) / max(1, self.seen.pixels)
        return chance


MetricSample = RowSample | ImageSample


def as_groups(groups: ArrayLike | None, n: int) -> UnitNumbers | None:
    """The groups renumbered from zero; None if there are none or if each has one row."""
    if groups is None:
        return None
    numbers = as_numpy(groups, "groups")
    if numbers.shape != (n,):
        raise InputError(
            f"expected groups of shape ({n},), one for each row, got shape {numbers.shape}"
        )
    if not is_integer(numbers):
        raise InputError(f"expected groups that are integers, got dtype {numbers.dtype}")
    found, group = np.unique(numbers, return_inverse=True)
    return None if len(found) == n else group


def _mean(part: Callable[[Segmented], Doubles]) -> Callable[[Segmented, Draws], Doubles]:
    return lambda seen, drawn: (drawn @ part(seen)) / (drawn @ seen.count.sum(1))


def _drawn_ece(seen: Segmented, drawn: Draws) -> Doubles:
    gaps: Doubles = np.abs(drawn @ (seen.confidence_sum - seen.correct_sum)).sum(axis=1)
    return np.asarray(gaps / (drawn @ seen.count.sum(1)))


def _drawn_miou(seen: Segmented, drawn: Draws) -> Doubles:
    hits, called, labelled = (drawn @ part for part in (seen.hits, seen.called, seen.labelled))
    union = called + labelled - hits
    mean: Doubles = np.nanmean(
        np.divide(hits, union, out=np.full(union.shape, np.nan), where=union > 0), axis=1
    )
    return mean


IMAGE_METRICS: dict[str, Callable[[Segmented, Draws], Doubles]] = {
    "accuracy": _mean(lambda seen: seen.correct_sum.sum(1)),
    "nll": _mean(lambda seen: seen.nll_sum),
    "brier": _mean(lambda seen: seen.brier_sum),
    "ece": _drawn_ece,
    "miou": _drawn_miou,
}
