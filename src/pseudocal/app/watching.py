"""Watch a deployed model: count batches of new data, and say what changed.

    watch(MONITOR, baseline=OUT)      a calibrated run is the baseline
    watch(MONITOR, DATA)              a batch goes through the models of the baseline, and is counted

`monitor_folder.py` owns the folder, `monitor_data.py` opens the data, `monitor_labels.py` uses a
person's labels, `monitor_page.py` draws the page, and `pseudocal.monitor` has the alarm. A batch is
collected and concluded like any run.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.collect import reading_options
from pseudocal.app.export import check_unchanged, is_fitted
from pseudocal.app.inputs.ground_truth import check_range, read_ground_truth
from pseudocal.app.job import Job, Note, Tick, job_content
from pseudocal.app.label_files import shown_classes
from pseudocal.app.labelling import shown_inputs
from pseudocal.app.models.files import open_model
from pseudocal.app.monitor_data import (
    ModelSource,
    OutputsSource,
    Part,
    Source,
    agreement_of,
    arrays_of,
    check_consent,
    check_rows_only,
    fingerprints_of,
    identity_of,
    job_of_run,
    model_names,
    second_of,
    signals_of,
    stored_job,
)
from pseudocal.app.monitor_folder import (
    KEPT,
    BaselineEvent,
    BatchEvent,
    Change,
    ChangedClass,
    KeptBatch,
    MonitorFolder,
    Range,
    State,
    TruthEvent,
    TypicalInput,
    batches_since,
    holding,
    is_monitor,
    needs_retraining,
)
from pseudocal.app.monitor_page import batch_lines, views
from pseudocal.app.periods import format_time, parse_time
from pseudocal.app.pipeline import conclude, run_steps
from pseudocal.app.publishing import finish_publishing
from pseudocal.app.records import encode_json
from pseudocal.app.report.images import thumbnail
from pseudocal.app.run import SUMMARY, Run, signature_of
from pseudocal.arrays import InputError
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.confidence import confidences
from pseudocal.files import load_json, own_file
from pseudocal.monitor import FEWEST, Monitor, Reference, Summary

CLASSES_SHOWN = 20  # predicted classes in an event
CHANGED_SHOWN = 8  # predicted classes in a change
TYPICAL_SHOWN = 12  # inputs in a change
TYPICAL_CLASSES = 3  # they are of the classes that changed most
TEXT_SHOWN = 300  # characters of an input that is no image


@dataclass(frozen=True)
class WatchResult:
    """What a call has done, and how the monitor stands.

    Attributes:
        folder: the monitor.
        state: how it stands.
        batches: the batches that were counted.
        repeated: the times of batches that had been counted before.
        waiting: the number of inputs of a period that is not over.
        truths: the ground truth that was added.

    """

    folder: Path
    state: State
    batches: tuple[BatchEvent, ...] = ()
    repeated: tuple[str, ...] = ()
    waiting: int = 0
    truths: tuple[TruthEvent, ...] = ()

    @property
    def alarm(self) -> bool:
        """Whether the alarm is raised."""
        return self.state.change is not None

    @property
    def retrain(self) -> bool:
        """Whether labels say that the model needs retraining; until a new baseline."""
        return needs_retraining(self.state)

    @property
    def enough(self) -> bool:
        """Whether there is enough data to say that there is no alarm."""
        return Monitor.from_json(self.state.monitor).inputs >= FEWEST


WatchSteps = Generator[Note | Tick, None, WatchResult]


# ------------------------------------------------------------------------------ watching


def watch(
    monitor: str | Path,
    data: str | Path | None = None,
    *,
    baseline: str | Path | None = None,
    time: str | None = None,
    every: str | None = None,
    column: str | None = None,
    ground_truth: str | Path | None = None,
    trust: bool = False,
    trust_paths: bool = False,
    device: str = "cpu",
) -> WatchResult:
    """Compare new data with the baseline, and raise an alarm if the deployed model got worse.

        watch("monitor/", baseline="out/")
        result = watch("monitor/", "monday/")
        result.alarm, result.batches[0].accuracy

    Args:
        monitor: the folder of the monitor.
        data: the batch, of the same kind as the data of the baseline; None to set a baseline only.
            A batch that was counted before is not counted again.
        baseline: the folder of a calibrated run. The first call needs one; another one later begins
            anew, for example with a retrained model.
        time: the time of the batch in ISO 8601; None for the clock.
        every: cut a table into batches, such as "1d"; a period that is not over is not counted.
        column: the column of times for `every`.
        ground_truth: the true classes of the data, drawn beside the estimate; they change nothing.
        trust: whether the files of the models may run code.
        trust_paths: whether to read models that the folder names, if somebody else wrote it.
        device: the device that the models run on.

    """
    steps = watch_steps(
        monitor,
        data,
        baseline=baseline,
        time=time,
        every=every,
        column=column,
        ground_truth=ground_truth,
        trust=trust,
        trust_paths=trust_paths,
        device=device,
    )
    return run_steps(steps)


def watch_steps(
    monitor: str | Path,
    data: str | Path | None = None,
    *,
    baseline: str | Path | None = None,
    time: str | None = None,
    every: str | None = None,
    column: str | None = None,
    ground_truth: str | Path | None = None,
    trust: bool = False,
    trust_paths: bool = False,
    device: str = "cpu",
) -> WatchSteps:
    """Do what `watch` does, yielding notes and progress."""
    folder = Path(monitor)
    if data is None and ground_truth is not None:
        raise InputError(
            "ground truth needs the data of its batch: name the data again", setting="ground_truth"
        )
    if data is None and baseline is None:
        raise InputError("there is nothing to do: pass new data or a baseline", setting="baseline")
    if (every is None) != (column is None):
        raise InputError(
            "splitting a table needs a period and a column of times: pass both (--every, --column)"
        )
    now = datetime.now(UTC) if time is None else parse_time(time)
    with holding(folder, views, make=baseline is not None) as held:
        if baseline is not None:
            out = Path(baseline)
            seen = yield from _set_baseline(held, out, format_time(now), trust, trust_paths, device)
            if seen and (data is None or held.state().baseline.id != seen):
                yield Note(
                    f"{out} was set as the baseline before: nothing changed. To restart the "
                    "monitor, calibrate on newer data and pass that run as --baseline",
                    always=True,
                )
        result = WatchResult(folder, held.state())
        if data is None:
            return result
        check_consent(folder, result.state, trust_paths)
        if result.state.job is None:
            source: Source = OutputsSource(Path(data), result.state)
        else:
            source = ModelSource(str(data), result.state, folder, column, trust, device)
        parts, waiting = source.parts(every, now)
        result = replace(result, waiting=waiting)
        for part in parts:
            counted = len(result.batches)
            result = yield from _count(held, source, part, result)
            if len(parts) > 1 and len(result.batches) > counted:
                yield Note(next(batch_lines(result.batches[-1], result.state)))
            if ground_truth is not None:
                result = _add_truth(held, source, part, Path(ground_truth), result)
    return result


# ------------------------------------------------------------------------------ the baseline


def _set_baseline(
    held: MonitorFolder, out: Path, time: str, trust: bool, trust_paths: bool, device: str
) -> Generator[Note, None, str | None]:
    """Take a calibrated run as the baseline; return its identity instead if it was one before."""
    finish_publishing(out)
    run = Run.open(out, trust_paths=trust_paths)
    record = run.record
    check_rows_only(run)
    job = None if record.saved else job_of_run(run, trust_paths)
    calibration = run.calibration_in_force()
    temperature = calibration.temperature
    identity = identity_of("baseline", temperature, *arrays_of(run))
    if held.has_seen(identity):
        return identity
    if job is not None:
        _check_model(run, replace(job, trust=trust, device=device))
    if second_of(run) is None:
        yield Note(
            "no second model: only the uncertainty is watched, and fully confident errors are "
            "missed"
        )
    event = BaselineEvent(
        id=identity,
        time=time,
        model=record.model.title,
        data=record.data.name,
        inputs=len(run.logits),
        temperature=temperature,
        accuracy=accuracy_of(calibration),
        measured=calibration.measured is not None,
        confidence=float(confidences(run.logits, temperature).mean()),
        agreement=agreement_of(run),
    )
    state = State(
        last={},
        history_bytes=0,
        baseline=event,
        job=None,
        saved={"output_type": record.output_type, "binary": record.binary, "field": record.column},
        signature=None,
        fingerprints={},
        classes=record.classes,
        temperature=temperature,
        monitor=Monitor(Reference.of(signals_of(run))).as_json(),
    )
    if job is not None:
        content = job_content(job)
        signature = signature_of(model_names(stored_job(content)))
        prints = fingerprints_of(job)
        state = replace(state, job=content, signature=signature, fingerprints=prints)
    if is_monitor(held.path):
        earlier = held.state()
        state = replace(state, kept=earlier.kept, period=earlier.period + 1)
    held.commit(state, event)
    return None


def _check_model(run: Run, job: Job) -> None:
    """Refuse a model whose file has changed since the run was collected."""
    if not run.record.probe or not Path(job.model).exists():
        return
    options = reading_options(job) | {"typed": False, "device": job.device}
    model = open_model(job.model, **options)
    if model.export is not None:  # else there is no calibrated copy to take for the original
        check_unchanged(run, model)


def accuracy_of(calibration: Calibration) -> Range | None:
    """The accuracy that a calibration states: measured, or else estimated."""
    if calibration.measured is not None:
        return Range.of(calibration.measured.accuracy)
    if calibration.trust is None or not calibration.trust.estimated_accuracy.known:
        return None
    return Range.of(calibration.trust.estimated_accuracy)


# ------------------------------------------------------------------------------ batches


def _count(held: MonitorFolder, source: Source, part: Part, result: WatchResult) -> WatchSteps:
    """Collect a batch and count it, unless it was counted before."""
    if held.has_seen(part.identity):
        counted = _counted(held, part.identity)
        time = part.time if counted is None else counted.time
        return replace(result, repeated=(*result.repeated, time))
    state = result.state
    run = yield from source.collect(part, held.clear_collecting())
    signals = signals_of(run).rows(_order_of(run, part))
    alarm = Monitor.from_json(state.monitor)
    before = alarm.report
    alarm.restart()  # a change often begins with a batch
    alarm.add(signals)
    after = alarm.report
    summary = Summary.of(signals)
    encode_json(run.folder / SUMMARY, summary.as_json())
    added = KeptBatch(part.identity, part.time, before.inputs, len(signals), state.period)
    event = _event(source, part, run, state, alarm, raised=after.raised and not before.raised)
    state = replace(
        state,
        monitor=alarm.as_json(),
        kept=(*state.kept, added)[-KEPT:],
        batches=state.batches + 1,
    )
    change = _change(held, state, alarm, run, part, summary) if after.raised else None
    held.commit(replace(state, change=change), event)
    return replace(result, state=held.state(), batches=(*result.batches, event))


def _counted(held: MonitorFolder, identity: str) -> BatchEvent | None:
    """The event of a batch that was counted; None if that was long ago."""
    batches = (event for event in held.events() if isinstance(event, BatchEvent))
    return next((batch for batch in batches if batch.id == identity), None)


def _order_of(run: Run, part: Part) -> NDArray[np.intp]:
    """The rows of a run in the order in which they came; shuffled if the batch has no order."""
    if part.rows is None:
        seed = int(part.identity[:16], 16)
        return np.random.default_rng(seed).permutation(len(run.logits))
    rank = {str(row): i for i, row in enumerate(part.rows.tolist())}
    return np.argsort([rank[name] for name in run.record.names])


def _event(
    source: Source, part: Part, run: Run, state: State, alarm: Monitor, *, raised: bool
) -> BatchEvent:
    """What a batch says."""
    report = alarm.report
    calibration = _concluded(run)
    accuracy = None if calibration is None else accuracy_of(calibration)
    confidence = float(confidences(run.logits, state.temperature).mean())
    return BatchEvent(
        id=part.identity,
        time=part.time,
        data=source.data,
        inputs=len(run.logits),
        skipped=len(run.record.data.unreadable),
        accuracy=accuracy,
        confidence=confidence,
        agreement=agreement_of(run),
        in_use=state.temperature,
        temperature=None if calibration is None else _temperature_of(calibration),
        verdict=None if calibration is None else calibration.verdict,
        gap=None if accuracy is None else accuracy.below(confidence),
        predicted=_predicted(run),
        watched=report.inputs,
        e_value=report.e_value,
        alarm=report.raised,
        raised=raised,
    )


def _concluded(run: Run) -> Calibration | None:
    """What follows from a batch without labels; None if it is too small.

    A temperature that should not be applied is kept, for the record.
    """
    record = replace(run.record, method=replace(run.record.method, on_unreliable="warn"))
    try:
        return conclude(Run(run.folder, record))
    except InputError:  # no two inputs could be mixed
        return None


def _temperature_of(calibration: Calibration) -> Range | None:
    """The temperature that was fitted; None if none was, or none is clearly better than 1."""
    if not is_fitted(calibration):
        return None
    ends = [end if math.isfinite(end) else None for end in calibration.interval]
    return Range(calibration.temperature, *ends)


def _predicted(run: Run) -> dict[str, int]:
    """The number of predictions of the most frequent classes."""
    counts = np.bincount(run.logits.argmax(axis=1), minlength=run.logits.shape[1])
    names = shown_classes(run.record.classes, len(counts))
    most = np.argsort(-counts, kind="stable")[:CLASSES_SHOWN]
    return {names[i]: int(counts[i]) for i in most.tolist() if counts[i]}


# ------------------------------------------------------------------------------ what changed


def _change(
    held: MonitorFolder,
    state: State,
    alarm: Monitor,
    run: Run,
    part: Part,
    summary: Summary,
) -> Change:
    """What changed: since when, which predicted classes, and which inputs are typical of it."""
    report = alarm.report
    changed = batches_since(state, report.since)  # the last one is this batch
    total = summary
    for batch in changed[:-1]:
        total = total + _summary_of(held, batch)
    changes = alarm.reference.changes(total)
    names = shown_classes(run.record.classes, alarm.reference.classes)
    classes = tuple(
        ChangedClass(names[one.predicted], one.before, one.now, dict(one.increase))
        for one in changes[:CHANGED_SHOWN]
    )
    earlier = state.change
    if earlier is not None:
        return replace(earlier, classes=classes)
    # the first batch may not be kept any more; only a damaged state has no batch at all
    known = changed and changed[0].before <= report.since
    return Change(
        signal=report.signal,
        since=changed[0].time if known else None,
        raised=part.time,
        classes=classes,
        typical=_typical(run, alarm, [one.predicted for one in changes[:TYPICAL_CLASSES]], names),
    )


def _summary_of(held: MonitorFolder, batch: KeptBatch) -> Summary:
    path = own_file(held.run_of(batch.id), SUMMARY)
    return Summary.from_json(load_json(path, "the summary of a batch"))


def _typical(
    run: Run, alarm: Monitor, classes: Sequence[int], names: Sequence[str]
) -> tuple[TypicalInput, ...]:
    """The inputs of the changed classes whose signals are highest above what is expected."""
    signals = signals_of(run)
    score = sum(alarm.reference.residuals(signals, name) for name in signals.values)
    others_last = ~np.isin(signals.predicted, classes)
    rows = np.lexsort((-np.asarray(score), others_last))[:TYPICAL_SHOWN].astype(np.intp)
    try:
        shown = shown_inputs(run, rows)
    except InputError:  # the data cannot be read any more: the page goes without these inputs
        return ()
    found = []
    for row, one in zip(rows.tolist(), shown, strict=True):
        image = thumbnail(one.image_file) if isinstance(one.image_file, Path) else None
        text = ""
        if not run.record.of_array:  # whose numbers say nothing to a person
            text = ", ".join(f"{name}: {value}" for name, value in one.cells)
        found.append(
            TypicalInput(one.name, names[signals.predicted[row]], image, text[:TEXT_SHOWN])
        )
    return tuple(found)


# ------------------------------------------------------------------------------ ground truth


def _add_truth(
    held: MonitorFolder, source: Source, part: Part, path: Path, result: WatchResult
) -> WatchResult:
    """Note the true accuracy of a batch; no estimate changes."""
    folder = held.run_of(part.identity)
    if not folder.exists():
        raise InputError(
            f"the predictions of the batch of {part.time} were not kept: only those of the latest "
            f"{KEPT} batches are"
        )
    run = Run.open(folder)
    names = source.names()
    classes = run.record.classes
    truth = read_ground_truth(path, names, classes)
    number = {name: i for i, name in enumerate(names)}
    known = truth[[number[name] for name in run.record.names]]
    check_range(known, run.logits.shape[1], path)
    identity = identity_of("ground truth", part.identity, known)
    if held.has_seen(identity):
        return result
    accuracy = float((run.logits.argmax(axis=1) == known).mean())
    counted = _counted(held, part.identity)
    in_use = result.state.temperature if counted is None else counted.in_use
    confidence = float(confidences(run.logits, in_use).mean())
    now = format_time(datetime.now(UTC))
    event = TruthEvent(identity, now, part.identity, len(known), accuracy, confidence - accuracy)
    held.commit(result.state, event)
    return replace(result, state=held.state(), truths=(*result.truths, event))
