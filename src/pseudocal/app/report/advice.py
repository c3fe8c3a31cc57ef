"""The advice in a report: the verdict panel, and what to know before using the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from pseudocal.app.report.measured import (
    count_of_answers,
    estimate_from,
    facts_of_answers,
    facts_of_estimate,
    facts_of_labels,
    gap_in_words,
    known_accuracy,
    unfitted,
)
from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import Fact
from pseudocal.app.report.shapes import Panel, Track

FEW_IMAGES = 50
FEW_DIFFER = 0.1
ASKED = {
    "surrogate:": "a surrogate of the model's own predictions, by ",
    "zero-shot:": "class names (untested), by ",
}
TRACK_LEFT, TRACK_RIGHT = 14, 346  # x of the ends of each track in the panel
TRACK_FIRST, TRACK_STEP = 30, 40  # y of the first track, and the distance to the next
HEADINGS = {
    "already calibrated": "Already calibrated: nothing to apply",
    "apply": "Apply",
    "caution": "Use with caution",
    "do not apply": "Do not apply",
}
MEANINGS = {
    "already calibrated": "The confidence of the model already matches how often it is right.",
    "apply": "The confidence after calibration should be nearer to how often the model is right.",
    "caution": "Calibration may help, but what is known is not enough to be sure of it.",
    "do not apply": "This temperature is not expected to help: the confidences stay as they are.",
}
KINDS_OF_PANEL = {
    "already calibrated": "apply",
    "do not apply": "refuse",
}  # of the verdicts with another name
ALIKE_SHOULD_BE = "Mean confidence and accuracy should be alike."
CAPTIONS = {
    "estimated": f"{ALIKE_SHOULD_BE} The bar is the 90% interval of the estimate; it includes the error of the method, "
    "as the tasks it was developed on show it.",
    "alone": f"{ALIKE_SHOULD_BE} Without a usable second opinion the estimate is the mean confidence after "
    "calibration; the bar is how far that was off on the tasks it was developed on, in 90% of them.",
    "measured": f"{ALIKE_SHOULD_BE} The bar is the 90% interval of the accuracy.",
    None: f"{ALIKE_SHOULD_BE} Nothing is estimated accuracy.",
}
IN_PLACE = (
    "T = 1 takes the place of the temperature that was fitted: the confidences do not change, and no calibrated model "
    "was written. The reasons are about the temperature that was refused."
)


def facts_of(report: Report) -> tuple[Fact, ...]:
    """List what the reader should know, cautions first."""
    found = [fact for check in CHECKS for fact in check(report)]
    return tuple(sorted(found, key=lambda fact: fact.level != "caution"))


def _measured(report: Report) -> Iterator[Fact]:
    if report.measured:
        yield from facts_of_labels(report)
        yield from facts_of_estimate(report)
    if report.answers is not None:
        yield from facts_of_answers(report.answers, report.unit)


def _few_images(report: Report) -> Iterator[Fact]:
    pairs = report.calibration.pairs
    if report.segmentation is not None and report.answers is None and pairs < FEW_IMAGES:
        yield _caution(
            f"The temperature rests on only {pairs:,} pairs of images. Use {FEW_IMAGES} or more: pixels of the same "
            "image carry nearly the same information."
        )


def _assumed(report: Report) -> Iterator[Fact]:
    """Say what was assumed about the inputs.

    A wrong guess costs points of accuracy, and looks like a bad model.
    """
    if report.data.assumed:
        yield _caution(
            "Neither the model nor a setting says how images are to be prepared; assumed: "
            f"{', '.join(report.data.assumed)} ({report.data.preparation}). If the model was trained otherwise, it "
            "does worse here than it can, and so do all figures."
        )


def _differ(report: Report) -> Iterator[Fact]:
    """Say how many pairs could be mixed."""
    mixup_samples, pairs = report.calibration.mixup_samples, report.calibration.pairs
    if pairs == 0:  # of saved outputs nothing can be mixed
        return
    if report.segmentation is not None:
        yield _note(
            f"{mixup_samples:,} pixels of {pairs:,} pairs of images were mixed: those with two different predicted classes."
        )
        return
    text = (
        f"{mixup_samples / pairs:.0%} of the pairs of inputs ({mixup_samples:,} of {pairs:,}) have two different predicted classes; "
        "only these are mixed."
    )
    yield _caution(text) if mixup_samples / pairs < FEW_DIFFER else _note(text)


def _sampling(report: Report) -> Iterator[Fact]:
    if report.answers is not None or report.calibration.refused is not None or unfitted(report):
        return
    from_mixup = report.settings.get("estimator") not in ("agreement", "surrogate")
    not_covered = (
        "how well mixup samples represent real inputs"
        if from_mixup
        else "how far the second opinion can be trusted"
    )
    yield _note(
        "The interval of the temperature covers sampling error only: how much T would change with other inputs from "
        f"the same source. It does not cover {not_covered}."
    )


def _labels(report: Report) -> Iterator[Fact]:
    if not report.measured and report.answers is None:
        yield _note(
            "No labels were given, so whether the confidences match the accuracy has not been measured."
        )


def _unreadable(report: Report) -> Iterator[Fact]:
    if count := len(report.data.unreadable):
        yield _note(
            f"{count:,} of {report.data.inputs:,} inputs could not be read; they are listed below."
        )


def _skipped(report: Report) -> Iterator[Fact]:
    """Say how many blocks the workers could not process."""
    if count := len(report.data.skipped):
        yield _note(f"{count:,} of {report.data.blocks} were left out; they are listed below.")


def _caution(text: str) -> Fact:
    return Fact("caution", text)


def _note(text: str) -> Fact:
    return Fact("note", text)


CHECKS = (_measured, _assumed, _few_images, _differ, _unreadable, _skipped, _labels, _sampling)


def panel(report: Report) -> Panel | None:
    """Make the panel of a report; None if it has no verdict.

    A verdict by answers outranks one without labels.
    """
    trust, answers = report.trust, report.answers
    judged = answers or trust
    if judged is None:
        return None
    reasons = tuple(str(reason) for reason in judged.reasons)
    if answers is not None:
        reasons += (gap_in_words(answers),)
    tracks = _tracks(report)
    how = known_accuracy(report)[0]
    alone = how == "estimated" and estimate_from(report) == "mixup"
    return Panel(
        kind=KINDS_OF_PANEL.get(judged.verdict, judged.verdict),
        kicker="Verdict"
        if answers is None
        else f"Verdict, measured on {count_of_answers(answers.labels, report.unit)}",
        heading=HEADINGS[judged.verdict],
        meaning=MEANINGS[judged.verdict],
        contradicted=bool(report.measured)
        and any(fact.level == "caution" for fact in facts_of_labels(report)),
        models=_models(report),
        reasons=reasons,
        note=None if report.calibration.refused is None else IN_PLACE,
        caption=CAPTIONS["alone" if alone else how],
        description=". ".join(f"{track.label}: {track.value}" for track in tracks) + ".",
        tracks=tracks,
        ticks=tuple((_x(k / 4), f"{25 * k}%") for k in range(5)),
        height=tracks[-1].y + 34,
    )


def _models(report: Report) -> str:
    """Name the model and any second opinions."""
    others = report.settings.get("second_opinion")
    parts = (
        [str(name).partition(":") for name in others] if isinstance(others, list | tuple) else []
    )
    names = [
        ASKED.get(a + b, "")
        + PurePath(c if a + b in ASKED else a + b + c).name
        + _unused(report, a + b)
        for a, b, c in parts
    ]
    said = (
        f"Second opinion: {'; '.join(names)}."
        if names
        else ""
        if others is None
        else "No second opinion."
    )
    return f"Model: {report.model.title}. {said}".strip()


def _unused(report: Report, kind: str) -> str:
    """Say so if nothing is taken from a second opinion.

    Surrogates and models give temperatures of different names.
    """
    given = "surrogate" if kind == "surrogate:" else "agreement"
    found = ("mixup",) if report.trust is None else report.trust.temperatures
    return "" if given in found else " (nothing is taken from it)"


def _tracks(report: Report) -> tuple[Track, ...]:
    """The accuracy by answers or as estimate, the mean confidence before and after, and what labels have measured."""
    rows: list[tuple[str, str, str, float]] = []
    how, known = known_accuracy(report)
    if how is not None and known is not None:
        text = f"{known.value:.0%} ({known.low:.0%} to {known.high:.0%})"
        rows.append((how, f"Accuracy, {how}", text, known.value))
    bars = [] if known is None else [(_x(known.low), round(_x(known.high) - _x(known.low), 2))]
    rows += (
        (when, label, f"{value:.1%}", value) for when, label, value in _mean_confidences(report)
    )
    for row in report.measured or ():
        value = row.before.value
        if row.metric == "accuracy" and value is not None:
            rows.append(
                (
                    "measured",
                    "Accuracy, all labels" if report.answers else "Accuracy, measured",
                    f"{value:.1%}",
                    value,
                )
            )
    return tuple(
        Track(
            kind,
            label,
            text,
            TRACK_FIRST + TRACK_STEP * i,
            _x(value),
            bars[i] if i < len(bars) else None,
        )
        for i, (kind, label, text, value) in enumerate(rows)
    )


def _mean_confidences(report: Report) -> Iterator[tuple[str, str, float]]:
    """The mean confidence before and after calibration, or with a temperature that was refused."""
    confidence, refused = report.confidence, report.calibration.refused
    if refused is None and not unfitted(report):
        yield "before", "Mean confidence before", confidence.mean_before
        yield "after", "Mean confidence after", confidence.mean_after
        return
    yield "before", "Mean confidence", confidence.mean_before
    judged = report.trust if refused is not None and report.answers is None else None
    if judged is not None and "confidence after" in judged.evidence:
        yield "after", f"With the refused T = {refused:.3g}", judged.evidence["confidence after"]


def _x(value: float) -> float:
    """Return the x coordinate of a share.

    >>> _x(0), _x(0.5), _x(1)
    (14, 180.0, 346)
    """
    return round(TRACK_LEFT + value * (TRACK_RIGHT - TRACK_LEFT), 2)
