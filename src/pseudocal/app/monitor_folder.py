"""The folder of a monitor: a state, a history, and what is drawn from them.

| file | content |
|---|---|
| `state.json` | everything that the next call needs; its size does not depend on the history |
| `history.jsonl` | the record: one event per line, only ever appended to and never read |
| `drawn.jsonl` | the events that the page shows: all late ones, fewer of the early ones |
| `index.html`, `metrics.prom` | the page, and numbers for Prometheus |
| `batches/` | the runs of the latest batches, for labels and ground truth |
| `seen/` | an empty file for each event, named by its identity |
| `collecting/` | the run of a batch that is being collected |
| `labelling/` | the run that `label` asks about |

**An event is counted once, and completely.** `state.json` has the last event and is replaced by one
rename; that decides. What follows from it (the line of the history, the run in `batches/`, the
page, and last the file in `seen/`) is done again by the next call if a call is killed in between.
One call at a time works on a monitor; another one waits.

**A call costs the same after any number of batches.** It reads the state and `drawn.jsonl`, which do
not grow beyond a limit.

A monitor may come from somebody else. It is data, as a run folder is (`run.py`).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from pseudocal.app.periods import parse_time
from pseudocal.app.publishing import remove
from pseudocal.app.records import convert, decode_json, encode_json, to_plain
from pseudocal.app.run import RECORD
from pseudocal.arrays import InputError
from pseudocal.calibrators.trust import AccuracyEstimate
from pseudocal.files import ASIDE, OutputError, brief, locked, own_file, replacing, writing
from pseudocal.metrics import Interval
from pseudocal.monitor import Monitor

STATE = "state.json"
HISTORY = "history.jsonl"
DRAWN = "drawn.jsonl"
MONITOR_PAGE = "index.html"
METRICS = "metrics.prom"
BATCHES = "batches"
SEEN = "seen"
COLLECTING = "collecting"
LABELLING = "labelling"
FILES = (STATE, HISTORY, DRAWN, MONITOR_PAGE, METRICS)
FOLDERS = (BATCHES, SEEN, COLLECTING, LABELLING)

KEPT = 30  # batches whose runs are kept
LATE = 60  # batches that the page shows all of; at least as many as are kept
EARLY = 100  # batches before them, at most
OTHERS = 50  # baselines and sets of labels on the page, at most
IDENTITY = re.compile(r"[0-9a-f]{64}")


# ------------------------------------------------------------------------------ events


@dataclass(frozen=True)
class Range:
    """An estimate with its interval; an end that is not known is None."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, known: Interval | AccuracyEstimate) -> Range:
        """An estimate whose ends are known."""
        return cls(known.value, known.low, known.high)

    def below(self, confidence: float) -> Range:
        """A confidence minus this accuracy.

        >>> Range(0.5, 0.25, None).below(0.75)
        Range(value=0.25, low=None, high=0.5)
        """
        return Range(
            confidence - self.value,
            None if self.high is None else confidence - self.high,
            None if self.low is None else confidence - self.low,
        )


def _check_fractions(*values: float | Range | None) -> None:
    """Refuse accuracies and the like that are not from 0 to 1."""
    for value in values:
        if value is None:
            continue
        known = value if isinstance(value, Range) else Range(value)
        for number in (known.value, known.low, known.high):
            if number is not None and not 0 <= number <= 1:
                raise InputError(f"{number} is not from 0 to 1")


def _check_temperatures(*values: float | Range | None) -> None:
    """Refuse temperatures that are not above 0."""
    for value in values:
        number = value.value if isinstance(value, Range) else value
        if number is not None and not 0 < number < math.inf:
            raise InputError(f"the temperature {number} is not above 0")


@dataclass(frozen=True)
class BaselineEvent:
    """A monitor begins, or begins anew."""

    id: str  # the identity of the event
    time: str  # when, in ISO 8601
    model: str  # the name of the model
    data: str  # the data of the baseline
    inputs: int  # the number of its inputs
    temperature: float  # the temperature in use
    accuracy: Range | None  # the accuracy there, measured or estimated; None if unknown
    measured: bool  # whether the accuracy was measured
    confidence: float  # the mean calibrated confidence there
    agreement: float | None  # how often a second model agrees there; None without one
    kind: Literal["baseline"] = "baseline"

    def __post_init__(self) -> None:
        _check_fractions(self.accuracy, self.confidence, self.agreement)
        _check_temperatures(self.temperature)


