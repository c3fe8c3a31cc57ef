"""One page that compares several calibrations, with a line for each.

Dates, folders, corruptions, models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pseudocal.app.report.advice import KINDS_OF_PANEL
from pseudocal.app.report.measured import estimate_from, known_accuracy, unfitted
from pseudocal.app.report.page import templates
from pseudocal.app.report.record import Report


@dataclass(frozen=True)
class ComparedLine:
    """What a comparison says about one calibration.

    Attributes:
        name: what it is called: the folder of the results.
        address: where its page is, from the page of the comparison.
        model: the name of the model.
        data: the data it was calibrated on.
        finished: the day it was done.
        inputs: the number of inputs that were used.
        temperature: the temperature that applies, and one that was refused.
        verdict: the verdict, in one word or two.
        kind: its colour: "apply", "caution" or "refuse".
        accuracy: the accuracy, by labels, answers or the estimate, and which of these.
        confidence: the mean confidence before and after.
        ece: the ECE before and after, by labels; a dash without labels.

    """

    name: str
    address: str
    model: str
    data: str
    finished: str
    inputs: str
    temperature: str
    verdict: str
    kind: str
    accuracy: str
    confidence: str
    ece: str


def line_of(report: Report, name: str, address: str) -> ComparedLine:
    """Make the line of one report.

    Args:
        report: the report.
        name: what it is called.
        address: where its page is.

    """
    fit = report.calibration
    confidence = report.confidence
    verdict = report.verdict or "none"
    refused = fit.refused is not None
    still = fit.refused is not None or unfitted(report)
    ece = next((row for row in report.measured or () if row.metric == "ece"), None)
    scores = (
        "-"
        if ece is None or ece.after is None
        else f"{_fraction(ece.before.value)} → {_fraction(ece.after.value)}"
    )
    return ComparedLine(
        name=name,
        address=address,
        model=report.model.title,
        data=report.data.name,
        finished=report.timing.finished[:10],
        inputs=f"{report.data.used:,}",
        temperature=f"1 ({fit.refused:.3f} refused)" if refused else f"{fit.temperature:.3f}",
        verdict=verdict,
        kind=KINDS_OF_PANEL.get(verdict, verdict),
        accuracy=_accuracy(report),
        confidence=f"{confidence.mean_before:.1%}"
        + ("" if still else f" → {confidence.mean_after:.1%}"),
        ece=scores + (" if applied" if refused and ece is not None else ""),
    )


def _accuracy(report: Report) -> str:
    """The accuracy by what is known best."""
    for row in report.measured or ():
        if row.metric == "accuracy":
            return f"{_fraction(row.before.value)} (labels)"
    how, known = known_accuracy(report)
    source = "answers" if how == "measured" else f"estimate from {estimate_from(report)}"
    return (
        "-"
        if known is None
        else f"{known.value:.0%}, {known.low:.0%} to {known.high:.0%} ({source})"
    )


def _fraction(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def comparison(lines: Sequence[ComparedLine]) -> str:
    """Draw the page.

    Args:
        lines: the lines, in order.

    """
    html: str = templates()["comparison.html"].render(lines=lines)
    return html
