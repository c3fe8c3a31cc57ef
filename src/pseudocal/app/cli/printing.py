"""Results as lines for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pseudocal.app.report import Report

NAMES = {"accuracy": "accuracy", "brier": "Brier", "ece": "ECE", "miou": "mIoU", "nll": "NLL"}


def summary(report: Report, out: Path) -> dict[str, Any]:
    """What a program wants to know of a calibration."""
    content = report.to_dict()
    fit, data, trust = report.calibration, report.data, content["trust"]
    return {
        "temperature": fit.temperature,
        "interval": [fit.low, fit.high],
        "bound": fit.bound,
        "mixes": fit.mixes,
        "pairs": fit.pairs,
        "inputs": data.inputs,
        "used": data.used,
        "unreadable": len(data.unreadable),
        "left_out": len(data.left_out),
        "confidence": {"before": report.confidence.mean_before, "after": report.confidence.mean_after},
        "measured": content["measured"],
        **{key: trust[key] for key in ("verdict", "reasons", "forecast", "replaced")},
        "cautions": [fact.text for fact in report.facts if fact.level == "caution"],
        "out": str(out),
        "model_files": list(report.model.files),
        "seconds": report.timing.seconds,
    }


def summary_lines(report: Report, out: Path) -> Iterator[str]:
    """What a person wants to know of a calibration."""
    short = summary(report, out)
    yield _temperature(short)
    yield f"{short['mixes']:,} mixes of {short['used']:,} inputs in {short['seconds']:.1f} s"
    yield f"mean confidence {short['confidence']['before']:.1%} before, {short['confidence']['after']:.1%} after"
    yield from verdict_lines(short)
    if short["unreadable"]:
        yield f"{short['unreadable']:,} inputs could not be read; the report lists them"
    if short["left_out"]:
        yield f"{short['left_out']:,} of {report.data.blocks} were left out; the report lists them"
    yield from (f"caution: {text}" for text in short["cautions"])
    if short["measured"]:
        yield from score_lines(short["measured"])
    yield from (f"calibrated model: {out / name}" for name in short["model_files"])
    yield f"report: {out / 'report.html'}"


def _temperature(short: dict[str, Any]) -> str:
    if short["replaced"]:
        return "T = 1: the temperature that was fitted should not be applied, so the logits stay as they are"
    low, high = ("inf" if v is None else f"{v:.3f}" for v in short["interval"])
    return f"T = {short['temperature']:.4f}, 95% interval {low} to {high}"


def verdict_lines(short: dict[str, Any]) -> Iterator[str]:
    """The verdict, why, and the accuracy to expect.

    >>> forecast = {"accuracy": 0.7, "low": 0.58, "high": 0.82}
    >>> list(verdict_lines({"verdict": "apply", "reasons": ["It helps."], "forecast": forecast}))
    ['verdict: apply', '  It helps.', 'forecast of the accuracy: 70%, 90% interval 58% to 82%']
    """
    yield f"verdict: {short['verdict']}"
    yield from (f"  {reason}" for reason in short["reasons"])
    forecast = short["forecast"]
    yield (
        f"forecast of the accuracy: {forecast['accuracy']:.0%}, "
        f"90% interval {forecast['low']:.0%} to {forecast['high']:.0%}"
    )


def score_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table of metrics with their intervals.

    >>> part = {"value": 0.1, "low": 0.05, "high": None}
    >>> list(score_lines([{"metric": "ece", "before": part}]))
    ['metric    value', 'ECE       0.1000 [0.0500, inf]']
    """
    heads = [key for key in ("before", "after", "change") if key in rows[0]]
    titles = ["value"] if heads == ["before"] else heads
    yield ("metric".ljust(10) + "".join(title.ljust(28) for title in titles)).rstrip()
    for row in rows:
        yield (NAMES[row["metric"]].ljust(10) + "".join(_cell(row[key]).ljust(28) for key in heads)).rstrip()


def _cell(part: dict[str, float | None]) -> str:
    ends = (("value", "inf"), ("low", "-inf"), ("high", "inf"))
    value, low, high = (beyond if part[key] is None else f"{part[key]:.4f}" for key, beyond in ends)
    return f"{value} [{low}, {high}]"
