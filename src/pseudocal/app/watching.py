"""Watch a deployed model: count batches of new data, say what changed, and use a person's labels.

    watch(MONITOR, baseline=OUT)      a calibrated run is the baseline
    watch(MONITOR, DATA)              a batch goes through the models of the baseline, and is counted
    label_monitor(MONITOR, 50)        a page about the batches since the change
    refine_monitor(MONITOR, labels)   measured accuracy, a new temperature, and a new baseline

`monitor_folder.py` owns the folder, `pseudocal.monitor` the alarm. A batch is collected and concluded
like any run, so the model, its preprocessing and its second models are those of the baseline.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.collect import Plan, collect, open_models, opinion_files, opinion_names, plan
from pseudocal.app.inputs.ground_truth import read_ground_truth
from pseudocal.app.inputs.tables import check_regular, read_columns
from pseudocal.app.job import Job, Note, Tick, job_content, job_of, read_job
from pseudocal.app.label_files import chosen_rows, read_labels, shown_classes
from pseudocal.app.labelling import label, shown_inputs
from pseudocal.app.monitor_folder import (
    KEPT,
    BaselineEvent,
    BatchEvent,
    Change,
    ChangedClass,
    KeptBatch,
    LabelsEvent,
    MonitorFolder,
    Range,
    State,
    TruthEvent,
    TypicalInput,
    holding,
)
from pseudocal.app.monitor_page import views
from pseudocal.app.monitor_runs import agreement_of, check_rows_only, join_runs, signals_of
from pseudocal.app.outputs import collect_outputs
from pseudocal.app.periods import format_time, parse_every, parse_time, period_starts, times_in
from pseudocal.app.pipeline import conclude, refine_steps
from pseudocal.app.publishing import finish_publishing, remove
from pseudocal.app.records import encode_json
from pseudocal.app.render import Result
from pseudocal.app.report.images import thumbnail
from pseudocal.app.run import (
    CALIBRATION,
    JOB,
    Run,
    is_signature_of,
    is_signed,
    signature_of,
)
from pseudocal.arrays import InputError
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.labels import CANNOT_TELL, LabelSample
from pseudocal.files import is_inside, load_json, own_file
from pseudocal.monitor import FEWEST, Monitor, Reference, Signals, Summary, anytime_interval

SUMMARY = "summary.json"  # in the run of a batch: sums of its signals
MAX_BAD = 0.1  # fraction of a small batch that may be unreadable
CLASSES_SHOWN = 20  # predicted classes in an event
CHANGED_SHOWN = 8  # predicted classes in a change
TYPICAL_SHOWN = 12  # inputs in a change
TYPICAL_CLASSES = 3  # they are of the classes that changed most
TEXT_SHOWN = 300  # characters of an input that is no image
PIECE = 2**20  # bytes that are hashed at a time


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
    def enough(self) -> bool:
        """Whether there is enough data to say that there is no alarm."""
        return bool(self.state.monitor["inputs"] >= FEWEST)


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
    """Count a batch of new data, and say whether the deployed model has become worse.

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
        Path(monitor),
        None if data is None else str(data),
        baseline=None if baseline is None else Path(baseline),
        time=time,
        every=every,
        column=column,
        ground_truth=None if ground_truth is None else Path(ground_truth),
        trust=trust,
        trust_paths=trust_paths,
        device=device,
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: WatchResult = end.value
            return result


def watch_steps(
    folder: Path,
    data: str | None,
    *,
    baseline: Path | None = None,
    time: str | None = None,
    every: str | None = None,
    column: str | None = None,
    ground_truth: Path | None = None,
    trust: bool = False,
    trust_paths: bool = False,
    device: str = "cpu",
) -> WatchSteps:
    """Do what `watch` does, yielding notes and progress."""
    if data is None and baseline is None:
        raise InputError("there is nothing to do: name new data, or a baseline", setting="baseline")
    if (every is None) != (column is None):
        raise InputError(
            "a table is cut by a period and a column of times: pass both (--every, --column)"
        )
    now = datetime.now(UTC) if time is None else parse_time(time)
    with holding(folder, views, make=baseline is not None) as monitor:
        if baseline is not None:
            yield from _set_baseline(monitor, baseline, format_time(now), trust_paths)
        result = WatchResult(folder, monitor.state())
        if data is None:
            return result
        _check_consent(monitor, result.state, trust_paths)
        if result.state.job is None:
            source: _Source = _SavedOutputs(Path(data), result.state)
        else:
            source = _Models(data, result.state, monitor.path, trust=trust, device=device)
        parts, waiting = source.parts(every, column, now)
        result = replace(result, waiting=waiting)
        for part in parts:
            result = yield from _count(monitor, source, part, result)
            if ground_truth is not None:
                result = _add_truth(monitor, source, part, ground_truth, result)
    return result


