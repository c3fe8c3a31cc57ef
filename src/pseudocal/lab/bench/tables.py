"""Tables as the paper prints them: per task, by target, overall; with the spread over seeds, and paired tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pseudocal.lab.bench.calibrators import COMPARED
from pseudocal.lab.bench.published import published
from pseudocal.lab.bench.records import Record, unique
from pseudocal.lab.bench.task import Suite

TableMetric = Literal["ece", "nll", "brier", "miou"]
By = Literal["overall", "target", "task"]
Key = tuple[str, str]  # method, pair of domains
SKILLS = {"Accuracy": "accuracy", "mIoU": "miou"}  # of the uncalibrated models, below the table of ECE
SIGN = {"ece": 1, "nll": 1, "brier": 1, "miou": -1}  # a larger mIoU is better


@dataclass(frozen=True)
class TableCell:
    """The mean and standard deviation over seeds of a mean over tasks, and the paper's value."""

    mean: float
    sd: float = math.nan
    paper: float = math.nan
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns."""

    title: str
    metric: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[TableCell, ...]], ...]  # each with its name


def tables(suite: Suite, records: Sequence[Record], metric: TableMetric = "ece", by: By = "overall") -> list[Table]:
    """Make one table overall, or one for each method."""
    methods = unique(record.task.method for record in records)
    if by == "overall":
        groups = {method: _keys(records, [method]) for method in methods}
        return [_table(f"{metric}, mean over tasks", suite, records, metric, groups)]
    each = []
    for method in methods:
        keys = _keys(records, [method])
        names = {key: (f"->{key[1].partition('->')[2]}" if by == "target" else key[1]) for key in keys}
        groups = {name: [key for key in keys if names[key] == name] for name in unique(names.values())}
        each.append(_table(f"{method}: {metric}", suite, records, metric, groups))
    return each


def _keys(records: Sequence[Record], methods: Sequence[str]) -> list[Key]:
    return list(dict.fromkeys((r.task.method, r.task.pair) for r in records if r.task.method in methods))


def _table(
    title: str, suite: Suite, records: Sequence[Record], metric: TableMetric, groups: dict[str, list[Key]]
) -> Table:
    columns = {**groups, "average": [key for keys in groups.values() for key in keys]}
    names = [name for name in suite.calibrators if any(record.calibrator == name for record in records)]
    paper = published(suite, metric)
    cells = {name: [_cell(records, name, metric, keys, paper) for keys in columns.values()] for name in names}
    rows = [(COMPARED[name].title, _marked(name, cells, names, SIGN[metric])) for name in names]
    if metric == "ece" and "none" in names:
        for name, skill in SKILLS.items():
            if all(getattr(record, skill) is not None for record in records):
                paper = published(suite, skill)
                rows.append((name, tuple(_cell(records, "none", skill, keys, paper) for keys in columns.values())))
    return Table(title, metric, tuple(columns), tuple(rows))


def _cell(
    records: Sequence[Record], name: str, metric: str, keys: list[Key], paper: dict[tuple[str, str, str], float]
) -> TableCell:
    """Compute the mean over some tasks; a seed counts only if all of them have scores."""
    wanted = set(keys)
    by_seed: dict[int, list[float]] = {}
    for record in records:
        if record.calibrator == name and (record.task.method, record.task.pair) in wanted:
            by_seed.setdefault(record.task.seed, []).append(getattr(record, metric))
    means = [float(np.mean(values)) for values in by_seed.values() if len(values) == len(wanted)]
    printed = [paper[name, *key] for key in keys if (name, *key) in paper]
    return TableCell(
        mean=float(np.mean(means)) if means else math.nan,
        sd=float(np.std(means, ddof=1)) if len(means) > 1 else math.nan,
        paper=float(np.mean(printed)) if len(printed) == len(keys) else math.nan,
    )


def _marked(name: str, cells: dict[str, list[TableCell]], names: Sequence[str], sign: int) -> tuple[TableCell, ...]:
    """Mark the best cells of a row; the oracle does not compete."""
    row = []
    for i, cell in enumerate(cells[name]):
        rivals = [sign * cells[other][i].mean for other in names if other != "oracle"]
        best = (
            name != "oracle" and np.isfinite(rivals).all() and sign * cell.mean == min(rivals)
        )  # no winner if a rival has no value
        row.append(TableCell(cell.mean, cell.sd, cell.paper, bool(best)))
    return tuple(row)


@dataclass(frozen=True)
class Comparison:
    """PseudoCal compared with a rival over tasks."""

    rival: str
    where: str  # the method, or "all"
    tasks: int
    wins: int  # the tasks on which PseudoCal is better
    difference: float  # the mean of PseudoCal minus the rival
    p: float  # the p-value of the paired test


def compare_over_tasks(
    records: Sequence[Record], metric: TableMetric = "ece", champion: str = "pseudocal"
) -> list[Comparison]:
    """Compare the champion with each rival over tasks by Wilcoxon's signed-rank test, per method and for all methods.

    The value of a task is the mean over its seeds. Tasks that share a domain are not independent, so the p-value of
    "all" tends to be too small.
    """
    methods = unique(record.task.method for record in records)
    scopes = {**{method: [method] for method in methods}, **({"all": methods} if len(methods) > 1 else {})}
    rivals = [name for name in unique(r.calibrator for r in records) if name not in (champion, "oracle")]
    found = []
    for rival in rivals:
        for where, chosen in scopes.items():
            ours, theirs = (_by_task(records, name, metric, chosen) for name in (champion, rival))
            differences = np.array([ours[key] - theirs[key] for key in ours if key in theirs])
            if len(differences):
                wins = int((SIGN[metric] * differences < 0).sum())
                mean = float(differences.mean())
                found.append(Comparison(rival, where, len(differences), wins, mean, signed_rank(differences)))
    return found


def signed_rank(differences: np.ndarray) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test; 1 if all differences are zero.

    All five differences have the same sign, which happens by chance in 2 of 32 cases:

    >>> signed_rank(np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
    0.0625
    """
    from scipy.stats import wilcoxon

    return float(wilcoxon(differences).pvalue) if np.any(differences) else 1.0


def _by_task(records: Sequence[Record], name: str, metric: str, methods: Sequence[str]) -> dict[Key, float]:
    values: dict[Key, list[float]] = {}
    for r in records:
        if r.calibrator == name and r.task.method in methods:
            values.setdefault((r.task.method, r.task.pair), []).append(getattr(r, metric))
    return {key: float(np.mean(each)) for key, each in values.items()}
