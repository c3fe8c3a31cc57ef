"""Write docs/paper/results.md, its figures and its CSV files from runs of the built-in suites.

    python benchmarks/results.py --out runs/bench              # runs missing tasks first
    python benchmarks/results.py --out runs/bench --no-run

From nothing it takes some hours of one core. The page has the main tables, and
docs/paper/results/*.csv have the scores of every task. The prose is written from the same numbers
as the tables, so it never states another order than they do.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np

from pseudocal.arrays import softmax
from pseudocal.lab.adapt.runs import training_versions
from pseudocal.lab.bench import Store, Suite, Task, built_in, run
from pseudocal.lab.bench.calibrators import find_compared, sees_labels, with_repeats
from pseudocal.lab.bench.executors import Pool
from pseudocal.lab.bench.figures import draw_figures
from pseudocal.lab.bench.formats import PERCENT
from pseudocal.lab.bench.published import published_cells
from pseudocal.lab.bench.records import Record, read_records, unique, variants
from pseudocal.lab.bench.store import load_arrays, read_times
from pseudocal.lab.bench.suite_file import read_suite
from pseudocal.lab.bench.tables import (
    RESOLUTION,
    SKILLS,
    Comparison,
    Table,
    TableCell,
    compare_over_tasks,
    tables,
)
from pseudocal.scaling import fit_temperature
from pseudocal.scaling.temperature import BOUNDS

HERE = Path(__file__).parents[1]
PAGE = HERE / "docs" / "paper" / "results.md"
FOLDER = HERE / "docs" / "paper" / "results"
SEEDS = {
    "emoji-groups": 3,
    "emoji": 3,
    "emoji-partial": 1,
    "emoji-source-free": 1,
    "digits": 1,
    "scenes": 3,
    "emoji-ablation": 1,
    "emoji-lambda": 1,
}
REPEATS = {"emoji-groups": 5, "emoji": 5}  # of calibrators that draw random numbers
OWN = (
    Path(__file__).parent / "transcal-starts.toml",
    Path(__file__).parent / "bnm-weight-0.1.toml",
)
FIGURES = {
    "emoji-groups": ("temperatures", "reliability-mcc"),
    "emoji": ("temperatures", "training", "reliability-mcc", "pseudo-mcc"),
    "emoji-lambda": ("lambda",),
    "scenes": ("temperatures", "reliability-source-only"),
}

NONE = "No calibration"
CONSTANT = "Constant, T = 2"
PSEUDOCAL = "PseudoCal"
FIRST_BATCH = "PseudoCal, as released"
TRANSCAL = "TransCal"
RELEASED = "TransCal, as released"
# The calibrators whose order the summary states.
MAIN = (
    NONE,
    CONSTANT,
    "TempScal",
    RELEASED,
    TRANSCAL,
    "Ensemble",
    PSEUDOCAL,
    "Pseudo-ensemble",
    "Agreement",
    "Surrogate",
    "Mean of agreement and surrogate",
    "50 labels",
    "Oracle",
)
# Rows that only the CSV files have.
ONLY_IN_FILES = (
    "MatrixScal, as released",
    "MatrixScal, maximum likelihood",
    "MatrixScal, ridge",
    "VectorScal, as released",
    "VectorScal, maximum likelihood",
    "CPCS, as released",
    "DoC",
    "Oracle, as released",
)
WITHOUT_TABLE = ("emoji-lambda",)  # a figure shows it
EXPLAINED = ("emoji-groups", "emoji")  # suites with a table of accuracies and temperatures
ORDERED = ("emoji-groups", "emoji", "emoji-partial", "digits")  # suites whose order is stated


def main() -> None:
    """Run, then write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--run", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    store = Store(args.out)
    suites = [built_in(name, seeds=n, repeats=REPEATS.get(name)) for name, n in SEEDS.items()]
    suites += [read_suite(path) for path in OWN]
    if args.run:
        with Pool(args.workers) as pool:
            for suite in suites:
                run(suite, store, executor=pool, progress=partial(_tell, suite.name))
    waiting = [line for suite in suites for line in unfinished(suite, store)]
    if waiting:
        raise SystemExit("\n".join(["expected all tasks, got a store without:", *waiting]))
    sections = [Section.read(suite, store) for suite in suites]
    write_csv(sections, FOLDER)
    PAGE.write_text(page(sections, store, FOLDER), encoding="utf-8")


def _tell(suite: str, what: str, done: int, total: int) -> None:
    if total:
        print(f"{datetime.now():%H:%M} {suite}: {done} of {total} {what}", flush=True)


