"""The advice in a report: the verdict panel, and what to know before using the result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import Fact
from pseudocal.calibrators.measurement import Measured
from pseudocal.metrics import Interval

FEW_IMAGES = 50
FEW_DIFFER = 0.1
TRACK_LEFT, TRACK_RIGHT = 14, 346  # x of the ends of each track in the panel
TRACK_FIRST, TRACK_STEP = 30, 40  # y of the first track, and the distance to the next
HEADINGS = {
    "already calibrated": "Already calibrated: nothing to apply",
    "apply": "Apply",
    "caution": "Use with caution",
    "do not apply": "Do not apply",
}
KINDS_OF_PANEL = {"already calibrated": "apply", "do not apply": "refuse"}  # of the verdicts with another name
BAR_OF_FORECAST = (
    "Mean confidence and accuracy should be alike. The bar is the 90% interval of the forecast; it includes the error "
    "of the method, as the tasks it was developed on show it."
)
BAR_OF_ANSWERS = "Mean confidence and accuracy should be alike. The bar is the 90% interval of the accuracy."
IN_PLACE = (
    "T = 1 takes the place of the temperature that was fitted: the confidences do not change, and no calibrated model "
    "was written. The reasons are about the temperature that was refused."
)


def facts_of(report: Report) -> tuple[Fact, ...]:
    """List what the reader should know, cautions first."""
    found = [fact for check in CHECKS for fact in check(report)]
    return tuple(sorted(found, key=lambda fact: fact.level != "caution"))


def _by_labels(report: Report) -> Iterator[Fact]:
    """Say what labels show clearly about a verdict that has not seen them: harm, or a refusal that was wrong."""
    for change, before, after in _clear_changes(report):
        if report.calibration.refused is None:
            if change > 0:
                yield _caution(
                    f"On the labels that were given, calibration makes the ECE worse: {before} before, {after} after."
                )
        elif change < 0:
            yield _caution(
                f"On the labels that were given, the refused temperature makes the ECE better: {before} before, "
                f"{after} with it. The verdict does not see these labels, and is too strict here."
            )
        else:
            yield _note(
                f"On the labels that were given, the refused temperature makes the ECE worse, as the verdict says: "
                f"{before} before, {after} with it."
            )


def _clear_changes(report: Report) -> Iterator[tuple[float, str, str]]:
    """The change of the ECE if its interval does not contain zero, and the ECE before and after in words."""
    for row in report.measured or ():
        change = row.change
        if row.metric != "ece" or change is None or not change.value or row.after is None:
            continue
        if (change.low or 0) > 0 or (change.high or 0) < 0:
            digits = max(3, 1 - math.floor(math.log10(abs(change.value))))
            yield change.value, f"{row.before.value:.{digits}f}", f"{row.after.value:.{digits}f}"


def _few_images(report: Report) -> Iterator[Fact]:
    pairs = report.calibration.pairs
    if report.segmentation is not None and pairs < FEW_IMAGES:
        yield _caution(
            f"The temperature rests on only {pairs:,} pairs of images. Use {FEW_IMAGES} or more: pixels of the same "
            "image carry nearly the same information."
        )


def _differ(report: Report) -> Iterator[Fact]:
    """Say how many pairs could be mixed."""
    mixes, pairs = report.calibration.mixes, report.calibration.pairs
    if pairs == 0:  # of saved outputs nothing can be mixed
        return
    if report.segmentation is not None:
        yield _note(
            f"{mixes:,} pixels of {pairs:,} pairs of images were mixed: those with two different predicted classes."
        )
        return
    text = (
        f"{mixes / pairs:.0%} of the pairs of inputs ({mixes:,} of {pairs:,}) have two different predicted classes; "
        "only these are mixed."
    )
    yield _caution(text) if mixes / pairs < FEW_DIFFER else _note(text)


def _answers(report: Report) -> Iterator[Fact]:
    """Say what the answers are, beyond what the verdict says of them."""
    answers = report.answers
    if answers is None:
        return
    how = "spread over the target by ask" if answers.drawn_by == "ask" else "drawn at random by someone else"
    known = [f"{prior.estimator} {prior.temperature:.2f}" for prior in answers.priors if prior.estimator != "none"]
    rest = f" and, as prior, from what was known without them ({', '.join(known)})" if known else " alone"
    what = "inputs" if report.unit == "inputs" else "sampled pixels"
    yield _note(
        f"{answers.answers:,} of {answers.rows:,} {what} have an answer; they were {how}. The temperature comes from "
        f"these answers{rest}."
    )
    if answers.none_of_these:
        yield _caution(
            f'{answers.none_of_these:,} of the answers are "none of these": the target has other classes than the '
            "model. On such inputs it is wrong whatever it says."
        )
    if answers.cannot_tell:
        yield _note(f'{answers.cannot_tell:,} questions were answered "cannot tell"; they are left out.')
    if answers.error_after is None:
        yield _note("The answers are too few to measure the calibration error itself.")


def _sampling(report: Report) -> Iterator[Fact]:
    if report.answers is not None or report.calibration.refused is not None:
        return
    yield _note(
        "The interval of the temperature covers sampling error only: how much T would change with other inputs from "
        "the same source. It does not cover how well mixes represent real inputs."
    )


def _labels(report: Report) -> Iterator[Fact]:
    if not report.measured and report.answers is None:
        yield _note("No labels were given, so whether the confidences match the accuracy has not been measured.")


def _unreadable(report: Report) -> Iterator[Fact]:
    count = len(report.data.unreadable)
    if count:
        yield _note(f"{count:,} of {report.data.inputs:,} inputs could not be read; they are listed below.")


def _left_out(report: Report) -> Iterator[Fact]:
    """Say how many blocks the workers could not process."""
    count = len(report.data.left_out)
    if count:
        yield _note(f"{count:,} of {report.data.blocks} were left out; they are listed below.")


def _caution(text: str) -> Fact:
    """Make a caution.

    >>> _caution("Few images.")
    Fact(level='caution', text='Few images.')
    """
    return Fact("caution", text)


def _note(text: str) -> Fact:
    return Fact("note", text)


ANSWERED = {"inputs": "answers", "pixels": "answered pixels"}  # what a person has given, by what was asked about
CHECKS = (_by_labels, _few_images, _differ, _unreadable, _left_out, _answers, _labels, _sampling)


@dataclass(frozen=True)
class Track:
    """A line from 0 to 100% with a mark on it and, for the forecast, an interval."""

    kind: str  # "forecast", "before", "after" or "measured": the shape and colour of the mark
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
    reasons: tuple[str, ...]
    note: str | None
    caption: str  # what the bar is
    description: str
    tracks: tuple[Track, ...]

    @property
    def height(self) -> float:
        """The height of the chart."""
        return self.tracks[-1].y + 34

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Five marks along the bottom."""
        return tuple((_x(k / 4), f"{25 * k}%") for k in range(5))