# ------------------------------------------------------------------------------ the baseline


def _set_baseline(
    monitor: MonitorFolder, out: Path, time: str, trust_paths: bool
) -> Iterator[Note]:
    """Take a calibrated run as the baseline, unless it was one before."""
    finish_publishing(out)
    run = Run.open(out, trust_paths=trust_paths)
    check_rows_only(run)
    job = None if run.record.saved else _job_of_run(run, trust_paths)
    calibration = None
    if own_file(out, CALIBRATION).exists():
        calibration = run.calibration()
    temperature = 1.0 if calibration is None else calibration.temperature
    identity = _identity("baseline", temperature, *_arrays(run))
    if monitor.exists and monitor.has_seen(identity):
        return
    if not run.record.second_models:
        yield Note(
            "no second model: only the uncertainty is watched, and errors made with full "
            "confidence are missed"
        )
    event = BaselineEvent(
        id=identity,
        time=time,
        model=run.record.model.title,
        data=run.record.data.name,
        inputs=len(run.logits),
        temperature=temperature,
        accuracy=None if calibration is None else _accuracy_of(calibration),
        measured=calibration is not None and calibration.measured is not None,
        confidence=float(confidences(run.logits, temperature).mean()),
        agreement=agreement_of(run),
    )
    kept: tuple[KeptBatch, ...] = ()
    period = 0
    if monitor.exists:
        kept = monitor.state().kept
        period = monitor.state().period + 1
    record = run.record
    state = State(
        last={},
        history_bytes=0,
        baseline=event,
        job=None if job is None else job_content(job),
        saved={"output_type": record.output_type, "binary": record.binary, "field": record.column},
        signature=None if job is None else signature_of(_model_names(_stored_copy(job))),
        fingerprints={} if job is None else _fingerprints(job),
        classes=record.classes,
        temperature=temperature,
        monitor=Monitor(Reference.of(signals_of(run))).as_json(),
        kept=kept,
        period=period,
    )
    monitor.commit(state, event)


def _job_of_run(run: Run, trust_paths: bool) -> Job:
    """The settings of a run, as far as they apply to other data.

    `run.json` is signed and `job.toml` is not: both must name the same models.
    """
    path = own_file(run.folder, JOB)
    job = read_job(path, out=run.folder, trust=True)  # consent is asked for when models are opened
    files = [_absolute(job.model), *opinion_files(opinion_names(job.second_opinion, job.data))]
    known = (run.record.model.name, *run.record.second_files)
    strange = [
        file
        for file in files
        if not is_inside(file, run.folder) and not (is_signed(run.record) and file in known)
    ]
    if strange and not trust_paths and os.path.lexists(strange[0]):
        raise InputError(
            f"{path} names {strange[0]}, and you did not write it on this machine: look at the "
            "file, then give your consent",
            setting="trust_paths",
            value="True",
        )
    return replace(
        job,
        trust=False,
        job_file=None,
        data="",
        ground_truth=None,
        labels=None,
        ray=None,
        keep_logits=True,
        predict="all",
        max_bad=max(job.max_bad, MAX_BAD),
    )


def _absolute(name: str) -> str:
    return os.path.abspath(name) if Path(name).exists() else name


def _model_names(job: Job) -> list[str]:
    """The models of a job, as it names them."""
    opinions = job.second_opinion or ()
    if isinstance(opinions, str):
        opinions = (opinions,)
    return [job.model, *opinions]


def _stored_copy(job: Job) -> Job:
    """The job as a file would have it, with absolute paths."""
    return job_of({**job_content(job), "data": ""})


def _stored_job(state: State, data: str = "") -> Job:
    """The settings of the baseline, for other data."""
    return job_of({**(state.job or {}), "data": data})