def unfinished(suite: Suite, store: Store) -> list[str]:
    """Say how many tasks of a suite failed or were not run, and why the first has no scores.

    Calibrators that failed on a finished task are no reason to wait: the page names them.
    """
    names = with_repeats(suite.calibrators, suite.repeats)
    missing = [
        task
        for task in suite.tasks
        if any(
            name not in store.scores(task) and store.refusal(task, name) is None for name in names
        )
    ]
    if not missing:
        return []
    error = store.error(missing[0])
    why = error["error"] if error else "not run"
    count = f"{len(missing)} of {len(suite.tasks)} tasks"
    return [f"{suite.name}: {count}, first {missing[0].folder}: {why}"]


@dataclass(frozen=True)
class Section:
    """A suite with its scores, and the tables that follow from them.

    Attributes:
        suite: the suite.
        records: the scores of every run.
        ece: the ECE by method, the mean over targets.
        comparisons: PseudoCal compared with each calibrator without target labels; none without
            PseudoCal.
        missing: the calibrators that the tables lack on some tasks, with the reason.

    """

    suite: Suite
    records: list[Record]
    ece: Table
    comparisons: list[Comparison]
    missing: list[str]

    @classmethod
    def read(cls, suite: Suite, store: Store) -> Section:
        """Read the scores of a suite from a store."""
        records = read_records(suite, store)
        with_pseudocal = "pseudocal" in suite.calibrators
        return cls(
            suite=suite,
            records=records,
            ece=tables(suite, records)[0],
            comparisons=compare_over_tasks(records) if with_pseudocal else [],
            missing=missing_runs(suite, store),
        )

    @property
    def rows(self) -> dict[str, tuple[TableCell, ...]]:
        """The cells of the ECE table by row."""
        return dict(self.ece.rows)

    @property
    def methods(self) -> tuple[str, ...]:
        """The columns of the ECE table but the average."""
        return self.ece.columns[:-1]

    def value(self, row: str, column: str = "average") -> float:
        """A cell of the ECE table in percent."""
        return 100 * self.rows[row][self.ece.columns.index(column)].mean

    def has(self, row: str) -> bool:
        """Whether a row of the ECE table has an average."""
        return row in self.rows and not math.isnan(self.value(row))

    def compared(self, baseline: str) -> list[Comparison]:
        """PseudoCal compared with a baseline: by method, and last for all methods."""
        return [each for each in self.comparisons if _title(each.baseline) == baseline]

    def wins(self, baseline: str) -> str:
        """On how many tasks of all methods PseudoCal has the lower ECE; "-" if not compared."""
        found = self.compared(baseline)
        if not found:
            return "-"
        return f"{found[-1].wins} of {found[-1].tasks}"


def missing_runs(suite: Suite, store: Store) -> list[str]:
    """List the calibrators without a score on some task, with the number of runs and the reason."""
    found: dict[tuple[str, str], int] = {}
    for task in suite.tasks:
        scores = store.scores(task)
        for name in with_repeats(suite.calibrators, suite.repeats):
            if name not in scores:
                key = (_title(name), store.refusal(task, name) or "not run")
                found[key] = found.get(key, 0) + 1
    return [
        f"{title} in {count} run{'s' * (count > 1)} ({why})"
        for (title, why), count in found.items()
    ]


def _title(calibrator: str) -> str:
    return find_compared(calibrator).title


# ------------------------------------------------------------------------------ CSV files

TASK_COLUMNS = {  # of the files of suites, with the field of a record and the number of digits
    "ece": ("ece", 3),
    "nll": ("nll", 4),
    "brier": ("brier", 4),
    "accuracy": ("accuracy", 2),
    "miou": ("miou", 2),
    "temperature": ("temperature", 4),
    "correspondence": ("correspondence", 2),
    "chance": ("chance", 2),
    "perfect_ece": ("resolution", 3),
    "cpu_seconds": ("seconds", 3),
}
IN_PERCENT = PERCENT | {"chance", "resolution"}


def write_csv(sections: Sequence[Section], folder: Path) -> None:
    """Write the scores of every task, the means with deviations, paired tests and losses."""
    folder.mkdir(parents=True, exist_ok=True)
    for section in sections:
        head = ["method", "source", "target", "calibrator", "runs", "ece_sd", *TASK_COLUMNS]
        _write(folder / f"{section.suite.name}.csv", head, task_rows(section))
    head = ["suite", "metric", "calibrator", "method", "mean", "sd"]
    _write(folder / "means.csv", head, (row for each in sections for row in mean_rows(each)))
    head = ["suite", "method", "baseline", "tasks", "wins", "difference", "p"]
    _write(folder / "comparisons.csv", head, (row for each in sections for row in test_rows(each)))
    head = ["suite", "method", "source", "target", "pseudocal", "none", "better"]
    _write(folder / "losses.csv", head, (row for each in sections for row in loss_rows(each)))


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


