"""What the commands print: results, notes and progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

from pseudocal.app.jobs.job import Note, Result, Tick
from pseudocal.app.report import Report
from pseudocal.app.report.headline import headline
from pseudocal.app.report.measured import count_of_answers

METRIC_TITLES = {
    "accuracy": "accuracy",
    "brier": "Brier",
    "ece": "ECE",
    "miou": "mIoU",
    "nll": "NLL",
}
TO_SAY_HOW = "to say how, for example: --resize 256 --crop 224 --preprocess imagenet (pseudocal calibrate --help)"
EVERY = 10.0  # seconds between lines
BUILDING = "pseudocal.lab.data"  # the logger that reports when data sets are built


def summary(report: Report, out: Path) -> dict[str, Any]:
    """Return the result of a calibration for programs."""
    content = report.to_dict()
    fit = report.calibration
    data = report.data
    trust = content["trust"]
    judged = report.answers or report.trust
    effects = {} if trust is None else trust["effects"]
    return {
        "headline": headline(report),
        "temperature": fit.temperature,
        "interval": [fit.low, fit.high],
        "bound": fit.bound,
        "mixup_samples": fit.mixup_samples,
        "pairs": fit.pairs,
        "unit": report.unit,
        "inputs": data.inputs,
        "used": data.used,
        "unreadable": len(data.unreadable),
        "skipped": len(data.skipped),
        "preparation": data.preparation,
        "assumed": list(data.assumed),
        "confidence": {
            "before": report.confidence.mean_before,
            "after": report.confidence.mean_after,
        },
        "measured": content["measured"],
        "answers": content["answers"],
        "verdict": report.verdict,
        "reasons": [] if judged is None else [str(reason) for reason in judged.reasons],
        "refused": fit.refused,
        "estimated_accuracy": None if trust is None else trust["estimated_accuracy"],
        "effects": {name: effect | {"use": report.uses[name]} for name, effect in effects.items()},
        "cautions": [fact.text for fact in report.facts if fact.level == "caution"],
        "out": str(out),
        "model_files": list(report.model.files),
        "seconds": report.timing.seconds,
    }


def summary_lines(report: Report, out: Path) -> Iterator[str]:
    """Yield the result of a calibration for people, line by line."""
    short = summary(report, out)
    yield short["headline"]
    yield _temperature(short)
    if short["mixup_samples"] and not short["answers"]:
        yield f"{short['mixup_samples']:,} mixup samples of {short['used']:,} inputs in {short['seconds']:.1f} s"
    yield _confidence(short)
    yield from verdict_lines(short)
    if short["unreadable"]:
        yield f"{short['unreadable']:,} inputs could not be read; the report lists them"
    if short["skipped"]:
        yield f"{short['skipped']:,} of {report.data.blocks} were left out; the report lists them"
    yield from (f"warning: {text}" for text in short["cautions"])
    if short["assumed"]:
        yield TO_SAY_HOW
    if short["measured"]:
        yield from score_lines(short["measured"])
    kind = "model, with T = 1" if short["temperature"] == 1 else "calibrated model"
    yield from (f"{kind}: {out / name}" for name in short["model_files"])
    yield f"report: {out / 'report.html'}"
    if answers := short["answers"]:
        yield from _more_answers(answers, out)
    elif short["verdict"] != "apply" and (out / "target.json").is_file():
        yield f"next: a few answers of a person tell more: pseudocal ask {out} -n 20"


def _more_answers(answers: dict[str, Any], out: Path) -> Iterator[str]:
    """Yield how to ask more, if that would settle the verdict and `ask` drew what was asked.

    >>> answers = {"labels": 19, "cannot_tell": 1, "more_labels": 60, "rows": 400, "sampling": "stratified"}
    >>> list(_more_answers(answers, Path("out")))
    ['more questions, which begin with the same ones: pseudocal ask out -n 80']
    """
    if answers["more_labels"] and answers["sampling"] == "stratified":
        n = min(
            answers["labels"] + answers["cannot_tell"] + answers["more_labels"], answers["rows"]
        )
        yield f"more questions, which begin with the same ones: pseudocal ask {out} -n {n}"


def _temperature(short: dict[str, Any]) -> str:
    if short["refused"] is not None:
        return f"T = 1: the temperature that was fitted, {short['refused']:.4f}, should not be applied; nothing changes"
    if _unfitted(short):
        return "T = 1: nothing was fitted, so the logits do not change"
    low, high = ("inf" if v is None else f"{v:.3f}" for v in short["interval"])
    level = "90%" if short["answers"] else "95%"
    return f"T = {short['temperature']:.4f}, {level} interval {low} to {high}"


def _confidence(short: dict[str, Any]) -> str:
    before, after = (f"{short['confidence'][when]:.1%}" for when in ("before", "after"))
    still = short["refused"] is not None or _unfitted(short)
    return f"mean confidence {before}" + ("" if still else f" before, {after} after")


def _unfitted(short: dict[str, Any]) -> bool:
    return short["mixup_samples"] == 0 and not short["answers"]


def verdict_lines(short: dict[str, Any]) -> Iterator[str]:
    """Yield the verdict, its reasons, and the accuracy: measured by answers, or else estimate.

    >>> estimated_accuracy = {"value": 0.7, "low": 0.58, "high": 0.82}
    >>> short = {"verdict": "apply", "reasons": ["It helps."], "estimated_accuracy": estimated_accuracy, "answers": None, "effects": {}}
    >>> list(verdict_lines(short))
    ['verdict: apply', '  It helps.', 'estimated accuracy: 70%, 90% interval 58% to 82%']
    """
    yield f"verdict: {short['verdict']}"
    yield from (f"  {reason}" for reason in short["reasons"])
    if answers := short["answers"]:
        accuracy, before, after = (answers[key] for key in ("accuracy", "gap_before", "gap_after"))
        yield (
            f"measured on {count_of_answers(answers['labels'], short['unit'])}: accuracy {accuracy['value']:.0%}, "
            f"90% interval {accuracy['low']:.0%} to {accuracy['high']:.0%}"
        )
        points = f"{100 * before['value']:+.0f} points before, {100 * after['value']:+.0f} after"
        yield f"mean confidence minus accuracy: {points}"
        if answers["cannot_tell"]:
            yield f"cannot tell: {answers['cannot_tell']:,}, left out"
        return
    estimated_accuracy = short["estimated_accuracy"]
    if estimated_accuracy["low"] <= 0 and estimated_accuracy["high"] >= 1:
        yield "no estimated accuracy"
        return
    yield (
        f"estimated accuracy: {estimated_accuracy['value']:.0%}, "
        f"90% interval {estimated_accuracy['low']:.0%} to {estimated_accuracy['high']:.0%}"
    )
    yield from effect_lines(short["effects"])


def effect_lines(effects: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield what each temperature would do, if there are two to compare.

    >>> effect = {"temperature": 2.0, "confidence": 0.7, "gap": 0.12, "use": "refused"}
    >>> list(effect_lines({"mixup": effect, "agreement": effect | {"gap": -0.001, "use": ""}}))
    ['from mixup: T = 2.000, mean confidence 70.0%, 12 points above the estimate: refused',
    'from agreement: T = 2.000, mean confidence 70.0%, as estimated']
    """
    if (
        not {"agreement", "surrogate"} & effects.keys()
    ):  # the estimate then comes from the mixup samples too
        return
    for name, effect in effects.items():
        points = round(100 * effect["gap"])
        unit = "point" if abs(points) == 1 else "points"
        side = "above" if points > 0 else "below"
        off = f"{abs(points)} {unit} {side} the estimate" if points else "as estimated"
        use = f": {effect['use']}" if effect["use"] else ""
        what = "no calibration" if name == "none" else f"from {name}"
        yield f"{what}: T = {effect['temperature']:.3f}, mean confidence {effect['confidence']:.1%}, {off}{use}"


