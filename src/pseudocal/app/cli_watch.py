"""The command `watch`, and what `refine` prints of a monitor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from pseudocal.app.errors import ALARM_CODES
from pseudocal.app.monitor_folder import HISTORY, MONITOR_PAGE
from pseudocal.app.monitor_labels import LabelledResult
from pseudocal.app.monitor_page import alarm_lines, batch_lines, headline, labels_lines
from pseudocal.app.options import AsJson, Device, Quiet, data_option, model_option, output_option
from pseudocal.app.progress import file_lines, print_result, show_progress
from pseudocal.app.records import to_plain
from pseudocal.app.watching import WatchResult, watch_steps


def watch(
    monitor: Annotated[Path, typer.Argument(metavar="MONITOR", help="folder of the monitor")],
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="new data, of the same kind as the baseline"),
    ] = None,
    baseline: Annotated[
        Path | None,
        data_option("folder that calibrate wrote; starts the monitor", metavar="OUT"),
    ] = None,
    time: Annotated[
        str | None, data_option("time of the batch: 2026-11-17 (default: now)", metavar="TIME")
    ] = None,
    every: Annotated[
        str | None, data_option("split a table into batches: 30m, 6h, 1d, 1w", metavar="1d")
    ] = None,
    column: Annotated[
        str | None, data_option("the column of times for --every", metavar="NAME")
    ] = None,
    ground_truth: Annotated[
        Path | None, data_option("true classes, shown beside the estimate", metavar="FILE")
    ] = None,
    trust_model: Annotated[
        bool,
        model_option("allow code to run: .pt2, TorchScript, and module:function", "--trust-model"),
    ] = False,
    trust_paths: Annotated[
        bool,
        model_option(
            "read files outside MONITOR and OUT that they refer to, even if somebody else wrote "
            "them",
            "--trust-paths",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    exit_code: Annotated[
        bool,
        output_option(
            "exit with 0: no alarm, 20: alarm or retrain, 21: not enough data", "--exit-code"
        ),
    ] = False,
    device: Device = "cpu",
) -> None:
    """Compare new DATA with the baseline; raise an alarm if the deployed model got worse."""
    steps = watch_steps(
        monitor,
        data,
        baseline=baseline,
        time=time,
        every=every,
        column=column,
        ground_truth=ground_truth,
        trust=trust_model,
        trust_paths=trust_paths,
        device=device,
    )
    result = show_progress(steps, quiet=quiet)
    print_result(summary(result), result_lines(result), quiet=quiet, as_json=as_json)
    if exit_code:
        raise typer.Exit(exit_code_of(result))


def exit_code_of(result: WatchResult) -> int:
    """The exit code of a result, if it was asked for."""
    if result.alarm or result.retrain:
        return ALARM_CODES["alarm"]
    return ALARM_CODES["no alarm" if result.enough else "not enough data"]


def summary(result: WatchResult) -> dict[str, Any]:
    """The result for programs."""
    change = to_plain(result.state.change)
    if change is not None:
        del change["typical"]
    return {
        "alarm": result.alarm,
        "retrain": result.retrain,
        "enough_data": result.enough,
        "change": change,
        "temperature_in_use": result.state.temperature,
        "batches": [to_plain(batch) for batch in result.batches],
        "repeated": list(result.repeated),
        "waiting": result.waiting,
        "ground_truth": [to_plain(truth) for truth in result.truths],
        "page": str(result.folder / MONITOR_PAGE),
    }


def result_lines(result: WatchResult) -> Iterator[str]:
    """The result for people."""
    state = result.state
    if len(result.batches) > 1:
        yield f"{len(result.batches):,} batches; the last one:"
    if result.batches:
        yield from batch_lines(result.batches[-1], state)
    for time in result.repeated:
        yield f"The batch of {time} was already counted and is ignored."
    if result.waiting:
        yield f"{result.waiting:,} inputs are held back until their period ends."
    for truth in result.truths:
        yield f"True accuracy of {truth.inputs:,} inputs: {truth.accuracy:.1%}."
    if not (result.batches or result.repeated or result.waiting):
        yield f"Baseline: {state.baseline.inputs:,} inputs of {state.baseline.data}."
    word, _ = headline(state)
    first, *further = alarm_lines(state)
    yield f"{word}. {first}"
    yield from further
    if result.alarm:
        yield f"Next: label 50 inputs to measure the accuracy: pseudocal label {result.folder} -n 50"
    elif result.retrain:
        again = f"pseudocal watch {result.folder} --baseline OUT"
        yield f"Next: retrain the model, calibrate it, and restart the monitor: {again}"
    yield f"page: {result.folder / MONITOR_PAGE}, history: {result.folder / HISTORY}"


def labelled_lines(folder: Path, done: LabelledResult) -> Iterator[str]:
    """What labels have changed in the monitor in `folder`, for people."""
    yield from labels_lines(done.event)
    advice = done.result.report.recommendation
    if advice.decision == "label" and not done.event.rearmed:
        yield f"Next: pseudocal label {folder} -n {advice.values['n']}"
    yield from file_lines(done.result)
    yield f"page: {folder / MONITOR_PAGE}"