def task_rows(section: Section) -> list[list[str]]:
    """A row for each task and calibrator: the means over seeds and repetitions."""
    names = variants([record.task for record in section.records])
    found: dict[tuple[Task, str], list[Record]] = {}
    for record in section.records:
        found.setdefault((record.task.of_seed(0), record.calibrator), []).append(record)
    rows = []
    for (task, calibrator), runs in found.items():
        ece = [100 * record.ece for record in runs]
        spread = f"{np.std(ece, ddof=1):.3f}" if len(runs) > 1 else ""
        values = [_mean_of(runs, *column) for column in TASK_COLUMNS.values()]
        place = [names[task], task.source, task.target, _title(calibrator)]
        rows.append([*place, str(len(runs)), spread, *values])
    return rows


def _mean_of(runs: Sequence[Record], name: str, digits: int) -> str:
    """The mean over runs; nothing if a run has no value."""
    values = [getattr(record, name) for record in runs]
    if any(value is None for value in values):
        return ""
    return f"{np.mean(values) * (100 if name in IN_PERCENT else 1):.{digits}f}"


def mean_rows(section: Section) -> list[list[str]]:
    """Every cell of the tables over targets, of all metrics."""
    rows = []
    for metric in ("ece", "nll", "brier", "correspondence"):
        if all(getattr(record, metric) is None for record in section.records):
            continue
        table = tables(section.suite, section.records, metric)[0]
        for name, cells in table.rows:
            measured = {**SKILLS, RESOLUTION: "ece"}.get(name, metric)
            scale = 100 if measured in PERCENT else 1
            for column, cell in zip(table.columns, cells, strict=True):
                values = [f"{scale * v:.4f}" for v in (cell.mean, cell.sd)]
                values = ["" if value == "nan" else value for value in values]
                rows.append([section.suite.name, measured, name, column, *values])
    return rows


def test_rows(section: Section) -> list[list[str]]:
    """PseudoCal compared with each baseline, by method and for all."""
    return [
        [
            section.suite.name,
            each.where,
            _title(each.baseline),
            str(each.tasks),
            str(each.wins),
            f"{100 * each.difference:.3f}",
            f"{each.p:.2g}",
        ]
        for each in section.comparisons
    ]


def loss_rows(section: Section) -> list[list[str]]:
    """Every task on which PseudoCal is not the best calibrator without target labels."""
    rows = []
    for task, means in ece_of_tasks(section).items():
        own = means.pop("pseudocal", math.nan)
        better = sorted((value, name) for name, value in means.items() if value < own)
        if not better:
            continue
        names = "; ".join(f"{_title(name)} {value:.2f}" for value, name in better)
        none = f"{means['none']:.2f}" if "none" in means else ""
        method = variants([record.task for record in section.records])[task]
        rows.append(
            [section.suite.name, method, task.source, task.target, f"{own:.2f}", none, names]
        )
    return rows


def ece_of_tasks(section: Section) -> dict[Task, dict[str, float]]:
    """The mean ECE in percent of each calibrator without target labels, by task of seed 0."""
    found: dict[Task, dict[str, list[float]]] = {}
    for record in section.records:
        if not sees_labels(record.calibrator):
            values = found.setdefault(record.task.of_seed(0), {})
            values.setdefault(record.calibrator, []).append(100 * record.ece)
    return {
        task: {name: float(np.mean(each)) for name, each in values.items()}
        for task, values in found.items()
    }


# ------------------------------------------------------------------------------ page


def page(sections: Sequence[Section], store: Store, figures_in: Path) -> str:
    """The whole page; its figures are drawn into a folder."""
    parts = [
        "# Results",
        "This page compares all calibrators on our suites. [The benchmark](bench.md) says what a suite "
        "is and how to run one.",
        *summary(sections),
        *provenance(sections, store),
        *(part for each in sections for part in section_parts(each, store, figures_in)),
    ]
    return "\n\n".join(parts) + "\n"


