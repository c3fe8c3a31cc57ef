"""Plain statements of fact about a calibration: what one should know before using it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import Fact

FEW_IMAGES = 50
FEW_DIFFER = 0.1


def facts_of(report: Report) -> tuple[Fact, ...]:
    """Everything worth saying, cautions first."""
    found = [fact for check in CHECKS for fact in check(report)]
    return tuple(sorted(found, key=lambda fact: fact.level != "caution"))


def _harm(report: Report) -> Iterator[Fact]:
    """Say so if labels leave no doubt that calibration makes the ECE worse; the verdict sees no label."""
    for row in report.measured or ():
        change = row.change
        if row.metric == "ece" and change is not None and change.value and (change.low or 0) > 0:
            digits = max(3, 1 - math.floor(math.log10(change.value)))
            before, after = (f"{part.value:.{digits}f}" for part in (row.before, row.after) if part is not None)
            yield _caution(
                f"On the labels that were given, calibration makes the ECE worse: {before} before, {after} after."
            )


def _few_images(report: Report) -> Iterator[Fact]:
    pairs = report.calibration.pairs
    if report.segmentation is not None and pairs < FEW_IMAGES:
        yield _caution(
            f"The temperature rests on {pairs:,} pairs of images only. More images, {FEW_IMAGES} or more, pin it "
            "down: pixels of one image say nearly the same."
        )


def _differ(report: Report) -> Iterator[Fact]:
    """Say how many pairs were of use."""
    mixes, pairs = report.calibration.mixes, report.calibration.pairs
    if report.segmentation is not None:
        yield _note(f"{mixes:,} pixels of {pairs:,} pairs of images were mixed: those that the model told apart.")
        return
    text = (
        f"The model gave two classes to {mixes / pairs:.0%} of the pairs of inputs ({mixes:,} of {pairs:,}); "
        "only these are mixed."
    )
    yield _caution(text) if mixes / pairs < FEW_DIFFER else _note(text)


def _sampling(report: Report) -> Iterator[Fact]:
    yield _note(
        "The interval of the temperature speaks of sampling error alone: how much T would move with other inputs from "
        "the same place. Whether mixes stand in well for real inputs is another question."
    )


def _labels(report: Report) -> Iterator[Fact]:
    if not report.measured:
        yield _note("No labels were given, so whether the confidences match the accuracy has not been measured.")


def _unreadable(report: Report) -> Iterator[Fact]:
    count = len(report.data.unreadable)
    if count:
        yield _note(f"{count:,} of {report.data.inputs:,} inputs could not be read; they are listed below.")


def _left_out(report: Report) -> Iterator[Fact]:
    """Say what workers could not do."""
    count = len(report.data.left_out)
    if count:
        yield _note(f"{count:,} of {report.data.blocks} were left out; they are listed below.")


def _caution(text: str) -> Fact:
    """A caution.

    >>> _caution("Few images.")
    Fact(level='caution', text='Few images.')
    """
    return Fact("caution", text)


def _note(text: str) -> Fact:
    return Fact("note", text)


CHECKS = (_harm, _few_images, _differ, _unreadable, _left_out, _labels, _sampling)