def panel(report: Report) -> Panel | None:
    """Make the panel of a report; None if it has no verdict. A verdict by answers outranks one without labels."""
    trust, answers = report.trust, report.answers
    judged = answers or trust
    if judged is None:
        return None
    tracks = _tracks(report)
    return Panel(
        kind=KINDS_OF_PANEL.get(judged.verdict, judged.verdict),
        kicker="Verdict" if answers is None else f"Verdict, measured on {answers.answers:,} {ANSWERED[report.unit]}",
        heading=HEADINGS[judged.verdict],
        reasons=judged.reasons if answers is None else (*judged.reasons, _gap_in_words(answers)),
        note=None if report.calibration.refused is None else IN_PLACE,
        caption=BAR_OF_FORECAST if answers is None else BAR_OF_ANSWERS,
        description=". ".join(f"{track.label}: {track.value}" for track in tracks) + ".",
        tracks=tracks,
    )


def _gap_in_words(answers: Measured) -> str:
    """How far the mean confidence lies from the accuracy, in points.

    >>> from pseudocal.metrics import Interval
    >>> two = (Interval(0.2, 0.1, 0.3), Interval(-0.01, -0.11, 0.09))
    >>> _points(two[0]), _points(two[1])
    ('+20 (+10 to +30)', '-1 (-11 to +9)')
    """
    before, after = _points(answers.gap_before), _points(answers.gap_after)
    return f"Mean confidence minus accuracy, in points: {before} before, {after} after. Intervals of 90%."


def _points(gap: Interval) -> str:
    value, low, high = (f"{100 * part:+.0f}" for part in (gap.value, gap.low, gap.high))
    return f"{value} ({low} to {high})"


def _tracks(report: Report) -> tuple[Track, ...]:
    """The accuracy by answers or as forecast, the mean confidence before and after, and what labels have measured."""
    answers, trust = report.answers, report.trust
    if answers is not None:
        kind, label, known = "measured", "Accuracy, measured", answers.accuracy
    else:
        assert trust is not None
        forecast = trust.forecast
        kind, label = "forecast", "Accuracy, forecast"
        known = Interval(forecast.accuracy, forecast.low, forecast.high)
    low, high = _x(known.low), _x(known.high)
    rows: list[tuple[str, str, str, float]] = [
        (kind, label, f"{known.value:.0%} ({known.low:.0%} to {known.high:.0%})", known.value),
        *((when, label, f"{value:.1%}", value) for when, label, value in _mean_confidences(report)),
    ]
    for row in report.measured or ():
        value = row.before.value
        if row.metric == "accuracy" and value is not None:
            rows.append(
                ("measured", "Accuracy, all labels" if answers else "Accuracy, measured", f"{value:.1%}", value)
            )
    return tuple(
        Track(
            kind, label, text, TRACK_FIRST + TRACK_STEP * i, _x(value), (low, round(high - low, 2)) if i == 0 else None
        )
        for i, (kind, label, text, value) in enumerate(rows)
    )


def _mean_confidences(report: Report) -> Iterator[tuple[str, str, float]]:
    """The mean confidence before and after calibration, or with a temperature that was refused."""
    confidence, refused = report.confidence, report.calibration.refused
    if refused is None:
        yield "before", "Mean confidence before", confidence.mean_before
        yield "after", "Mean confidence after", confidence.mean_after
        return
    yield "before", "Mean confidence", confidence.mean_before
    if (judged := report.trust) is not None and report.answers is None and "confidence after" in judged.evidence:
        yield "after", f"With the refused T = {refused:.3g}", judged.evidence["confidence after"]


def _x(value: float) -> float:
    """Return the x coordinate of a share.

    >>> _x(0), _x(0.5), _x(1)
    (14, 180.0, 346)
    """
    return round(TRACK_LEFT + value * (TRACK_RIGHT - TRACK_LEFT), 2)