def provenance(sections: Sequence[Section], store: Store) -> list[str]:
    """How the numbers were made, and where the rest of them is."""
    packages = ", ".join(f"{name} {version}" for name, version in training_versions().items())
    tasks = unique(task for section in sections for task in section.suite.tasks)
    trainings = {task.training for task in tasks if task.segments}
    seconds = sum(
        stage["cpu"]
        for task in [*tasks, *trainings]
        for stage in _times(store.folder(task)).values()
    )
    files = ", ".join(
        f"[{section.suite.name}](results/{section.suite.name}.csv)" for section in sections
    )
    return [
        "### How the numbers were made",
        "`python benchmarks/results.py --out STORE` runs all suites and writes this page. "
        f"{packages}. {_processor()}, {os.cpu_count()} cores, shared with other work. Training, "
        f"predicting, mixing, calibrating and scoring {len(tasks)} models took "
        f"{seconds / 60:.0f} minutes of CPU, without the shared features of EfficientNet-Lite0.",
        f"All numbers as CSV: the scores of every task ({files}), "
        "[means](results/means.csv) with standard deviations, "
        "[paired tests](results/comparisons.csv) and every task on which PseudoCal "
        "[loses](results/losses.csv). ECE, accuracy, mIoU and correspondence are in percent.",
    ]


def _times(folder: Path) -> dict[str, dict[str, float]]:
    """The times of the stages, which have those of the calibrators in them."""
    return {name: spent for name, spent in read_times(folder).items() if name != "calibrators"}


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def section_parts(section: Section, store: Store, figures_in: Path) -> list[str]:
    """The main table of a suite, the losses of PseudoCal and the figures."""
    suite = section.suite
    parts = [
        f"## {suite.name}",
        f"{suite.about[0].upper()}{suite.about[1:]}. {size(section)}. {regime(section, store)}",
    ]
    if suite.name not in WITHOUT_TABLE:
        parts.append(main_table(section))
    if section.comparisons:
        parts.append(f"{losses(section)}{correspondence(section)}")
    if suite.name in EXPLAINED:
        parts.append(temperatures(section, store))
    if suite.name == "emoji-lambda":
        parts.append(sweep(section))
    parts += figures(suite, store, figures_in)
    if section.missing:
        parts.append("Missing: " + "; ".join(section.missing) + ".")
    return parts


def size(section: Section) -> str:
    """How many pairs of domains, methods, seeds and repetitions a suite has."""
    tasks = section.suite.tasks
    counts = {
        "pair": len({task.pair for task in tasks}),
        "method": len(section.methods),
        "seed": len({task.seed for task in tasks}),
        "repetition": section.suite.repeats,
    }
    words = [f"{n} {word}{'s' * (n > 1)}" for word, n in counts.items()]
    said = ", ".join(words).replace("pairs", "pairs of domains", 1)
    if len(section.methods) == 1:
        return said.replace("1 method", f"1 method ({section.methods[0]})")
    return said


def regime(section: Section, store: Store) -> str:
    """How hard the task is: the number of classes and the accuracy of the models."""
    classes = ""
    if not section.suite.tasks[0].segments:
        first = {task.data: task for task in section.suite.tasks}.values()
        classes = f"{' or '.join(_classes(store.folder(task)) for task in first)} classes; "
        if section.suite.tasks[0].scenario == "partial-set":
            classes = classes.replace("; ", ", half of them in the target; ")
    return f"Regime: {classes}the models are right on {_range(accuracies(section))}% of the target."


def _classes(folder: Path) -> str:
    return str(load_arrays(folder / "target.npz")["logits"].shape[1])


def accuracies(section: Section) -> list[float]:
    """The mean accuracy of the models of each method in percent."""
    return [section.value("Accuracy", method) for method in section.methods]


def _range(values: list[float]) -> str:
    """The lowest and the highest value.

    >>> _range([35.41, 45.06]), _range([76.2])
    ('35 to 45', '76')
    """
    return " to ".join(unique(f"{value:.0f}" for value in (min(values), max(values))))


def main_table(section: Section) -> str:
    """The ECE of each calibrator by method, and how often PseudoCal is better."""
    methods = section.methods if len(section.methods) > 1 else ()
    head = ["ECE, mean over targets, %", *methods, "average"]
    compared = bool(section.comparisons)
    if compared:
        head.append("PseudoCal better")
    lines = [_line(head), "|" + "---|" * len(head)]
    for name, cells in section.ece.rows:
        if name in ONLY_IN_FILES:
            continue
        row = [name]
        row += [_cell(cell) for cell in cells[:-1]][: len(methods)]
        row.append(_cell(cells[-1], spread=True))
        if compared:
            row.append(section.wins(name).replace(" of ", "/"))
        lines.append(_line(row))
    return "\n".join(lines)


