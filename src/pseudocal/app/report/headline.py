"""The first sentence of a report, for anybody.

What a confidence is worth before and after calibration.
"""

from __future__ import annotations

from collections.abc import Sequence

from pseudocal.app.report.measured import known_accuracy, unfitted
from pseudocal.app.report.record import Report

LEAST = 20  # inputs of a confidence, to say how many of them are right
ALIKE = 0.04  # two confidences that differ by less are called by one name
SURE = 0.995


def headline(report: Report) -> str:
    """Say for anybody what a confidence is worth before and after.

    Measured if labels or answers allow it.
    """
    bins = report.reliability.before
    what = ("answers", "gives") if report.unit == "inputs" else ("pixels", "labels")
    k = None if report.reliability.of == "mixup" else _near_90(bins.count, bins.confidence)
    if k is not None:
        return _measured_headline(report, k, *what)
    if report.calibration.refused is not None:
        return _refused_headline(report, what[0])
    confidence = report.confidence
    if unfitted(report):
        mean = f"The mean confidence is {confidence.mean_before:.0%}."
        return f"{mean} Nothing was fitted, and nothing says how far it holds."
    k = _near_90(confidence.before, confidence.sure_before, least=1)
    before, after = (
        (None, None) if k is None else (confidence.sure_before[k], confidence.sure_after[k])
    )
    if before is None or after is None:
        return f"The mean confidence is {confidence.mean_before:.0%} before and {confidence.mean_after:.0%} after."
    sure = {"apply": "should be right", "already calibrated": "should be right"}
    said = sure.get(report.verdict or "", "would be right if the calibration can be trusted")
    known = (
        "an estimate without labels"
        if report.answers is None
        else "an estimate from the answers of a person"
    )
    first = f"Of 100 {what[0]} that the model {what[1]} with {_level(before)} confidence, {_count(after)} {said}"
    return f"{first}, by {known}; after calibration the model {what[1]} them with {_percent(after)} confidence."


def _measured_headline(report: Report, k: int, noun: str, verb: str) -> str:
    """What labels say of the predictions in bin k before, and of those in the same bin after."""
    before, after = report.reliability.before, report.reliability.after
    level = before.confidence[k]
    right = before.accuracy[k]
    new_level = after.confidence[k]
    new_right = after.accuracy[k]
    moved = report.confidence.sure_after[k] if report.confidence.edges == before.edges else None
    assert level is not None
    assert right is not None
    said = f"{_are(right)} right"
    low = before.low[k]
    high = before.high[k]
    if report.reliability.of == "answers" and low is not None and high is not None:  # which are few
        said = f"({100 * low:.0f} to {100 * high:.0f}) {said}, by a person's answers"
    refused = report.calibration.refused is not None
    first = f"Of 100 {noun} that the model {verb} with {_level(level)} confidence, {_count(right)} {said}"
    if report.calibration.temperature == 1 and not refused:
        return f"{first}."
    if (
        after.count[k] >= LEAST
        and new_level is not None
        and new_right is not None
        and abs(new_level - level) < ALIKE
    ):
        when, are = (
            ("with the refused temperature", "would be")
            if refused
            else ("after calibration", _are(new_right))
        )
        return f"{first}; of those that have this confidence {when}, {_count(new_right)} {are}."
    if refused or moved is None:
        return f"{first}."
    return f"{first}; after calibration these have a confidence of {_percent(moved)}."


def _refused_headline(report: Report, noun: str) -> str:
    """What is known of a model whose temperature is refused.

    How often it is right, and how sure it is.
    """
    known = known_accuracy(report)[1]
    sure = f"The mean confidence is {report.confidence.mean_before:.0%}"
    if known is None:
        return f"{sure}."
    how = "by the estimate" if report.answers is None else "by the answers of a person"
    right = f"{100 * known.low:.0f} to {100 * known.high:.0f} of 100 {noun} are right"
    return f"{sure}; {how}, {right}. Nothing was changed."


def _near_90(
    count: Sequence[int], confidence: Sequence[float | None], least: int = LEAST
) -> int | None:
    """Return the bin with enough predictions whose mean confidence is nearest to 90%.

    None if there is none.

    >>> _near_90([500, 30, 3], [0.5, 0.8, 0.9]), _near_90([3], [0.9])
    (1, None)
    """
    found = [
        (abs(sure - 0.9), k)
        for k, sure in enumerate(confidence)
        if sure is not None and count[k] >= least
    ]
    return min(found)[1] if found else None


def _level(confidence: float) -> str:
    return "about 90%" if 0.88 <= confidence < 0.92 else _percent(confidence)


def _percent(confidence: float) -> str:
    """Put a confidence into words that agree with `_count`, where `_level` rounds.

    >>> _level(0.883), _percent(0.883), _count(0.883), _percent(0.9991)
    ('about 90%', 'about 88%', 'about 88', 'more than 99%')
    """
    return "more than 99%" if confidence > SURE else f"about {confidence:.0%}"


def _are(right: float) -> str:
    return "is" if round(100 * right) == 1 else "are"


def _count(right: float) -> str:
    return "nearly all" if right > SURE else f"about {100 * right:.0f}"
