"""What the commands print: results, notes and progress."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Protocol, TextIO

import typer

from pseudocal.app.job import Note
from pseudocal.app.pipeline import Steps
from pseudocal.app.records import to_plain
from pseudocal.app.render import Result
from pseudocal.app.run import PAGE, RECORD
from pseudocal.calibrators.confidence import Effect
from pseudocal.calibrators.measured import Measured
from pseudocal.calibrators.trust import AccuracyEstimate

METRICS = {
    "accuracy": "accuracy",
    "brier": "Brier",
    "ece": "ECE",
    "miou": "mIoU",
    "nll": "NLL",
}
IN_PERCENT = ("accuracy", "ece", "miou")
HOW_TO_PREPARE = (
    "to say how, for example: --resize 256 --crop 224 --preprocess imagenet "
    "(pseudocal calibrate --help)"
)
TO_LABEL = 50  # inputs that `label` suggests
EVERY = 10.0  # seconds between lines
BUILDING = "pseudocal.lab.data"  # the logger that reports when data sets are built


# ------------------------------------------------------------------------------ results


def print_result(result: Result, *, quiet: bool, as_json: bool) -> None:
    """Print the result of a calibration for people, or for programs."""
    if as_json:
        typer.echo(json.dumps(summary(result)))
    elif not quiet:
        typer.echo("\n".join(summary_lines(result)))


def summary(result: Result) -> dict[str, Any]:
    """The result of a calibration for programs."""
    calibration = result.calibration
    report = result.report
    fit = report.calibration
    data = report.data
    trust = calibration.trust
    measured = calibration.measured
    judged = measured or trust
    effects = {} if trust is None else trust.effects
    return {
        "headline": str(report.headline),
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
        "metrics": None if report.metrics is None else to_plain(report.metrics),
        "labels": None if measured is None else measured.to_dict(),
        "verdict": calibration.verdict,
        "reasons": [] if judged is None else [str(reason) for reason in judged.reasons],
        "refused": calibration.refused,
        "estimated_accuracy": None if trust is None else to_plain(trust.estimated_accuracy),
        "effects": {
            name: to_plain(effect) | {"use": report.uses[name]} for name, effect in effects.items()
        },
        "cautions": _cautions(result),
        "out": str(result.out),
        "model_files": list(report.model.files),
        "seconds": report.timing.seconds,
    }


def summary_lines(result: Result) -> Iterator[str]:
    """The result of a calibration for people, line by line."""
    report = result.report
    data = report.data
    yield str(report.headline)
    yield temperature_line(result)
    if report.calibration.mixup_samples and result.calibration.measured is None:
        seconds = report.timing.seconds
        samples = report.calibration.mixup_samples
        yield f"{samples:,} mixup samples of {data.used:,} inputs in {seconds:.1f} s"
    yield _confidence_line(result)
    yield from _verdict_lines(result)
    if data.unreadable:
        yield f"{len(data.unreadable):,} inputs could not be read; the report lists them"
    if data.skipped:
        yield f"{len(data.skipped):,} of {data.blocks} were skipped; the report lists them"
    for text in _cautions(result):
        yield f"warning: {text}"
    if data.assumed:
        yield HOW_TO_PREPARE
    if report.metrics:
        yield from score_lines(to_plain(report.metrics))
    kind = "model, with T = 1" if result.calibration.temperature == 1 else "calibrated model"
    for name in report.model.files:
        yield f"{kind}: {result.out / name}"
    yield f"report: {result.out / PAGE}"
    yield from _next_lines(result)


def temperature_line(result: Result) -> str:
    """The temperature that applies, or why there is none."""
    refused = result.calibration.refused
    if refused is not None:
        return f"T = 1 (fitted {refused:.3f}, rejected); model unchanged"
    if _is_unfitted(result):
        return "T = 1 (nothing applied); model unchanged"
    fit = result.report.calibration
    low = "inf" if fit.low is None else f"{fit.low:.3f}"
    high = "inf" if fit.high is None else f"{fit.high:.3f}"
    level = "95%" if result.calibration.measured is None else "90%"
    return f"T = {fit.temperature:.4f}, {level} interval {low} to {high}"


def _is_unfitted(result: Result) -> bool:
    return result.report.unfitted


def _confidence_line(result: Result) -> str:
    confidence = result.report.confidence
    if result.calibration.refused is not None or _is_unfitted(result):
        return f"mean confidence {confidence.mean_before:.1%}"
    before = f"{confidence.mean_before:.1%} before"
    return f"mean confidence {before}, {confidence.mean_after:.1%} after"


def _cautions(result: Result) -> list[str]:
    return [str(fact) for fact in result.report.facts if fact.level == "caution"]


def _verdict_lines(result: Result) -> Iterator[str]:
    """The verdict, its reasons, and the accuracy: measured by labels, or else estimated."""
    calibration = result.calibration
    judged = calibration.measured or calibration.trust
    if judged is None:
        return
    yield f"verdict: {judged.verdict}"
    for reason in judged.reasons:
        yield f"  {reason}"
    if calibration.measured is not None:
        yield from measured_lines(calibration.measured, result.report.unit)
    elif calibration.trust is not None:
        yield accuracy_line(calibration.trust.estimated_accuracy)
        yield from effect_lines(calibration.trust.effects, result.report.uses)


def measured_lines(measured: Measured, unit: str) -> Iterator[str]:
    """What a person's labels say of the accuracy, and of the confidence."""
    accuracy = measured.accuracy
    labels = count_of_labels(measured.labels, unit)
    interval = f"90% interval {accuracy.low:.0%} to {accuracy.high:.0%}"
    yield f"measured on {labels}: accuracy {accuracy.value:.0%}, {interval}"
    before = f"{100 * measured.gap_before.value:+.0f} points before"
    yield f"mean confidence minus accuracy: {before}, {100 * measured.gap_after.value:+.0f} after"
    if measured.cannot_tell:
        yield f"cannot tell: {measured.cannot_tell:,}, skipped"