@dataclass(frozen=True)
class BatchEvent:
    """A batch was counted."""

    id: str  # the identity of the batch
    time: str  # the time of the batch, in ISO 8601
    data: str  # the data as the user named it
    inputs: int  # the number of inputs that were predicted
    skipped: int  # the number of inputs that could not be read
    accuracy: Range | None  # the estimated accuracy; None if nothing could be estimated
    confidence: float  # the mean confidence with the temperature in use
    agreement: float | None  # how often a second model agrees; None without one
    in_use: float  # the temperature in use
    # the temperature that the batch asks for; None if nothing could be fitted
    temperature: Range | None
    verdict: str | None  # the verdict on that temperature; None if there is none
    gap: Range | None  # mean confidence minus estimated accuracy, with the temperature in use
    predicted: dict[str, int]  # the number of predictions of the most frequent classes
    watched: int  # the number of inputs since the baseline, with this batch
    e_value: float  # the evidence that something got worse
    alarm: bool  # whether the alarm is raised
    raised: bool  # whether this batch raised it
    kind: Literal["batch"] = "batch"

    def __post_init__(self) -> None:
        _check_fractions(self.accuracy, self.confidence, self.agreement)
        _check_temperatures(self.temperature, self.in_use)


@dataclass(frozen=True)
class TruthEvent:
    """The true classes of a batch became known; they change no estimate."""

    id: str  # the identity of the event
    time: str  # when, in ISO 8601
    batch: str  # the identity of the batch
    inputs: int  # the number of inputs
    accuracy: float  # the accuracy
    gap: float  # mean confidence minus accuracy, with the temperature that was in use
    kind: Literal["ground truth"] = "ground truth"

    def __post_init__(self) -> None:
        _check_fractions(self.accuracy)


@dataclass(frozen=True)
class LabelsEvent:
    """A person labelled inputs, and the model was recalibrated."""

    id: str  # the identity of the event
    time: str  # when, in ISO 8601
    first: str  # the time of the first batch of the labelled inputs
    last: str  # the time of the last one
    inputs: int  # the number of inputs that were drawn from
    labels: int  # the number of labels
    accuracy: Range  # the measured accuracy, with an interval that is valid after every label
    gap: Range  # mean confidence minus measured accuracy with the temperature in use, likewise
    before: float  # the temperature in use until now
    temperature: float  # the temperature in use from now on
    verdict: str | None  # the verdict of the labels
    retrain: bool  # whether the accuracy has fallen below that of the baseline
    rearmed: bool  # whether the labelled inputs are the new baseline
    # what to do with the model, without a full stop; empty if nothing, and in older records
    advice: str = ""
    kind: Literal["labels"] = "labels"

    def __post_init__(self) -> None:
        _check_fractions(self.accuracy)
        _check_temperatures(self.before, self.temperature)


Event = BaselineEvent | BatchEvent | TruthEvent | LabelsEvent
KINDS: dict[str, Any] = {
    kind.kind: kind for kind in (BaselineEvent, BatchEvent, TruthEvent, LabelsEvent)
}


def event_of(content: Any, where: Path) -> Event:
    """Check an event of a file."""
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind not in KINDS:
        raise InputError(f"{where} has an event of an unknown kind: {brief(kind)}")
    event: Event = convert(content, KINDS[kind], f"{where}, an event of kind {kind}")
    if not IDENTITY.fullmatch(event.id):
        raise InputError(f"{where} has an event with the identity {brief(event.id)}")
    return event


def _event_of_line(line: bytes, path: Path) -> Event:
    try:
        return event_of(msgspec.json.decode(line), path)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} has a damaged line: {error}") from error


def thinned(events: Sequence[Event]) -> list[Event]:
    """At most as many events as a page shows.

    All of the latest batches stay, and those that raised an alarm. Of earlier ones the one whose
    neighbours are closest in time goes first, so those that stay are spread over time. Ground truth
    stays as long as its batch.
    """
    batches = [event for event in events if isinstance(event, BatchEvent)]
    gone = set()
    while len(batches) > EARLY + LATE:
        times = [parse_time(batch.time).timestamp() for batch in batches]
        candidates = [i for i in range(1, len(batches) - LATE) if not batches[i].raised] or [0]
        closest = min(candidates, key=lambda i: abs(times[i + 1] - times[i - 1]))
        gone.add(batches.pop(closest).id)
    others = [event for event in events if isinstance(event, BaselineEvent | LabelsEvent)]
    gone |= {event.id for event in others[:-OTHERS]}
    return [
        event
        for event in events
        if event.id not in gone and not (isinstance(event, TruthEvent) and event.batch in gone)
    ]


