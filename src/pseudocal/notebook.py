"""What a notebook shows of a result by itself.

A card with the verdict, or a reliability diagram.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

VERDICT_COLOURS = {
    "apply": "#1a7f4b",
    "already calibrated": "#1a7f4b",
    "caution": "#b45309",
    "do not apply": "#c02a3c",
}
# of a diagram: the plot is a square
WIDTH = 250
HEIGHT = 240
LEFT = 34
TOP = 12
SIDE = 200


def card(verdict: str | None, lines: Sequence[str], reasons: Sequence[object] = ()) -> str:
    """Make a card: the verdict in its colour, what is known, and the reasons. All text is escaped.

    >>> card("apply", ["T = 2"])
    '<div style="border-left:4px solid #1a7f4b;padding:.2em 1em"><strong>apply</strong><div>T =
    2</div></div>'

    Args:
        verdict: The verdict; None if there is none.
        lines: What is known, a line each.
        reasons: The reasons of the verdict; `str` gives the sentence of each.

    """
    head = "" if verdict is None else f"<strong>{escape(verdict)}</strong>"
    known = "".join(f"<div>{escape(line)}</div>" for line in lines)
    why = "".join(f"<li>{escape(str(reason))}</li>" for reason in reasons)
    rest = f"<ul>{why}</ul>" if why else ""
    colour = VERDICT_COLOURS.get(verdict or "", "#57606a")
    return f'<div style="border-left:4px solid {colour};padding:.2em 1em">{head}{known}{rest}</div>'


def calibration_html(calibration: Any) -> str:
    """The card of a `Calibration`.

    Verdict, temperature, measured or estimated accuracy, reasons.
    """
    measured = calibration.measured
    trust = calibration.trust
    lines = [repr(calibration)]
    if measured is not None:
        known = measured.accuracy
        lines.append(
            f"measured accuracy: {known.value:.0%}, "
            f"90% interval {known.low:.0%} to {known.high:.0%}"
        )
    elif trust is not None and trust.estimated_accuracy.known:
        estimate = trust.estimated_accuracy
        lines.append(
            f"estimated accuracy: {estimate.value:.0%}, "
            f"90% interval {estimate.low:.0%} to {estimate.high:.0%}"
        )
    judged = measured or trust
    return card(calibration.verdict, lines, () if judged is None else judged.reasons)


def reliability_html(reliability: Any) -> str:
    """A `Reliability` as a drawing: a bar for the accuracy in each bin, and the diagonal.

    A bar on it is calibrated.
    """
    bars = []
    bins = zip(
        reliability.edges,
        reliability.edges[1:],
        reliability.count,
        reliability.accuracy,
        strict=False,
    )
    for left, right, count, accuracy in bins:
        if count:
            x = LEFT + SIDE * left
            width = SIDE * (right - left) - 1
            height = SIDE * accuracy
            tip = f"<title>{left:.2f} to {right:.2f}: {count:,} predictions, {accuracy:.1%} right</title>"
            place = f'x="{x:.1f}" y="{TOP + SIDE - height:.1f}" width="{max(1, width):.1f}" height="{height:.1f}"'
            bars.append(f'<rect {place} fill="#2364aa">{tip}</rect>')
    line = f'x1="{LEFT}" y1="{TOP + SIDE}" x2="{LEFT + SIDE}" y2="{TOP}" stroke="currentColor" stroke-dasharray="4 3"'
    said = f"ECE {reliability.ece:.2%}, {int(reliability.count.sum()):,} predictions in {len(reliability.count)} bins"
    words = [
        (LEFT + SIDE / 2, TOP + SIDE + 24, "confidence"),
        (LEFT - 22, TOP + 8, "1"),
        (LEFT - 22, TOP + SIDE, "0"),
    ]
    texts = "".join(
        f'<text x="{x}" y="{y}" font-size="11" fill="currentColor">{text}</text>'
        for x, y, text in words
    )
    axes = (
        f'<path d="M{LEFT} {TOP} V{TOP + SIDE} H{LEFT + SIDE}" fill="none" stroke="currentColor"/>'
    )
    drawing = f'<svg width="{WIDTH}" height="{HEIGHT}" role="img">{"".join(bars)}<line {line}/>{axes}{texts}</svg>'
    return f"<div>{drawing}<div>accuracy by confidence. {said}</div></div>"
