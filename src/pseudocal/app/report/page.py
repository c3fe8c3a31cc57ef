"""One self-contained HTML page: no script, no network, everything from outside escaped."""

from __future__ import annotations

import importlib
import math
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from pseudocal.app.report.advice import panel
from pseudocal.app.report.headline import headline
from pseudocal.app.report.measured import unfitted
from pseudocal.app.report.record import Report, filled_bins
from pseudocal.app.report.sections import AboutFit, Bins, Histogram, Measurement, Threshold
from pseudocal.app.report.shapes import Bar, BinMarks, Figure, FilledBin
from pseudocal.app.run import PAGE, REPORT
from pseudocal.extras import require
from pseudocal.files import replacing

LEAST_GAP = 1e-6  # anything narrower is rounding error
WIDTH, HEIGHT = 360, 250
LEFT, RIGHT, TOP, BOTTOM = (
    44,
    350,
    34,
    206,
)  # the frame of the plot; numbers on hover are shown above it
TICKS = tuple(
    (LEFT + v * (RIGHT - LEFT), f"{v:g}") for v in (0, 0.25, 0.5, 0.75, 1)
)  # of confidence, or a share
FRAME = {
    "left": LEFT,
    "right": RIGHT,
    "top": TOP,
    "bottom": BOTTOM,
    "width": WIDTH,
    "height": HEIGHT,
    "ticks": TICKS,
}


def page(report: Report) -> str:
    """Draw the report as an HTML page.

    Args:
        report: the content of the report.

    """
    diagrams = report.reliability
    refused = report.calibration.refused is not None
    still = refused or unfitted(report)  # T = 1: the confidences are those of the model
    measured = all(row.wrong is not None for row in report.selection)
    curved = any(row.coverage < 1 for row in report.selection) and (
        measured or not still
    )  # or else it is a point
    html: str = templates()["page.html"].render(
        {field.name: getattr(report, field.name) for field in fields(report)},
        unit=report.unit,
        headline=headline(report),
        panel=panel(report),
        refused=refused,
        still=still,
        uses=report.uses,
        confidences=histogram(report.confidence, report.unit, moved=not still),
        diagrams=[
            reliability(diagrams.before, "before", diagrams.of),
            reliability(
                diagrams.after, "after", diagrams.of, "with the refused T" if refused else ""
            ),
        ][: 1 if unfitted(report) else 2]
        if sum(diagrams.before.count)
        else [],
        risk=risk(report.selection, report.unit, expected=not still) if curved else None,
        intervals=any(one.interval is not None for one in filled_bins(diagrams.before)),
        effect=_effect(report.calibration, report.verdict),
        frame=FRAME,
    )
    return html


@cache
def templates() -> dict[str, Any]:
    """Compile the templates of the page, once."""
    jinja2 = require("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pseudocal.app.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"percent": _percent, "number": _number, "points": _points}
    environment.filters |= {"seconds": _seconds, "cells": _cells}
    return {name: environment.get_template(name) for name in environment.list_templates()}


def warm_up() -> None:
    """Import and compile what the report needs, half a second of work.

    The report itself names missing packages.
    """
    for name in ("scipy.special", "pyarrow.parquet"):
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError):
        templates()


def write_report(report: Report, folder: Path) -> None:
    """Write `report.json` and `report.html` into a folder.

    Args:
        report: the content of the report.
        folder: the folder, which must exist.

    """
    report.save(folder / REPORT)
    write_page(report, folder)


def write_page(report: Report, folder: Path) -> None:
    """Write `report.html` into a folder.

    Args:
        report: the content of the report.
        folder: the folder, which must exist.

    """
    with replacing(folder / PAGE) as aside:
        aside.write_text(
            page(report), encoding="utf-8", errors="replace"
        )  # file names may be invalid Unicode