def score_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of metrics with their intervals.

    >>> part = {"value": 0.1, "low": 0.05, "high": None}
    >>> list(score_lines([{"metric": "ece", "before": part}]))
    ['metric    value', 'ECE       0.1000 [0.0500, inf]']
    """
    heads = [key for key in ("before", "after", "change") if key in rows[0]]
    titles = ["value"] if heads == ["before"] else heads
    yield ("metric".ljust(10) + "".join(title.ljust(28) for title in titles)).rstrip()
    for row in rows:
        yield (
            METRIC_TITLES[row["metric"]].ljust(10)
            + "".join(_cell(row[key]).ljust(28) for key in heads)
        ).rstrip()


def _cell(part: dict[str, float | None]) -> str:
    ends = (("value", "inf"), ("low", "-inf"), ("high", "inf"))
    value, low, high = (beyond if part[key] is None else f"{part[key]:.4f}" for key, beyond in ends)
    return f"{value} [{low}, {high}]"


class Progress(Protocol):
    """A callable that shows progress."""

    def __call__(self, done: int) -> None:
        """Add `done` to what is done."""


@contextmanager
def progress(
    total: int,
    *,
    quiet: bool = False,
    stream: TextIO | None = None,
    what: str = "calibrating",
    unit: str = "inputs",
) -> Iterator[Progress]:
    """Show how many of `total` are done."""
    stream = stream or sys.stderr
    if quiet:
        yield lambda done: None
    elif stream.isatty():
        with _bar(total, what) as advance:
            yield advance
    else:
        yield Lines(total, stream, unit)


def show_progress(steps: Generator[Note | Tick, None, Result], *, quiet: bool) -> Result:
    """Run a job step by step: print its notes, show its progress, and return its result."""
    what, advance = "", None
    with closing(steps), ExitStack() as bar:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, Note):
                if not quiet:
                    sys.stderr.write(step.text + "\n")
                continue
            if advance is None or step.what != what:
                bar.close()
                what = step.what
                advance = bar.enter_context(
                    progress(step.total, quiet=quiet, what=what, unit=step.unit)
                )
            advance(step.done)


class Lines:
    """Print a line every ten seconds, with the rate and the time left.

    >>> lines = Lines(100, sys.stdout)
    >>> lines(10)                       # too soon after the start for a line
    >>> lines.started, lines.spoken = lines.started - 20, lines.spoken - 20
    >>> lines(40)
    50 of 100 inputs, 2.5 a second, 20 s left
    """

    def __init__(self, total: int, stream: TextIO, unit: str = "inputs") -> None:
        self.total = total
        self.unit = unit
        self.done = 0
        self.started = self.spoken = time.monotonic()
        self._stream = stream

    def __call__(self, done: int) -> None:
        """Add `done` to what is done, and print a line if it is time."""
        self.done += done
        now = time.monotonic()
        if now - self.spoken >= EVERY:
            self.spoken = now
            rate = self.done / (now - self.started)
            left = (self.total - self.done) / rate
            line = f"{self.done:,} of {self.total:,} {self.unit}, {pace(rate)}, {left:.0f} s left"
            self._stream.write(line + "\n")


def pace(rate: float) -> str:
    """Format a rate per second or, if slow, as seconds each.

    >>> pace(2.5), pace(0.02)
    ('2.5 a second', '50 s each')
    """
    return f"{rate:.1f} a second" if rate >= 0.1 or rate == 0 else f"{1 / rate:.0f} s each"


@contextmanager
def told_of_building(*, quiet: bool = False, stream: TextIO | None = None) -> Iterator[None]:
    """Print a line when a data set is built on first use, which takes a while."""
    import logging

    logger = logging.getLogger(BUILDING)
    handler = logging.StreamHandler(stream or sys.stderr)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.CRITICAL if quiet else logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def _bar(total: int, what: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    rate = TextColumn("{task.fields[pace]}")
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, pace="")
        yield lambda done: bar.update(task, advance=done, pace=pace(bar.tasks[0].speed or 0.0))
