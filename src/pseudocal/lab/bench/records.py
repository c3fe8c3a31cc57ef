"""The scores of a suite as plain rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from pseudocal.lab.bench.calibrators import find_compared, is_built_in, with_repeats
from pseudocal.lab.bench.store import Store, read_times
from pseudocal.lab.bench.task import Suite, Task

Value = TypeVar("Value")


@dataclass(frozen=True)
class Record:
    """The scores of one calibrator on one task."""

    task: Task
    calibrator: str
    ece: float
    nll: float
    brier: float
    accuracy: float
    temperature: float | None = None
    miou: float | None = None  # segmentation only
    correspondence: float | None = None  # of calibrators that fit to mixup's mixup samples
    chance: float | None = None  # the correspondence of independent mistakes
    resolution: float | None = None  # the ECE of a perfectly calibrated model with these bins
    seconds: float | None = None  # of CPU, to make its mixup samples and to fit
    repeat: int = 0  # the number of the repetition


def read_records(suite: Suite, store: Store) -> list[Record]:
    """Read all scores, in the order of the suite."""
    records = []
    for task in suite.tasks:
        scores = store.scores(task)
        times = read_times(store.folder(task)).get("calibrators", {})
        for name in suite.calibrators:
            for run in (run for run in with_repeats([name], suite.repeats) if run in scores):
                seconds = sum(times[run].values()) if run in times else None
                repeat = find_compared(run).repeat
                records.append(
                    Record(task, name, **scores[run], seconds=seconds, repeat=repeat)  # type: ignore[arg-type]
                )
    return records


def changed_classes(records: Iterable[Record]) -> list[str]:
    """Name the calibrators of plugins that change the accuracy, and so the predicted classes.

    Args:
        records: the scores of calibrators, among them those without calibration.

    """
    found: dict[str, dict[tuple[Task, int], float]] = {}
    for each in records:
        found.setdefault(each.calibrator, {})[each.task, each.repeat] = each.accuracy
    before = {task: accuracy for (task, _), accuracy in found.get("none", {}).items()}
    return [
        name
        for name, runs in found.items()
        if not is_built_in(name)
        and any(accuracy != before.get(task, accuracy) for (task, _), accuracy in runs.items())
    ]


def variants(tasks: Iterable[Task]) -> dict[Task, str]:
    """Name the method of each task (of seed 0), with the settings that differ within a method.

    >>> options = (("weight", 0.1),)
    >>> bnm = Task("emoji", "noto", "fluent", method="bnm")
    >>> other = Task("emoji", "noto", "fluent", method="bnm", options=options)
    >>> list(variants([bnm, other, Task("emoji", "noto", "fluent", method="mcc")]).values())
    ['bnm', 'bnm, weight 0.1', 'mcc']

    Args:
        tasks: tasks of any seeds.

    """
    cells = list(dict.fromkeys(task.of_seed(0) for task in tasks))
    names = {}
    for task in cells:
        alike = [_settings(other) for other in cells if other.method == task.method]
        own = _settings(task)
        differ = [key for key in own if any(other.get(key) != own[key] for other in alike)]
        said = [f"{key} {own[key]}" if key not in SELF_EVIDENT else str(own[key]) for key in differ]
        names[task] = ", ".join([task.method, *said])
    return names


SELF_EVIDENT = ("data", "scenario", "backbone", "preset")  # settings whose values say what they are


def _settings(task: Task) -> dict[str, object]:
    """The settings that a table keeps apart, options among them.

    All but the domains, the method and the seed.
    """
    own = {
        field.name: getattr(task, field.name) for field in fields(task) if field.name not in PLACED
    }
    return {key: value for key, value in (own | dict(task.options)).items() if value is not None}


PLACED = ("source", "target", "method", "seed", "options", "runner")


def missing_scores(suite: Suite, store: Store) -> list[str]:
    """List what the tables lack, and why: unfinished tasks and failed calibrators."""
    lines = []
    for task in suite.tasks:
        if not _is_done(task, store):
            error = store.error(task)
            lines.append(f"{_described(task)}: {error['error'] if error else 'not run yet'}")
    return lines + [failure.line for failure in failed_calibrators(suite, store)]


@dataclass(frozen=True)
class FailedCalibrator:
    """A calibrator that failed on some tasks for one reason.

    Attributes:
        title: its name in tables.
        why: the error in one line; "" if nothing was noted.
        tasks: the tasks.
        note: the file with the traceback, for the first of them.

    """

    title: str
    why: str
    tasks: list[Task]
    note: Path

    @property
    def line(self) -> str:
        """The failure in one line; a calibrator that refused its data needs no traceback."""
        more = f" and {len(self.tasks) - 1} more" if len(self.tasks) > 1 else ""
        said = f"{_described(self.tasks[0])}{more}: no {self.title}"
        if not self.why:
            return said
        if self.why.startswith("InputError: "):
            return f"{said}: {self.why}"
        return f"{said}: {self.why} (traceback in {self.note})"


def failed_calibrators(suite: Suite, store: Store) -> list[FailedCalibrator]:
    """List the calibrators without scores on tasks that are done, by reason."""
    found: dict[tuple[str, str], FailedCalibrator] = {}
    for task in suite.tasks:
        if not _is_done(task, store):
            continue
        scores = store.scores(task)
        for name in with_repeats(suite.calibrators, suite.repeats):
            if name not in scores:
                title = _titled(name)
                why = store.refusal(task, name) or ""
                note = store.folder(task) / "calibrations" / f"{name}.error.json"
                failure = FailedCalibrator(title, why, [], note)
                found.setdefault((title, why), failure).tasks.append(task)
    return list(found.values())


def _is_done(task: Task, store: Store) -> bool:
    return store.error(task) is None and bool(store.scores(task))


def _described(task: Task) -> str:
    return f"{task.pair} {task.method} seed {task.seed}"


def _titled(calibrator: str) -> str:
    compared = find_compared(calibrator)
    return f"{compared.title} (repeat {compared.repeat})" if compared.repeat else compared.title


def unique(values: Iterable[Value]) -> list[Value]:
    """Return the distinct values in the order of first appearance.

    >>> unique("abca")
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys(values))
