"""What a person's answers say about a calibration.

The verdict, and its record, kept beside the label-free one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from pseudocal.arrays import InputError
from pseudocal.calibrators.measures import more_answers
from pseudocal.calibrators.posterior import Prior
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
    """What the answers say, for the verdict on a temperature.

    Attributes:
        low: The lower end of the 90% interval of log T.
        high: The upper end of the 90% interval of log T.
        narrow: Half the width of an interval of log T that is as good as a point.
        gap_before: Mean confidence minus accuracy without calibration.
        gap_after: Mean confidence minus accuracy with the temperature that is judged.
        answers: The number of answers.
        outside: How far the mean confidence without calibration is outside the 90% interval of the
            accuracy.
        moves: By how much the mean confidence changes at least, with the temperatures of the
            interval.

    """

    low: float
    high: float
    narrow: float
    gap_before: float
    gap_after: float
    answers: int
    outside: float = 0.0
    moves: float = 0.0


def judge_temperature(
    log_t: float, evidence: MeasuredEvidence
) -> tuple[MeasuredVerdict, str, int | None]:
    """The verdict on a temperature, the reason, and how many more answers would settle it.

    >>> evidence = MeasuredEvidence(0.2, 0.8, narrow=0.1, gap_before=0.2, gap_after=0.02, answers=50)
    >>> judge_temperature(0.5, evidence)[0], judge_temperature(-0.5, evidence)[0]
    ('apply', 'do not apply')
    >>> judge_temperature(0.2, MeasuredEvidence(-0.1, 0.5, narrow=0.2, gap_before=0.1, gap_after=0.0, answers=50))[::2]
    ('caution', 63)

    A model of two classes whose confidence is always near 50% and that is right less often than
    chance:

    >>> evidence = MeasuredEvidence(-1.0, 2.1, narrow=5.0, gap_before=0.35, gap_after=0.35, answers=20, outside=0.19)
    >>> judge_temperature(0.5, evidence)[:2]
    ('caution', '20 answers ask for a temperature from 0.37 to 8.17, which makes next to no
    difference; but the mean confidence is 35 points above the accuracy, and no temperature mends
    that.')

    Args:
        log_t: The logarithm of the temperature to judge.
        evidence: What the answers say.

    """
    low, high, narrow, before, after, n, outside, moves = evidence
    asking = "1 answer asks" if n == 1 else f"{n:,} answers ask"
    story = f"{asking} for a temperature from {math.exp(low):.2f} to {math.exp(high):.2f}"
    off = max(low - log_t, log_t - high, 0.0)
    if off > max(low, -high, 0.0):
        return (
            "do not apply",
            f"{story}; {math.exp(log_t):.2f} is further from that than no calibration.",
            None,
        )
    if off > 0:
        return (
            "caution",
            f"{story}; {math.exp(log_t):.2f} is nearer to that than no calibration, but outside.",
            None,
        )
    idle = (
        max(-low, high) <= narrow and moves <= NARROW
    )  # where all are equally likely, T far from 1 is not idle
    if idle and outside > NARROW:
        gap = f"{100 * abs(before):.0f} points {'above' if before > 0 else 'below'} the accuracy"
        story = f"{story}, which makes next to no difference; but the mean confidence is {gap}"
        return "caution", f"{story}, and no temperature mends that.", None
    if idle:
        return (
            "already calibrated",
            f"{story}, which makes next to no difference: there is nothing to apply.",
            None,
        )
    if not low <= 0 <= high and abs(after) > abs(before):
        away = f"{100 * abs(before):.0f} to {100 * abs(after):.0f} points"
        return (
            "caution",
            f"{story}, which moves the mean confidence away from the accuracy, from {away}.",
            None,
        )
    if not low <= 0 <= high:
        return "apply", f"{story}: the model is {'over' if low > 0 else 'under'}confident.", None
    more = more_answers(n, low, high, narrow)
    return (
        "caution",
        f"{story}, which may be none at all; about {more:,} more answers would settle it.",
        more,
    )


@dataclass(frozen=True)
class Measured:
    """What a person's answers say about a calibration.

    All intervals are 90% intervals for the whole target.

    Attributes:
        verdict: "apply", "already calibrated" (nothing to apply), "caution", or "do not apply".
        reasons: The reasons for the verdict, as sentences.
        answers: The number of answers used.
        cannot_tell: The number of questions that the person could not answer. They are left out.
        none_of_these: The number of answers that name none of the classes. They count as wrong
            predictions.
        rows: The number of rows of the target.
        drawn_by: How the rows were drawn: "ask" or "random".
        seed: The seed of `ask`.
        priors: The label-free estimates used as priors of the temperature.
        temperature: The temperature that the answers support: exp of the posterior mean and
            quantiles of log T.
        accuracy: The accuracy of the model.
        gap_before: Mean confidence minus accuracy without calibration.
        gap_after: Mean confidence minus accuracy with the calibration.
        error_before: The debiased root mean squared calibration error; None if there are too few
            answers.
        error_after: The same with the calibration; each row is scored with a temperature fitted
            without it.
        more: The number of further answers that would settle the verdict; None if it is settled.

    """

    verdict: MeasuredVerdict
    reasons: tuple[str, ...]
    answers: int
    cannot_tell: int
    none_of_these: int
    rows: int
    drawn_by: str
    seed: int
    priors: tuple[Prior, ...]
    temperature: Interval
    accuracy: Interval
    gap_before: Interval
    gap_after: Interval
    error_before: Interval | None = None
    error_after: Interval | None = None
    more: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values; an infinite width becomes None."""
        content = asdict(self) | {"reasons": list(self.reasons)}
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
            known["reasons"] = tuple(str(reason) for reason in known["reasons"])
            known["priors"] = tuple(_prior(prior) for prior in known["priors"])
            for key, value in known.items():
                if isinstance(value, dict):
                    known[key] = Interval(**{end: float(number) for end, number in value.items()})
            return cls(**known)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(
                f"expected a record of what was measured, got {brief(content)}"
            ) from error


def _prior(content: dict[str, Any]) -> Prior:
    width = math.inf if content["width"] is None else float(content["width"])
    return Prior(
        str(content["estimator"]), float(content["temperature"]), width, float(content["doubt"])
    )
