"""Write docs/paper/results.md, its figures and the README's table from the runs of the built-in suites.

    python benchmarks/results.py --out runs/bench              # runs missing tasks first
    python benchmarks/results.py --out runs/bench --no-run
    python benchmarks/results.py --out runs/bench --only digits    # one section, as it was run

From nothing it takes some hours of one core. The summary is written from the tables of the page, so
it never states another order than they do.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pseudocal.arrays import InputError, softmax
from pseudocal.lab.adapt.runs import training_versions
from pseudocal.lab.bench import Store, Suite, Task, built_in, run
from pseudocal.lab.bench.calibrators import find_compared, sees_labels, with_repeats
from pseudocal.lab.bench.executors import Pool
from pseudocal.lab.bench.figures import draw_figures
from pseudocal.lab.bench.formats import comparisons, markdown
from pseudocal.lab.bench.published import published_cells
from pseudocal.lab.bench.records import Record, missing_scores, read_records, unique
from pseudocal.lab.bench.store import load_arrays, read_times
from pseudocal.lab.bench.suite_file import read_suite
from pseudocal.lab.bench.tables import RESOLUTION, compare_over_tasks, tables
from pseudocal.scaling import fit_temperature

HERE = Path(__file__).parents[1]
SEEDS = {
    "emoji": 3,
    "emoji-groups": 3,
    "emoji-partial": 1,
    "emoji-source-free": 1,
    "emoji-ablation": 1,
    "emoji-lambda": 1,
    "digits": 1,
    "scenes": 3,
}
REPEATS = {"emoji": 5, "emoji-groups": 5}  # of calibrators that draw random numbers
OWN = (
    Path(__file__).parent / "transcal-starts.toml",
    Path(__file__).parent / "bnm-weight-0.1.toml",
)
FIGURES = {
    "emoji": ("temperatures", "training", "reliability-mcc", "pseudo-mcc"),
    "emoji-lambda": ("lambda",),
    "scenes": ("temperatures", "reliability-source-only"),
}
IN_README = (
    "No calibration",
    "TempScal",
    "TransCal",
    "TransCal, as released",
    "Ensemble",
    "PseudoCal",
    "Pseudo-ensemble",
    "Constant, T = 2",
    "Oracle",
    "Accuracy",
)
MARK = "<!-- results -->"
STORY = "<!-- regime -->"
PAGE = HERE / "docs" / "paper" / "results.md"
SUMMARY = "## Summary"


def main() -> None:
    """Run, then write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--run", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--only", help="write the section of this suite only")
    args = parser.parse_args()
    store = Store(args.out)
    if args.only:
        page = with_section(PAGE.read_text(), section(store.load_suite(args.only), store))
        write_page(page)
        return
    if args.run:
        run_suites(store, args.workers)
    names = [*SEEDS, *(path.stem for path in OWN)]
    missing = [name for name in names if _finished(store, name) is None]
    if missing:
        raise SystemExit(
            f"expected all suites in {args.out}, got none of {', '.join(missing)}: drop --no-run, "
            "or write one section with --only"
        )
    suites = [store.load_suite(name) for name in names]
    parts = [preface(store, suites), *(section(suite, store) for suite in suites)]
    write_page("\n\n".join(parts) + "\n")


def write_page(page: str) -> None:
    """Write the page with its summary, and what the README says of it."""
    page = with_summary(page)
    PAGE.write_text(page)
    write_readme(page)


def run_suites(store: Store, workers: int) -> None:
    """Run the missing tasks of all suites."""
    suites = [
        built_in(name, seeds=seeds, repeats=REPEATS.get(name)) for name, seeds in SEEDS.items()
    ]
    suites += [read_suite(path) for path in OWN]
    with Pool(workers) as pool:
        for suite in suites:
            run(suite, store, executor=pool)


