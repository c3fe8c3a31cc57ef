"""The figures of a report as numbers and words.

Templates draw them: `figure.html` a chart, `verdict.html` the tracks beside the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pseudocal.app.report.findings import known_accuracy
from pseudocal.app.report.record import Bins, FilledBin, Report, Threshold

QUARTERS = (0, 0.25, 0.5, 0.75, 1)
FEW = 3  # a bar of fewer predictions is drawn pale, without its interval
# where the tracks beside the verdict begin and end
TRACK_LEFT = 14
TRACK_RIGHT = 346

Ticks = tuple[tuple[float, str], ...]  # a value, and its text


# ------------------------------------------------------------------------------ charts


class Frame(NamedTuple):
    """The frame of a chart; numbers on hover are shown above it."""

    width: int = 360
    height: int = 250
    left: int = 44
    right: int = 350
    top: int = 34
    bottom: int = 206


FRAME = Frame()


@dataclass(frozen=True)
class Column:
    """What is drawn in one bin of the horizontal axis."""

    left: float
    right: float
    bars: dict[str, float]  # heights by kind, which sets the colour
    tip: str  # the numbers to show on hover
    confidence: float | None = None  # where to draw a dot on the bar
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Figure:
    """A chart with a title, a description for screen readers, and its numbers as a table."""

    name: str
    title: str
    description: str
    x_label: str  # of an axis from 0 to 1
    y_label: str
    most: float  # where the vertical axis ends
    y_ticks: Ticks
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[Column, ...] = ()
    lines: tuple[tuple[str, list[tuple[float, float]]], ...] = ()  # kinds and points
    diagonal: bool = False


def histogram(report: Report) -> Figure:
    """The distribution of the confidence, before next to after if T has changed it."""
    confidence = report.confidence
    edges = confidence.edges
    unit = report.unit
    total = sum(confidence.before)
    counts = {"before": confidence.before}
    title = "Confidence"
    mean = f"The mean is {confidence.mean_before:.1%}."
    header: tuple[str, ...] = ("confidence", f"fraction of {unit}")
    if not report.unchanged:
        counts["after"] = confidence.after
        title = "Confidence before and after"
        mean = (
            f"The mean is {confidence.mean_before:.1%} before calibration and "
            f"{confidence.mean_after:.1%} after."
        )
        header = ("confidence", *counts)
    words = [f" {when}" for when in counts] if len(counts) > 1 else [""]
    columns = []
    rows = []
    for low, high, *bin_counts in zip(edges, edges[1:], *counts.values(), strict=False):
        fractions = [n / total for n in bin_counts]
        bin_text = f"{low:.2f} to {high:.2f}"
        percents = [f"{fraction:.1%}" for fraction in fractions]
        tip = ", ".join(text + when for text, when in zip(percents, words, strict=True))
        bars = dict(zip(counts, fractions, strict=True))
        columns.append(Column(low, high, bars, f"{bin_text}: {tip}"))
        if any(bin_counts):
            rows.append((bin_text, *percents))
    most = _round_up(max(max(each) for each in counts.values()) / total)
    return Figure(
        name="confidences",
        title=title,
        description=f"Histogram of the confidence of {total:,} {unit}. {mean}",
        x_label="confidence",
        y_label=f"fraction of {unit}",
        most=most,
        y_ticks=_percent_ticks(most),
        header=header,
        rows=tuple(rows),
        columns=tuple(columns),
    )


def reliability_diagrams(report: Report) -> list[Figure]:
    """The reliability before and after calibration; one if nothing was fitted, none of nothing."""
    diagrams = report.reliability
    if not sum(diagrams.before.count):
        return []
    before = _reliability(report, diagrams.before, "before", "before calibration")
    if report.unfitted:
        return [before]
    words = "with the rejected T" if report.refused else "after calibration"
    return [before, _reliability(report, diagrams.after, "after", words)]


def _reliability(report: Report, bins: Bins, when: str, words: str) -> Figure:
    """The accuracy in each bin of confidence; on the diagonal it equals the confidence."""
    filled = bins.filled()
    source = report.reliability.source
    unit = report.unit
    of = {"ground truth": unit, "labels": f"labelled {unit}", "mixup": "mixup samples"}[source]
    description = f"Accuracy in {len(filled)} bins of confidence, {words}."
    if source != "labels":  # the ECE of few labels is too high
        description += f" ECE: {bins.ece:.1%}."
    header = ["confidence", of, "mean confidence", "accuracy"]
    if any(one.interval is not None for one in filled):
        header.append("95% interval")
    return Figure(
        name=f"reliability-{when}",
        title=f"Reliability {words} ({of})",
        description=description,
        x_label="confidence",
        y_label="accuracy",
        most=1,
        y_ticks=tuple((value, f"{value:g}") for value in QUARTERS),
        header=tuple(header),
        rows=tuple(_reliability_row(one) for one in filled),
        columns=tuple(_reliability_column(one, when) for one in filled),
        diagonal=True,
    )


def _reliability_column(one: FilledBin, when: str) -> Column:
    tip = f"{one.count:,} at {one.confidence:.1%}: {one.accuracy:.1%} right"
    if one.interval is not None:
        tip += " ({:.0%} to {:.0%})".format(*one.interval)
    if is_few(one):
        return Column(one.left, one.right, {f"{when} few": one.accuracy}, tip)
    bars = {when: one.accuracy}
    return Column(one.left, one.right, bars, tip, one.confidence, one.interval)


def is_few(one: FilledBin) -> bool:
    """Whether a bin has too few predictions for its accuracy to mean anything."""
    return one.count < FEW


def _reliability_row(one: FilledBin) -> tuple[str, ...]:
    bin_text = f"{one.left:.2f} to {one.right:.2f}"
    cells = (bin_text, f"{one.count:,}", f"{one.confidence:.1%}", f"{one.accuracy:.1%}")
    if one.interval is None:
        return cells
    return (*cells, "{:.1%} to {:.1%}".format(*one.interval))


def risk_coverage(report: Report) -> Figure | None:
    """The error among predictions above a threshold, by the fraction that is above it.

    The estimate is that of the confidences, the measurement that of the ground truth. The guarantee
    is the 90% bound of each threshold that labels let pass. None if there is no curve, or if
    nothing is known about it.
    """
    selection = _distinct(report.selection)
    errors: dict[str, list[float]] = {}
    if not report.unchanged:
        errors["after"] = [row.expected_error for row in selection]
    measured = [row.error for row in selection if row.error is not None]
    if len(measured) == len(selection):
        errors["measured"] = measured
    if not errors or len(selection) < 2:
        return None
    titles = {"after": "expected error", "measured": "measured error"}
    rows = []
    for k, row in enumerate(selection):
        least = f"≥ {100 * row.threshold:.3g}%" if row.threshold else "any"
        cells = [f"{each[k]:.1%}" for each in errors.values()]
        rows.append((least, f"{row.coverage:.1%}", *cells))
    coverage = [row.coverage for row in selection]
    lines = [(kind, list(zip(coverage, each, strict=True))) for kind, each in errors.items()]
    guarantee = _guarantee(report)
    if guarantee:
        lines.append(("guaranteed", guarantee))
    most = _round_up(max(0.01, *(error for _, points in lines for _, error in points)))
    return Figure(
        name="risk",
        title="Error by coverage",
        description=(
            f"The fraction of wrong predictions among the most confident {report.unit}, by the "
            "fraction that is kept."
        ),
        x_label="coverage",
        y_label="error",
        most=most,
        y_ticks=_percent_ticks(most),
        header=("confidence", "coverage", *(titles[kind] for kind in errors)),
        rows=tuple(rows),
        lines=tuple(lines),
    )


def _distinct(selection: Sequence[Threshold]) -> list[Threshold]:
    """Thresholds that accept different fractions: of several, the lowest."""
    found: list[Threshold] = []
    for row in selection:
        if not found or row.coverage < found[-1].coverage:
            found.append(row)
    return found


def _guarantee(report: Report) -> list[tuple[float, float]]:
    """Coverage and bound of each threshold that passed; a single one gets a line of its own."""
    threshold = report.threshold
    if threshold is None or not threshold.passed:
        return []
    passed = [one for one in threshold.candidates if one.coverage <= threshold.coverage]
    points = [(one.coverage, one.bound) for one in passed]
    if len(points) == 1:
        return [(0.0, points[0][1]), *points]
    return points


def table_rows(rows: Sequence[tuple[str, ...]], most: int = 10) -> list[tuple[str, ...]]:
    """At most ten rows of a table, evenly spread, with the first and the last.

    >>> [row[0] for row in table_rows([("a",), ("b",), ("c",), ("d",), ("e",)], 3)]
    ['a', 'c', 'e']
    """
    if len(rows) <= most:
        return list(rows)
    return [rows[round(k * (len(rows) - 1) / (most - 1))] for k in range(most)]


def _percent_ticks(most: float) -> Ticks:
    return tuple((most * k / 4, f"{25 * most * k:.3g}%") for k in range(5))


def _round_up(value: float) -> float:
    """Round up to the next number that divides well into four.

    >>> _round_up(0.33), _round_up(0.07), _round_up(0.9)
    (0.4, 0.08, 1.0)
    """
    unit = 10.0 ** math.floor(math.log10(value))
    return round(float(next(unit * step for step in (1, 2, 4, 8, 10) if unit * step >= value)), 6)


def chart_x(value: float) -> float:
    """The x coordinate of a value from 0 to 1."""
    return round(FRAME.left + value * (FRAME.right - FRAME.left), 2)


def chart_y(value: float, most: float) -> float:
    """The y coordinate of a value between the bottom, zero, and the top, `most`.

    >>> chart_y(0, 2), chart_y(1, 2), chart_y(2, 2)
    (206.0, 120.0, 34.0)
    """
    return round(FRAME.bottom - value / most * (FRAME.bottom - FRAME.top), 2)


# ------------------------------------------------------------------------------ tracks


@dataclass(frozen=True)
class Track:
    """A line from 0 to 100% with a mark on it."""

    kind: str  # "estimated", "measured", "before" or "after": the shape and colour of the mark
    label: str
    value: float
    interval: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """The value in words."""
        if self.interval is None:
            return f"{self.value:.1%}"
        low, high = self.interval
        return f"{self.value:.0%} ({low:.0%} to {high:.0%})"


def accuracy_and_confidence(report: Report) -> Iterator[Track]:
    """The accuracy by labels or as estimated, the mean confidences, and the ground truth."""
    known = known_accuracy(report)
    if known is not None:
        kind = "estimated"
        label = "Estimated accuracy"
        if report.labels is not None:
            kind = "measured"
            label = f"Accuracy, {report.labels.labels:,} labels"
        yield Track(kind, label, known.value, (known.low, known.high))
    confidence = report.confidence
    if report.unchanged or report.calibration.temperature == 1:
        yield Track("before", "Mean confidence", confidence.mean_before)
    else:
        yield Track("before", "Mean confidence before", confidence.mean_before)
        yield Track("after", "Mean confidence after", confidence.mean_after)
    refused = report.calibration.refused
    if refused is not None and report.labels is None and report.trust is not None:
        with_refused = report.trust.evidence.get("confidence after")
        if with_refused is not None:
            yield Track("after", f"With the rejected T = {refused:.3g}", with_refused)
    row = report.metric("accuracy")
    if row is not None and row.before.value is not None:
        yield Track("measured", "Accuracy, ground truth", row.before.value)


def track_x(value: float) -> float:
    """The x coordinate of a fraction.

    >>> track_x(0), track_x(0.5), track_x(1)
    (14, 180.0, 346)
    """
    return round(TRACK_LEFT + value * (TRACK_RIGHT - TRACK_LEFT), 2)