# ------------------------------------------------------------------------------ the state


@dataclass(frozen=True)
class KeptBatch:
    """A batch whose run is kept."""

    id: str  # its identity
    time: str  # its time
    before: int  # the number of inputs between the baseline and the batch
    inputs: int  # the number of its inputs
    period: int  # the number of earlier baselines


@dataclass(frozen=True)
class ChangedClass:
    """How a predicted class changed: its name, fractions, and what it adds to each signal."""

    name: str
    before: float
    now: float
    increase: dict[str, float]


@dataclass(frozen=True)
class TypicalInput:
    """An input that is typical of a change."""

    name: str  # the input
    predicted: str  # its predicted class
    image: str | None = None  # the image, as a data URL; None if it is no image
    text: str = ""  # what a table or a text file says of it


@dataclass(frozen=True)
class Change:
    """What changed, since an alarm was raised."""

    signal: str  # the signal that raised it
    # the time of the batch in which the change began; None if it is not known any more
    since: str | None
    raised: str  # the time of the batch that raised the alarm
    classes: tuple[ChangedClass, ...] = ()  # the predicted classes that changed most
    typical: tuple[TypicalInput, ...] = ()  # inputs that are typical of the change


@dataclass(frozen=True)
class State:
    """What the next call needs."""

    last: dict[str, Any]  # the last event, as in the history
    history_bytes: int  # the length of the history without it
    baseline: BaselineEvent  # what the baseline was
    # the settings of the baseline's run, as in `job.toml`; None for saved outputs
    job: dict[str, Any] | None
    saved: dict[str, Any]  # for saved outputs, how to read them
    signature: str | None  # of the names of the models, by the user who wrote them
    fingerprints: dict[str, str]  # the SHA-256 of each model file
    classes: tuple[str, ...]  # the names of the classes, as far as they have names
    temperature: float  # the temperature in use
    monitor: dict[str, Any]  # the alarm, as `Monitor.as_json` returns it
    # the batches whose runs are kept, in the order in which they came
    kept: tuple[KeptBatch, ...] = ()
    batches: int = 0  # the number of batches since the baseline
    change: Change | None = None  # what changed; None without an alarm
    period: int = 0  # the number of earlier baselines
    # the identity of the first batch that `label` asked about; None if it did not
    labelling: str | None = None
    labelling_times: tuple[str, ...] = ()  # the times of the batches that it asked about
    # the last measurement of a person's labels since the baseline
    labelled: LabelsEvent | None = None
    format: Literal["pseudocal-monitor"] = "pseudocal-monitor"
    format_version: Literal[1] = 1

    def __post_init__(self) -> None:
        _check_temperatures(self.temperature)
        if self.history_bytes < 0:
            raise InputError(f"the length of the history is {self.history_bytes}")
        for batch in self.kept:
            if not IDENTITY.fullmatch(batch.id):
                raise InputError(f"a batch has the identity {brief(batch.id)}")


def needs_retraining(state: State) -> bool:
    """Whether the last labels since the baseline say that the model needs retraining."""
    return state.labelled is not None and state.labelled.retrain


def batches_since(state: State, inputs: int) -> list[KeptBatch]:
    """The kept batches with inputs after the first `inputs` since the baseline."""
    return [
        batch
        for batch in state.kept
        if batch.period == state.period and batch.before + batch.inputs > inputs
    ]


# ------------------------------------------------------------------------------ the folder

Views = Callable[[State, list[Event]], Mapping[str, str]]


def is_monitor(folder: Path) -> bool:
    """Whether a folder is a monitor, so that it has a baseline."""
    return os.path.lexists(folder / STATE)