def _effect(fit: AboutFit, verdict: str | None = None) -> str:
    """Explain the temperature in a sentence.

    Only a verdict for it says what is wrong with the model.

    >>> fit = AboutFit("pseudocal", 1.8, 1.7, 1.9, None, None, pairs=600, mixup_samples=580, forward_passes=1180)
    >>> _effect(fit)
    'Dividing the logits by T lowers the confidences.'
    >>> _effect(fit, "apply")
    'On this data the model is overconfident: dividing its logits by T lowers its confidences.'
    """
    if fit.refused is not None:
        does = "lower" if fit.refused > 1 else "raise"
        return (
            f"The confidences stay as they are. A temperature of {_number(fit.refused)} was fitted, which would {does} "
            "them; the verdict is not to apply it."
        )
    if fit.mixup_samples == 0 and fit.low is None:
        return "Nothing was fitted: the confidences are those of the model."
    if fit.bound:
        return "The search stopped at the limit of its range: no temperature could be determined."
    if (fit.low or 0) <= 1 <= (math.inf if fit.high is None else fit.high):
        return "T is not significantly different from 1: the confidences may stay as they are."
    wrong, does = (
        ("overconfident", "lowers") if fit.temperature > 1 else ("underconfident", "raises")
    )
    if verdict != "apply":
        return f"Dividing the logits by T {does} the confidences."
    return f"On this data the model is {wrong}: dividing its logits by T {does} its confidences."


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _points(fraction: float) -> str:
    """Format a difference of shares in points: +12, -3 or 0."""
    return f"{round(100 * fraction):+d}" if round(100 * fraction) else "0"


def _number(value: float | None) -> str:
    """Format a number: three decimals from 0.01 to 1000, else four significant digits.

    >>> _number(1.8412), _number(1e6), _number(None), _number(True), _number("text")
    ('1.841', '1e+06', 'unbounded', 'True', 'text')
    """
    if value is None:
        return "unbounded"
    if isinstance(value, bool | str) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return (
        f"{value:.3f}"
        if value == 0 or 0.01 <= abs(value) < 1000 or not math.isfinite(value)
        else f"{value:.4g}"
    )


def _cells(row: Measurement) -> list[list[str]]:
    """Format the value, low and high of before, after and change, with the precision of the narrowest interval.

    >>> from pseudocal.app.report.sections import Estimate
    >>> before, after = Estimate(0.5, 0.25, None), Estimate(0.00741, 0.0048, 0.01)
    >>> _cells(Measurement("ece", before, after, Estimate(-0.4926, -0.6, -1e-5)))
    [['0.5000', '0.2500', 'unbounded'], ['0.0074', '0.0048', '0.0100'], ['-0.4926', '-0.6000',
    '0.0000']]
    """
    parts = [
        (part.value, part.low, part.high)
        for part in (row.before, row.after, row.change)
        if part is not None
    ]
    gaps = [
        abs(end - value)
        for value, *ends in parts
        for end in ends
        if value is not None and end is not None
    ]
    finest = min((gap for gap in gaps if gap > LEAST_GAP), default=1.0)
    digits = max(3, 1 - math.floor(math.log10(finest)))  # two significant digits of that gap
    return [
        ["unbounded" if number is None else f"{number:z.{digits}f}" for number in part]
        for part in parts
    ]


def _seconds(value: float) -> str:
    """Format a duration as seconds, or as minutes and seconds.

    >>> _seconds(12.34), _seconds(125)
    ('12.3 s', '2 min 5 s')
    """
    return f"{value:.1f} s" if value < 60 else f"{int(value // 60)} min {int(value % 60)} s"


def histogram(confidence: Histogram, of: str = "inputs", *, moved: bool = True) -> Figure:
    """Draw the distribution of the confidence of inputs or pixels, before next to after if T has moved it."""
    whens = ("before", "after") if moved else ("before",)
    total = sum(confidence.before)
    fractions = [[count / total for count in getattr(confidence, when)] for when in whens]
    most = _round_up(max(map(max, fractions)))
    bins = list(
        zip(confidence.edges, confidence.edges[1:], zip(*fractions, strict=True), strict=False)
    )
    before = f"{confidence.mean_before:.1%}"
    after = f"{confidence.mean_after:.1%}"
    mean = (
        f"The mean was {before} before and is {after} after calibration."
        if moved
        else f"The mean is {before}."
    )
    return Figure(
        name="confidences",
        title="Confidence before and after" if moved else "Confidence",
        description=f"Histogram of the confidence of {total:,} {of}. {mean}",
        columns=tuple(
            _side_by_side(low, high, dict(zip(whens, each, strict=True)), most)
            for low, high, each in bins
        ),
        y_ticks=tuple((_y(most * k / 4, most), f"{25 * most * k:.3g}%") for k in range(5)),
        labels=("confidence", f"fraction of {of}"),
        header=("confidence", *(whens if moved else (f"fraction of {of}",))),
        rows=tuple(
            (f"{a:.2f} to {b:.2f}", *(f"{p:.1%}" for p in each)) for a, b, each in bins if any(each)
        ),
    )


