"""The record of what a person's answers say: kept in a calibration beside what was judged without them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pseudocal.arrays import InputError
from pseudocal.calibrators.posterior import Prior
from pseudocal.files import brief
from pseudocal.metrics import Interval

MeasuredVerdict = Literal["apply", "already calibrated", "caution", "do not apply"]
MEASURED_VERDICTS: tuple[MeasuredVerdict, ...] = ("apply", "already calibrated", "caution", "do not apply")


@dataclass(frozen=True)
class Measured:
    """What a person's answers say of a calibration. All intervals are of 90%, about the rows of the target.

    Attributes:
        verdict: "apply", "already calibrated" (nothing to apply), "caution", or "do not apply".
        reasons: Why, in words.
        answers: How many answers were used.
        cannot_tell: How many questions the person could not answer. They are left out.
        none_of_these: How many of the answers say that none of the classes is right. They count as wrong.
        rows: How many rows the target has.
        drawn_by: "ask" or "random", how the rows were drawn.
        seed: The seed of `ask`.
        priors: The label-free estimates that went into the temperature.
        temperature: The temperature that the answers ask for; the posterior's mean and quantiles of log T.
        accuracy: The share of rows on which the model is right.
        gap_before: Mean confidence minus accuracy without calibration.
        gap_after: The same with the calibration.
        error_before: The root mean square calibration error, freed of what chance adds; None of too few answers.
        error_after: The same with the calibration; temperatures are fitted without the row that is scored.
        more: How many more answers would settle the verdict, None where it is settled.

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
        """As JSON values; an infinite width is None."""
        content = asdict(self) | {"reasons": list(self.reasons)}
        widths = [None if math.isinf(prior.width) else prior.width for prior in self.priors]
        content["priors"] = [asdict(prior) | {"width": width} for prior, width in zip(self.priors, widths, strict=True)]
        return content

    @classmethod
    def from_dict(cls, content: Any) -> Measured:
        """What `to_dict` wrote."""
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
            raise InputError(f"expected a record of what was measured, got {brief(content)}") from error


def _prior(content: dict[str, Any]) -> Prior:
    width = math.inf if content["width"] is None else float(content["width"])
    return Prior(str(content["estimator"]), float(content["temperature"]), width, float(content["doubt"]))