def with_section(page: str, text: str) -> str:
    """Replace the section with the same heading, or append it to the page."""
    heading = text.partition("\n")[0]
    before, found, after = page.partition(f"{heading}\n")
    rest = after.partition("\n## ")
    tail = f"\n## {rest[2]}" if found and rest[1] else ""
    return f"{before.rstrip()}\n\n{text}\n{tail}"


def _finished(store: Store, name: str) -> Suite | None:
    """The suite, if all its tasks are scored, but for calibrators that failed."""
    try:
        suite = store.load_suite(name)
    except InputError:
        return None
    for task in suite.tasks:
        notes = (store.folder(task) / "calibrations").glob("*.error.json")
        done = store.scores(task).keys() | {note.name.removesuffix(".error.json") for note in notes}
        if not done >= set(with_repeats(suite.calibrators, suite.repeats)):
            return None
    return suite


def preface(store: Store, suites: list[Suite]) -> str:
    """How the numbers came about."""
    packages = ", ".join(f"{name} {version}" for name, version in training_versions().items())
    tasks = list(dict.fromkeys(task for suite in suites for task in suite.tasks))
    trainings = {task.training for task in tasks if task.segments}
    seconds = sum(
        stage["cpu"]
        for task in [*tasks, *trainings]
        for stage in _times(store.folder(task)).values()
    )
    paragraphs = [
        "# Results",
        "Written by `python benchmarks/results.py` from runs of the built-in suites. "
        "[The benchmark](bench.md) says what a suite is and how to run one.",
        f"{packages}. {_processor()}, {os.cpu_count()} cores, shared with other work. Training, predicting, "
        f"mixing, calibrating and scoring {len(tasks)} tasks took {seconds / 60:.0f} minutes of CPU; the "
        "features that they share (EfficientNet-Lite0) come on top.",
    ]
    return "\n\n".join(paragraphs)


def _times(folder: Path) -> dict[str, dict[str, float]]:
    """The times of the stages, which have those of the calibrators in them."""
    return {name: spent for name, spent in read_times(folder).items() if name != "calibrators"}


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def section(suite: Suite, store: Store) -> str:
    """The tables, figures and losses of a suite; tasks that were not run are named."""
    waiting = [task for task in suite.tasks if not store.scores(task)]
    suite = replace(suite, tasks=tuple(task for task in suite.tasks if task not in waiting))
    records = read_records(suite, store)
    parts = [
        f"## {suite.name}",
        f"{suite.about[0].upper()}{suite.about[1:]}. {_size(records, suite)}.",
        regime(suite, records, store),
    ]
    for metric in ("ece", "nll", "brier"):
        parts += [markdown(table) for table in tables(suite, records, metric)]
    if any(record.correspondence is not None for record in records):
        parts += [markdown(table) for table in tables(suite, records, "correspondence")]
    if "pseudocal" in suite.calibrators:
        parts += ["PseudoCal against each, by ECE:", comparisons(compare_over_tasks(records))]
        if len(suite.calibrators) > 7:
            parts += [
                "By target:",
                *(markdown(table) for table in tables(suite, records, "ece", "target")),
            ]
        parts += losses(records)
    parts += (
        temperatures(suite, store)
        if {"tempscal", "transcal", "pseudocal"} <= set(suite.calibrators)
        else []
    )
    parts += figures(suite, store)
    missing = missing_scores(suite, store)
    parts += ["Missing: " + "; ".join(missing) + "."] if missing else []
    if waiting:
        methods = ", ".join(unique(task.method for task in waiting))
        parts.append(f"Not run yet: {len(waiting)} tasks ({methods}).")
    return "\n\n".join(parts)


def _size(records: list[Record], suite: Suite) -> str:
    counts = {
        "pair": len({record.task.pair for record in records}),
        "method": len({record.task.method for record in records}),
        "seed": len({record.task.seed for record in records}),
        "repetition": suite.repeats,
    }
    words = [f"{n} {word}{'s' * (n > 1)}" for word, n in counts.items()]
    return ", ".join(words).replace("pairs", "pairs of domains", 1)


