"""Refinement of a calibration by a person's answers.

A temperature, its uncertainty, and a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError, Logits, as_logits, check_rows, check_temperature
from pseudocal.calibrators.answers import CANNOT_TELL, NONE_OF_THESE, Answers, check_answers
from pseudocal.calibrators.confidence import confidence_slope, confidences
from pseudocal.calibrators.measurement import NARROW, Measured, MeasuredEvidence, judge_temperature
from pseudocal.calibrators.measures import (
    LEVEL,
    CheckedRows,
    accuracy_interval,
    calibration_error,
    gap,
    interval_of_alike,
    inverse_design_effect,
)
from pseudocal.calibrators.posterior import LOG_T, Posterior, Prior, log_likelihood, posterior
from pseudocal.calibrators.survey import as_row_groups, survey_order
from pseudocal.metrics import Interval
from pseudocal.scaling import TemperatureScaling

ANYTHING = Prior(
    "none", 1.0, 1.0, doubt=1.0
)  # the distribution of temperatures over typical models
# in log T: the root mean square error of mixup samples, averaged over the families of development
MIXUP_WIDTH = 0.7
AGREEMENT_ERROR = (
    0.05  # of the accuracy that agreement estimates: its median on the development tasks
)
# of the accuracy that a surrogate estimates, as a prior: best of 0.05, 0.08 and 0.12 on development
SURROGATE_ERROR = 0.12
OTHER_WIDTH = 1.0  # the width for estimates of other methods, and the largest for agreement
FINE_POINTS = 2001  # of a grid of log T, if all answers are alike
SLOPE_STEP = 0.01  # step in log T for a numerical derivative
MOST_WEIGHT = 1e6  # the largest weight of an answer, if all rows have one


def refine(
    logits: ArrayLike,
    answers: Answers,
    *,
    priors: Sequence[Prior] = (),
    groups: ArrayLike | None = None,
) -> tuple[TemperatureScaling, Measured]:
    """Fit the temperature to answers and label-free estimates, and measure what the answers say about it.

    A model with a confidence of 88% that is right three times out of four:

    >>> from pseudocal import ask
    >>> logits = np.tile([[2.0, 0.0], [0.0, 2.0]], (500, 1))
    >>> rows = ask(logits, 60)
    >>> labels = np.where(np.arange(60) % 4, logits[rows].argmax(axis=1), logits[rows].argmin(axis=1))
    >>> scaling, measured = refine(logits, Answers(rows, labels), priors=[Prior("mixup", 1.5, 0.5)])
    >>> print(f"{measured.accuracy:.2f}, T = {measured.temperature:.2f}: {measured.verdict}")
    0.75 [0.65, 0.83], T = 1.86 [1.29, 2.89]: apply

    Args:
        logits: The logits of the whole target, of shape `(rows, classes)`, as passed to `ask`.
        answers: The answers of a person.
        priors: Label-free estimates of the temperature. Without any, only the answers count.
        groups: The groups that were passed to `ask`.

    """
    answered = _answered_target(logits, answers, groups)
    found = _fitted(answered, priors)
    temperature = math.exp(found.mean)
    scaling = TemperatureScaling(temperature, log_se=found.deviation, rows=len(answered.labels))
    return scaling, _measured(answered, found, temperature, answers, tuple(priors), held_out=True)


def as_applied(
    scaling: TemperatureScaling, measured: Measured
) -> tuple[TemperatureScaling, Measured]:
    """What `refine` found, but T = 1 where nothing is to be applied.

    `measured.temperature` keeps what was fitted.
    """
    if measured.verdict != "already calibrated":
        return scaling, measured
    unchanged = replace(measured, gap_after=measured.gap_before, error_after=measured.error_before)
    return TemperatureScaling(1.0, rows=scaling.rows), unchanged


def measure_temperature(
    logits: ArrayLike, answers: Answers, temperature: float, *, groups: ArrayLike | None = None
) -> Measured:
    """Judge a temperature that was not fitted to the answers by those answers.

    Args:
        logits: The logits of the whole target, of shape `(rows, classes)`, as passed to `ask`.
        answers: The answers of a person.
        temperature: The temperature to judge.
        groups: The groups that were passed to `ask`.

    """
    check_temperature(temperature)
    answered = _answered_target(logits, answers, groups)
    return _measured(
        answered, _fitted(answered, (ANYTHING,)), temperature, answers, (), held_out=False
    )


def priors_of(
    estimates: Mapping[str, float], logits: ArrayLike, widths: Mapping[str, float] | None = None
) -> list[Prior]:
    """Turn label-free estimates into priors; without any, the prior is that of typical models.

    Agreement estimates the accuracy, so its error is one of the accuracy. The width of its prior is
    the range of log T over which the mean confidence changes as much: narrow where the confidence
    reacts to the temperature. Agreement is left out if there are two classes: two models that are
    both wrong then always agree, and no mixup sample can reveal it.

    >>> [prior.estimator for prior in priors_of({"mixup": 2.0, "agreement": 1.5}, [[2.0, 0.0]])]
    ['mixup']
    >>> [round(prior.width, 2) for prior in priors_of({"mixup": 2.0, "agreement": 1.5}, [[3.0, 0.0, 0.0]])]
    [0.7, 0.15]

    Args:
        estimates: Temperatures by estimator.
        logits: The logits of the target, of shape `(rows, classes)`.
        widths: The widths of the priors in log T, by estimator, that replace the defaults.

    """
    z = as_logits(logits)
    given = dict(widths or {})
    kept = {
        name: t for name, t in estimates.items() if not (name == "agreement" and z.shape[1] == 2)
    }
    found = [
        Prior(name, t, given[name] if name in given else _width(name, t, z))
        for name, t in kept.items()
    ]
    return found or [ANYTHING]


def _width(estimator: str, temperature: float, logits: Logits) -> float:
    """The default width of a prior in log T."""
    if estimator in ("agreement", "surrogate"):
        return agreement_width(
            logits, temperature, SURROGATE_ERROR if estimator == "surrogate" else AGREEMENT_ERROR
        )
    return MIXUP_WIDTH if estimator == "mixup" else OTHER_WIDTH


def agreement_width(logits: Logits, temperature: float, error: float = AGREEMENT_ERROR) -> float:
    """The range of log T over which the mean confidence changes by `error`."""
    slope = confidence_slope(logits, temperature)
    return min(OTHER_WIDTH, error / slope) if slope > 0 else OTHER_WIDTH


class _AnsweredTarget(NamedTuple):
    """The answered rows, and the target they belong to."""

    target: Logits
    rows: NDArray[np.intp]
    labels: NDArray[np.int64]
    groups: NDArray[np.intp]
    spread: bool  # whether `ask` chose the rows, and they are in the order of its survey

    @property
    def logits(self) -> Logits:
        return self.target[self.rows]


def _answered_target(
    logits: ArrayLike, answers: Answers, groups: ArrayLike | None
) -> _AnsweredTarget:
    target = as_logits(logits)
    check_rows(target)
    check_answers(answers, target, groups)
    kept = answers.labels != CANNOT_TELL
    if not kept.any():
        raise InputError(
            f"expected at least one answer, got {len(kept)} questions that the person could not answer"
        )
    rows = answers.rows[kept]
    labels = answers.labels[kept]
    spread = answers.drawn_by == "ask" and groups is None
    if spread:
        place = np.argsort(survey_order(target))
        along = np.argsort(place[rows])
        rows = rows[along]
        labels = labels[along]
    group = rows if groups is None else as_row_groups(groups, len(target))[rows]
    return _AnsweredTarget(target, rows, labels, np.unique(group, return_inverse=True)[1], spread)


def _fitted(answered: _AnsweredTarget, priors: Sequence[Prior]) -> Posterior:
    """The posterior, with answers that weigh as many independent ones."""
    likelihood = partial(log_likelihood, answered.logits, answered.labels)
    remaining = 1 - len(answered.rows) / len(answered.target)
    weight = min(MOST_WEIGHT, 1 / remaining if remaining else MOST_WEIGHT)
    found = posterior(likelihood, priors, weight=weight)
    below, above = likelihood(found.mean + SLOPE_STEP * np.array([-1.0, 1.0])).T
    effect = inverse_design_effect(above - below, answered.groups, spread=answered.spread)
    return posterior(likelihood, priors, weight=weight * effect)


def _measured(
    answered: _AnsweredTarget,
    found: Posterior,
    temperature: float,
    answers: Answers,
    priors: tuple[Prior, ...],
    *,
    held_out: bool,
) -> Measured:
    target, groups = answered.target, answered.groups
    sample = _checked(
        answered,
        np.exp(found.without(groups)) if held_out else np.full(len(answered.rows), temperature),
    )
    right = sample.right
    accuracy = accuracy_interval(sample)
    low, high = _interval(answered, found, right)
    sure = [
        float(confidences(target, t).mean())
        for t in (1.0, temperature, math.exp(low), math.exp(high))
    ]
    verdict, reason, more = judge_temperature(
        math.log(temperature), _evidence((low, high), sure, accuracy, answers=len(right))
    )
    unanswered = len(target) - len(answered.rows)
    return Measured(
        verdict,
        (reason,),
        answers=len(right),
        cannot_tell=int((answers.labels == CANNOT_TELL).sum()),
        none_of_these=int((answers.labels == NONE_OF_THESE).sum()),
        rows=len(target),
        drawn_by=answers.drawn_by,
        seed=answers.seed,
        priors=priors,
        temperature=Interval(math.exp(found.mean), math.exp(low), math.exp(high)),
        accuracy=accuracy,
        gap_before=gap(sure[0], accuracy),
        gap_after=gap(sure[1], accuracy),
        error_before=calibration_error(right, confidences(answered.logits), groups),
        error_after=calibration_error(right, sample.confidence, groups),
        more=None if more is None else min(more, unanswered),
    )


def _evidence(
    interval: tuple[float, float], sure: Sequence[float], accuracy: Interval, *, answers: int
) -> MeasuredEvidence:
    """What the answers say, from the mean confidence before, after, and at both ends of the interval of log T."""
    (low, high), (before, after, at_low, at_high) = interval, sure
    return MeasuredEvidence(
        low,
        high,
        narrow=NARROW * (high - low) / (at_low - at_high) if at_low > at_high else math.inf,
        gap_before=before - accuracy.value,
        gap_after=after - accuracy.value,
        answers=answers,
        outside=max(accuracy.low - before, before - accuracy.high, 0.0),
        moves=0.0 if low <= 0 <= high else min(abs(at_low - before), abs(at_high - before)),
    )


def _interval(
    answered: _AnsweredTarget, found: Posterior, right: NDArray[np.bool_]
) -> tuple[float, float]:
    """The 90% interval of log T."""
    low, high = (found.quantile(fraction) for fraction in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    if right.any() and not right.all():
        return low, high
    labels = answered.labels if right.all() else np.full(len(right), NONE_OF_THESE)
    grid = np.linspace(*LOG_T, FINE_POINTS)
    log_chance = found.weight * log_likelihood(answered.logits, labels, grid).sum(axis=0)
    return interval_of_alike((low, high), grid, log_chance, right=bool(right.all()))


def _checked(answered: _AnsweredTarget, temperatures: NDArray[np.float64]) -> CheckedRows:
    """The answered rows, each with the confidence at its own temperature."""
    right = answered.logits.argmax(axis=1) == answered.labels
    calibrated = confidences(answered.logits / temperatures[:, None])
    overall = confidences(answered.target, math.exp(float(np.log(temperatures).mean())))
    noise = float((overall * (1 - overall)).mean())
    return CheckedRows(
        right,
        calibrated,
        float(overall.mean()),
        noise,
        len(overall),
        answered.groups,
        answered.spread,
    )
