"""The scores of a suite as plain rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TypeVar

from pseudocal.lab.bench.calibrators import find_compared, with_repeats
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
        name = f"{task.pair} {task.method} seed {task.seed}"
        scores = store.scores(task)
        error = store.error(task)
        if error is not None or not scores:
            lines.append(f"{name}: {error['error'] if error else 'not run yet'}")
        else:
            lines += [
                f"{name}: no {_titled(each)}{_reason(task, each, store)}"
                for each in with_repeats(suite.calibrators, suite.repeats)
                if each not in scores
            ]
    return lines


def _titled(calibrator: str) -> str:
    compared = find_compared(calibrator)
    return f"{compared.title} (repeat {compared.repeat})" if compared.repeat else compared.title


def _reason(task: Task, calibrator: str, store: Store) -> str:
    """Why a calibrator failed and, unless it refused its data, where the traceback is."""
    why = store.refusal(task, calibrator)
    if why is None:
        return ""
    if why.startswith("InputError: "):
        return f": {why}"
    path = store.folder(task) / "calibrations" / f"{calibrator}.error.json"
    return f": {why} (traceback in {path})"


def unique(values: Iterable[Value]) -> list[Value]:
    """Return the distinct values in the order of first appearance.

    >>> unique("abca")
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys(values))