def regime(suite: Suite, records: list[Record], store: Store) -> str:
    """How hard the task is: the number of classes and the accuracy of the models."""
    table = tables(suite, records)[0]
    accuracies = [100 * cell.mean for cell in dict(table.rows)["Accuracy"][:-1]]
    classes = ""
    if not suite.tasks[0].segments:
        first = {task.data: task for task in suite.tasks}.values()  # a task of each data set
        counts = [
            str(load_arrays(store.folder(task) / "target.npz")["logits"].shape[1]) for task in first
        ]
        classes = f"{' or '.join(counts)} classes; "
    return (
        f"Regime: {classes}the models are right on {_range(accuracies)}% of the target, by method."
    )


def _range(values: list[float]) -> str:
    """The lowest and the highest value.

    >>> _range([35.41, 45.06]), _range([76.2])
    ('35 to 45', '76')
    """
    return " to ".join(unique(f"{value:.0f}" for value in (min(values), max(values))))


def temperatures(suite: Suite, store: Store) -> list[str]:
    """Why temperatures come out as they do.

    How right and how sure the models are, and what pseudo-labels do.
    """
    if any(task.scenario == "source-free" for task in suite.tasks):
        return []
    rows = []
    for method in unique(task.method for task in suite.tasks):
        each = np.mean(
            [_explained(task, store) for task in suite.tasks if task.method == method], axis=0
        )
        rows.append(
            f"| {method} | "
            + " | ".join(f"{v:.1f}" if i < 3 else f"{v:.2f}" for i, v in enumerate(each))
            + " |"
        )
    head = (
        "| method | accuracy, source | accuracy, target | confidence, target | log T, oracle | PseudoCal "
        "| the same mixup samples, true labels | TempScal | TransCal |"
    )
    said = (
        "Means over tasks. Accuracy and confidence in percent, before calibration, the source's on held-out rows. "
        "With the true label of the larger fraction in the place of the pseudo-label, what is left of the difference "
        "from the oracle's is the mixing's:"
    )
    return [said, "\n".join([head, "|" + "---|" * 9, *rows])]


def _explained(task: Task, store: Store) -> list[float]:
    folder, scores = store.folder(task), store.scores(task)
    target, source, mixup_samples = (
        load_arrays(folder / name)
        for name in ("target.npz", "source_val.npz", "mixup/pseudocal.npz")
    )
    labels = np.load(folder / "target_labels.npy", allow_pickle=False)
    right = fit_temperature(mixup_samples["logits"], labels[mixup_samples["first"]]).temperature
    found = [
        scores[name]["temperature"] for name in ("oracle", "pseudocal", "tempscal", "transcal")
    ]
    oracle, pseudocal, tempscal, transcal = (float(np.log(t)) for t in found if t is not None)
    return [
        100 * float((source["logits"].argmax(axis=1) == source["labels"]).mean()),
        100 * float((target["logits"].argmax(axis=1) == labels).mean()),
        100 * float(softmax(target["logits"]).max(axis=1).mean()),
        *(oracle, pseudocal, float(np.log(right)), tempscal, transcal),
    ]


def figures(suite: Suite, store: Store) -> list[str]:
    """Draw the chosen figures beside the page."""
    folder = HERE / "docs" / "paper" / "results"
    wanted = FIGURES.get(suite.name, ())
    lines = []
    for path in draw_figures(suite, store, folder) if wanted else ():
        kind = path.stem.removeprefix(f"{suite.name}-")
        if kind in wanted:
            lines.append(f"![{suite.name}: {kind}](results/{path.name})")
        else:
            path.unlink()
    return lines