def _fingerprints(job: Job) -> dict[str, str]:
    """The SHA-256 of each model that is a file."""
    names = [job.model, *opinion_files(opinion_names(job.second_opinion, job.data))]
    return {_absolute(name): _hash_of_file(Path(name)) for name in names if Path(name).is_file()}


def _accuracy_of(calibration: Calibration) -> Range | None:
    """The accuracy that a calibration states: measured, or else estimated."""
    if calibration.measured is not None:
        known = calibration.measured.accuracy
        return Range(known.value, known.low, known.high)
    if calibration.trust is None or not calibration.trust.estimated_accuracy.known:
        return None
    estimate = calibration.trust.estimated_accuracy
    return Range(estimate.value, estimate.low, estimate.high)


def _check_consent(monitor: MonitorFolder, state: State, trust_paths: bool) -> None:
    """Refuse to open the models of a monitor that somebody else wrote."""
    if state.job is None or trust_paths:
        return
    names = _model_names(_stored_job(state))
    if not is_signature_of(names, state.signature):
        raise InputError(
            f"{monitor.path} names {names[0]}, and you did not write it on this machine: look at "
            "the file, then give your consent",
            setting="trust_paths",
            value="True",
        )


# ------------------------------------------------------------------------------ batches


@dataclass(frozen=True)
class _Part:
    """A batch that is not counted yet.

    Attributes:
        identity: its identity.
        time: its time.
        rows: the numbers of its inputs in the order in which they came; None for all, in any order.

    """

    identity: str
    time: str
    rows: NDArray[np.intp] | None = None


