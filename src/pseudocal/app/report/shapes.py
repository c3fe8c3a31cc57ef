"""The shapes that charts are made of, in the units of their drawings.

`page.py` and `advice.py` place them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FilledBin:
    """One bin of a reliability diagram that has predictions, with the 95% interval of its accuracy if there is one."""

    left: float
    right: float
    count: int
    confidence: float
    accuracy: float
    interval: tuple[float, float] | None


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

    Its bars, the line of its interval, and the numbers to show on hover.
    """

    x: float
    width: float
    bars: tuple[Bar, ...]
    tip: str
    whisker: tuple[float, float, float] | None = None  # x, from y, to y
    dot: tuple[float, float] | None = None


@dataclass(frozen=True)
class Figure:
    """A chart with a title, a description for screen readers, and its numbers as a table."""

    name: str
    title: str
    description: str
    columns: tuple[BinMarks, ...]
    y_ticks: tuple[tuple[float, str], ...]
    labels: tuple[str, str]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    diagonal: bool = False
    lines: tuple[tuple[str, str], ...] = ()  # the kind of each line, and its points as SVG has them


@dataclass(frozen=True)
class Track:
    """A line from 0 to 100% with a mark on it and, for the estimate, an interval."""

    kind: str  # "estimate", "before", "after" or "measured": the shape and colour of the mark
    label: str
    value: str
    y: float
    x: float
    bar: tuple[float, float] | None = None  # from x, width


@dataclass(frozen=True)
class Panel:
    """The verdict panel."""

    kind: str  # "apply", "caution" or "refuse": a class of the style sheet
    kicker: str  # what it rests on
    heading: str
    meaning: str  # of the verdict, in plain words
    contradicted: bool  # by labels
    models: str  # which models it is about
    reasons: tuple[str, ...]
    note: str | None
    caption: str  # what the bar is
    description: str
    tracks: tuple[Track, ...]
    ticks: tuple[tuple[float, str], ...]  # along the bottom
    height: float
