"""Tables as the paper prints them: per task, by target, overall.

With the spread over seeds and repetitions, and paired tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pseudocal.lab.bench.calibrators import find_compared, sees_labels
from pseudocal.lab.bench.published import published
from pseudocal.lab.bench.records import Record, unique, variants
from pseudocal.lab.bench.task import Suite, Task

TableMetric = Literal["ece", "nll", "brier", "miou", "correspondence"]
By = Literal["overall", "target", "task"]
# Tasks of seed 0; a cell is the mean over groups of the mean over their tasks.
TaskGroups = list[list[Task]]
# Metrics of the uncalibrated models, below the table of ECE.
SKILLS = {"Accuracy": "accuracy", "mIoU": "miou"}
# The ECE that chance alone leaves to a calibrated model, with the oracle's confidences.
RESOLUTION = "Perfectly calibrated, by chance"
SIGN = {"ece": 1, "nll": 1, "brier": 1, "miou": -1, "correspondence": -1}  # the larger, the better


@dataclass(frozen=True)
class TableCell:
    """The mean and standard deviation over runs of a mean over targets, and the paper's value.

    A run is one repetition of the calibration of the models of one seed.
    """

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
    # of CPU a task, by row; empty for no such column
    seconds: Mapping[str, float] = field(default_factory=dict)


def tables(
    suite: Suite, records: Sequence[Record], metric: TableMetric = "ece", by: By = "overall"
) -> list[Table]:
    """Make one table overall, or one for each method.

    As in the paper, averages are over targets, each the mean of its tasks; with a column for each
    task they are over tasks. Tasks of one method that differ in scenario, backbone, preset or
    another setting are kept apart.
    """
    names = variants([record.task for record in records])
    methods = {
        name: [task for task in names if names[task] == name] for name in unique(names.values())
    }
    if by == "overall":
        columns = {name: by_target(tasks) for name, tasks in methods.items()}
        whole = _table(f"{metric}, mean over targets", suite, records, metric, columns)
        return [replace(whole, seconds=mean_seconds(records) if metric == "ece" else {})]
    each = []
    for name, tasks in methods.items():
        groups = [[task] for task in tasks] if by == "task" else by_target(tasks)
        columns = {
            (group[0].pair if by == "task" else f"->{group[0].target}"): [group] for group in groups
        }
        each.append(_table(f"{name}: {metric}", suite, records, metric, columns))
    return each


def mean_seconds(records: Sequence[Record]) -> dict[str, float]:
    """Return the mean CPU seconds of each calibrator over tasks, by its title.

    Those that were not timed are left out.

    The features that models above a frozen backbone share are not in it.
    """
    found: dict[str, list[float]] = {}
    for record in records:
        if record.seconds is not None:
            found.setdefault(find_compared(record.calibrator).title, []).append(record.seconds)
    return {title: float(np.mean(each)) for title, each in found.items()}


def by_target(tasks: Sequence[Task]) -> TaskGroups:
    """Group tasks by target.

    >>> pairs = [("real", "clipart"), ("painting", "clipart"), ("painting", "real")]
    >>> groups = by_target([Task("domainnet-126", *pair) for pair in pairs])
    >>> [[task.source for task in group] for group in groups]
    [['real', 'painting'], ['painting']]
    """
    targets = unique(task.target for task in tasks)
    return [[task for task in tasks if task.target == target] for target in targets]


def _table(
    title: str,
    suite: Suite,
    records: Sequence[Record],
    metric: TableMetric,
    columns: dict[str, TaskGroups],
) -> Table:
    columns = {**columns, "average": [group for groups in columns.values() for group in groups]}
    scored = {record.calibrator for record in records}
    records = [record for record in records if getattr(record, metric) is not None]
    with_values = {record.calibrator for record in records}
    # A calibrator that failed on all tasks has a row without values.
    names = [name for name in suite.calibrators if name in with_values or name not in scored]
    paper = published(suite.tasks, metric)
    cells = {
        name: [_cell(records, name, metric, groups, paper) for groups in columns.values()]
        for name in names
    }
    ranked = [name for name in names if name in with_values]
    rows = [
        (find_compared(name).title, _marked(name, cells, ranked, SIGN[metric])) for name in names
    ]
    if metric == "correspondence":
        with_chance = {record.calibrator for record in records if record.chance is not None}
        for name in [name for name in names if name in with_chance]:
            row = [_cell(records, name, "chance", groups, {}) for groups in columns.values()]
            rows.append((f"{find_compared(name).title}, chance level", tuple(row)))
    if metric == "ece" and "none" in names:
        for name, skill in SKILLS.items():
            if all(getattr(record, skill) is not None for record in records):
                paper = published(suite.tasks, skill)
                row = [_cell(records, "none", skill, groups, paper) for groups in columns.values()]
                rows.append((name, tuple(row)))
    if metric == "ece" and any(
        record.calibrator == "oracle" and record.resolution is not None for record in records
    ):
        row = [_cell(records, "oracle", "resolution", groups, {}) for groups in columns.values()]
        rows.append((RESOLUTION, tuple(row)))
    return Table(title, metric, tuple(columns), tuple(rows))


def _cell(
    records: Sequence[Record],
    name: str,
    metric: str,
    groups: TaskGroups,
    paper: dict[tuple[str, Task], float],
) -> TableCell:
    """Compute the mean over targets of the means over their tasks.

    A run, one repetition for one seed, counts only if all tasks have scores.
    """
    by_run: dict[tuple[int, int], dict[Task, float]] = {}
    for record in records:
        value = getattr(record, metric)
        if record.calibrator == name and value is not None:
            values = by_run.setdefault((record.task.seed, record.repeat), {})
            values[record.task.of_seed(0)] = value
    means = [mean_over_groups(groups, values) for values in by_run.values()]
    whole = [mean for mean in means if not math.isnan(mean)]
    papers = {task: value for (each, task), value in paper.items() if each == name}
    return TableCell(
        mean=float(np.mean(whole)) if whole else math.nan,
        sd=float(np.std(whole, ddof=1)) if len(whole) > 1 else math.nan,
        paper=mean_over_groups(groups, papers),
    )


def mean_over_groups(groups: TaskGroups, values: Mapping[Task, float]) -> float:
    """Compute the mean over groups of the mean over their tasks; NaN if a task has no value."""
    if any(task not in values for group in groups for task in group):
        return math.nan
    return float(np.mean([np.mean([values[task] for task in group]) for group in groups]))


def _marked(
    name: str, cells: dict[str, list[TableCell]], names: Sequence[str], sign: int
) -> tuple[TableCell, ...]:
    """Mark the best cells of a row; the oracle does not compete."""
    row = []
    for i, cell in enumerate(cells[name]):
        competing = [sign * cells[other][i].mean for other in names if not sees_labels(other)]
        best = False
        if not sees_labels(name) and np.isfinite(competing).all():  # else there is no winner
            best = sign * cell.mean == min(competing)
        row.append(replace(cell, best=best))
    return tuple(row)


@dataclass(frozen=True)
class Comparison:
    """PseudoCal compared with a baseline over tasks."""

    baseline: str
    where: str  # the method, or "all"
    tasks: int
    wins: int  # the tasks on which PseudoCal is better
    difference: float  # the mean of PseudoCal minus the baseline
    p: float  # the p-value of the paired test


def compare_over_tasks(
    records: Sequence[Record], metric: TableMetric = "ece", champion: str = "pseudocal"
) -> list[Comparison]:
    """Compare the champion with each baseline over tasks, per method and for all methods.

    The test is Wilcoxon's signed-rank test.

    The value of a task is the mean over its seeds and repetitions. Tasks that share a domain are not independent,
    so the p-value of "all" tends to be too small.
    """
    names = variants([record.task for record in records])
    methods = unique(names.values())
    scopes = {method: [method] for method in methods}
    if len(methods) > 1:
        scopes["all"] = methods
    baselines = [
        name
        for name in unique(r.calibrator for r in records)
        if name != champion and not sees_labels(name)
    ]
    found = []
    for baseline in baselines:
        for where, chosen in scopes.items():
            within = {task for task, name in names.items() if name in chosen}
            ours = _by_task(records, champion, metric, within)
            theirs = _by_task(records, baseline, metric, within)
            differences = np.array([ours[key] - theirs[key] for key in ours if key in theirs])
            if len(differences):
                wins = int((SIGN[metric] * differences < 0).sum())
                mean = float(differences.mean())
                found.append(
                    Comparison(
                        baseline, where, len(differences), wins, mean, signed_rank(differences)
                    )
                )
    return found


def signed_rank(differences: np.ndarray) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test; 1 if all differences are zero.

    All five differences have the same sign, which happens by chance in 2 of 32 cases:

    >>> signed_rank(np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
    0.0625
    """
    from scipy.stats import wilcoxon

    return float(wilcoxon(differences).pvalue) if np.any(differences) else 1.0


def _by_task(
    records: Sequence[Record], name: str, metric: str, within: set[Task]
) -> dict[Task, float]:
    values: dict[Task, list[float]] = {}
    for r in records:
        if r.calibrator == name and r.task.of_seed(0) in within:
            values.setdefault(r.task.of_seed(0), []).append(getattr(r, metric))
    return {task: float(np.mean(each)) for task, each in values.items()}