class _Source:
    """New data."""

    data: str

    def parts(
        self, every: str | None, column: str | None, now: datetime
    ) -> tuple[list[_Part], int]:
        """The batches of the data, and how many inputs have to wait for the end of a period."""
        raise NotImplementedError

    def collect(self, part: _Part, folder: Path) -> Generator[Note | Tick, None, Run]:
        """Write the run of a batch into a folder."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """The names of all inputs."""
        raise NotImplementedError


class _Models(_Source):
    """Inputs that the models of the baseline predict."""

    def __init__(self, data: str, state: State, folder: Path, *, trust: bool, device: str) -> None:
        self.data = data
        self._folder = folder
        job = _stored_job(state)
        # a monitor names its models in a file, so code that it names needs consent
        job_file = folder / "state.json"
        self._job = replace(job, data=data, trust=trust, job_file=job_file, device=device)
        changed = [
            name for name, known in state.fingerprints.items() if _fingerprint(name) != known
        ]
        if changed:
            raise InputError(
                f"the model {changed[0]} has changed since the baseline: calibrate it again, and "
                "begin anew",
                setting="baseline",
                value="OUT",
            )
        self._plan: Plan | None = None
        self._without: str | None = None  # the column of times is no feature

    def plan(self) -> Plan:
        """The models and the data, open."""
        if self._plan is None:
            models = open_models(self._job)
            job = self._job
            expects = models[0].expects
            if self._without is not None and not job.features and not expects.columns:
                names = [name for name in read_columns(Path(self.data)) if name != self._without]
                job = replace(job, features=tuple(names))
            self._plan = plan(job, models)
        return self._plan

    def parts(
        self, every: str | None, column: str | None, now: datetime
    ) -> tuple[list[_Part], int]:
        if every is None or column is None:
            return [_Part(_identity_of_inputs(self.plan()), format_time(now))], 0
        period = parse_every(every)
        times = times_in(Path(self.data), column)
        starts = period_starts(times, period)
        self._without = column
        found = []
        waiting = 0
        for start in np.unique(starts):
            rows = np.flatnonzero(starts == start)
            begin = start.astype(datetime).replace(tzinfo=UTC)
            if begin + period > now:
                waiting += len(rows)
                continue
            in_order = rows[np.argsort(times[rows], kind="stable")]
            time = format_time(begin)
            found.append(_Part(_identity("period", every, time), time, in_order))
        return found, waiting

    def collect(self, part: _Part, folder: Path) -> Generator[Note | Tick, None, Run]:
        opened = self.plan()
        if part.rows is not None:
            opened = replace(opened, order=opened.order[np.isin(opened.order, part.rows)])
        return (yield from collect(replace(opened, job=replace(opened.job, out=folder)), folder))

    def names(self) -> list[str]:
        inputs = self.plan().inputs
        return [inputs.name(i) for i in range(len(inputs))]


class _SavedOutputs(_Source):
    """Outputs that another program has saved."""

    def __init__(self, path: Path, state: State) -> None:
        check_regular(path, "a file of outputs, as the baseline was")
        self.data = str(path)
        self._path = path
        self._state = state

    def parts(
        self, every: str | None, column: str | None, now: datetime
    ) -> tuple[list[_Part], int]:
        if every is not None:
            raise InputError("saved outputs have no column of times: pass one file per batch")
        identity = _identity("outputs", _hash_of_file(self._path))
        return [_Part(identity, format_time(now))], 0

    def collect(self, part: _Part, folder: Path) -> Generator[Note | Tick, None, Run]:
        collect_outputs(self._path, folder, classes=self._state.classes, **self._state.saved)
        yield Tick("reading", 1, 1, "files")
        return Run.open(folder)

    def names(self) -> list[str]:
        raise NotImplementedError


def _count(monitor: MonitorFolder, source: _Source, part: _Part, result: WatchResult) -> WatchSteps:
    """Collect a batch and count it, unless it was counted before."""
    if monitor.has_seen(part.identity):
        counted = _counted(monitor, part.identity)
        time = part.time if counted is None else counted.time
        return replace(result, repeated=(*result.repeated, time))
    state = result.state
    run = yield from source.collect(part, monitor.clear_collecting())
    signals = signals_of(run).rows(_order_of(run, part))
    alarm = Monitor.from_json(state.monitor)
    before = alarm.report
    alarm.add(signals)
    after = alarm.report
    summary = Summary.of(signals)
    encode_json(run.folder / SUMMARY, summary.as_json())
    added = KeptBatch(part.identity, part.time, before.inputs, len(signals), state.period)
    kept = (*state.kept, added)[-KEPT:]
    event = _event(source, part, run, state, alarm, raised=after.raised and not before.raised)
    change = None
    if after.raised:
        change = _change(monitor, replace(state, kept=kept), alarm, run, signals, part, summary)
    state = replace(
        state, monitor=alarm.as_json(), kept=kept, batches=state.batches + 1, change=change
    )
    monitor.commit(state, event)
    return replace(result, state=monitor.state(), batches=(*result.batches, event))


def _counted(monitor: MonitorFolder, identity: str) -> BatchEvent | None:
    """The event of a batch that was counted; None if that was long ago."""
    for event in monitor.events():
        if isinstance(event, BatchEvent) and event.id == identity:
            return event
    return None


def _order_of(run: Run, part: _Part) -> NDArray[np.intp]:
    """The rows of a run in the order in which they came; shuffled if the batch has no order."""
    if part.rows is None:
        seed = int(part.identity[:16], 16)
        return np.random.default_rng(seed).permutation(len(run.logits))
    rank = {str(row): i for i, row in enumerate(part.rows.tolist())}
    return np.argsort([rank[name] for name in run.record.names])


def _event(
    source: _Source, part: _Part, run: Run, state: State, alarm: Monitor, *, raised: bool
) -> BatchEvent:
    """What a batch says."""
    report = alarm.report
    calibration = _concluded(run)
    accuracy = None if calibration is None else _accuracy_of(calibration)
    confidence = float(confidences(run.logits, state.temperature).mean())
    gap = None
    if accuracy is not None:
        ends = [
            confidence - end if end is not None else None for end in (accuracy.high, accuracy.low)
        ]
        gap = Range(confidence - accuracy.value, *ends)
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
        gap=gap,
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
    """The temperature that was fitted; None if none was."""
    if calibration.method == "none":
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
    monitor: MonitorFolder,
    state: State,
    alarm: Monitor,
    run: Run,
    signals: Signals,
    part: _Part,
    summary: Summary,
) -> Change:
    """What changed: since when, which predicted classes, and which inputs are typical of it."""
    report = alarm.report
    since = batches_since(state, report.since)
    total = summary
    for batch in since[:-1]:
        total = total + _summary_of(monitor, batch)
    changes = alarm.reference.changes(total)
    names = shown_classes(run.record.classes, alarm.reference.classes)
    classes = tuple(
        ChangedClass(names[one.predicted], one.before, one.now, dict(one.increase))
        for one in changes[:CHANGED_SHOWN]
    )
    earlier = state.change
    if earlier is not None:
        return replace(earlier, classes=classes)
    known = since and since[0].before <= report.since
    return Change(
        signal=report.signal,
        since=since[0].time if known else None,
        raised=part.time,
        classes=classes,
        typical=_typical(run, alarm, [one.predicted for one in changes[:TYPICAL_CLASSES]], names),
    )


def batches_since(state: State, inputs: int) -> list[KeptBatch]:
    """The kept batches with inputs after the first `inputs` since the baseline."""
    return [
        batch
        for batch in state.kept
        if batch.period == state.period and batch.before + batch.inputs > inputs
    ]


def _summary_of(monitor: MonitorFolder, batch: KeptBatch) -> Summary:
    path = own_file(monitor.run_of(batch.id), SUMMARY)
    return Summary.from_json(load_json(path, "the summary of a batch"))


def _typical(
    run: Run, alarm: Monitor, classes: Sequence[int], names: Sequence[str]
) -> tuple[TypicalInput, ...]:
    """The inputs of the changed classes whose signals are highest above what is expected."""
    signals = signals_of(run)
    score = sum(alarm.reference.residuals(signals, name) for name in signals.values)
    score = np.asarray(score) + 2 * np.isin(signals.predicted, classes)  # these come first
    rows = np.argsort(-score, kind="stable")[:TYPICAL_SHOWN].astype(np.intp)
    try:
        shown = shown_inputs(run, rows)
    except InputError:  # the data cannot be read any more: the page goes without these inputs
        return ()
    found = []
    for row, one in zip(rows.tolist(), shown, strict=True):
        image = thumbnail(one.image_file) if isinstance(one.image_file, Path) else None
        text = ", ".join(
            value if len(one.cells) == 1 else f"{n}: {value}" for n, value in one.cells
        )
        found.append(
            TypicalInput(one.name, names[signals.predicted[row]], image, text[:TEXT_SHOWN])
        )
    return tuple(found)


# ------------------------------------------------------------------------------ ground truth


def _add_truth(
    monitor: MonitorFolder, source: _Source, part: _Part, path: Path, result: WatchResult
) -> WatchResult:
    """Note the true accuracy of a batch; no estimate changes."""
    folder = monitor.run_of(part.identity)
    if not folder.exists():
        raise InputError(
            f"the predictions of the batch of {part.time} were not kept: only those of the latest "
            f"{KEPT} batches are"
        )
    run = Run.open(folder)
    names = list(run.record.names) if run.record.saved else source.names()
    classes = run.record.classes
    truth = read_ground_truth(path, names, classes)
    number = {name: i for i, name in enumerate(names)}
    known = truth[[number[name] for name in run.record.names]]
    if known.min() < 0 or known.max() >= run.logits.shape[1]:
        raise InputError(
            f"{path} has classes from {known.min()} to {known.max()}, and the model has 0 to "
            f"{run.logits.shape[1] - 1}"
        )
    identity = _identity("ground truth", part.identity, known)
    if monitor.has_seen(identity):
        return result
    accuracy = float((run.logits.argmax(axis=1) == known).mean())
    counted = _counted(monitor, part.identity)
    in_use = result.state.temperature if counted is None else counted.in_use
    confidence = float(confidences(run.logits, in_use).mean())
    now = format_time(datetime.now(UTC))
    event = TruthEvent(identity, now, part.identity, len(known), accuracy, confidence - accuracy)
    monitor.commit(result.state, event)
    return replace(result, state=monitor.state(), truths=(*result.truths, event))


# ------------------------------------------------------------------------------ labels


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
        classes: the names of the classes, if the baseline had none.
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
            raise InputError(f"{monitor} has no batches to label: count one first")
        if state.labelling != batches[0].id or not held.labelling.exists():
            remove(held.labelling)
            held.labelling.mkdir()
            runs = [
                (Run.open(held.run_of(batch.id), trust_paths=trust_paths), batch.time)
                for batch in batches
            ]
            join_runs(runs, held.labelling)
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

    Args:
        monitor: the folder of the monitor.
        labels: a table with the columns `file` and `label`, as the labelling page saves it.
        trust: whether the file of the model, which is exported again, may run code.
        trust_paths: whether to read files that the folder names, if somebody else wrote it.
        device: where the model runs, to check what was exported.

    """
    steps = refine_monitor_steps(
        Path(monitor), Path(labels), trust=trust, trust_paths=trust_paths, device=device
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: LabelledResult = end.value
            return result


def refine_monitor_steps(
    folder: Path, labels: Path, *, trust: bool, trust_paths: bool, device: str
) -> Generator[Note | Tick, None, LabelledResult]:
    """Do what `refine_monitor` does, yielding notes."""
    with holding(folder, views) as monitor:
        state = monitor.state()
        if state.labelling is None or not monitor.labelling.exists():
            raise InputError(f"{folder} has no inputs to label yet: pseudocal label {folder} -n 50")
        run = Run.open(monitor.labelling, trust_paths=trust_paths)
        given = read_labels(labels, run, "random")
        _check_first(given, run, labels)
        result = yield from refine_steps(
            monitor.labelling,
            labels,
            sampling="random",
            trust=trust,
            trust_paths=trust_paths,
            device=device,
        )
        event = _labels_event(run, given, state, result.calibration)
        if not monitor.has_seen(event.id):
            state = _after_labels(state, event, run)
            monitor.commit(state, event)
        return LabelledResult(event, result, monitor.state())


def _check_first(given: LabelSample, run: Run, path: Path) -> None:
    """Refuse labels of other inputs than the first ones of the page: they are no random sample."""
    chosen = chosen_rows(run, len(given), "random")
    missing = np.setdiff1d(chosen, given.rows)
    if len(missing):
        raise InputError(
            f"{path} has {len(given)} labels, but none for {run.row_names[missing[0]]!r}, which is "
            f"among the first {len(given)} inputs of the page: write "
            '"cannot tell" rather than leave one out'
        )


def _labels_event(
    run: Run, given: LabelSample, state: State, calibration: Calibration
) -> LabelsEvent:
    """What the labels measure."""
    known = given.labels != CANNOT_TELL
    predicted = run.logits.argmax(axis=1)[given.rows]
    right = int((predicted == given.labels)[known].sum())
    accuracy = anytime_interval(right, int(known.sum()))
    confidence = float(confidences(run.logits, state.temperature).mean())
    target = state.baseline.accuracy
    return LabelsEvent(
        id=_identity("labels", state.labelling, given.rows, given.labels),
        time=format_time(datetime.now(UTC)),
        first=state.labelling_times[0],
        last=state.labelling_times[-1],
        inputs=len(run.logits),
        labels=int(known.sum()),
        accuracy=Range(accuracy.value, accuracy.low, accuracy.high),
        gap=Range(
            confidence - accuracy.value, confidence - accuracy.high, confidence - accuracy.low
        ),
        before=state.temperature,
        temperature=calibration.temperature,
        verdict=calibration.verdict,
        retrain=target is not None and accuracy.high < target.value,
        rearmed=state.change is not None and len(run.logits) >= FEWEST,
    )


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


# ------------------------------------------------------------------------------ identities


def _identity(*parts: Any) -> str:
    """A name for content: the same content has the same name."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.tobytes() if isinstance(part, np.ndarray) else str(part).encode()
        digest.update(f"{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _identity_of_inputs(opened: Plan) -> str:
    """The identity of a batch: the content of its files, whatever they are called."""
    inputs = opened.inputs
    files = [inputs.image_file(i) for i in range(len(inputs))]
    if files and all(file is not None for file in files):
        hashes = sorted(_hash_of_file(file) for file in files if file is not None)
        return _identity("images", *hashes)
    return _identity("rows", _hash_of_file(Path(opened.job.data)))


def _fingerprint(name: str) -> str | None:
    return _hash_of_file(Path(name)) if Path(name).is_file() else None


def _hash_of_file(path: Path) -> str:
    """The SHA-256 of a file; of one that cannot be read, of its name."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    except OSError:  # the batch counts it as unreadable
        digest.update(os.fsencode(path))
    return digest.hexdigest()


def _arrays(run: Run) -> list[NDArray[Any]]:
    return [np.asarray(run.logits), *(np.asarray(each) for each in run.second_logits)]
