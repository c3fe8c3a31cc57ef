"""The verdict panel: its words, and the geometry of the forecast beside the confidences. The page only draws them."""

from __future__ import annotations

from dataclasses import dataclass

from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import AboutTrust

TRACK_LEFT, TRACK_RIGHT = 14, 346  # where the tracks of the panel begin and end
TRACK_FIRST, TRACK_STEP = 30, 40  # where the first track lies, and how far down the next one

HEADINGS = {
    "apply": "Apply",
    "caution": "Use with caution",
    "do not apply": "Do not apply",
}


@dataclass(frozen=True)
class Track:
    """A line from 0 to 100% with a mark on it, and an interval where there is one."""

    kind: str  # "forecast", "before", "after" or "measured": the shape and the colour of the mark
    label: str
    value: str
    y: float
    x: float
    bar: tuple[float, float] | None = None  # from x, width


@dataclass(frozen=True)
class Panel:
    """All that the panel shows of a verdict."""

    kind: str  # apply, caution, refuse: a class of the style sheet
    heading: str
    note: str | None
    description: str
    tracks: tuple[Track, ...]

    @property
    def height(self) -> float:
        """Of the chart."""
        return self.tracks[-1].y + 34

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Five marks along the bottom."""
        return tuple((_x(k / 4), f"{25 * k}%") for k in range(5))


def panel(report: Report) -> Panel | None:
    """The panel of a report; None if no verdict was given."""
    trust = report.trust
    if trust is None:
        return None
    tracks = _tracks(report, trust)
    return Panel(
        kind="refuse" if trust.verdict == "do not apply" else trust.verdict,
        heading=HEADINGS[trust.verdict],
        note=REPLACED if trust.replaced else None,
        description=". ".join(f"{track.label}: {track.value}" for track in tracks) + ".",
        tracks=tracks,
    )


REPLACED = (
    "As asked, a temperature of one stands in the place of the one that was fitted: the confidences stay as they are. "
    "The reasons speak of the temperature that was refused."
)


def _tracks(report: Report, trust: AboutTrust) -> tuple[Track, ...]:
    """The forecast, the mean confidence before and after, and the accuracy where labels have measured it."""
    forecast, confidence = trust.forecast, report.confidence
    low, high = _x(forecast.low), _x(forecast.high)
    interval = f"{forecast.accuracy:.0%} ({forecast.low:.0%} to {forecast.high:.0%})"
    rows: list[tuple[str, str, str, float]] = [
        ("forecast", "Accuracy, forecast", interval, forecast.accuracy),
        ("before", "Mean confidence before", f"{confidence.mean_before:.1%}", confidence.mean_before),
        ("after", "Mean confidence after", f"{confidence.mean_after:.1%}", confidence.mean_after),
    ]
    for row in report.measured or ():
        value = row.before.value
        if row.metric == "accuracy" and value is not None:
            rows.append(("measured", "Accuracy, measured", f"{value:.1%}", value))
    return tuple(
        Track(
            kind, label, text, TRACK_FIRST + TRACK_STEP * i, _x(value), (low, round(high - low, 2)) if i == 0 else None
        )
        for i, (kind, label, text, value) in enumerate(rows)
    )


def _x(value: float) -> float:
    """Where a share stands on the line.

    >>> _x(0), _x(0.5), _x(1)
    (14, 180.0, 346)
    """
    return round(TRACK_LEFT + value * (TRACK_RIGHT - TRACK_LEFT), 2)
