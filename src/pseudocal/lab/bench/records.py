"""The scores of a suite as plain rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pseudocal.lab.bench.calibrators import COMPARED
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.task import Suite, Task


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


def read_records(suite: Suite, store: Store) -> list[Record]:
    """Read all scores, in the order of the suite."""
    records = []
    for task in suite.tasks:
        scores = store.scores(task)
        records += [Record(task, name, **scores[name]) for name in suite.calibrators if name in scores]  # type: ignore[arg-type]
    return records


def missing_scores(suite: Suite, store: Store) -> list[str]:
    """List what the tables lack: unfinished tasks and failed calibrators."""
    lines = []
    for task in suite.tasks:
        name = f"{task.pair} {task.method} seed {task.seed}"
        scores, error = store.scores(task), store.error(task)
        if error is not None or not scores:
            lines.append(f"{name}: {error['error'] if error else 'not run yet'}")
        else:
            lacking = [COMPARED[c].title for c in suite.calibrators if c not in scores]
            lines += [f"{name}: no {', '.join(lacking)}"] if lacking else []
    return lines


def unique(values: Iterable[str]) -> list[str]:
    """Return the distinct values in the order of first appearance.

    >>> unique("abca")
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys(values))