def _cell(cell: TableCell, spread: bool = False) -> str:
    if math.isnan(cell.mean):
        return "-"
    mean = f"{100 * cell.mean:.2f}"
    text = f"**{mean}**" if cell.best else mean
    if spread and cell.sd > 1e-6:  # a smaller deviation is rounding
        text += f" ± {100 * cell.sd:.2f}"
    return text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def losses(section: Section) -> str:
    """On how many tasks PseudoCal harms, and on how many another calibrator is better."""
    means = {
        task: values for task, values in ece_of_tasks(section).items() if "pseudocal" in values
    }
    worse: dict[str, int] = {}
    names = variants([record.task for record in section.records])
    for task, values in means.items():
        if values["pseudocal"] > values.get("none", math.inf):
            worse[names[task]] = worse.get(names[task], 0) + 1
    where = ", ".join(f"{name} {count}" for name, count in worse.items())
    harmed = f"{sum(worse.values())} of {len(means)} tasks"
    if len(section.methods) > 1 and where:
        harmed += f" ({where})"
    return (
        f"PseudoCal is worse than no calibration on {harmed}. On {len(loss_rows(section))} tasks, at "
        "least one other calibrator without target labels is better."
    )


def correspondence(section: Section) -> str:
    """How often PseudoCal's mixup samples are right exactly where the inputs are."""
    if all(record.correspondence is None for record in section.records):
        return ""
    rows = dict(tables(section.suite, section.records, "correspondence")[0].rows)
    chance = f"{PSEUDOCAL}, chance level"
    if chance not in rows or math.isnan(rows[PSEUDOCAL][-1].mean):
        return ""
    return (
        f" PseudoCal's correspondence rate is {100 * rows[PSEUDOCAL][-1].mean:.1f}% "
        f"(chance level {100 * rows[chance][-1].mean:.1f}%)."
    )


def temperatures(section: Section, store: Store) -> str:
    """The accuracy and confidence behind the temperatures, by method."""
    names = variants(section.suite.tasks)
    columns = ["accuracy, source", "accuracy", "confidence", "log T, oracle", "PseudoCal"]
    columns += ["PseudoCal, true labels", "TempScal", "TransCal"]
    lines = [_line(["method", *columns]), "|" + "---|" * (1 + len(columns))]
    for method in section.methods:
        tasks = [task for task in section.suite.tasks if names[task.of_seed(0)] == method]
        means = np.mean([_explained(task, store) for task in tasks], axis=0)
        percents = [f"{value:.1f}" for value in means[:3]]
        lines.append(_line([method, *percents, *(f"{value:.2f}" for value in means[3:])]))
    return "\n".join(lines)


def _explained(task: Task, store: Store) -> list[float]:
    """Accuracies and confidence in percent, then logarithms of temperatures."""
    folder = store.folder(task)
    target = load_arrays(folder / "target.npz")
    source = load_arrays(folder / "source_val.npz")
    mixup_samples = load_arrays(folder / "mixup" / "pseudocal.npz")
    labels = np.load(folder / "target_labels.npy", allow_pickle=False)
    true_labels = labels[mixup_samples["first"]]
    scores = store.scores(task)

    def found(name: str) -> float:
        temperature = scores[name]["temperature"]
        assert temperature is not None
        return math.log(temperature)

    return [
        100 * float((source["logits"].argmax(axis=1) == source["labels"]).mean()),
        100 * float((target["logits"].argmax(axis=1) == labels).mean()),
        100 * float(softmax(target["logits"]).max(axis=1).mean()),
        found("oracle"),
        found("pseudocal"),
        math.log(fit_temperature(mixup_samples["logits"], true_labels).temperature),
        found("tempscal"),
        found("transcal"),
    ]


def figures(suite: Suite, store: Store, folder: Path) -> list[str]:
    """Draw the chosen figures of a suite, with the calibrators of its table."""
    wanted = FIGURES.get(suite.name, ())
    shown = [name for name in suite.calibrators if _title(name) not in ONLY_IN_FILES]
    drawn = replace(suite, calibrators=tuple(shown))
    lines = []
    for path in draw_figures(drawn, store, folder) if wanted else ():
        kind = path.stem.removeprefix(f"{suite.name}-")
        if kind in wanted:
            lines.append(f"![{suite.name}: {kind}](results/{path.name})")
        else:
            path.unlink()
    return lines


