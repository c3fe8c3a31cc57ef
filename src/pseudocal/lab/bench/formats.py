"""Tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pseudocal.app.inputs.tables import csv_cell
from pseudocal.lab.bench.calibrators import find_compared
from pseudocal.lab.bench.records import unique
from pseudocal.lab.bench.saved_outputs import SavedScore
from pseudocal.lab.bench.tables import RESOLUTION, SKILLS, Comparison, Table, TableCell

NO_DEVIATION = 1e-6  # a standard deviation of results that are the same but for rounding
PERCENT = {"ece", "accuracy", "miou", "correspondence"}
DIGITS = {"ece": 2, "accuracy": 2, "nll": 4, "brier": 4, "miou": 2, "correspondence": 2}
METRIC_NAMES = {
    "ece": "ECE",
    "nll": "NLL",
    "brier": "Brier",
    "miou": "mIoU",
    "correspondence": "Correspondence",
}
TIME = "CPU s a task"


def markdown(table: Table) -> str:
    """Format a table in Markdown; the paper's values are in brackets.

    >>> cells = (TableCell(0.125, 0.01, best=True),)
    >>> print(markdown(Table("ECE", "ece", ("mcc",), (("PseudoCal", cells),), {"PseudoCal": 1.5})))
    | ECE, % | mcc | CPU s a task |
    |---|---|---|
    | PseudoCal | **12.50** ± 1.00 | 1.50 |
    """
    head = [_title(table), *table.columns, *_time_of(table)]
    rows = [
        [
            name,
            *(_written(cell, table.metric, "**{}**", "±") for cell in cells),
            *_time_of(table, name),
        ]
        for name, cells in table.rows
    ]
    return "\n".join(_line(row) for row in [head, *rows]).replace(
        "\n", f"\n{_rule(len(head))}\n", 1
    )


def latex(table: Table) -> str:
    r"""Format a table as a LaTeX tabular.

    >>> row = ("PseudoCal", (TableCell(0.125, best=True),))
    >>> print(latex(Table("ECE", "ece", ("mcc",), (row,))))
    \begin{tabular}{lr}
    \hline
    ECE, \% & mcc \\
    \hline
    PseudoCal & \textbf{12.50} \\
    \hline
    \end{tabular}
    """
    head = [_escaped(_title(table)), *map(_escaped, table.columns), *_time_of(table)]
    rows = [
        [
            _escaped(name),
            *(_written(cell, table.metric, r"\textbf{{{}}}", r"$\pm$") for cell in cells),
            *_time_of(table, name),
        ]
        for name, cells in table.rows
    ]
    return _tabular(head, rows)


def _tabular(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = "l" + "r" * (len(head) - 1)
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        " & ".join(head) + r" \\",
        r"\hline",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\hline",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def comma_separated(table: Table) -> str:
    """Format a table as CSV.

    One line per cell, in full precision, and as fractions rather than percent.
    """
    lines = [
        ",".join(map(csv_cell, ["table", "calibrator", "column", "metric", "mean", "sd", "paper"]))
    ]
    for name, cells in table.rows:
        metric = {**SKILLS, RESOLUTION: "resolution"}.get(name, table.metric)
        for column, cell in zip(table.columns, cells, strict=True):
            values = ["" if math.isnan(v) else repr(v) for v in (cell.mean, cell.sd, cell.paper)]
            lines.append(",".join([*map(csv_cell, [table.title, name, column, metric]), *values]))
        if name in table.seconds:
            texts = map(csv_cell, [table.title, name, "average", "seconds"])
            lines.append(",".join([*texts, repr(table.seconds[name]), "", ""]))
    return "\n".join(lines)


FORMATS: dict[str, Callable[[Table], str]] = {
    "md": markdown,
    "latex": latex,
    "csv": comma_separated,
}


def comparisons(found: Sequence[Comparison], form: str = "md") -> str:
    """Compare PseudoCal with each baseline, in Markdown or LaTeX.

    The tasks it is better on, and the p-value of the paired test.

    >>> print(comparisons([Comparison("tempscal", "mcc", 12, 11, -0.07, 0.00195)]))
    | PseudoCal against | mcc |
    |---|---|
    | TempScal | 11 of 12, p = 0.002 |
    """
    where = unique(each.where for each in found)
    lookup = {(each.baseline, each.where): each for each in found}
    rows = [
        [
            find_compared(baseline).title,
            *(_compared(lookup.get((baseline, place))) for place in where),
        ]
        for baseline in unique(each.baseline for each in found)
    ]
    head = ["PseudoCal against", *where]
    if form == "latex":
        return _tabular([_escaped(text) for text in head], [[*map(_escaped, row)] for row in rows])
    return "\n".join([_line(head), _rule(len(head)), *map(_line, rows)])


def saved_scores(found: Sequence[SavedScore], form: str = "md") -> str:
    """Format the scores of calibrators on saved outputs, as Markdown, LaTeX or CSV.

    CSV is in full precision.

    Calibrators that failed have no row.

    >>> metrics = {"ece": 0.125, "nll": 2.0, "brier": 0.5, "accuracy": 0.4}
    >>> print(saved_scores([SavedScore("none", metrics, 1.0)]))
    | calibrator | ECE, % | NLL | Brier | accuracy, % | T |
    |---|---|---|---|---|---|
    | No calibration | 12.50 | 2.0000 | 0.5000 | 40.00 | 1.000 |
    """
    found = [each for each in found if each.error is None]
    if form == "csv":
        lines = (
            [",".join(map(csv_cell, ["calibrator", *found[0].metrics, "temperature"]))]
            if found
            else []
        )
        for each in found:
            temperature = "" if each.temperature is None else repr(each.temperature)
            lines.append(
                ",".join(
                    [csv_cell(each.calibrator), *map(repr, each.metrics.values()), temperature]
                )
            )
        return "\n".join(lines)
    head = [
        "calibrator",
        *(f"{METRIC_NAMES.get(key, key)}{', %' * (key in PERCENT)}" for key in SAVED_METRICS),
        "T",
    ]
    rows = [
        [
            find_compared(each.calibrator).title,
            *(_number(each.metrics[key], key) for key in SAVED_METRICS),
            "" if each.temperature is None else f"{each.temperature:.3f}",
        ]
        for each in found
    ]
    if form == "latex":
        return _tabular([*map(_escaped, head)], [[*map(_escaped, row)] for row in rows])
    return "\n".join([_line(head), _rule(len(head)), *map(_line, rows)])


SAVED_METRICS = ("ece", "nll", "brier", "accuracy")


def _time_of(table: Table, row: str | None = None) -> list[str]:
    """Return the cell of a row in the column of times, or its heading.

    Nothing if the table has no such column.
    """
    if not table.seconds:
        return []
    if row is None:
        return [TIME]
    return [f"{table.seconds[row]:.2f}" if row in table.seconds else "-"]


def _compared(each: Comparison | None) -> str:
    if each is None:
        return "-"
    p = f"p = {each.p:.3f}" if each.p >= 0.0005 else "p < 0.001"
    return f"{each.wins} of {each.tasks}, {p}"


def _title(table: Table) -> str:
    name = table.title.replace(table.metric, METRIC_NAMES[table.metric])
    return f"{name}, %" if table.metric in PERCENT else name


def _written(cell: TableCell, metric: str, bold: str, plus: str) -> str:
    if math.isnan(cell.mean):
        return "-" if math.isnan(cell.paper) else f"- [{_number(cell.paper, metric)}]"
    mean = _number(cell.mean, metric)
    text = bold.format(mean) if cell.best else mean
    if not math.isnan(cell.sd) and cell.sd >= NO_DEVIATION:
        text += f" {plus} {_number(cell.sd, metric)}"
    if not math.isnan(cell.paper):
        text += f" [{_number(cell.paper, metric)}]"
    return text


def _number(value: float, metric: str) -> str:
    return f"{value * (100 if metric in PERCENT else 1):.{DIGITS[metric]}f}"


def _escaped(text: str) -> str:
    return (
        text.replace("->", r"$\to$")
        .replace("%", r"\%")
        .replace("_", r"\_")
        .replace("λ", r"$\lambda$")
        .replace(" < ", " $<$ ")
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|" + "---|" * columns
