"""What the answers do: a temperature, what it is worth, and a verdict that rests on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError, Logits, as_logits, check_rows, check_temperature
from pseudocal.calibrators.answers import CANNOT_TELL, NONE_OF_THESE, Answers, check_answers
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.measurement import Measured, MeasuredVerdict
from pseudocal.calibrators.measures import (
    LEVEL,
    AnsweredRows,
    accuracy_interval,
    calibration_error,
    design_gain,
    gap,
    more_answers,
)
from pseudocal.calibrators.posterior import Posterior, Prior, log_likelihood, posterior
from pseudocal.calibrators.survey import as_row_groups, survey_order
from pseudocal.metrics import Interval
from pseudocal.scaling import TemperatureScaling

ANYTHING = Prior("none", 1.0, 1.0, doubt=1.0)  # what temperatures models need
NARROW = 0.05  # of mean confidence: temperatures that move it by less are as good as one
WIDTHS = {"mixes": 0.5, "agreement": 0.15}  # of the priors, in log T: chosen on the tasks of development
OTHER_WIDTH = 1.0  # around an estimate of any other method
SLOPE_STEP = 0.01  # in log T, for a slope
MOST_WORTH = 1e6  # of one answer, where all rows have one


def refine(
    logits: ArrayLike, answers: Answers, *, priors: Sequence[Prior] = (), groups: ArrayLike | None = None
) -> tuple[TemperatureScaling, Measured]:
    """The temperature that answers and label-free estimates ask for together, and what the answers measure.

    A model that is 88% sure of all it says, and right three times out of four:

    >>> from pseudocal import ask
    >>> logits = np.tile([[2.0, 0.0], [0.0, 2.0]], (500, 1))
    >>> rows = ask(logits, 60)
    >>> labels = np.where(np.arange(60) % 4, logits[rows].argmax(axis=1), logits[rows].argmin(axis=1))
    >>> scaling, measured = refine(logits, Answers(rows, labels), priors=[Prior("mixes", 1.5, 0.5)])
    >>> print(f"{measured.accuracy:.2f}, T = {measured.temperature:.2f}: {measured.verdict}")
    0.75 [0.65, 0.83], T = 1.88 [1.29, 3.00]: apply

    Args:
        logits: What the model says of the target, `(rows, classes)`: all of it, as `ask` had it.
        answers: What a person says of some rows.
        priors: Label-free estimates of the temperature. Without any, the answers are all there is.
        groups: What `ask` was given.

    """
    told = _told(logits, answers, groups)
    found = _fitted(told, priors)
    temperature = math.exp(found.mean)
    scaling = TemperatureScaling(temperature, log_se=found.deviation, rows=len(told.labels))
    return scaling, _measured(told, found, temperature, answers, tuple(priors), held_out=True)


def measure_temperature(
    logits: ArrayLike, answers: Answers, temperature: float, *, groups: ArrayLike | None = None
) -> Measured:
    """What the answers say of a temperature that did not come from them. They may contradict it.

    Args:
        logits: What the model says of the target, `(rows, classes)`: all of it, as `ask` had it.
        answers: What a person says of some rows.
        temperature: The temperature to judge.
        groups: What `ask` was given.

    """
    check_temperature(temperature)
    told = _told(logits, answers, groups)
    return _measured(told, _fitted(told, (ANYTHING,)), temperature, answers, (), held_out=False)


def priors_of(estimates: Mapping[str, float], classes: int, widths: Mapping[str, float] | None = None) -> list[Prior]:
    """Label-free estimates as priors; without any, what temperatures models need.

    Agreement is left out where there are two classes: two models that are both mistaken then always agree, and no mix
    can show it.

    >>> [prior.estimator for prior in priors_of({"mixes": 2.0, "agreement": 1.5}, classes=2)]
    ['mixes']

    Args:
        estimates: Temperatures by estimator.
        classes: How many there are.
        widths: Of the priors, by estimator, in the place of the usual ones.

    """
    of = WIDTHS | dict(widths or {})
    kept = {name: t for name, t in estimates.items() if not (name == "agreement" and classes == 2)}
    return [Prior(name, t, of.get(name, OTHER_WIDTH)) for name, t in kept.items()] or [ANYTHING]


class Asked(NamedTuple):
    """What answers ask for, as a verdict needs it.

    Attributes:
        low: The lower end of the 90% interval of log T.
        high: The upper end.
        narrow: Half of an interval of log T that is as good as a point.
        gap_before: Mean confidence minus accuracy without calibration.
        gap_after: The same with the temperature that is judged.
        answers: How many answers there are.

    """

    low: float
    high: float
    narrow: float
    gap_before: float
    gap_after: float
    answers: int


class _Told(NamedTuple):
    """Rows that got an answer, and the target they are of."""

    target: Logits
    rows: NDArray[np.intp]
    labels: NDArray[np.int64]
    groups: NDArray[np.intp]
    spread: bool  # over the target by `ask`, and in the order of its survey

    @property
    def logits(self) -> Logits:
        return self.target[self.rows]


def _told(logits: ArrayLike, answers: Answers, groups: ArrayLike | None) -> _Told:
    target = as_logits(logits)
    check_rows(target)
    check_answers(answers, target, groups)
    kept = answers.labels != CANNOT_TELL
    if not kept.any():
        raise InputError(f"expected at least one answer, got {len(kept)} questions that the person could not answer")
    rows, labels = answers.rows[kept], answers.labels[kept]
    spread = answers.drawn_by == "ask" and groups is None
    if spread:
        place = np.argsort(survey_order(target))
        along = np.argsort(place[rows])
        rows, labels = rows[along], labels[along]
    group = rows if groups is None else as_row_groups(groups, len(target))[rows]
    return _Told(target, rows, labels, np.unique(group, return_inverse=True)[1], spread)


def _fitted(told: _Told, priors: Sequence[Prior]) -> Posterior:
    """The posterior, in which answers count for what they are worth together."""
    likelihood = partial(log_likelihood, told.logits, told.labels)
    remaining = 1 - len(told.rows) / len(told.target)
    worth = min(MOST_WORTH, 1 / remaining if remaining else MOST_WORTH)
    found = posterior(likelihood, priors, worth=worth)
    below, above = likelihood(found.mean + SLOPE_STEP * np.array([-1.0, 1.0])).T
    gain = design_gain(above - below, told.groups, spread=told.spread)
    return posterior(likelihood, priors, worth=worth * gain)


def _measured(
    told: _Told, found: Posterior, temperature: float, answers: Answers, priors: tuple[Prior, ...], *, held_out: bool
) -> Measured:
    others = np.exp(found.without(told.groups)) if held_out else np.full(len(told.rows), temperature)
    right = told.logits.argmax(axis=1) == told.labels
    plain, calibrated = confidences(told.logits), confidences(told.logits / others[:, None])
    typical = confidences(told.target, math.exp(float(np.log(others).mean())))
    noise = float((typical * (1 - typical)).mean())
    sample = AnsweredRows(right, calibrated, float(typical.mean()), noise, len(typical), told.groups, told.spread)
    accuracy = accuracy_interval(sample)
    low, high = (found.quantile(share) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    before, after, at_low, at_high = (
        float(confidences(told.target, t).mean()) for t in (1.0, temperature, math.exp(low), math.exp(high))
    )
    narrow = NARROW * (high - low) / (at_low - at_high) if at_low > at_high else math.inf
    asked = Asked(low, high, narrow, before - accuracy.value, after - accuracy.value, len(right))
    verdict, reason, more = judge_temperature(math.log(temperature), asked)
    most = len(told.target) - len(told.rows)
    return Measured(
        verdict,
        (reason,),
        answers=len(right),
        cannot_tell=int((answers.labels == CANNOT_TELL).sum()),
        none_of_these=int((answers.labels == NONE_OF_THESE).sum()),
        rows=len(told.target),
        drawn_by=answers.drawn_by,
        seed=answers.seed,
        priors=priors,
        temperature=Interval(math.exp(found.mean), math.exp(low), math.exp(high)),
        accuracy=accuracy,
        gap_before=gap(before, accuracy),
        gap_after=gap(after, accuracy),
        error_before=calibration_error(right, plain, told.groups),
        error_after=calibration_error(right, calibrated, told.groups),
        more=None if more is None else min(more, most),
    )


def judge_temperature(log_t: float, asked: Asked) -> tuple[MeasuredVerdict, str, int | None]:
    """The verdict on a temperature, why, and how many more answers would settle it.

    >>> asked = Asked(0.2, 0.8, narrow=0.1, gap_before=0.2, gap_after=0.02, answers=50)
    >>> judge_temperature(0.5, asked)[0], judge_temperature(-0.5, asked)[0]
    ('apply', 'do not apply')
    >>> judge_temperature(0.2, Asked(-0.1, 0.5, narrow=0.2, gap_before=0.1, gap_after=0.0, answers=50))[::2]
    ('caution', 63)

    Args:
        log_t: The logarithm of the temperature to judge.
        asked: What the answers ask for.

    """
    low, high, narrow, before, after, n = asked
    story = f"{n:,} answers ask for a temperature from {math.exp(low):.2f} to {math.exp(high):.2f}"
    off = max(low - log_t, log_t - high, 0.0)
    if off > max(low, -high, 0.0):
        return "do not apply", f"{story}; {math.exp(log_t):.2f} is further from that than no calibration.", None
    if off > 0:
        return "caution", f"{story}; {math.exp(log_t):.2f} is nearer to that than no calibration, but outside.", None
    if max(-low, high) <= narrow:
        return "already calibrated", f"{story}, which makes next to no difference: there is nothing to apply.", None
    if not low <= 0 <= high and abs(after) > abs(before):
        away = f"{100 * abs(before):.0f} to {100 * abs(after):.0f} points"
        return "caution", f"{story}, which moves the mean confidence away from the accuracy, from {away}.", None
    if not low <= 0 <= high:
        return "apply", f"{story}: the model is {'over' if low > 0 else 'under'}confident.", None
    more = more_answers(n, low, high, narrow)
    return "caution", f"{story}, which may be none at all; about {more:,} more answers would settle it.", more
