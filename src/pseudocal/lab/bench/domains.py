"""The two domains of a task, read once for each process."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pseudocal.lab.bench.task import Task
from pseudocal.lab.data import Domain, load, partial_set


def domains_of(task: Task, root: Path | None) -> tuple[Domain, Domain]:
    """Source and target with their labels; the target of a partial set has some of the classes only."""
    source, target = (_domain(task.data, name, root) for name in (task.source, task.target))
    return source, partial_set(task.data, target) if task.scenario == "partial-set" else target


@lru_cache(maxsize=16)
def _domain(data: str, name: str, root: Path | None) -> Domain:
    return load(data, name, **({"root": root} if root else {}))[name]
