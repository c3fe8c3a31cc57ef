"""Refinement of a calibration by a person's labels.

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
from pseudocal.calibrators.anytime import (
    DRAWS,
    GRID,
    MOST_FURTHER,
    MOST_WEIGHT,
    LabelHistory,
    labels_to_settle,
)
from pseudocal.calibrators.confidence import confidence_slope, confidences, match_confidence
from pseudocal.calibrators.labelled_accuracy import (
    LEVEL,
    CheckedRows,
    accuracy_interval,
    calibration_error,
    gap,
    interval_of_alike,
    inverse_design_effect,
)
from pseudocal.calibrators.labels import (
    CANNOT_TELL,
    NONE_OF_THESE,
    LabelSample,
    as_row_groups,
    check_label_sample,
    labelling_order,
    rows_of_any_logits,
)
from pseudocal.calibrators.measured import (
    NARROW,
    Measured,
    MeasuredEvidence,
    enough,
    judge_temperature,
)
from pseudocal.calibrators.posterior import (
    DOUBT,
    LOG_T,
    Posterior,
    Prior,
    log_likelihood,
    posterior,
)
from pseudocal.calibrators.trust import AccuracyEstimate
from pseudocal.calibrators.wording import Reason, ReasonCode
from pseudocal.metrics import Interval
from pseudocal.scaling import TemperatureScaling

ANYTHING = Prior("none", 1.0, 1.0, doubt=1.0)  # how temperatures of typical models are distributed
# with two classes label-free estimates say too little: T is 1, up to this width in log T
TWO_CLASSES = Prior("none", 1.0, 0.4)
# in log T: with labels, 0.5 was no worse than 0.7 on any development family, and covered as well
MIXUP_WIDTH = 0.5
SECOND_OPINIONS = ("agreement", "surrogate")
LABEL_FREE = ("mixup", *SECOND_OPINIONS)
# the probability that the estimate of a second opinion is useless: that of being outside its interval
SECOND_OPINION_DOUBT = 0.1
T3_QUANTILE = 2.353  # the quantile of a 90% interval of Student's t with 3 degrees of freedom
# the width for estimates without an interval, and the largest for second opinions
OTHER_WIDTH = 1.0
FINE_POINTS = 2001  # of a grid of log T, if all predictions are right or all wrong
SLOPE_STEP = 0.01  # step in log T for a numerical derivative
# the measured gap may grow by this over the root of the number of labels, half of its standard error:
# to allow nothing made calibration worse on the development families
GAP_NOISE = 0.25
SAME_CONFIDENCE = 1e-9  # mean confidences that differ by less are the same
EQUIVALENT_ROWS = 1000  # of the target that tell which temperatures are as good as T = 1
# temperatures that bring the mean confidence to within this of chance are equivalent
FLAT = 0.01
FEWEST_WRONG = 10  # labels from which on it means something that none confirms the model


def refine(
    logits: ArrayLike,
    labels: LabelSample,
    *,
    priors: Sequence[Prior] = (),
    groups: ArrayLike | None = None,
) -> tuple[TemperatureScaling, Measured]:
    """Fit the temperature to labels and label-free estimates, and judge it by the labels.

    A model with a confidence of 88% that is right three times out of four:

    >>> from pseudocal import rows_to_label
    >>> logits = np.tile([[2.0, 0.0], [0.0, 2.0]], (500, 1))
    >>> rows = rows_to_label(logits, 60)
    >>> predicted = logits[rows].argmax(axis=1)
    >>> labels = LabelSample(rows, np.where(np.arange(60) % 4, predicted, 1 - predicted))
    >>> scaling, measured = refine(logits, labels, priors=[Prior("mixup", 1.5, 0.5)])
    >>> print(f"{measured.accuracy:.2f}, T = {measured.temperature:.2f}: {measured.verdict}")
    0.75 [0.65, 0.83], T = 1.81 [1.29, 2.89]: apply

    The verdict and the intervals describe the rows of `logits`, of which the labels are a sample. If
    all rows are labelled, the interval of the accuracy has no width.

    Args:
        logits: The logits of the whole target, of shape `(rows, classes)`, as passed to
            `rows_to_label`: labelled or not, and not calibrated.
        labels: A person's labels.
        priors: Label-free estimates of the temperature. Without any, only the labels count.
        groups: The groups that were passed to `rows_to_label`.

    """
    labelled = LabelledTarget.of(logits, labels, groups)
    found = _fitted(labelled, priors)
    temperature = math.exp(found.posterior.median)
    measured, applied = _measured(
        labelled, found, temperature, labels, tuple(priors), groups, held_out=True
    )
    log_se = found.wide.deviation
    scaling = TemperatureScaling(applied, log_se=log_se, rows=len(labelled.labels))
    return scaling, measured


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
    logits: ArrayLike, labels: LabelSample, temperature: float, *, groups: ArrayLike | None = None
) -> Measured:
    """Judge a temperature that was not fitted to the labels by those labels.

    Args:
        logits: The logits of the whole target, of shape `(rows, classes)`, as passed to
            `rows_to_label`.
        labels: A person's labels.
        temperature: The temperature to judge.
        groups: The groups that were passed to `rows_to_label`.

    """
    check_temperature(temperature)
    labelled = LabelledTarget.of(logits, labels, groups)
    found = _fitted(labelled, (ANYTHING,))
    return _measured(labelled, found, temperature, labels, (), groups, held_out=False)[0]


def priors_of(
    estimates: Mapping[str, float],
    logits: ArrayLike,
    widths: Mapping[str, float] | None = None,
    *,
    accuracy: AccuracyEstimate | None = None,
) -> list[Prior]:
    """Turn label-free estimates into priors; without any, the prior is that of typical models.

    A second opinion estimates the accuracy, with a 90% interval. Its prior has the same 90% interval:
    as long as the range of log T over which the mean confidence changes by the length of it, so it is
    narrow where the confidence reacts to the temperature. With two classes, our label-free estimates
    are left out, and the prior is one around T = 1: two models that are both wrong then always agree,
    and no mixup sample can reveal it.

    >>> [prior] = priors_of({"mixup": 2.0, "agreement": 1.5}, [[2.0, 0.0]])
    >>> prior.temperature, prior.width
    (1.0, 0.4)
    >>> both = {"mixup": 2.0, "agreement": 1.5}
    >>> found = priors_of(both, [[3.0, 0.0, 0.0]], accuracy=AccuracyEstimate(0.79, 0.6, 0.9))
    >>> [round(prior.width, 2) for prior in found]
    [0.5, 0.19]

    Args:
        estimates: Temperatures by estimator.
        logits: The logits of the target, of shape `(rows, classes)`.
        widths: The widths of the priors in log T, by estimator, that replace the defaults.
        accuracy: The accuracy that second opinions estimate, with its interval.

    """
    z = as_logits(logits)
    given = dict(widths or {})
    kept = dict(estimates)
    if z.shape[1] == 2:
        kept = {name: t for name, t in kept.items() if name not in LABEL_FREE or name in given}
    found = []
    for name, t in kept.items():
        width = given[name] if name in given else _width(name, t, z, accuracy)
        doubt = SECOND_OPINION_DOUBT if name in SECOND_OPINIONS else DOUBT
        found.append(Prior(name, t, width, doubt))
    if found:
        return found
    return [TWO_CLASSES] if z.shape[1] == 2 else [ANYTHING]


def _width(
    estimator: str, temperature: float, logits: Logits, accuracy: AccuracyEstimate | None
) -> float:
    """The default width of a prior in log T."""
    if estimator in SECOND_OPINIONS and accuracy is not None:
        error = (accuracy.high - accuracy.low) / (2 * T3_QUANTILE)
        return agreement_width(logits, temperature, error)
    return MIXUP_WIDTH if estimator == "mixup" else OTHER_WIDTH


def agreement_width(logits: Logits, temperature: float, error: float) -> float:
    """The range of log T over which the mean confidence changes by `error`."""
    slope = confidence_slope(logits, temperature)
    return min(OTHER_WIDTH, error / slope) if slope > 0 else OTHER_WIDTH


def priors_of_t_and_interval(priors: Sequence[Prior]) -> tuple[list[Prior], list[Prior]]:
    """The priors of T, and those of its interval.

    In T, a second opinion replaces mixup samples. In the interval it does not count: how far off it is
    on new data is not known. With 20 or 50 labels, intervals that relied on it covered T in 74% of the
    draws for the worst development family (weak second models), those without it in 89% or more.

    >>> mixup, agreement = Prior("mixup", 2.0, 0.5), Prior("agreement", 1.5, 0.2)
    >>> priors_of_t_and_interval([mixup, agreement]) == ([agreement], [mixup])
    True
    """
    seconds = [p for p in priors if p.estimator in SECOND_OPINIONS and not math.isinf(p.width)]
    if not seconds:
        return list(priors), list(priors)
    others = [prior for prior in priors if prior.estimator not in SECOND_OPINIONS]
    of_t = [prior for prior in others if prior.estimator != "mixup"] + seconds
    return of_t, others or [ANYTHING]


class LabelledTarget(NamedTuple):
    """The labelled rows, and the target they belong to.

    Attributes:
        target: The logits of the whole target, of shape `(rows, classes)`.
        rows: The labelled rows, of shape `(n,)`.
        labels: Their labels, of shape `(n,)`.
        groups: Their groups, numbered from zero, of shape `(n,)`.
        order: Their places in the order in which they were labelled, of shape `(n,)`.
        spread: Whether `rows_to_label` chose the rows, and they are in the labelling order.

    """

    target: Logits
    rows: NDArray[np.intp]
    labels: NDArray[np.int64]
    groups: NDArray[np.intp]
    order: NDArray[np.intp]
    spread: bool

    @classmethod
    def of(cls, logits: ArrayLike, sample: LabelSample, groups: ArrayLike | None) -> LabelledTarget:
        """Check the labels, and skip the rows that the person could not label."""
        target = as_logits(logits)
        check_rows(target)
        in_order = check_label_sample(sample, target, groups)
        kept = sample.labels != CANNOT_TELL
        if not kept.any():
            raise InputError(
                f"expected at least one label, got {len(kept)} rows that the person could not label"
            )
        rows = sample.rows[kept]
        labels = sample.labels[kept]
        spread = sample.sampling == "stratified" and groups is None
        if spread:
            place = np.argsort(labelling_order(target))
            along = np.argsort(place[rows])
            rows = rows[along]
            labels = labels[along]
        group = rows if groups is None else as_row_groups(groups, len(target))[rows]
        place = np.empty(len(target), dtype=np.intp)
        place[in_order] = np.arange(len(in_order))
        order = np.argsort(place[rows])
        return cls(target, rows, labels, np.unique(group, return_inverse=True)[1], order, spread)

    @property
    def logits(self) -> Logits:
        """The logits of the labelled rows."""
        return self.target[self.rows]

    def checked(self, temperatures: NDArray[np.float64]) -> CheckedRows:
        """The labelled rows, each with the confidence at its own temperature."""
        right = self.logits.argmax(axis=1) == self.labels
        calibrated = confidences(self.logits / temperatures[:, None])
        overall = confidences(self.target, math.exp(float(np.log(temperatures).mean())))
        noise = float((overall * (1 - overall)).mean())
        return CheckedRows(
            right,
            calibrated,
            float(overall.mean()),
            noise,
            len(overall),
            self.groups,
            self.spread,
        )


class Fitted(NamedTuple):
    """What the labels say of the temperature.

    Attributes:
        posterior: The posterior of log T, for this number of labels.
        wide: The same without second opinions, for the interval.
        history: The interval of log T that is valid at every number of labels.

    """

    posterior: Posterior
    wide: Posterior
    history: LabelHistory


def _fitted(labelled: LabelledTarget, priors: Sequence[Prior]) -> Fitted:
    """The posteriors, in which each label weighs as many independent ones, and the history."""
    likelihood = partial(log_likelihood, labelled.logits, labelled.labels)
    remaining = 1 - len(labelled.rows) / len(labelled.target)
    weight = min(MOST_WEIGHT, 1 / remaining if remaining else MOST_WEIGHT)
    of_t, of_interval = priors_of_t_and_interval(priors)
    found = posterior(likelihood, of_t, weight=weight)
    below, above = likelihood(found.median + SLOPE_STEP * np.array([-1.0, 1.0])).T
    # rows that are well spread count as independent: to count them for more made intervals too short
    effect = inverse_design_effect(above - below, labelled.groups, spread=False)
    history = LabelHistory.empty(len(labelled.target), effect, of_t)
    return Fitted(
        posterior(likelihood, of_t, weight=weight * effect),
        posterior(likelihood, of_interval, weight=weight * effect),
        history.extended(likelihood(GRID)[labelled.order]),
    )


def _measured(
    labelled: LabelledTarget,
    fitted: Fitted,
    temperature: float,
    sample: LabelSample,
    priors: tuple[Prior, ...],
    groups: ArrayLike | None,
    *,
    held_out: bool,
) -> tuple[Measured, float]:
    """What the labels say, and the temperature that is applied.

    If held out, each row is scored with a temperature fitted without it, and T is held back where it
    would make the gap larger.
    """
    target = labelled.target
    found = fitted.posterior
    history = fitted.history
    temperatures = np.full(len(labelled.rows), temperature)
    if held_out:
        temperatures = np.exp(found.without(labelled.groups))
    checked = labelled.checked(temperatures)
    right = checked.right
    accuracy = accuracy_interval(checked)
    low, high = _interval(labelled, fitted.wide, right)
    median = found.median
    low, high = min(low, median), max(high, median)
    before = float(confidences(target).mean())
    chance = 1 / target.shape[1]
    at_high = float(confidences(target, math.exp(high)).mean())
    if held_out and at_high < chance + FLAT < before:  # labels say no more than "at least"
        flat = math.log(match_confidence(target, chance + FLAT).temperature)
        median = min(median, flat)
        low = min(low, flat)
        temperature = math.exp(median)
    after = float(confidences(target, temperature).mean())
    applied = temperature
    unlabelled = len(target) - len(labelled.rows)
    if held_out and unlabelled:
        slack = GAP_NOISE / math.sqrt(len(right))
        applied = _held_back(target, temperature, before, after, accuracy.value, slack)
        after = float(confidences(target, applied).mean())
    contradicted = accuracy.high < chance or (len(right) >= FEWEST_WRONG and not right.any())
    evidence = MeasuredEvidence(
        history.low,
        history.high,
        change=max(
            float(confidences(target, math.exp(history.low)).mean()) - before,
            before - float(confidences(target, math.exp(history.high)).mean()),
        ),
        gap_before=before - accuracy.value,
        labels=len(right),
        outside=max(accuracy.low - before, before - accuracy.high, 0.0),
        contradicted=int(right.sum()) if contradicted else None,
        accuracy=accuracy,
        chance=chance,
    )
    if evidence.undecided and unlabelled:
        more = _more_labels(labelled, fitted, sample, groups)
        evidence = evidence._replace(more=more)
    log_t = math.log(temperature)
    if held_out:  # it comes from the labels, so they do not contradict it
        log_t = min(max(log_t, evidence.low), evidence.high)
    verdict, reason = judge_temperature(log_t, evidence)
    if held_out:
        reason = _covering(reason, temperature)
    reasons = [reason]
    grows = abs(after - accuracy.value) > abs(before - accuracy.value)
    if verdict == "apply" and grows:
        gaps = {"gap_before": before - accuracy.value, "gap_after": after - accuracy.value}
        reasons.append(Reason(ReasonCode.LABELS_MOVED_AWAY, gaps))
    if applied != temperature and verdict != "already calibrated":
        reasons.append(Reason(ReasonCode.LABELS_HELD_BACK, {"temperature": applied}))
    at_low, at_high = (float(confidences(target, math.exp(end)).mean()) for end in (low, high))
    doubted = contradicted or reason.code == ReasonCode.LABELS_AT_CHANCE
    if not doubted and enough(evidence, low, high, at_low - at_high):
        reasons.append(Reason(ReasonCode.LABELS_ENOUGH))
    measured = Measured(
        verdict,
        tuple(reasons),
        labels=len(right),
        cannot_tell=int((sample.labels == CANNOT_TELL).sum()),
        none_of_these=int((sample.labels == NONE_OF_THESE).sum()),
        rows=len(target),
        sampling=sample.sampling,
        seed=sample.seed,
        priors=priors,
        temperature=Interval(math.exp(median), math.exp(low), math.exp(high)),
        accuracy=accuracy,
        gap_before=gap(before, accuracy),
        gap_after=gap(after, accuracy),
        error_before=calibration_error(right, confidences(labelled.logits), labelled.groups),
        error_after=calibration_error(right, checked.confidence, labelled.groups),
        more_labels=evidence.more,
    )
    return measured, applied


def _covering(reason: Reason, temperature: float) -> Reason:
    """The reason with an interval of T that covers the fitted T.

    The interval that is valid at every number of labels is an intersection. It is very short if
    later labels move T to an end of it, and may then exclude the T that all labels support.

    >>> numbers = {"labels": 50.0, "low": 2.36, "high": 2.45}
    >>> _covering(Reason(ReasonCode.LABELS_OVERCONFIDENT, numbers), 3.2).numbers
    {'labels': 50.0, 'low': 2.36, 'high': 3.2}
    """
    numbers = reason.numbers
    if not {"low", "high"} <= numbers.keys():
        return reason
    low = min(numbers["low"], temperature)
    high = max(numbers["high"], temperature)
    return Reason(reason.code, {**numbers, "low": low, "high": high})


def _more_labels(
    labelled: LabelledTarget, fitted: Fitted, sample: LabelSample, groups: ArrayLike | None
) -> int | None:
    """How many further labels would settle the verdict, by simulation."""
    target = labelled.target
    most = min(len(sample) + MOST_FURTHER, len(target))
    if sample.sampling == "stratified":
        following = rows_of_any_logits(target, most, seed=sample.seed, groups=groups)[len(sample) :]
    else:
        others = np.setdiff1d(np.arange(len(target)), sample.rows)
        following = np.random.default_rng(sample.seed).permutation(others)[:MOST_FURTHER]
    if len(following) == 0:  # the other rows could not be labelled
        return None
    middles = (np.arange(DRAWS) + 0.5) / DRAWS
    log_ts = np.array([fitted.posterior.quantile(fraction) for fraction in middles])
    some = target[:: math.ceil(len(target) / EQUIVALENT_ROWS)]
    before = float(confidences(some).mean())
    ends = [
        math.log(match_confidence(some, before + change).temperature)
        for change in (NARROW, -NARROW)
    ]
    return labels_to_settle(
        fitted.history, target[following], log_ts, (ends[0], ends[1]), seed=sample.seed
    )


def _held_back(
    target: Logits, temperature: float, before: float, after: float, accuracy: float, slack: float
) -> float:
    """The temperature nearest to the fitted one that makes the measured gap hardly larger.

    Two classes with logits 2 and 0: without calibration the confidence is 88%. The labels say 80%, a
    temperature of 5 would make it 60%: it stops at 69%, three points further off than 88% is.

    >>> target = np.array([[2.0, 0.0]])
    >>> before, after = confidences(target)[0], confidences(target, 5.0)[0]
    >>> stopped = _held_back(target, 5.0, before, after, accuracy=0.8, slack=0.03)
    >>> confidences(target, stopped).round(2)
    array([0.69])
    >>> _held_back(target, 5.0, before, after, accuracy=0.7, slack=0.03)
    5.0
    """
    most = abs(before - accuracy) + slack
    if abs(after - accuracy) <= most:
        return temperature
    wanted = min(max(after, accuracy - most), accuracy + most)
    if abs(wanted - before) < SAME_CONFIDENCE:
        return 1.0
    return match_confidence(target, wanted).temperature


def _interval(
    labelled: LabelledTarget, found: Posterior, right: NDArray[np.bool_]
) -> tuple[float, float]:
    """The 90% interval of log T."""
    low = found.quantile((1 - LEVEL) / 2)
    high = found.quantile((1 + LEVEL) / 2)
    if right.any() and not right.all():
        return low, high
    labels = labelled.labels if right.all() else np.full(len(right), NONE_OF_THESE)
    grid = np.linspace(*LOG_T, FINE_POINTS)
    log_chance = found.weight * log_likelihood(labelled.logits, labels, grid).sum(axis=0)
    return interval_of_alike((low, high), grid, log_chance, right=bool(right.all()))