# ------------------------------------------------------------------------------ summary

NOTES = [
    "Cells are means over targets, each the mean over its tasks. ± is the standard deviation of "
    "that mean over runs: seeds, times repetitions of the calibration. An ensemble is the same "
    "for all seeds. The lowest value of a column is bold, except for the oracle and 50 labels, "
    "which use target labels. ECE has 15 bins. Further calibrators, NLL and Brier scores are in "
    "the [means](results/means.csv).",
    '"Constant, T = 2" divides all logits by 2; a method that does not beat it adds nothing. '
    '"Accuracy" is measured before calibration. "Perfectly calibrated, by chance" is the expected '
    "ECE of a calibrated model with the oracle's confidences at this number of inputs: a floor that "
    "all rows share, not a standard error. The oracle minimises NLL, so another row may have a "
    'lower ECE; "Oracle, as released" minimises the ECE.',
    '"PseudoCal better" counts tasks, each the mean of its runs. Each p is from Wilcoxon\'s '
    "signed-rank test on the differences in ECE over tasks, not from the counts. Tasks share "
    "domains and are not independent, and p is not corrected for the number of comparisons, so "
    "read it as a description. With three tasks, as in a quick suite, p is never below 0.25.",
    'The constants of "Agreement", "Surrogate" and their mean were chosen on development tasks '
    "that overlap these suites (emoji with the targets Noto and Fluent, digits), so these rows are "
    "not held-out results; the [evaluation](../evaluation/index.md) has those. Unlike the default "
    "estimate, they do not include the model's own confidence.",
    'The second table of a suite explains the temperatures. "PseudoCal, true labels" is fitted on '
    "the same mixup samples with the true label of the input with the larger weight instead of "
    "the pseudo-label. "
    'Its distance from "PseudoCal" is the effect of the pseudo-labels, its distance from the oracle '
    'that of the mixup samples and the choice of pairs. The column "TransCal" is the mean over runs, '
    "with log T = 13.8 where the equation has no solution.",
]


def summary(sections: Sequence[Section]) -> list[str]:
    """The tables in short, with the regime of each suite."""
    chosen = [section for section in sections if is_summarised(section)]
    head = ["suite", "accuracy, %", "no calibration", "T = 2", PSEUDOCAL, "oracle"]
    head += ["better than none", "than TransCal, as released"]
    lines = [_line(head), "|" + "---|" * len(head), _line(paper_row())]
    lines += [_line(summary_row(section)) for section in chosen]
    parts = [
        "## Summary",
        "Mean ECE in percent over targets and methods; for the paper, over all tasks of all its "
        "scenarios. Accuracy and class count differ between suites, "
        "and so does the ranking of the calibrators.",
        "\n".join(lines),
        "Selected calibrators, the lowest mean ECE first (the tables have all); the oracle and 50 "
        "labels see target labels:",
        "\n".join(order(section) for section in chosen if section.suite.name in ORDERED),
        against(chosen, CONSTANT, "a constant T = 2"),
        first_batch(chosen),
        *transcal(chosen, sections),
        "### How to read the tables",
        *NOTES,
    ]
    return [part for part in parts if part]


def is_summarised(section: Section) -> bool:
    """Whether a suite compares PseudoCal with other calibrators, not only with its variants."""
    rows = section.rows.keys()
    source_free = CONSTANT in rows and RELEASED not in rows
    compared = bool(section.comparisons) and ("TempScal" in rows or source_free)
    return compared and {NONE, "Oracle"} <= rows


def summary_row(section: Section) -> list[str]:
    """The row of a suite in the summary."""
    shown = [NONE, CONSTANT, PSEUDOCAL, "Oracle"]
    values = [f"{section.value(row):.2f}" if section.has(row) else "-" for row in shown]
    wins = [section.wins(NONE), section.wins(RELEASED)]
    return [f"`{section.suite.name}`", _range(accuracies(section)), *values, *wins]


def paper_row() -> list[str]:
    """The paper's numbers, over its tasks."""
    none, pseudocal, oracle, baseline = (
        published_cells(name) for name in ("No Calib.", "PseudoCal", "Oracle", "TransCal")
    )
    found = list(published_cells("Accuracy", "accuracy").values())
    none_mean, own_mean, oracle_mean = (
        f"{np.mean([each[key] for key in pseudocal if key in each]):.2f}"
        for each in (none, pseudocal, oracle)
    )
    accuracy = f"{_range(found)}, mean {np.mean(found):.0f}"
    wins = [_lower(pseudocal, none), _lower(pseudocal, baseline)]
    return ["the paper", accuracy, none_mean, "-", own_mean, oracle_mean, *wins]


