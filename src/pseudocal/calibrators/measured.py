"""The verdict of a person's labels on a calibration, and its record beside the label-free one."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from pseudocal.arrays import InputError
from pseudocal.calibrators.posterior import Prior
from pseudocal.calibrators.wording import Reason, ReasonCode
from pseudocal.files import brief
from pseudocal.metrics import Interval

MeasuredVerdict = Literal["apply", "already calibrated", "caution", "do not apply"]
MEASURED_VERDICTS: tuple[MeasuredVerdict, ...] = (
    "apply",
    "already calibrated",
    "caution",
    "do not apply",
)
NARROW = 0.05  # temperatures that change the mean confidence by less than this are equivalent


class MeasuredEvidence(NamedTuple):
    """What labels say, for the verdict on a temperature.

    Attributes:
        low: The lower end of the interval of log T, valid at every number of labels.
        high: The upper end of that interval.
        change: By how much the mean confidence changes at most, with the temperatures of the
            interval.
        gap_before: Mean confidence minus accuracy without calibration.
        labels: The number of labels.
        outside: How far the mean confidence without calibration is outside the 90% interval of the
            accuracy.
        more: The number of further labels that would settle the verdict; None if it is too large.
        contradicted: How many predictions the labels confirm, if these are so few that the classes
            or the labels must be wrong; None otherwise.
        accuracy: The measured accuracy with its 90% interval; None if unknown.
        chance: The accuracy of guessing.

    """

    low: float
    high: float
    change: float
    gap_before: float
    labels: int
    outside: float = 0.0
    more: int | None = None
    contradicted: int | None = None
    accuracy: Interval | None = None
    chance: float = 0.0

    @property
    def at_chance(self) -> bool:
        """Whether the labels agree with the predictions no more often than by chance.

        With two classes, the whole interval must lie below chance: a useful model may be right on
        less than half of a few labels.
        """
        if self.accuracy is None:
            return False
        measured = self.accuracy.high if self.chance == 0.5 else self.accuracy.value
        return measured <= self.chance

    @property
    def idle(self) -> bool:
        """Whether all temperatures of the interval are as good as T = 1."""
        return self.change <= NARROW

    @property
    def undecided(self) -> bool:
        """Whether the interval contains T = 1 and temperatures that differ from it."""
        return self.low <= 0 <= self.high and not self.idle


def judge_temperature(log_t: float, evidence: MeasuredEvidence) -> tuple[MeasuredVerdict, Reason]:
    """The verdict on a temperature, and the reason.

    >>> evidence = MeasuredEvidence(0.2, 0.8, change=0.2, gap_before=0.2, labels=50)
    >>> judge_temperature(0.5, evidence)[0], judge_temperature(-0.5, evidence)[0]
    ('apply', 'do not apply')
    >>> evidence = MeasuredEvidence(-0.1, 0.5, change=0.1, gap_before=0.1, labels=50, more=70)
    >>> verdict, reason = judge_temperature(0.2, evidence)
    >>> verdict, str(reason.code)
    ('caution', 'labels_undecided')

    A model of two classes whose confidence is always near 50% and that is right less often than
    chance:

    >>> evidence = MeasuredEvidence(
    ...     -1.0, 2.1, change=0.01, gap_before=0.35, labels=20, outside=0.19
    ... )
    >>> print(judge_temperature(0.5, evidence)[1])
    The mean confidence is 35 points above the accuracy, and no temperature corrects that. With 20
    labels, T is between 0.368 and 8.17 (90% interval, valid however many labels you add): no
    temperature in this range changes the confidence much.

    Labels in another order than the six classes of the model:

    >>> evidence = MeasuredEvidence(
    ...     2.9, 4.2, 0.6, 0.7, labels=50, accuracy=Interval(0.12, 0.06, 0.21), chance=1 / 6
    ... )
    >>> verdict, reason = judge_temperature(3.5, evidence)
    >>> verdict, str(reason.code)
    ('caution', 'labels_at_chance')

    Args:
        log_t: The logarithm of the temperature to judge.
        evidence: What the labels say.

    """
    low = evidence.low
    high = evidence.high
    numbers = {
        "labels": float(evidence.labels),
        "low": math.exp(low),
        "high": math.exp(high),
    }
    off = max(low - log_t, log_t - high, 0.0)
    if off > 0:
        numbers["temperature"] = math.exp(log_t)
        if off > max(low, -high, 0.0):
            return "do not apply", Reason(ReasonCode.LABELS_FURTHER, numbers)
        return "caution", Reason(ReasonCode.LABELS_OUTSIDE_INTERVAL, numbers)
    if evidence.idle and evidence.outside > NARROW:
        code = ReasonCode.LABELS_CONFIDENCE_LOW
        if evidence.gap_before > 0:
            code = ReasonCode.LABELS_CONFIDENCE_HIGH
        return "caution", Reason(code, numbers | {"gap": evidence.gap_before})
    if evidence.idle and evidence.at_chance:
        return "caution", _at_chance(evidence)
    if evidence.idle:
        return "already calibrated", Reason(ReasonCode.LABELS_ALREADY_CALIBRATED, numbers)
    if evidence.contradicted is not None:
        counts = {"labels": float(evidence.labels), "right": float(evidence.contradicted)}
        return "do not apply", Reason(ReasonCode.LABELS_CONTRADICT, counts)
    if evidence.undecided:
        if evidence.more is None:
            return "caution", Reason(ReasonCode.LABELS_CLOSE_TO_ONE, numbers)
        numbers["more"] = float(evidence.more)
        return "caution", Reason(ReasonCode.LABELS_UNDECIDED, numbers)
    if evidence.at_chance:
        return "caution", _at_chance(evidence)
    if low > 0:
        return "apply", Reason(ReasonCode.LABELS_OVERCONFIDENT, numbers)
    return "apply", Reason(ReasonCode.LABELS_UNDERCONFIDENT, numbers)


def _at_chance(evidence: MeasuredEvidence) -> Reason:
    """That the labels may agree with the predictions by chance only."""
    assert evidence.accuracy is not None
    numbers = {
        "labels": float(evidence.labels),
        "accuracy": evidence.accuracy.value,
        "accuracy_low": evidence.accuracy.low,
        "accuracy_high": evidence.accuracy.high,
        "chance": evidence.chance,
    }
    return Reason(ReasonCode.LABELS_AT_CHANCE, numbers)


def enough(evidence: MeasuredEvidence, low: float, high: float, width: float) -> bool:
    """Whether more labels would hardly change the verdict and the temperature.

    The verdict is clear, or out of reach; and T is known as well as need be, or it is as far from
    T = 1 as half of its interval.

    >>> evidence = MeasuredEvidence(0.1, 0.9, change=0.2, gap_before=0.2, labels=50)
    >>> enough(evidence, 0.2, 0.8, width=0.2), enough(evidence, 0.3, 0.8, width=0.2)
    (False, True)

    Args:
        evidence: What the labels say.
        low: The lower end of the 90% interval of log T.
        high: The upper end of it.
        width: By how much the mean confidence changes from one end to the other.

    """
    if evidence.undecided and evidence.more is not None:
        return False
    if evidence.idle and evidence.outside > NARROW:
        return False
    return width <= 2 * NARROW or max(low, -high) >= (high - low) / 2


@dataclass(frozen=True)
class Measured:
    """What a person's labels say about a calibration.

    All intervals are 90% intervals for the whole target.

    Attributes:
        verdict: "apply", "already calibrated" (nothing to apply), "caution", or "do not apply".
        reasons: The reasons for the verdict; `str` gives the sentence of each.
        labels: The number of labels used.
        cannot_tell: The number of rows that the person could not label. They are skipped.
        none_of_these: The number of rows that belong to none of the classes. They count as wrong
            predictions.
        rows: The number of rows of the target.
        sampling: How the rows were drawn: "stratified" or "random".
        seed: The seed of `rows_to_label`.
        priors: The label-free estimates used as priors of the temperature.
        temperature: The temperature that the labels support: exp of the posterior median
            and quantiles of log T. The interval does not rely on second opinions.
        accuracy: The accuracy of the model.
        gap_before: Mean confidence minus accuracy without calibration.
        gap_after: Mean confidence minus accuracy with the calibration.
        error_before: The debiased root mean squared calibration error; None if there are too few
            labels.
        error_after: The same with the calibration; each row is scored with a temperature fitted
            without it.
        more_labels: The number of further labels that would settle the verdict with a probability
            of 80%, in steps of ten; None if it is clear, or if more than 200 are needed.

    """

    verdict: MeasuredVerdict
    reasons: tuple[Reason, ...]
    labels: int
    cannot_tell: int
    none_of_these: int
    rows: int
    sampling: str
    seed: int
    priors: tuple[Prior, ...]
    temperature: Interval
    accuracy: Interval
    gap_before: Interval
    gap_after: Interval
    error_before: Interval | None = None
    error_after: Interval | None = None
    more_labels: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values; an infinite width becomes None."""
        content = asdict(self) | {"reasons": [reason.to_dict() for reason in self.reasons]}
        widths = [None if math.isinf(prior.width) else prior.width for prior in self.priors]
        content["priors"] = [
            asdict(prior) | {"width": width}
            for prior, width in zip(self.priors, widths, strict=True)
        ]
        return content

    @classmethod
    def from_dict(cls, content: Any) -> Measured:
        """Read what `to_dict` returned.

        Args:
            content: The JSON values.

        """
        try:
            known = {key: content[key] for key in cls.__dataclass_fields__}
            if known["verdict"] not in MEASURED_VERDICTS:
                raise ValueError
            known["reasons"] = tuple(Reason.from_dict(reason) for reason in known["reasons"])
            known["priors"] = tuple(_prior(prior) for prior in known["priors"])
            for key, value in known.items():
                if isinstance(value, dict):
                    known[key] = Interval(**{end: float(number) for end, number in value.items()})
            return cls(**known)
        except InputError:  # a reason or a prior says what is wrong with it
            raise
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(
                f"expected a record of what was measured, got {brief(content)}"
            ) from error


def _prior(content: dict[str, Any]) -> Prior:
    width = math.inf if content["width"] is None else float(content["width"])
    return Prior(
        str(content["estimator"]), float(content["temperature"]), width, float(content["doubt"])
    )
