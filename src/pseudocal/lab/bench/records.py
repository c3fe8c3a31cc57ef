"""What a suite's runs found, as plain rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pseudocal.lab.bench.calibrators import COMPARED
from pseudocal.lab.bench.store import Store
from pseudocal.lab.bench.task import Suite, Task


@dataclass(frozen=True)
class Record:
    """The score of one calibrator on one task."""

    task: Task
    calibrator: str
    ece: float
    nll: float
    brier: float
    accuracy: float
    temperature: float | None = None
    miou: float | None = None  # of segmentation


def read_records(suite: Suite, store: Store) -> list[Record]:
    """All that is scored, in the order of the suite."""
    records = []
    for task in suite.tasks:
        scores = store.scores(task)
        records += [Record(task, name, **scores[name]) for name in suite.calibrators if name in scores]  # type: ignore[arg-type]
    return records


def missing_scores(suite: Suite, store: Store) -> list[str]:
    """What the tables lack: tasks that were not finished, calibrators that failed."""
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
    """Each once, in the order of their first appearance.

    >>> unique("abca")
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys(values))
