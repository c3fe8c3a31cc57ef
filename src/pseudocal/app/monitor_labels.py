"""A person's labels in a monitor: which inputs to label, and what follows from the labels."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import csv_cell
from pseudocal.app.job import Note, Tick
from pseudocal.app.label_files import chosen_rows, read_labels
from pseudocal.app.labelling import ToLabel, label, shown_inputs
from pseudocal.app.monitor_data import arrays_of, identity_of, signals_of
from pseudocal.app.monitor_folder import (
    LABELLING,
    LabelsEvent,
    Range,
    State,
    batches_since,
    holding,
)
from pseudocal.app.monitor_page import views
from pseudocal.app.periods import format_time
from pseudocal.app.pipeline import refine_steps, run_steps
from pseudocal.app.publishing import remove
from pseudocal.app.render import Result
from pseudocal.app.run import JOINED, LogitWriter, Run, save_run
from pseudocal.arrays import InputError
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.evidence import Evidence
from pseudocal.calibrators.labels import CANNOT_TELL, LabelSample
from pseudocal.monitor import FEWEST, Monitor, Reference, anytime_interval

MOST_ROWS = 10_000  # inputs that a person's labels are drawn from


@dataclass(frozen=True)
class LabelledResult:
    """What a person's labels have changed.

    Attributes:
        event: the measurement.
        result: the recalibrated run.
        state: how the monitor stands now.

    """

    event: LabelsEvent
    result: Result
    state: State


def label_monitor(
    monitor: str | Path,
    n: int = 50,
    *,
    classes: Sequence[str] = (),
    trust_paths: bool = False,
) -> Path:
    """Write a page for labelling inputs of the batches since the change.

    Without an alarm they are drawn from all batches that are kept. The inputs come in random order,
    so the accuracy may be looked at after every label. More inputs can be asked for later: they begin
    with the same ones.

    Args:
        monitor: the folder of the monitor.
        n: how many inputs to label.
        classes: the names of the classes, if the baseline had none. Synonyms may follow a name, each
            after a tab.
        trust_paths: whether to read files that the folder names, if somebody else wrote it.

    Returns:
        The page.

    """
    with holding(Path(monitor), views) as held:
        state = held.state()
        since = Monitor.from_json(state.monitor).report.since if state.change else 0
        batches = batches_since(state, since)
        batches = [batch for batch in batches if held.run_of(batch.id).exists()]
        if not batches:
            raise InputError(
                f"{monitor} has no batches to label: add one first (pseudocal watch {monitor} DATA)"
            )
        if state.labelling != batches[0].id or not held.labelling.exists():
            runs = [
                (Run.open(held.run_of(batch.id), trust_paths=trust_paths), batch.time)
                for batch in batches
            ]
            join_runs(runs, held.clear_collecting(), held.labelling)
            remove(held.labelling)
            held.collecting.rename(held.labelling)
            times = [batch.time for batch in batches]
            held.save(replace(state, labelling=batches[0].id, labelling_times=tuple(times)))
        return label(held.labelling, n, classes=classes, trust_paths=trust_paths, sampling="random")


def refine_monitor(
    monitor: str | Path,
    labels: str | Path,
    *,
    trust: bool = False,
    trust_paths: bool = False,
    device: str = "cpu",
) -> LabelledResult:
    """Measure the accuracy since the change by a person's labels, and recalibrate.

    The temperature in use stays if the labels do not contradict it and another one would not reduce
    the gap between confidence and accuracy.

    Args:
        monitor: the folder of the monitor.
        labels: a table with the columns `file` and `label`, as the labelling page saves it.
        trust: whether the file of the model, which is exported again, may run code.
        trust_paths: whether to read files that the folder names, if somebody else wrote it.
        device: where the model runs, to check what was exported.

    """
    steps = refine_monitor_steps(
        monitor, labels, trust=trust, trust_paths=trust_paths, device=device
    )
    return run_steps(steps)


def refine_monitor_steps(
    monitor: str | Path,
    labels: str | Path,
    *,
    trust: bool = False,
    trust_paths: bool = False,
    device: str = "cpu",
) -> Generator[Note | Tick, None, LabelledResult]:
    """Do what `refine_monitor` does, yielding notes."""
    with holding(Path(monitor), views) as held:
        state = held.state()
        if state.labelling is None or not held.labelling.exists():
            raise InputError(
                f"{monitor} has no inputs to label yet: run pseudocal label {monitor} -n 50"
            )
        run = Run.open(held.labelling, trust_paths=trust_paths)
        given = read_labels(Path(labels), run, "random")
        _check_first(given, run, labels)
        result = yield from refine_steps(
            held.labelling,
            Path(labels),
            sampling="random",
            in_use=state.temperature,
            trust=trust,
            trust_paths=trust_paths,
            device=device,
        )
        event = _labels_event(run, given, state, result)
        if not held.has_seen(event.id):
            held.commit(_after_labels(state, event, run), event)
        return LabelledResult(event, result, held.state())


def _check_first(given: LabelSample, run: Run, path: str | Path) -> None:
    """Refuse labels of other inputs than the first ones of the page: they are no random sample."""
    chosen = chosen_rows(run, len(given), "random")
    missing = np.setdiff1d(chosen, given.rows)
    if len(missing):
        raise InputError(
            f"{path} has {len(given)} labels, but none for {run.row_names[missing[0]]!r}, which is "
            f"among the first {len(given)} inputs of the page: write "
            '"cannot tell" instead of skipping one'
        )


def _labels_event(run: Run, given: LabelSample, state: State, result: Result) -> LabelsEvent:
    """What the labels measure."""
    known = given.labels != CANNOT_TELL
    predicted = run.logits.argmax(axis=1)[given.rows]
    right = int((predicted == given.labels)[known].sum())
    labels = int(known.sum())
    interval = anytime_interval(right, labels)
    accuracy = Range.of(interval)
    confidence = float(confidences(run.logits, state.temperature).mean())
    target = state.baseline.accuracy
    return LabelsEvent(
        id=identity_of("labels", state.labelling, given.rows, given.labels),
        time=format_time(datetime.now(UTC)),
        first=state.labelling_times[0],
        last=state.labelling_times[-1],
        inputs=len(run.logits),
        labels=labels,
        accuracy=accuracy,
        gap=accuracy.below(confidence),
        before=state.temperature,
        temperature=result.calibration.temperature,
        verdict=result.calibration.verdict,
        retrain=target is not None and interval.high < target.value,
        rearmed=state.change is not None and len(run.logits) >= FEWEST,
        advice=_advice(result, state.temperature),
    )


def _advice(result: Result, before: float) -> str:
    """What the report recommends, for a model with the temperature that was in use before."""
    advice = result.report.recommendation
    changed = result.calibration.temperature != before
    if advice.decision == "deploy":
        file = f"{LABELLING}/{advice.values['file']}"
        return replace(advice, values=advice.values | {"file": file}).action if changed else ""
    if advice.code == "keep" and changed and result.calibration.temperature == 1:
        return "Deploy the original model"  # the report says to keep it, but T was in use
    return advice.action


def _after_labels(state: State, event: LabelsEvent, run: Run) -> State:
    """The new temperature is in use; after an alarm, the labelled inputs are the new baseline."""
    state = replace(state, temperature=event.temperature, labelled=event)
    if not event.rearmed:
        return state
    return replace(
        state,
        monitor=Monitor(Reference.of(signals_of(run))).as_json(),
        change=None,
        batches=0,
        period=state.period + 1,
    )


# ------------------------------------------------------------------------------ several runs as one


@dataclass(frozen=True)
class Rows:
    """Some inputs of the run of a batch."""

    run: Run  # the run
    time: str  # the time of the batch
    rows: NDArray[np.intp]  # the numbers of the inputs, in ascending order


def join_runs(runs: Sequence[tuple[Run, str]], folder: Path, place: Path) -> None:
    """Write inputs of several runs of one model as one run, at most `MOST_ROWS` drawn at random.

    Args:
        runs: each run and the time of its batch.
        folder: an empty folder.
        place: where the folder will be moved to.

    """
    parts = _drawn(runs)
    total = sum(len(part.rows) for part in parts)
    writer = LogitWriter(folder, total)
    start = 0
    for part in parts:
        rows = np.arange(start, start + len(part.rows))
        writer.write(rows, *(each[part.rows] for each in arrays_of(part.run)))
        start += len(part.rows)
    writer.finish()
    first = parts[0]
    record = first.run.record
    times = sorted(part.time for part in parts)
    data = replace(record.data, name=f"{times[0]} to {times[-1]}", inputs=total, used=total)
    joined = replace(
        record,
        data=replace(data, unreadable=(), skipped=()),
        ground_truth=None,
        probe=tuple(np.searchsorted(first.rows, record.probe).tolist()),
        **_names_and_files(parts, folder, place),
    )
    probe = first.run.probe() if record.probe else np.empty(0)
    save_run(folder, joined, _joined_evidence(runs), probe)


def _drawn(runs: Sequence[tuple[Run, str]]) -> list[Rows]:
    """Draw inputs from all runs alike; those that check an exported model are always among them."""
    sizes = [len(run.logits) for run, _ in runs]
    chosen = np.arange(sum(sizes))
    if len(chosen) > MOST_ROWS:
        chosen = np.random.default_rng(0).permutation(len(chosen))[:MOST_ROWS]
    probe = np.array(runs[0][0].record.probe, dtype=np.intp)
    chosen = np.union1d(chosen, probe)
    starts = np.cumsum([0, *sizes])
    parts = []
    for (run, time), (start, end) in zip(runs, pairwise(starts), strict=True):
        rows = chosen[(chosen >= start) & (chosen < end)] - start
        if len(rows):
            parts.append(Rows(run, time, rows))
    return parts


def _names_and_files(parts: Sequence[Rows], folder: Path, place: Path) -> dict[str, Any]:
    """The names of the inputs, and where a person can see them."""
    inputs = [(part, row) for part in parts for row in part.rows.tolist()]
    if all(part.run.record.image_files is not None for part in parts):
        files = [str(part.run.image_file(row)) for part, row in inputs]
        names = [f"{part.time} {part.run.record.names[row]}" for part, row in inputs]
        if len(set(names)) < len(names):
            names = [f"{i} {name}" for i, name in enumerate(names)]
        return {"names": tuple(names), "image_files": tuple(files)}
    _write_inputs(folder / JOINED, parts)
    return {
        "names": tuple(map(str, range(len(inputs)))),
        "image_files": None,
        "source": str((place / JOINED).absolute()),
        "column": None,
    }


def _write_inputs(path: Path, parts: Sequence[Rows]) -> None:
    """Write what is known of rows of tables, texts and arrays, with the time of their batch."""
    shown = [(part, one) for part in parts for one in _shown(part)]
    columns = list(dict.fromkeys(name for _, one in shown for name, _ in one.cells))
    with path.open("w", newline="", encoding="utf-8") as file:
        header = ["batch", "input", *columns]
        file.write(",".join(map(csv_cell, header)) + "\n")
        for part, one in shown:
            cells = dict(one.cells)
            values = [part.time, one.name, *(cells.get(name, "") for name in columns)]
            file.write(",".join(map(csv_cell, values)) + "\n")


def _shown(part: Rows) -> list[ToLabel]:
    try:
        return shown_inputs(part.run, part.rows)
    except InputError:  # the data is not there any more: the names remain
        return [ToLabel(part.run.record.names[row]) for row in part.rows.tolist()]


def _joined_evidence(runs: Sequence[tuple[Run, str]]) -> Evidence | None:
    found: Evidence | None = None
    for run, _ in runs:
        evidence = run.evidence()
        if found is None:
            found = evidence
        elif evidence is not None:
            found.merge(evidence.pack())
    return found