def _lower(first: dict[tuple[str, ...], float], second: dict[tuple[str, ...], float]) -> str:
    """On how many of the common tasks the first has the lower value."""
    common = first.keys() & second.keys()
    return f"{sum(first[key] < second[key] for key in common)} of {len(common)}"


def order(section: Section) -> str:
    """The main calibrators of a suite by their mean ECE."""
    values = {row: section.value(row) for row in MAIN if section.has(row)}
    ranked = sorted(values, key=lambda row: values[row])
    return f"- `{section.suite.name}`: " + " < ".join(f"{row} {values[row]:.2f}" for row in ranked)


def against(sections: Sequence[Section], baseline: str, words: str) -> str:
    """In which suites PseudoCal has a lower mean ECE than a baseline, and in which a higher one."""
    lower: list[str] = []
    higher: list[str] = []
    for section in sections:
        if section.has(baseline) and section.has(PSEUDOCAL):
            better = section.value(PSEUDOCAL) < section.value(baseline)
            (lower if better else higher).append(f"`{section.suite.name}`")
    said = []
    if lower:
        said.append(f"PseudoCal has a lower mean ECE than {words} in {', '.join(lower)}.")
    if higher:
        said.append(f"PseudoCal has a higher mean ECE than {words} in {', '.join(higher)}.")
    return " ".join(said)


def transcal(chosen: Sequence[Section], sections: Sequence[Section]) -> list[str]:
    """How PseudoCal and TransCal compare in the paper and here, and why."""
    compared = [section for section in chosen if RELEASED in section.rows]
    paper = _lower(published_cells("PseudoCal"), published_cells("TransCal"))
    said = [
        "### PseudoCal and TransCal",
        f"In the paper, PseudoCal has a lower ECE than TransCal on {paper} tasks; "
        f'{counts(compared, RELEASED)}. Cite the row "{RELEASED}" as TransCal.',
        about_methods(compared),
        "The released code of TransCal searches for T and an exponent that solve one equation. "
        "Different exponents have different solutions T, so the result depends on the start of the "
        'search, T = 2; T is never below 1. The row "TransCal" differs in both respects: it has a '
        "fixed exponent and no lower bound of T. Their effects are not measured separately. "
        "With a fixed exponent the equation "
        "has at most one solution. "
        f"{about_bound(compared)}With a fixed exponent, PseudoCal has the lower ECE "
        f"{counts(compared, TRANSCAL)}. "
        f"{about_search(compared)}",
    ]
    for section in sections:
        if section.suite.name == "transcal-starts":
            said += about_starts(section)
    return said


def counts(sections: Sequence[Section], baseline: str) -> str:
    """On how many tasks of each suite PseudoCal has the lower ECE, with the paired test."""
    said = []
    for section in sections:
        found = section.compared(baseline)
        p = f" (p = {found[-1].p:.2g})" if found else ""
        said.append(f"in `{section.suite.name}` on {section.wins(baseline)}{p}")
    return ", ".join(said)


def about_methods(sections: Sequence[Section]) -> str:
    """In which suites TransCal leads because of some methods only."""
    said = []
    for section in sections:
        *methods, whole = section.compared(RELEASED) or [None]
        lost = [each for each in methods if each is not None and each.wins == 0]
        if whole is None or not lost or 2 * whole.wins > whole.tasks:
            continue
        there = sum(each.tasks for each in lost)
        rest = f"{whole.wins} of {whole.tasks - there}"
        if _is_most(rest):
            names = " and ".join(each.where for each in lost)
            said.append(
                f"TransCal's lead in `{section.suite.name}` comes from {names}: PseudoCal is "
                f"better on 0 of {there} tasks there, and on {rest} elsewhere."
            )
    return " ".join(said)


def about_bound(sections: Sequence[Section]) -> str:
    """On how many tasks TransCal with a fixed exponent has no solution in some run."""
    said = []
    for section in sections:
        runs = [each for each in section.records if _title(each.calibrator) == TRANSCAL]
        at_bound = {
            each.task.of_seed(0) for each in runs if (each.temperature or 0) > 0.999 * BOUNDS[1]
        }
        if at_bound:
            tasks = {each.task.of_seed(0) for each in runs}
            said.append(f"{len(at_bound)} of {len(tasks)} tasks of `{section.suite.name}`")
    if not said:
        return ""
    return (
        f"If it has none, T is {BOUNDS[1]:,.0f}, the bound of the search, and all confidences are "
        f"uniform. This happened in at least one run on {', '.join(said)}. "
    )


