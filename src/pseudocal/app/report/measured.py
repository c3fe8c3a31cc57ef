"""What is known beside the verdict.

The accuracy, and what labels or a person's answers say about it, in sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import Fact
from pseudocal.calibrators.measured import Measured
from pseudocal.metrics import Interval

ANSWERED = {
    "inputs": "answer",
    "pixels": "answered pixel",
}  # what a person has given, by what was asked about


def unfitted(report: Report) -> bool:
    """Whether nothing was fitted.

    The inputs cannot be mixed, like texts, and nobody has answered.
    """
    return report.calibration.mixup_samples == 0 and report.answers is None


def known_accuracy(
    report: Report,
) -> tuple[Literal["measured", "estimated"] | None, Interval | None]:
    """The accuracy by answers, or as estimate; None if neither tells it."""
    if report.answers is not None:
        return "measured", report.answers.accuracy
    if report.trust is None or not report.trust.estimated_accuracy.known:
        return None, None
    estimated_accuracy = report.trust.estimated_accuracy
    return "estimated", Interval(
        estimated_accuracy.value, estimated_accuracy.low, estimated_accuracy.high
    )


def estimate_from(report: Report) -> Literal["agreement", "surrogate", "mixup"]:
    """What the estimate was taken from; mixup samples, if there is no usable second opinion."""
    found = () if report.trust is None else report.trust.temperatures
    return "agreement" if "agreement" in found else "surrogate" if "surrogate" in found else "mixup"


def facts_of_labels(report: Report) -> Iterator[Fact]:
    """Say what labels show clearly about a verdict that has not seen them.

    Harm, or a refusal that was wrong.
    """
    for change, before, after in _clear_changes(report):
        if report.calibration.refused is None:
            if change > 0:
                yield Fact(
                    "caution",
                    f"On the labels that were given, calibration makes the ECE worse: {before} before, {after} after.",
                )
        elif change < 0:
            yield Fact(
                "caution",
                f"On the labels that were given, the refused temperature makes the ECE better: {before} before, "
                f"{after} with it. The verdict does not see these labels, and is too strict here.",
            )
        else:
            yield Fact(
                "note",
                f"On the labels that were given, the refused temperature makes the ECE worse, as the verdict says: "
                f"{before} before, {after} with it.",
            )


def facts_of_estimate(report: Report) -> Iterator[Fact]:
    """Say where labels show that the estimated accuracy missed."""
    if report.trust is None or not report.trust.estimated_accuracy.known:
        return
    estimated_accuracy = report.trust.estimated_accuracy
    for row in report.measured or ():
        right = row.before.value
        if (
            row.metric != "accuracy"
            or right is None
            or estimated_accuracy.low <= right <= estimated_accuracy.high
        ):
            continue
        low, high = row.before.low, row.before.high
        clearly = (
            low is not None
            and high is not None
            and (high < estimated_accuracy.low or low > estimated_accuracy.high)
        )
        yield Fact(
            "caution" if clearly else "note",
            f"By the labels the model is right on {right:.1%}: the interval of the estimate, {estimated_accuracy.low:.1%} to "
            f"{estimated_accuracy.high:.1%}, missed that.",
        )


def _clear_changes(report: Report) -> Iterator[tuple[float, str, str]]:
    """The change of the ECE if its interval does not contain zero, and the ECE before and after in words."""
    for row in report.measured or ():
        change = row.change
        if row.metric != "ece" or change is None or not change.value or row.after is None:
            continue
        if row.before.value is None or row.after.value is None:
            continue
        if (change.low or 0) > 0 or (change.high or 0) < 0:
            digits = max(3, 1 - math.floor(math.log10(abs(change.value))))
            yield change.value, f"{row.before.value:.{digits}f}", f"{row.after.value:.{digits}f}"


def count_of_answers(n: int, unit: str) -> str:
    """Say how many answers there are.

    >>> count_of_answers(50, "inputs"), count_of_answers(1, "pixels")
    ('50 answers', '1 answered pixel')
    """
    return f"{n:,} {ANSWERED[unit]}{'' if n == 1 else 's'}"


def facts_of_answers(answers: Measured, unit: str) -> Iterator[Fact]:
    """Say what the answers are, beyond what the verdict says of them."""
    how = (
        "spread over the target by ask"
        if answers.sampling == "stratified"
        else "drawn at random by someone else"
    )
    known = [
        f"{prior.estimator} {prior.temperature:.2f}"
        for prior in answers.priors
        if prior.estimator != "none"
    ]
    rest = (
        f" and, as prior, from what was known without them ({', '.join(known)})"
        if known
        else " alone"
    )
    what = "inputs" if unit == "inputs" else "sampled pixels"
    yield Fact(
        "note",
        f"{answers.labels:,} of {answers.rows:,} {what} have an answer; they were {how}. The temperature comes from "
        f"these answers{rest}.",
    )
    if answers.none_of_these:
        count = (
            "One answer is"
            if answers.none_of_these == 1
            else f"{answers.none_of_these:,} of the answers are"
        )
        yield Fact(
            "caution",
            f'{count} "none of these": the target has other classes than the model. On such inputs it is wrong '
            "whatever it says.",
        )
    if answers.cannot_tell:
        how = "question was" if answers.cannot_tell == 1 else "questions were"
        yield Fact("note", f'{answers.cannot_tell:,} {how} answered "cannot tell" and left out.')
    if answers.error_after is None:
        yield Fact("note", "The answers are too few to measure the calibration error itself.")


def gap_in_words(answers: Measured) -> str:
    """How far the mean confidence lies from the accuracy, in points.

    >>> from pseudocal.metrics import Interval
    >>> two = (Interval(0.2, 0.1, 0.3), Interval(-0.01, -0.11, 0.09))
    >>> _points(two[0]), _points(two[1])
    ('+20 (+10 to +30)', '-1 (-11 to +9)')
    """
    before = _points(answers.gap_before)
    after = _points(answers.gap_after)
    return f"Mean confidence minus accuracy, in points: {before} before, {after} after. Intervals of 90%."


def _points(gap: Interval) -> str:
    value, low, high = (f"{100 * part:+.0f}" for part in (gap.value, gap.low, gap.high))
    return f"{value} ({low} to {high})"