def reliability(bins: Bins, when: str, of: str, words: str = "") -> Figure:
    """Draw the accuracy in each bin of confidence.

    Predictions on the diagonal are well calibrated.
    """
    filled = filled_bins(bins)
    error = (
        "" if of == "answers" else f" The expected calibration error is {bins.ece:.1%}."
    )  # of few it is too large
    header = ("confidence", of, "mean confidence", "accuracy", "95% interval")
    return Figure(
        name=f"reliability-{when}",
        title=f"Reliability of the {of} {words or when}",
        description=f"Accuracy in {len(filled)} bins of confidence, {words or f'{when} calibration'}.{error}",
        columns=tuple(_marks(one, when) for one in filled),
        y_ticks=tuple((_y(v, 1), f"{v:g}") for v in (0, 0.25, 0.5, 0.75, 1)),
        labels=("confidence", "accuracy"),
        header=header if any(one.interval is not None for one in filled) else header[:-1],
        rows=tuple(_row(one) for one in filled),
        diagonal=True,
    )


def risk(rows: tuple[Threshold, ...], of: str = "inputs", *, expected: bool = True) -> Figure:
    """Draw how many predictions are wrong among those that are sure enough, by how many those are."""
    wrongs = {"after": [row.expected for row in rows]} if expected else {}
    known = [row.wrong for row in rows if row.wrong is not None]
    wrongs |= {"measured": known} if len(known) == len(rows) else {}
    most = _round_up(max([0.01, *(value for each in wrongs.values() for value in each)]))
    names = {"after": "wrong, expected", "measured": "wrong, measured"}
    cells = zip(rows, *wrongs.values(), strict=True)
    return Figure(
        name="risk",
        title="Wrong among those that are sure enough",
        description=f"The fraction of {of} that are wrong, by the fraction that are sure enough to be used.",
        columns=(),
        y_ticks=tuple((_y(most * k / 4, most), f"{100 * most * k / 4:.3g}%") for k in range(5)),
        labels=(f"fraction of {of} that are used", "wrong"),
        header=("confidence", f"fraction of {of}", *(names[kind] for kind in wrongs)),
        rows=tuple(
            (
                f"≥ {100 * row.threshold:.3g}%" if row.threshold else "any",
                f"{row.coverage:.1%}",
                *(f"{wrong:.1%}" for wrong in each),
            )
            for row, *each in cells
        ),
        lines=tuple(
            (
                kind,
                " ".join(
                    f"{_x(row.coverage)},{_y(wrong, most)}"
                    for row, wrong in zip(rows, each, strict=True)
                ),
            )
            for kind, each in wrongs.items()
        ),
    )


def _side_by_side(low: float, high: float, fractions: dict[str, float], most: float) -> BinMarks:
    """Draw one bar for each share, before and after; one alone needs no name."""
    left = _x(low)
    width = _x(high) - _x(low)
    each = (width - 2) / len(fractions)
    tops = [(when, _y(fraction, most)) for when, fraction in fractions.items()]
    bars = tuple(
        Bar(when, left + 1 + i * each, top, each, BOTTOM - top)
        for i, (when, top) in enumerate(tops)
    )
    said = ", ".join(
        f"{fraction:.1%}{f' {when}' if len(fractions) > 1 else ''}"
        for when, fraction in fractions.items()
    )
    return BinMarks(left, width, bars, f"{low:.2f} to {high:.2f}: {said}")


def _marks(one: FilledBin, when: str) -> BinMarks:
    left = _x(one.left)
    right = _x(one.right)
    top = _y(one.accuracy, 1)
    bar = Bar(when, left + 1, top, right - left - 2, BOTTOM - top)
    tip = f"{one.count:,} at {one.confidence:.1%}: {one.accuracy:.1%} correct"
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
    return (
        cells
        if one.interval is None
        else (*cells, f"{one.interval[0]:.1%} to {one.interval[1]:.1%}")
    )


def _x(value: float) -> float:
    return round(LEFT + value * (RIGHT - LEFT), 2)


def _y(value: float, most: float) -> float:
    """Return the y coordinate of a value between the bottom, zero, and the top, `most`.

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