class MonitorFolder:
    """A monitor, held by this process; see `holding`.

    Args:
        path: the folder.
        views: draws the page and the numbers from the state and the latest events.

    """

    def __init__(self, path: Path, views: Views) -> None:
        self.path = path
        self.collecting = path / COLLECTING  # where the run of a batch is collected
        self.labelling = path / LABELLING  # the run that `label` asks about
        self._views = views

    def run_of(self, identity: str) -> Path:
        """Where the run of a batch is, if it is kept."""
        return self.path / BATCHES / identity

    def state(self) -> State:
        """Read the state."""
        state = decode_json(own_file(self.path, STATE), State, "the state of a monitor")
        Monitor.from_json(state.monitor)  # refuses what is damaged
        return state

    def has_seen(self, identity: str) -> bool:
        """Whether an event of this identity was counted."""
        return (self.path / SEEN / identity).exists()

    def events(self) -> list[Event]:
        """The events that the page shows, in the order in which they came."""
        path = own_file(self.path, DRAWN)
        if not path.is_file():
            return []
        return [_event_of_line(line, path) for line in path.read_bytes().splitlines()]

    def commit(self, state: State, event: Event) -> None:
        """Count an event: replace the state, and bring everything else up to date."""
        self.save(replace(state, last=to_plain(event), history_bytes=self._history_bytes()))
        self.finish()

    def save(self, state: State) -> None:
        """Replace the state without a new event."""
        encode_json(own_file(self.path, STATE), state)

    def finish(self) -> None:
        """Do what follows from the state, unless it is done; what is done twice changes nothing."""
        state = self.state()
        event = event_of(state.last, self.path / STATE)
        if self.has_seen(event.id):
            return
        self._append(state)
        self._keep_batches(state, event)
        events = self._add_drawn(event)
        self._draw(state, events)
        (self.path / SEEN).mkdir(exist_ok=True)
        (self.path / SEEN / event.id).touch()

    def _history_bytes(self) -> int:
        path = own_file(self.path, HISTORY)
        return path.stat().st_size if path.exists() else 0

    def _append(self, state: State) -> None:
        """Write the last event behind the others; the half of a line is overwritten."""
        path = own_file(self.path, HISTORY)
        if self._history_bytes() < state.history_bytes:
            raise InputError(f"{path} is shorter than {STATE} says: restore it")
        with path.open("ab") as file:
            file.truncate(state.history_bytes)
            file.write(msgspec.json.encode(state.last) + b"\n")

    def _add_drawn(self, event: Event) -> list[Event]:
        """Write one more event to those that the page shows; all of them are returned."""
        events = self.events()
        if event.id not in {one.id for one in events}:
            events = thinned([*events, event])
            lines = [msgspec.json.encode(to_plain(one)) + b"\n" for one in events]
            with replacing(own_file(self.path, DRAWN)) as aside:
                aside.write_bytes(b"".join(lines))
        return events

    def _keep_batches(self, state: State, event: Event) -> None:
        """Move a collected run to the others, and remove those that are not kept any more."""
        batches = self.path / BATCHES
        batches.mkdir(exist_ok=True)
        if isinstance(event, BatchEvent) and self.collecting.exists():
            self.collecting.rename(self.run_of(event.id))
        kept = {batch.id for batch in state.kept}
        for name in os.listdir(batches):
            if IDENTITY.fullmatch(name) and name not in kept:
                remove(batches / name)

    def _draw(self, state: State, events: list[Event]) -> None:
        """Write the page and the numbers."""
        for name, text in self._views(state, events).items():
            with replacing(self.path / name) as aside:
                aside.write_text(text, encoding="utf-8", errors="replace")

    def clear_collecting(self) -> Path:
        """An empty folder for the run of a batch."""
        remove(self.collecting)
        self.collecting.mkdir()
        return self.collecting


@contextmanager
def holding(path: Path, views: Views, *, make: bool = False) -> Iterator[MonitorFolder]:
    """Hold a monitor for this process alone, and finish what a killed call has left.

    Args:
        path: the folder.
        views: draws the page and the numbers.
        make: whether to make the folder if it is not there.

    """
    if not is_monitor(path):
        if not make:
            raise InputError(
                f"{path} is not a monitor yet: start it with a calibrated run",
                setting="baseline",
                value="OUT",
            )
        if path.exists() and not path.is_dir():
            raise OutputError(f"the monitor {path} is a file: choose another name")
        if os.path.lexists(path / RECORD):
            raise OutputError(f"{path} is a run folder: choose another folder for the monitor")
        # a killed start may have left hidden files
        names = sorted(os.listdir(path)) if path.exists() else []
        found = [name for name in names if not name.startswith(".")]
        if found:
            raise OutputError(
                f"{path} is no monitor, but has files ({', '.join(found[:3])}): choose another "
                "folder for the monitor"
            )
    with writing(path, path):
        if make:
            path.mkdir(parents=True, exist_ok=True)
        with locked(path, wait=True):
            for name in FOLDERS:
                _check_folder(path / name)
            for left in path.glob(f".*{ASIDE}*"):  # by a killed call
                left.unlink()
            monitor = MonitorFolder(path, views)
            if is_monitor(path):
                monitor.finish()
            yield monitor


def _check_folder(folder: Path) -> None:
    """Refuse links and files in the places of our folders: what they lead to is not ours."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise OutputError(f"{folder} is not a folder of a monitor: move it away")