def losses(records: list[Record]) -> list[str]:
    """Every task on which PseudoCal is not the best of those that need no labels, the harmful ones first."""
    rows = []
    for key in dict.fromkeys((r.task.method, r.task.pair) for r in records):
        ece: dict[str, list[float]] = {}
        for r in records:
            if (r.task.method, r.task.pair) == key:
                ece.setdefault(r.calibrator, []).append(r.ece)
        means = {
            name: float(np.mean(values)) for name, values in ece.items() if not sees_labels(name)
        }
        mine = means.pop("pseudocal")
        better = sorted((value, name) for name, value in means.items() if value < mine)
        if better:
            harm = means.get("none", 1.0) < mine
            names = ", ".join(
                f"{find_compared(name).title} {100 * value:.1f}" for value, name in better
            )
            rows.append(
                (
                    not harm,
                    -mine,
                    f"| {key[0]} | {key[1]} | {100 * mine:.1f} | {'yes' if harm else ''} | {names} |",
                )
            )
    total = len({(r.task.method, r.task.pair) for r in records})
    harmful = sum(not row[0] for row in rows)
    said = f"PseudoCal is worse than no calibration on {harmful} of {total} tasks, and beaten by another on {len(rows)}:"
    head = [
        "| method | task | PseudoCal's ECE, % | worse than none | beaten by |",
        "|---|---|---|---|---|",
    ]
    return [said, "\n".join([*head, *(line for *_, line in sorted(rows))])] if rows else []


# ------------------------------------------------------------------------------ summary


@dataclass(frozen=True)
class PageTable:
    """A table of the page: cells by the first cell of their row, and by column."""

    rows: dict[str, dict[str, str]]

    def value(self, row: str, column: str = "average") -> float:
        """The number in a cell, without its deviation."""
        return float(self.rows[row][column].replace("*", "").split(" ")[0])


def page_tables(page: str) -> dict[str, dict[str, PageTable]]:
    """The tables of each section, by the first cell of their heads."""
    found: dict[str, dict[str, PageTable]] = {}
    for part in page.split("\n## ")[1:]:
        name, _, text = part.partition("\n")
        for block in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
            lines = [
                [cell.strip() for cell in line.strip("|").split(" | ")]
                for line in block.splitlines()
            ]
            head = lines[0]
            rows = {line[0]: dict(zip(head[1:], line[1:], strict=False)) for line in lines[2:]}
            found.setdefault(name, {}).setdefault(head[0], PageTable(rows))
    return found


def with_summary(page: str) -> str:
    """Put the summary of a page before its first section."""
    page = re.sub(rf"\n{SUMMARY}\n.*?(?=\n## )", "", page, flags=re.DOTALL)
    before, _, rest = page.partition("\n## ")
    return f"{before.rstrip()}\n\n{summary(page)}\n\n## {rest}"


ECE_TABLE = "ECE, mean over targets, %"
TESTS = "PseudoCal against"
CONSTANT = "Constant, T = 2"
RELEASED = "TransCal, as released"
NOTES = [
    "Cells are means over targets, each the mean over its tasks; ± is the standard deviation of that mean over "
    "runs: seeds, times repetitions of the calibration. The ensembles of three seeds are one and the same, so "
    "theirs comes from the pairs that are drawn, or is left out. The best of a column is bold; the oracle and 50 "
    "labels, which see target labels, do not compete. ECE has 15 bins.",
    '"Constant, T = 2" divides all logits by 2: any method must beat it. "Accuracy" is that of the models before '
    'calibration. "Perfectly calibrated, by chance" is the ECE that a calibrated model with the oracle\'s '
    "confidences is expected to have at this number of inputs: smaller differences mean nothing. The chance level "
    "of the correspondence rate is that of independent mistakes.",
    '"k of n" counts the tasks on which PseudoCal has the lower value; p is that of Wilcoxon\'s signed-rank test '
    "over tasks, each the mean of its seeds. Tasks share domains, so p is a description rather than a proof.",
]