def count_of_labels(n: int, unit: str) -> str:
    """How many labels there are.

    >>> count_of_labels(50, "inputs"), count_of_labels(1, "pixels")
    ('50 labels', '1 labelled pixel')
    """
    noun = "label" if unit == "inputs" else "labelled pixel"
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def accuracy_line(estimate: AccuracyEstimate) -> str:
    """The estimated accuracy.

    >>> accuracy_line(AccuracyEstimate(0.7, 0.58, 0.82))
    'estimated accuracy: 70%, 90% interval 58% to 82%'
    """
    if not estimate.known:
        return "no estimated accuracy"
    interval = f"90% interval {estimate.low:.0%} to {estimate.high:.0%}"
    return f"estimated accuracy: {estimate.value:.0%}, {interval}"


def effect_lines(effects: dict[str, Effect], uses: Mapping[str, str]) -> Iterator[str]:
    """What each temperature would do, if there are two to compare.

    >>> effects = {"mixup": Effect(2.0, 0.7, 0.12), "agreement": Effect(2.0, 0.7, -0.001)}
    >>> list(effect_lines(effects, {"mixup": "refused", "agreement": ""}))
    ['from mixup: T = 2.000, mean confidence 70.0%, 12 points above the estimate: refused',
    'from agreement: T = 2.000, mean confidence 70.0%, as estimated']
    """
    if not {"agreement", "surrogate"} & effects.keys():  # the estimate is from mixup samples too
        return
    for name, effect in effects.items():
        what = "no calibration" if name == "none" else f"from {name}"
        points = round(100 * effect.gap)
        off = "as estimated"
        if points:
            unit = "point" if abs(points) == 1 else "points"
            side = "above" if points > 0 else "below"
            off = f"{abs(points)} {unit} {side} the estimate"
        use = f": {uses[name]}" if uses[name] else ""
        t = f"T = {effect.temperature:.3f}"
        yield f"{what}: {t}, mean confidence {effect.confidence:.1%}, {off}{use}"


def _next_lines(result: Result) -> Iterator[str]:
    """What to label next, if that would tell more and the run was kept."""
    out = result.out
    unit = result.report.unit
    measured = result.calibration.measured
    if not (out / RECORD).is_file():
        return
    if measured is None and result.calibration.verdict != "apply":
        n = TO_LABEL if unit == "pixels" else min(TO_LABEL, result.report.data.used)
        yield f"Next: label {n} {unit} to measure this: pseudocal label {out} -n {n}"
    elif measured is not None and measured.more_labels and measured.sampling == "stratified":
        labelled = measured.labels + measured.cannot_tell
        n = min(labelled + measured.more_labels, measured.rows)
        yield f"Next: label {n - labelled} more {unit}: pseudocal label {out} -n {n}"


def score_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table of metrics with their intervals; ECE, accuracy and mIoU in percent.

    >>> interval = {"value": 0.1, "low": 0.05, "high": None}
    >>> list(score_lines([{"metric": "ece", "before": interval}]))
    ['metric    value', 'ECE       10.00% [5.00%, inf]']
    """
    columns = [key for key in ("before", "after", "change") if rows[0].get(key) is not None]
    titles = ["value"] if columns == ["before"] else columns
    yield ("metric".ljust(10) + "".join(title.ljust(28) for title in titles)).rstrip()
    for row in rows:
        metric = row["metric"]
        cells = [_cell(row[key], metric).ljust(28) for key in columns]
        yield (METRICS[metric].ljust(10) + "".join(cells)).rstrip()


def _cell(interval: dict[str, float | None], metric: str) -> str:
    form = ".2%" if metric in IN_PERCENT else ".4f"
    beyond = {"value": "inf", "low": "-inf", "high": "inf"}
    texts = {}
    for key, infinite in beyond.items():
        number = interval[key]
        texts[key] = infinite if number is None else format(number, form)
    return f"{texts['value']} [{texts['low']}, {texts['high']}]"


# ------------------------------------------------------------------------------ progress


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


def show_progress(steps: Steps, *, quiet: bool) -> Result:
    """Run steps to their end: print notes, show progress, and return the result."""
    stages = Stages(quiet=quiet)
    with closing(steps), stages:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if not isinstance(step, Note):
                stages.advance(step.what, step.done, step.total, step.unit)
            elif not quiet:
                sys.stderr.write(step.text + "\n")


class Stages:
    """One progress bar after another, each for a stage of the work."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._stage: str | None = None
        self._done = 0
        self._advance: Progress = lambda done: None
        self._open = ExitStack()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __call__(self, at: Any) -> None:
        """Show how far training is; see `TrainingRun.progress`."""
        self.show(at.stage, at.done, at.total)

    def show(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` are done in all."""
        before = self._done if stage == self._stage else 0
        self.advance(stage, done - before, total, f"done: {stage}")

    def advance(self, stage: str, done: int, total: int, unit: str) -> None:
        """Show that `done` more of `total` are done."""
        if stage != self._stage:
            self._open.close()
            bar = progress(total, quiet=self._quiet, what=stage, unit=unit)
            self._advance = self._open.enter_context(bar)
            self._stage = stage
            self._done = 0
        self._advance(done)
        self._done += done


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
def announce_building(*, quiet: bool = False, stream: TextIO | None = None) -> Iterator[None]:
    """Print a line when a data set is built on first use, which takes a while."""
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