def about_search(sections: Sequence[Section]) -> str:
    """What a fixed exponent without a bound changes, and in which suites nothing is significant."""
    same: list[str] = []
    turned: list[str] = []
    worse: list[str] = []
    for section in sections:
        if not (section.has(RELEASED) and section.has(TRANSCAL)):
            continue
        name = f"`{section.suite.name}`"
        if section.compared(TRANSCAL)[-1].p > 0.05:
            same.append(name)
        released, fixed = section.value(RELEASED), section.value(TRANSCAL)
        own, none = section.value(PSEUDOCAL), section.value(NONE)
        if fixed > released:
            worse.append(f"{name} ({fixed:.2f} against {released:.2f})")
            if not _is_most(section.wins(RELEASED)) and _is_most(section.wins(TRANSCAL)):
                side = "above" if own > none else "below"
                turned.append(
                    f"TransCal's lead disappears in {name} because the version with a "
                    f"fixed exponent is worse; "
                    f"PseudoCal's mean ECE of {own:.2f} is {side} that of no calibration, "
                    f"{none:.2f}."
                )
    said = []
    if same:
        said.append(f"There is no clear difference (p above 0.05) in {', '.join(same)}.")
    if worse:
        said.append(
            "The version with a fixed exponent has a higher mean ECE than the released one in "
            f"{', '.join(worse)}."
        )
    return " ".join([*said, *turned])


def _is_most(wins: str) -> bool:
    """Whether a count is more than half.

    >>> _is_most("41 of 72"), _is_most("35 of 84")
    (True, False)
    """
    won, _, tasks = wins.partition(" of ")
    return 2 * int(won) > int(tasks)


def first_batch(sections: Sequence[Section]) -> str:
    """What the mixup samples of the first batch alone, as in the released code, change."""
    rows = []
    for section in sections:
        found = [each for each in section.comparisons if _title(each.baseline) == FIRST_BATCH]
        if found and section.has(FIRST_BATCH) and section.has(PSEUDOCAL):
            test = found[-1]
            rows.append(
                f"| `{section.suite.name}` | {section.value(FIRST_BATCH):.2f} | "
                f"{section.value(PSEUDOCAL):.2f} | {test.wins} of {test.tasks} | {test.p:.2g} |"
            )
    if not rows:
        return ""
    lines = [
        "The released code of PseudoCal reuses the mixup samples of the first batch. The table "
        "compares the mean ECE of this version with that of all pairs:",
        "",
        "| suite | as released | all pairs | all pairs better | p |",
        "|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines)


def sweep(section: Section) -> str:
    """The weight with the lowest ECE, on average and by method."""
    rows = {
        row.removeprefix("λ = ").removesuffix(", hard"): row
        for row in section.rows
        if row.startswith("λ = ") and row.endswith(", hard")
    }

    def best(column: str) -> str:
        lam = min(rows, key=lambda each: section.value(rows[each], column))
        return f"{section.value(rows[lam], column):.2f} at {lam}"

    methods = ", ".join(f"{method} {best(method)}" for method in section.methods)
    own = section.value(rows["0.65"])
    return (
        "In the paper, the best lambda is between 0.6 and 0.7. Soft labels are in the "
        "[means](results/means.csv). "
        f"With hard labels, the lowest mean ECE is {best('average')}; it is {own:.2f} at 0.65. The "
        f"best lambda depends on the model: {methods}."
    )


def about_starts(section: Section) -> list[str]:
    """How far the result of TransCal depends on the start of its search."""
    rows = {"2.0": RELEASED}
    for row in section.rows:
        if row.startswith(f"{RELEASED}, start "):
            rows[row.split()[-1]] = row
    starts = sorted(rows, key=float)
    lines = []
    for method in section.methods:
        own = section.value(PSEUDOCAL, method)
        found = [section.value(rows[start], method) for start in starts]
        better = sum(value < own for value in found)
        values = ", ".join(f"{value:.2f}" for value in found)
        lines.append(
            f"- {method}: {values}. Lower than PseudoCal's {own:.2f} from {better} of "
            f"{len(found)} starts."
        )
    return [
        f"The mean ECE of the released version from T = {', '.join(starts)} "
        "([table](#transcal-starts), one seed):",
        "\n".join(lines),
    ]


if __name__ == "__main__":
    main()
