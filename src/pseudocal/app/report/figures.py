"""The geometry of the charts: numbers in, positions and words out. The page only draws them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pseudocal.app.report.sections import Bins, FilledBin, Histogram

WIDTH, HEIGHT = 360, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 350, 34, 206  # the frame of the plot; hovered numbers stand above it


@dataclass(frozen=True)
class Bar:
    """A rectangle; its kind gives the colour."""

    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class BinMarks:
    """What belongs to one bin: its bars, the line of its interval, and the numbers to show when it is hovered."""

    x: float
    width: float
    bars: tuple[Bar, ...]
    tip: str
    whisker: tuple[float, float, float] | None = None  # x, from y, to y
    dot: tuple[float, float] | None = None


@dataclass(frozen=True)
class Figure:
    """A chart, with a title, a sentence for those who cannot see it, and its numbers as a table."""

    name: str
    title: str
    description: str
    columns: tuple[BinMarks, ...]
    y_ticks: tuple[tuple[float, str], ...]
    labels: tuple[str, str]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    diagonal: bool = False

    @property
    def x_ticks(self) -> tuple[tuple[float, str], ...]:
        """Five marks along the confidence."""
        return tuple((_x(v), f"{v:g}") for v in (0, 0.25, 0.5, 0.75, 1))


def histogram(confidence: Histogram, of: str = "inputs") -> Figure:
    """How many inputs, or pixels, have which confidence, before beside after."""
    total = sum(confidence.before)
    shares = [[count / total for count in counts] for counts in (confidence.before, confidence.after)]
    most = _round_up(max(map(max, shares)))
    bins = list(zip(confidence.edges, confidence.edges[1:], *shares, strict=False))
    return Figure(
        name="confidences",
        title="Confidence before and after",
        description=(
            f"Histogram of the confidence of {total:,} {of}. The mean was {confidence.mean_before:.1%} before "
            f"and is {confidence.mean_after:.1%} after calibration."
        ),
        columns=tuple(_pair(low, high, before, after, most) for low, high, before, after in bins),
        y_ticks=tuple((_y(most * k / 4, most), f"{25 * most * k:.3g}%") for k in range(5)),
        labels=("confidence", f"share of {of}"),
        header=("confidence", "before", "after"),
        rows=tuple((f"{a:.2f} to {b:.2f}", f"{p:.1%}", f"{q:.1%}") for a, b, p, q in bins if p or q),
    )


def reliability(bins: Bins, when: str, of: str) -> Figure:
    """How often the predictions of each confidence are right; on the diagonal they are as sure as they should be."""
    filled = bins.filled()
    header = ("confidence", of, "mean confidence", "share right", "95% interval")
    return Figure(
        name=f"reliability-{when}",
        title=f"Reliability of the {of} {when}",
        description=(
            f"Share of right predictions in {len(filled)} bins of confidence, {when} calibration. "
            f"The expected calibration error is {bins.ece:.1%}."
        ),
        columns=tuple(_marks(one, when) for one in filled),
        y_ticks=tuple((_y(v, 1), f"{v:g}") for v in (0, 0.25, 0.5, 0.75, 1)),
        labels=("confidence", "share right"),
        header=header if bins.has_intervals else header[:-1],
        rows=tuple(_row(one) for one in filled),
        diagonal=True,
    )


def _pair(low: float, high: float, before: float, after: float, most: float) -> BinMarks:
    left, width = _x(low), _x(high) - _x(low)
    half = (width - 2) / 2
    bars = (
        Bar("before", left + 1, _y(before, most), half, BOTTOM - _y(before, most)),
        Bar("after", left + 1 + half, _y(after, most), half, BOTTOM - _y(after, most)),
    )
    return BinMarks(left, width, bars, f"{low:.2f} to {high:.2f}: {before:.1%} before, {after:.1%} after")


def _marks(one: FilledBin, when: str) -> BinMarks:
    left, right, top = _x(one.left), _x(one.right), _y(one.accuracy, 1)
    bar = Bar(when, left + 1, top, right - left - 2, BOTTOM - top)
    tip = f"{one.count:,} at {one.confidence:.1%}: {one.accuracy:.1%} right"
    dot = (_x(one.confidence), top)
    if one.interval is None:
        return BinMarks(left, right - left, (bar,), tip, dot=dot)
    low, high = one.interval
    whisker = ((left + right) / 2, _y(low, 1), _y(high, 1))
    return BinMarks(left, right - left, (bar,), f"{tip} ({low:.0%} to {high:.0%})", whisker, dot)


def _row(one: FilledBin) -> tuple[str, ...]:
    cells = (
        f"{one.left:.2f} to {one.right:.2f}",
        f"{one.count:,}",
        f"{one.confidence:.1%}",
        f"{one.accuracy:.1%}",
    )
    return cells if one.interval is None else (*cells, f"{one.interval[0]:.1%} to {one.interval[1]:.1%}")


def _x(value: float) -> float:
    return round(LEFT + value * (RIGHT - LEFT), 2)


def _y(value: float, most: float) -> float:
    """Where a value stands between the bottom, zero, and the top, `most`.

    >>> _y(0, 2), _y(1, 2), _y(2, 2)
    (206.0, 120.0, 34.0)
    """
    return round(BOTTOM - value / most * (BOTTOM - TOP), 2)


def _round_up(value: float) -> float:
    """The next number that divides well into four.

    >>> _round_up(0.33), _round_up(0.07), _round_up(0.9)
    (0.4, 0.08, 1.0)
    """
    unit = 10.0 ** math.floor(math.log10(value))
    return round(float(next(unit * step for step in (1, 2, 4, 8, 10) if unit * step >= value)), 6)
