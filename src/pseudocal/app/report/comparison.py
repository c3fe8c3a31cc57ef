"""One page that compares several calibrations, with a line for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pseudocal.app.report.findings import estimate_source, known_accuracy
from pseudocal.app.report.page import templates
from pseudocal.app.report.record import Report
from pseudocal.app.report.wording import VERDICTS


@dataclass(frozen=True)
class ComparedLine:
    """What a comparison says about one calibration, in words."""

    name: str  # the folder of the results
    address: str  # where its page is, from the page of the comparison
    model: str
    data: str
    finished: str
    inputs: str
    temperature: str  # the one that applies, and one that was rejected
    verdict: str
    tone: str  # the colour of the verdict: "good", "caution" or "bad"
    accuracy: str
    confidence: str
    ece: str


def line_of(report: Report, name: str, address: str) -> ComparedLine:
    """Make the line of one report, which has a name and a page."""
    fit = report.calibration
    temperature = f"{fit.temperature:.3f}"
    if fit.refused is not None:
        temperature = f"1 ({fit.refused:.3f} rejected)"
    confidence = f"{report.confidence.mean_before:.1%}"
    if not report.unchanged:
        confidence += f" → {report.confidence.mean_after:.1%}"
    return ComparedLine(
        name=name,
        address=address,
        model=report.model.title,
        data=report.data.name,
        finished=report.timing.finished[:10],
        inputs=f"{report.data.used:,}",
        temperature=temperature,
        verdict=report.verdict or "none",
        tone="" if report.verdict is None else VERDICTS[report.verdict].tone,
        accuracy=_accuracy(report),
        confidence=confidence,
        ece=_ece(report),
    )


def _ece(report: Report) -> str:
    row = report.metric("ece")
    if row is None or row.after is None:
        return "-"
    text = f"{_percent(row.before.value)} → {_percent(row.after.value)}"
    return f"{text} if applied" if report.refused else text


def _accuracy(report: Report) -> str:
    """The accuracy from the best source."""
    row = report.metric("accuracy")
    if row is not None:
        return f"{_percent(row.before.value)} (ground truth)"
    known = known_accuracy(report)
    if known is None:
        return "-"
    source = "labels"
    if report.labels is None:
        source = f"estimated from {estimate_source(report)}"
    return f"{known.value:.0%}, {known.low:.0%} to {known.high:.0%} ({source})"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def comparison(lines: Sequence[ComparedLine]) -> str:
    """Draw the page, with the lines in this order."""
    html: str = templates()["comparison.html"].render(lines=lines)
    return html