def summary(page: str) -> str:
    """What the tables of a page say, with the regime of each suite."""
    sections = page_tables(page)
    suites = {
        name: found
        for name, found in sections.items()
        if {ECE_TABLE, TESTS} <= found.keys() and "TempScal" in found[ECE_TABLE].rows
    }
    parts = [SUMMARY, "Means over targets and methods. The regimes differ, and so do the orders."]
    head = "| suite | accuracy, % | no calibration | PseudoCal | oracle | better than none | than TransCal, as released |"
    lines = [head, "|" + "---|" * 7, _row_of_paper()]
    lines += [_row_of(name, found) for name, found in suites.items()]
    parts.append("\n".join(lines))
    parts.append(
        "Mean ECE in percent, the lowest first; the oracle and 50 labels see target labels:"
    )
    parts.append("\n".join(_order(name, found[ECE_TABLE]) for name, found in suites.items()))
    parts += transcal(suites, sections.get("transcal-starts"))
    parts += ["### How to read the tables", *NOTES]
    older = [f"`{name}`" for name, found in suites.items() if CONSTANT not in found[ECE_TABLE].rows]
    if older:
        parts.append(
            f"{', '.join(older)} were run before there were a constant, a perfectly calibrated model and chance levels."
        )
    return "\n\n".join(parts)


def _row_of(name: str, found: dict[str, PageTable]) -> str:
    table = found[ECE_TABLE]
    cells = [
        f"`{name}`",
        _range(_accuracies(table)),
        *(f"{table.value(row):.2f}" for row in ("No calibration", "PseudoCal", "Oracle")),
        _wins(found, "No calibration"),
        _wins(found, RELEASED),
    ]
    return f"| {' | '.join(cells)} |"


def _accuracies(table: PageTable) -> list[float]:
    """The mean accuracy of the models of each method."""
    other = ("average", "CPU s a task")
    return [
        table.value("Accuracy", column) for column in table.rows["Accuracy"] if column not in other
    ]


def _row_of_paper() -> str:
    """The paper's numbers, by task."""
    none, pseudocal, oracle, transcal = (
        published_cells(name) for name in ("No Calib.", "PseudoCal", "Oracle", "TransCal")
    )
    accuracies = list(published_cells("Accuracy", "accuracy").values())
    means = [
        np.mean([each[key] for key in pseudocal if key in each])
        for each in (none, pseudocal, oracle)
    ]
    cells = [
        "the paper",
        f"{_range(accuracies)}, mean {np.mean(accuracies):.0f}",
        *(f"{mean:.2f}" for mean in means),
        *(_lower(pseudocal, other) for other in (none, transcal)),
    ]
    return f"| {' | '.join(cells)} |"


def _lower(first: dict[tuple[str, ...], float], second: dict[tuple[str, ...], float]) -> str:
    """On how many of the common tasks the first has the lower value."""
    common = first.keys() & second.keys()
    return f"{sum(first[key] < second[key] for key in common)} of {len(common)}"


def _wins(found: dict[str, PageTable], baseline: str) -> str:
    row = found[TESTS].rows.get(baseline)
    return list(row.values())[-1].split(",")[0] if row else "-"


def _order(name: str, table: PageTable) -> str:
    """All calibrators of a table by their mean ECE."""
    skipped = ("Accuracy", "mIoU", RESOLUTION)
    values = {row: table.value(row) for row in table.rows if row not in skipped}
    ranked = sorted(values, key=lambda row: values[row])
    return f"- `{name}`: " + " < ".join(f"{row} {values[row]:.2f}" for row in ranked)


