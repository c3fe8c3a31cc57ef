"""The figures of a report: what is drawn where, in the units of the drawings.

Templates draw them: `figure.html` a chart, `verdict.html` the tracks beside the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pseudocal.app.report.findings import known_accuracy
from pseudocal.app.report.record import (
    Bins,
    Diagrams,
    FilledBin,
    Histogram,
    Report,
    Threshold,
    Unit,
)

# the frame of a chart; numbers on hover are shown above it
WIDTH = 360
HEIGHT = 250
LEFT = 44
RIGHT = 350
TOP = 34
BOTTOM = 206
# the tracks beside the verdict: their ends, the first one, and the distance to the next
TRACK_LEFT = 14
TRACK_RIGHT = 346
TRACK_FIRST = 30
TRACK_STEP = 40

When = Literal["before", "after"]


# ------------------------------------------------------------------------------ charts


@dataclass(frozen=True)
class Bar:
    """A rectangle; its kind sets the colour."""

    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class BinMarks:
    """The marks of one bin.

    Attributes:
        x: its left edge.
        width: its width.
        bars: its bars.
        tip: the numbers to show on hover.
        whisker: the line of an interval: x, from y, to y.
        dot: the mean confidence and the accuracy.

    """

    x: float
    width: float
    bars: tuple[Bar, ...]
    tip: str
    whisker: tuple[float, float, float] | None = None
    dot: tuple[float, float] | None = None


@dataclass(frozen=True)
class Line:
    """A line; its kind sets the colour, `points` are in the notation of SVG."""

    kind: str
    points: str


@dataclass(frozen=True)
class Figure:
    """A chart with a title, a description for screen readers, and its numbers as a table.

    Attributes:
        name: its name in the page.
        title: its heading.
        description: what it shows, for screen readers.
        x_label: the title of the horizontal axis, from 0 to 1.
        y_label: the title of the vertical axis.
        y_ticks: the y coordinate and the text of each tick.
        header: the header of the table.
        rows: the rows of the table.
        columns: the marks of each bin.
        lines: the lines.
        diagonal: whether to draw the diagonal.

    """

    name: str
    title: str
    description: str
    x_label: str
    y_label: str
    y_ticks: tuple[tuple[float, str], ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[BinMarks, ...] = ()
    lines: tuple[Line, ...] = ()
    diagonal: bool = False


def frame() -> dict[str, object]:
    """The frame of all charts, for their template."""
    ticks = [(_x(value), f"{value:g}") for value in (0, 0.25, 0.5, 0.75, 1)]
    return {
        "left": LEFT,
        "right": RIGHT,
        "top": TOP,
        "bottom": BOTTOM,
        "width": WIDTH,
        "height": HEIGHT,
        "ticks": ticks,
    }


def histogram(confidence: Histogram, unit: Unit = "inputs", *, changed: bool = True) -> Figure:
    """The distribution of the confidence, before next to after if T has changed it."""
    total = sum(confidence.before)
    counts: dict[str, tuple[int, ...]] = {"before": confidence.before}
    title = "Confidence"
    mean = f"The mean is {confidence.mean_before:.1%}."
    header: tuple[str, ...] = ("confidence", f"fraction of {unit}")
    if changed:
        counts["after"] = confidence.after
        title = "Confidence before and after"
        mean = (
            f"The mean is {confidence.mean_before:.1%} before calibration and "
            f"{confidence.mean_after:.1%} after."
        )
        header = ("confidence", "before", "after")
    most = _round_up(max(max(each) for each in counts.values()) / total)
    columns = []
    rows = []
    for k in range(len(confidence.edges) - 1):
        low = confidence.edges[k]
        high = confidence.edges[k + 1]
        fractions = {when: each[k] / total for when, each in counts.items()}
        columns.append(_side_by_side(low, high, fractions, most))
        if any(fractions.values()):
            cells = [f"{fraction:.1%}" for fraction in fractions.values()]
            rows.append((f"{low:.2f} to {high:.2f}", *cells))
    return Figure(
        name="confidences",
        title=title,
        description=f"Histogram of the confidence of {total:,} {unit}. {mean}",
        x_label="confidence",
        y_label=f"fraction of {unit}",
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
    before = _reliability(diagrams, "before", "before calibration", report.unit)
    if report.unfitted:
        return [before]
    when = "with the rejected T" if report.refused else "after calibration"
    return [before, _reliability(diagrams, "after", when, report.unit)]


def _reliability(diagrams: Diagrams, when: When, words: str, unit: Unit) -> Figure:
    """The accuracy in each bin of confidence; on the diagonal it equals the confidence."""
    bins: Bins = diagrams.before if when == "before" else diagrams.after
    filled = bins.filled()
    sources = {"ground truth": unit, "labels": f"labelled {unit}", "mixup": "mixup samples"}
    of = sources[diagrams.source]
    description = f"Accuracy in {len(filled)} bins of confidence, {words}."
    if diagrams.source != "labels":  # the ECE of few labels is too high
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
        y_ticks=tuple((_y(value, 1), f"{value:g}") for value in (0, 0.25, 0.5, 0.75, 1)),
        header=tuple(header),
        rows=tuple(_reliability_row(one) for one in filled),
        columns=tuple(_reliability_marks(one, when) for one in filled),
        diagonal=True,
    )


def _reliability_marks(one: FilledBin, when: When) -> BinMarks:
    left = _x(one.left)
    right = _x(one.right)
    top = _y(one.accuracy, 1)
    bar = Bar(when, left + 1, top, right - left - 2, BOTTOM - top)
    dot = (_x(one.confidence), top)
    tip = f"{one.count:,} at {one.confidence:.1%}: {one.accuracy:.1%} right"
    whisker = None
    if one.interval is not None:
        low, high = one.interval
        tip += f" ({low:.0%} to {high:.0%})"
        whisker = ((left + right) / 2, _y(low, 1), _y(high, 1))
    return BinMarks(left, right - left, (bar,), tip, whisker, dot)


def _reliability_row(one: FilledBin) -> tuple[str, ...]:
    cells = [
        f"{one.left:.2f} to {one.right:.2f}",
        f"{one.count:,}",
        f"{one.confidence:.1%}",
        f"{one.accuracy:.1%}",
    ]
    if one.interval is not None:
        cells.append(f"{one.interval[0]:.1%} to {one.interval[1]:.1%}")
    return tuple(cells)


def risk_coverage(report: Report) -> Figure | None:
    """The error among predictions above a threshold, by the fraction that is above it.

    None if there is no curve, or if nothing is known about it.
    """
    rows = report.selection
    errors: dict[str, list[float]] = {}
    if not report.unchanged:
        errors["after"] = [row.expected_error for row in rows]
    measured = [row.error for row in rows if row.error is not None]
    if len(measured) == len(rows):
        errors["measured"] = measured
    if not errors or all(row.coverage == 1 for row in rows):
        return None
    titles = {"after": "expected error", "measured": "measured error"}
    most = _round_up(max(0.01, *(max(each) for each in errors.values())))
    return Figure(
        name="risk",
        title="Error by coverage",
        description=(
            f"The fraction of wrong predictions among the most confident {report.unit}, by the "
            "fraction that is kept."
        ),
        x_label="coverage",
        y_label="error",
        y_ticks=_percent_ticks(most),
        header=("confidence", "coverage", *(titles[kind] for kind in errors)),
        rows=tuple(
            _risk_row(row, [each[k] for each in errors.values()]) for k, row in enumerate(rows)
        ),
        lines=tuple(_risk_line(kind, rows, each, most) for kind, each in errors.items()),
    )


def _risk_row(row: Threshold, errors: Sequence[float]) -> tuple[str, ...]:
    least = f"≥ {100 * row.threshold:.3g}%" if row.threshold else "any"
    return (least, f"{row.coverage:.1%}", *(f"{error:.1%}" for error in errors))


def _risk_line(kind: str, rows: Sequence[Threshold], errors: Sequence[float], most: float) -> Line:
    points = [
        f"{_x(row.coverage)},{_y(error, most)}" for row, error in zip(rows, errors, strict=True)
    ]
    return Line(kind, " ".join(points))


def _side_by_side(low: float, high: float, fractions: dict[str, float], most: float) -> BinMarks:
    """One bar for each fraction, before and after; one alone needs no name."""
    left = _x(low)
    width = _x(high) - _x(low)
    each = (width - 2) / len(fractions)
    bars = []
    numbers = []
    for i, (when, fraction) in enumerate(fractions.items()):
        top = _y(fraction, most)
        bars.append(Bar(when, left + 1 + i * each, top, each, BOTTOM - top))
        numbers.append(f"{fraction:.1%} {when}" if len(fractions) > 1 else f"{fraction:.1%}")
    return BinMarks(left, width, tuple(bars), f"{low:.2f} to {high:.2f}: {', '.join(numbers)}")


def _percent_ticks(most: float) -> tuple[tuple[float, str], ...]:
    return tuple((_y(most * k / 4, most), f"{25 * most * k:.3g}%") for k in range(5))


def _x(value: float) -> float:
    return round(LEFT + value * (RIGHT - LEFT), 2)


def _y(value: float, most: float) -> float:
    """The y coordinate of a value between the bottom, zero, and the top, `most`.

    >>> _y(0, 2), _y(1, 2), _y(2, 2)
    (206.0, 120.0, 34.0)
    """
    return round(BOTTOM - value / most * (BOTTOM - TOP), 2)


def _round_up(value: float) -> float:
    """Round up to the next number that divides well into four.

    >>> _round_up(0.33), _round_up(0.07), _round_up(0.9)
    (0.4, 0.08, 1.0)
    """
    unit = 10.0 ** math.floor(math.log10(value))
    return round(float(next(unit * step for step in (1, 2, 4, 8, 10) if unit * step >= value)), 6)


# ------------------------------------------------------------------------------ tracks


@dataclass(frozen=True)
class Track:
    """A line from 0 to 100% with a mark on it.

    Attributes:
        kind: "estimated", "measured", "before" or "after": the shape and colour of the mark.
        label: what it shows.
        value: the number in words.
        y: where the line is.
        x: where the mark is.
        bar: an interval: from x, width.

    """

    kind: str
    label: str
    value: str
    y: float
    x: float
    bar: tuple[float, float] | None = None


@dataclass(frozen=True)
class Tracks:
    """The accuracy next to the mean confidences.

    Attributes:
        tracks: a track for each.
        ticks: the x coordinate and the text of each tick along the bottom.
        height: the height of the drawing.
        description: all values, for screen readers.

    """

    tracks: tuple[Track, ...]
    ticks: tuple[tuple[float, str], ...]
    height: float
    description: str


def accuracy_and_confidence(report: Report) -> Tracks:
    """The accuracy by labels or as estimated, the mean confidences, and the ground truth."""
    tracks = []
    for i, (kind, label, value, interval) in enumerate(_track_values(report)):
        text = f"{value:.1%}"
        bar = None
        if interval is not None:
            low, high = interval
            text = f"{value:.0%} ({low:.0%} to {high:.0%})"
            bar = (_track_x(low), round(_track_x(high) - _track_x(low), 2))
        y = TRACK_FIRST + TRACK_STEP * i
        tracks.append(Track(kind, label, text, y, _track_x(value), bar))
    return Tracks(
        tracks=tuple(tracks),
        ticks=tuple((_track_x(k / 4), f"{25 * k}%") for k in range(5)),
        height=tracks[-1].y + 34,
        description=". ".join(f"{track.label}: {track.value}" for track in tracks) + ".",
    )


def _track_values(
    report: Report,
) -> Iterator[tuple[str, str, float, tuple[float, float] | None]]:
    """The kind, the label, the value and the interval of each track."""
    known = known_accuracy(report)
    if known is not None:
        interval = known.interval
        label = "Estimated accuracy"
        if report.labels is not None:
            label = f"Accuracy, {report.labels.labels:,} labels"
        yield known.how, label, interval.value, (interval.low, interval.high)
    confidence = report.confidence
    if not report.unchanged:
        yield "before", "Mean confidence before", confidence.mean_before, None
        yield "after", "Mean confidence after", confidence.mean_after, None
    else:
        yield "before", "Mean confidence", confidence.mean_before, None
    refused = report.calibration.refused
    if refused is not None and report.labels is None and report.trust is not None:
        with_refused = report.trust.evidence.get("confidence after")
        if with_refused is not None:
            yield "after", f"With the rejected T = {refused:.3g}", with_refused, None
    row = report.metric("accuracy")
    if row is not None and row.before.value is not None:
        yield "measured", "Accuracy, ground truth", row.before.value, None


def _track_x(value: float) -> float:
    """The x coordinate of a fraction.

    >>> _track_x(0), _track_x(0.5), _track_x(1)
    (14, 180.0, 346)
    """
    return round(TRACK_LEFT + value * (TRACK_RIGHT - TRACK_LEFT), 2)
