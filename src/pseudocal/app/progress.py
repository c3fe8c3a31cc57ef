"""What the commands print: results, notes and progress."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, TextIO, TypeVar

import typer

from pseudocal.app.job import Note, Tick
from pseudocal.app.records import to_plain
from pseudocal.app.render import Result
from pseudocal.app.report.findings import known_accuracy
from pseudocal.app.report.wording import METRIC_TITLES, PERCENTAGES, PREPROCESSING_ASSUMED, points
from pseudocal.app.run import PAGE
from pseudocal.calibrators.confidence import Effect
from pseudocal.calibrators.wording import count

Done = TypeVar("Done")
METRICS = METRIC_TITLES | {"accuracy": "accuracy"}
# options of the preprocessing, by the settings that they determine
HOW_TO_PREPARE = {
    "resize": "--resize stretch",
    "mean": "--preprocess imagenet",
    "std": "--preprocess imagenet",
    "layout": "--layout nchw",
}
EVERY = 10.0  # seconds between lines
BUILDING = "pseudocal.lab.data"  # the logger that reports when data sets are built


# ------------------------------------------------------------------------------ results


def print_result(plain: Any, lines: Iterable[str], *, quiet: bool, as_json: bool) -> None:
    """Print a result: as JSON for programs, or as lines for people."""
    if as_json:
        typer.echo(json.dumps(plain))
    elif not quiet:
        typer.echo("\n".join(lines))


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
        "recommendation": {
            "decision": report.recommendation.decision,
            "action": report.recommendation.action,
            "command": report.recommendation.command or None,
            "reason": report.recommendation.because,
        },
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
        "cautions": [str(fact) for fact in report.facts if fact.level == "caution"],
        "out": str(result.out),
        "model_files": list(report.model.files),
        "seconds": report.timing.seconds,
    }


def summary_lines(result: Result) -> Iterator[str]:
    """The result of a calibration for people, line by line."""
    report = result.report
    data = report.data
    cautions = [fact for fact in report.facts if fact.level == "caution"]
    unspecified = [fact for fact in cautions if fact.code == PREPROCESSING_ASSUMED]
    for fact in unspecified:  # all numbers below depend on it
        yield f"warning: {fact}"
        options = dict.fromkeys(HOW_TO_PREPARE[name] for name in data.assumed)
        yield f"to specify it, for example: {' '.join(options)} (pseudocal calibrate --help)"
    yield str(report.headline)
    yield f"Recommendation: {report.recommendation}"
    yield f"Reason: {report.recommendation.because}"
    yield _temperature_line(result)
    if report.calibration.mixup_samples and report.labels is None:
        samples = f"{report.calibration.mixup_samples:,} mixup samples"
        yield f"{samples} of {data.used:,} inputs in {report.timing.seconds:.1f} s"
    mean = f"mean confidence {report.confidence.mean_before:.1%}"
    if report.calibration.temperature != 1:
        mean += f" before, {report.confidence.mean_after:.1%} after"
    yield mean
    yield from _verdict_lines(result)
    if data.unreadable:
        first = data.unreadable[0][0]
        more = "; the report lists them" if len(data.unreadable) > 1 else f": {first}"
        yield f"{count(len(data.unreadable), 'input')} could not be read{more}"
    if data.skipped:
        yield f"{len(data.skipped):,} of {data.blocks} were skipped; the report lists them"
    for fact in cautions:
        if fact not in unspecified:
            yield f"warning: {fact}"
    if report.metrics:
        after = "with the rejected T" if report.refused else "after"
        yield from score_lines(to_plain(report.metrics), after=after)
    yield from file_lines(result)


def file_lines(result: Result) -> Iterator[str]:
    """Where the calibrated model and the report are."""
    report = result.report
    kind = "calibrated model" if report.verdict == "apply" else "calibrated model (unconfirmed)"
    for name in report.model.files:
        yield f"{kind}: {result.out / name}"
    yield f"report: {result.out / PAGE}"


def _temperature_line(result: Result) -> str:
    """The temperature that applies, or why there is none."""
    fit = result.report.calibration
    if fit.refused is not None:
        return f"T = 1 (fitted {fit.refused:.3f}, rejected); model unchanged"
    if result.report.unfitted:
        return "T = 1 (nothing applied); model unchanged"
    low, high = ("inf" if end is None else f"{end:,.3f}" for end in (fit.low, fit.high))
    level = "95%" if result.report.labels is None else "90%"
    return f"T = {fit.temperature:.4f}, {level} interval {low} to {high}"


def _verdict_lines(result: Result) -> Iterator[str]:
    """The verdict, its reasons, and the accuracy: measured by labels, or else estimated."""
    measured = result.calibration.measured
    trust = result.calibration.trust
    judged = measured or trust
    if judged is None:
        return
    yield f"verdict: {judged.verdict}"
    for reason in judged.reasons:
        yield f"  {reason}"
    if measured is not None:
        noun = "label" if result.report.unit == "inputs" else "labelled pixel"
        accuracy = measured.accuracy
        interval = f"90% interval {accuracy.low:.0%} to {accuracy.high:.0%}"
        labels = count(measured.labels, noun)
        yield f"measured on {labels}: accuracy {accuracy.value:.0%}, {interval}"
        gap = f"mean confidence minus accuracy, in points: {points(measured.gap_before.value)}"
        if result.report.calibration.temperature != 1:
            gap += f" before, {points(measured.gap_after.value)} after"
        yield gap
        if measured.cannot_tell:
            yield f'skipped: {measured.cannot_tell:,} (labelled "cannot tell" or not labelled)'
    elif trust is not None:
        estimate = known_accuracy(result.report)
        text = "no estimated accuracy"
        if estimate is not None:
            interval = f"90% interval {estimate.low:.0%} to {estimate.high:.0%}"
            text = f"estimated accuracy: {estimate.value:.0%}, {interval}"
        yield text
        uses: dict[str, str] = dict(result.report.uses)
        if trust.verdict == "caution" and result.report.calibration.temperature != 1:
            uses = {name: use.replace("used", "used, unconfirmed") for name, use in uses.items()}
        yield from effect_lines(trust.effects, uses)


def effect_lines(effects: dict[str, Effect], uses: Mapping[str, str]) -> Iterator[str]:
    """What each temperature would do, if there are two to compare.

    >>> effects = {"mixup": Effect(2.0, 0.7, 0.12), "agreement": Effect(2.0, 0.7, -0.001)}
    >>> list(effect_lines(effects, {"mixup": "rejected", "agreement": ""}))
    ['from mixup: T = 2.000, mean confidence 70.0%, 12 points above the estimate: rejected',
    'from agreement: T = 2.000, mean confidence 70.0%, as estimated']
    """
    if not {"agreement", "surrogate"} & effects.keys():  # the estimate is from mixup samples too
        return
    for name, effect in effects.items():
        what = "no calibration" if name == "none" else f"from {name}"
        points = round(100 * effect.gap)
        off = "as estimated"
        if points:
            side = "above" if points > 0 else "below"
            off = f"{count(abs(points), 'point')} {side} the estimate"
        use = f": {uses[name]}" if uses[name] else ""
        t = f"T = {effect.temperature:.3f}"
        yield f"{what}: {t}, mean confidence {effect.confidence:.1%}, {off}{use}"


def score_lines(rows: list[dict[str, Any]], *, after: str = "after") -> Iterator[str]:
    """A table of metrics with their intervals; ECE, accuracy and mIoU in percent.

    `after` is the title of the values after calibration.

    >>> interval = {"value": 0.1, "low": 0.05, "high": None}
    >>> list(score_lines([{"metric": "ece", "before": interval}]))
    ['metric    value', 'ECE       10.00% [5.00%, inf]']
    """
    columns = [key for key in ("before", "after", "change") if rows[0].get(key) is not None]
    titles = [after if column == "after" else column for column in columns]
    if columns == ["before"]:
        titles = ["value"]
    yield ("metric".ljust(10) + "".join(title.ljust(28) for title in titles)).rstrip()
    for row in rows:
        metric = row["metric"]
        cells = [_cell(row[key], metric).ljust(28) for key in columns]
        yield (METRICS[metric].ljust(10) + "".join(cells)).rstrip()


def _cell(interval: dict[str, float | None], metric: str) -> str:
    form = ".2%" if metric in PERCENTAGES else ".4f"
    beyond = {"value": "inf", "low": "-inf", "high": "inf"}
    value, low, high = (
        infinite if interval[key] is None else format(interval[key], form)
        for key, infinite in beyond.items()
    )
    return f"{value} [{low}, {high}]"


# ------------------------------------------------------------------------------ progress


def show_progress(steps: Generator[Note | Tick, None, Done], *, quiet: bool) -> Done:
    """Run steps to their end: print notes, show progress, and return the result."""
    with closing(steps), Stages(quiet=quiet) as stages:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                done: Done = end.value
                return done
            if not isinstance(step, Note):
                stages.advance(step.what, step.done, step.total, step.unit)
            elif step.always or not quiet:
                sys.stderr.write(step.text + "\n")


class Stages:
    """Shows how far each stage of the work is.

    On a terminal that is a bar, else a line every ten seconds.

    >>> stages = Stages(quiet=False, stream=sys.stdout)
    >>> stages.advance("calibrating", 10, 100, "inputs")    # too soon after the start for a line
    >>> stages.started, stages.spoken = stages.started - 20, stages.spoken - 20
    >>> stages.advance("calibrating", 40, 100, "inputs")
    50 of 100 inputs, 2.5 a second, 20 s left
    >>> stages.advance("calibrating", 50, 100, "inputs")
    >>> stages.advance("calibrating", 5, 100, "inputs")     # the next batch of data
    >>> stages.started, stages.spoken = stages.started - 20, stages.spoken - 20
    >>> stages.advance("calibrating", 5, 100, "inputs")
    10 of 100 inputs, 0.5 a second, 180 s left
    """

    def __init__(self, *, quiet: bool, stream: TextIO | None = None) -> None:
        self.started = 0.0
        self.spoken = 0.0
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._bar = None if quiet or not self._stream.isatty() else _bar()
        self._stage: str | None = None
        self._done = 0
        self._total = 0

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, at: Any) -> None:
        """Show how far training is; see `TrainingRun.progress`."""
        self.show(at.stage, at.done, at.total)

    def show(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` are done in all."""
        before = self._done if stage == self._stage else 0
        self.advance(stage, done - before, total, f"done: {stage}")

    def advance(self, stage: str, done: int, total: int, unit: str) -> None:
        """Show that `done` more of `total` are done."""
        now = time.monotonic()
        # a stage that is over begins again with the next batch of data
        if stage != self._stage or total != self._total or (done and self._done >= total):
            self._begin(stage, total)
        self._done += done
        if self._bar is not None:
            [task] = self._bar.tasks
            self._bar.update(task.id, advance=done, pace=pace(task.speed or 0.0))
        elif not self._quiet and self._done and now - self.spoken >= EVERY:
            self.spoken = now
            rate = self._done / (now - self.started)
            left = (total - self._done) / rate
            line = f"{self._done:,} of {total:,} {unit}, {pace(rate)}, {left:.0f} s left"
            self._stream.write(line + "\n")

    def _begin(self, stage: str, total: int) -> None:
        self._stage = stage
        self._total = total
        self._done = 0
        self.started = self.spoken = time.monotonic()
        if self._bar is not None:
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._bar.add_task(stage, total=total, pace="")
            self._bar.start()


def _bar() -> Any:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[pace]}"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def pace(rate: float) -> str:
    """Format a rate per second or, if slow, as seconds each.

    >>> pace(2.5), pace(0.02)
    ('2.5 a second', '50 s each')
    """
    return f"{rate:.1f} a second" if rate >= 0.1 or rate == 0 else f"{1 / rate:.0f} s each"


@contextmanager
def announce_building(*, quiet: bool = False) -> Iterator[None]:
    """Print a line when a data set is built on first use, which takes a while."""
    logger = logging.getLogger(BUILDING)
    handler = logging.StreamHandler(sys.stderr)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.CRITICAL if quiet else logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
