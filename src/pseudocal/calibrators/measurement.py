"""The record of what a person's answers say about a calibration, kept beside the label-free verdict."""

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
    """What a person's answers say about a calibration. All intervals are 90% intervals for the whole target.

    Attributes:
        verdict: "apply", "already calibrated" (nothing to apply), "caution", or "do not apply".
        reasons: The reasons for the verdict, as sentences.
        answers: The number of answers used.
        cannot_tell: The number of questions that the person could not answer. They are left out.
        none_of_these: The number of answers that name none of the classes. They count as wrong predictions.
        rows: The number of rows of the target.
        drawn_by: How the rows were drawn: "ask" or "random".
        seed: The seed of `ask`.
        priors: The label-free estimates used as priors of the temperature.
        temperature: The temperature that the answers support: exp of the posterior mean and quantiles of log T.
        accuracy: The accuracy of the model.
        gap_before: Mean confidence minus accuracy without calibration.
        gap_after: Mean confidence minus accuracy with the calibration.
        error_before: The debiased root mean squared calibration error; None if there are too few answers.
        error_after: The same with the calibration; each row is scored with a temperature fitted without it.
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
        content["priors"] = [asdict(prior) | {"width": width} for prior, width in zip(self.priors, widths, strict=True)]
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
            raise InputError(f"expected a record of what was measured, got {brief(content)}") from error


def _prior(content: dict[str, Any]) -> Prior:
    width = math.inf if content["width"] is None else float(content["width"])
    return Prior(str(content["estimator"]), float(content["temperature"]), width, float(content["doubt"]))