def transcal(
    suites: dict[str, dict[str, PageTable]], starts: dict[str, PageTable] | None
) -> list[str]:
    """How PseudoCal and TransCal compare in the paper and here, and why."""
    compared = {name: found for name, found in suites.items() if RELEASED in found[TESTS].rows}
    counts = [f"in `{name}` on {_wins(found, RELEASED)}" for name, found in compared.items()]
    fixed = [f"in `{name}` on {_wins(found, 'TransCal')}" for name, found in compared.items()]
    paper = _lower(published_cells("PseudoCal"), published_cells("TransCal"))
    said = [
        "### PseudoCal and TransCal",
        f"In the paper, PseudoCal has a lower ECE than TransCal on {paper} tasks; {', '.join(counts)}. These results "
        "disagree. Two things matter, the regime and where the search of TransCal starts. Where models are mostly "
        "wrong, their consistent mistakes count as right on mixup samples, so PseudoCal's temperature is too low; "
        "TransCal estimates the error from labelled source data instead.",
        "The released code of TransCal looks for T and an exponent that solve one equation. Every exponent does so with "
        "its own T, so the result depends on where the search starts, T = 2. With a fixed exponent, which has one "
        f"solution, the counts are: {', '.join(fixed)}.",
    ]
    if starts is not None:
        said += _about_starts(starts[ECE_TABLE])
    return said


def _about_starts(table: PageTable) -> list[str]:
    """How far the result of TransCal depends on where its search starts."""
    rows = {"2.0": RELEASED}
    for row in table.rows:
        if row.startswith(f"{RELEASED}, start "):
            rows[row.split()[-1]] = row
    starts = sorted(rows, key=float)
    lines = []
    for column in table.rows["PseudoCal"]:
        if column in ("average", "CPU s a task"):
            continue
        own = table.value("PseudoCal", column)
        found = [table.value(rows[start], column) for start in starts]
        better = sum(value < own for value in found)
        values = ", ".join(f"{value:.2f}" for value in found)
        lines.append(
            f"- {column}: {values}. Lower than PseudoCal's {own:.2f} from {better} of {len(found)} starts."
        )
    return [
        f"The mean ECE of the released version from T = {', '.join(starts)} ([table](#transcal-starts), one seed):",
        "\n".join(lines),
    ]


# ------------------------------------------------------------------------------ readme


def write_readme(page: str) -> None:
    """Put some rows of the table of `emoji`, its regime and TransCal into the README."""
    text = page.split("\n## emoji\n")[1]
    table = text[text.index(f"| {ECE_TABLE} |") :].split("\n\n")[0].splitlines()
    rows = [line for line in table[2:] if line.split(" | ")[0].strip("| ") in IN_README]
    _between(MARK, "\n".join([*table[:2], *rows]))
    _between(STORY, regimes(page_tables(page)))


def regimes(sections: dict[str, dict[str, PageTable]]) -> str:
    """What the README says of the regimes and of TransCal."""
    paper = np.mean(list(published_cells("Accuracy", "accuracy").values()))
    counts = [
        f"in the paper PseudoCal has a lower ECE than TransCal on "
        f"{_lower(published_cells('PseudoCal'), published_cells('TransCal'))} tasks"
    ]
    lines = [f"The models of the paper are right on {paper:.0f}% of the target in the mean."]
    for name, classes in (("emoji", 52), ("emoji-groups", 8)):
        if name not in sections:
            continue
        found = sections[name]
        table = found[ECE_TABLE]
        accuracy = _range(_accuracies(table))
        change = (
            f"{table.value('No calibration', 'mcc'):.1f} to {table.value('PseudoCal', 'mcc'):.1f}"
        )
        lines.append(
            f"In `{name}`, with {classes} classes, they are right on {accuracy}%, and PseudoCal changes the ECE after MCC "
            f"from {change}."
        )
        counts.append(f"in `{name}` on {_wins(found, RELEASED)}")
    text = ", ".join(counts)
    lines.append(
        f"{text[0].upper()}{text[1:]}: [why these disagree](docs/paper/results.md#pseudocal-and-transcal)."
    )
    return "\n".join(lines)


def _between(mark: str, text: str) -> None:
    path = HERE / "README.md"
    before, _, after = path.read_text().split(mark)
    path.write_text(f"{before}{mark}\n{text}\n{mark}{after}")


if __name__ == "__main__":
    main()
