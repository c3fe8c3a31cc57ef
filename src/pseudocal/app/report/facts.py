"""Plain statements of fact about a calibration: what one should know before using it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

FEW_IMAGES = 50
FEW_DIFFER = 0.1

Fact = dict[str, str]  # level: "note" or "caution"; text


def facts_of(content: dict[str, Any]) -> list[Fact]:
    """Everything worth saying, cautions first."""
    found = [fact for check in CHECKS for fact in check(content)]
    return sorted(found, key=lambda fact: fact["level"] != "caution")


def _harm(content: dict[str, Any]) -> Iterator[Fact]:
    """Say what labels say against it, if their interval leaves no doubt; the verdict sees no label.

    >>> before, after, change = {"value": 0.1243}, {"value": 0.5451}, {"value": 0.4208, "low": 0.38}
    >>> row = {"metric": "ece", "before": before, "after": after, "change": change}
    >>> [fact] = _harm({"measured": [row]})
    >>> fact["text"]
    'On the labels that were given, calibration makes the ECE worse: 0.124 before, 0.545 after.'
    """
    for row in content.get("measured") or ():
        if row["metric"] == "ece" and (row["change"]["low"] or 0) > 0:
            digits = max(3, 1 - math.floor(math.log10(row["change"]["value"])))
            before, after = (f"{row[when]['value']:.{digits}f}" for when in ("before", "after"))
            yield _caution(
                f"On the labels that were given, calibration makes the ECE worse: {before} before, {after} after."
            )


def _few_images(content: dict[str, Any]) -> Iterator[Fact]:
    pairs = content["calibration"]["pairs"]
    if content.get("segmentation") and pairs < FEW_IMAGES:
        yield _caution(
            f"The temperature rests on {pairs:,} pairs of images only. More images, {FEW_IMAGES} or more, pin it "
            "down: pixels of one image say nearly the same."
        )


def _differ(content: dict[str, Any]) -> Iterator[Fact]:
    """Say how many pairs were of use.

    >>> [fact] = _differ({"calibration": {"mixes": 900, "pairs": 1000}})
    >>> fact["text"]
    'The model gave two classes to 90% of the pairs of inputs (900 of 1,000); only these are mixed.'
    """
    mixes, pairs = content["calibration"]["mixes"], content["calibration"]["pairs"]
    if content.get("segmentation"):
        yield _note(f"{mixes:,} pixels of {pairs:,} pairs of images were mixed: those that the model told apart.")
        return
    text = (
        f"The model gave two classes to {mixes / pairs:.0%} of the pairs of inputs ({mixes:,} of {pairs:,}); "
        "only these are mixed."
    )
    yield _caution(text) if mixes / pairs < FEW_DIFFER else _note(text)


def _sampling(content: dict[str, Any]) -> Iterator[Fact]:
    yield _note(
        "The interval of the temperature speaks of sampling error alone: how much T would move with other inputs from "
        "the same place. Whether mixes stand in well for real inputs is another question."
    )


def _labels(content: dict[str, Any]) -> Iterator[Fact]:
    if not content.get("measured"):
        yield _note("No labels were given, so whether the confidences match the accuracy has not been measured.")


def _unreadable(content: dict[str, Any]) -> Iterator[Fact]:
    count = len(content["data"]["unreadable"])
    if count:
        yield _note(f"{count:,} of {content['data']['inputs']:,} inputs could not be read; they are listed below.")


def _left_out(content: dict[str, Any]) -> Iterator[Fact]:
    """Say what workers could not do.

    >>> [fact] = _left_out({"data": {"left_out": [["a.npz", "truncated"]], "blocks": "30 files"}})
    >>> fact["text"]
    '1 of 30 files were left out; they are listed below.'
    """
    count = len(content["data"].get("left_out", ()))
    if count:
        yield _note(f"{count:,} of {content['data']['blocks']} were left out; they are listed below.")


def _caution(text: str) -> Fact:
    return {"level": "caution", "text": text}


def _note(text: str) -> Fact:
    return {"level": "note", "text": text}


CHECKS = (_harm, _few_images, _differ, _unreadable, _left_out, _labels, _sampling)
