"""Write docs/results.md, its figures and the README's table from the runs of the built-in suites.

python benchmarks/results.py --out runs/bench          # runs what is missing, some hours of one
core from nothing python benchmarks/results.py --out runs/bench --no-run
python benchmarks/results.py --out runs/bench --no-run --only digits    # replaces, or adds, one
section
"""

from __future__ import annotations

import argparse
import os
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np

from pseudocal.arrays import InputError, softmax
from pseudocal.lab.adapt.runs import training_versions
from pseudocal.lab.bench import Store, Suite, Task, built_in, run
from pseudocal.lab.bench.calibrators import COMPARED, SEE_LABELS
from pseudocal.lab.bench.executors import Pool
from pseudocal.lab.bench.figures import draw_figures
from pseudocal.lab.bench.formats import comparisons, markdown
from pseudocal.lab.bench.records import Record, missing_scores, read_records, unique
from pseudocal.lab.bench.store import load_arrays, read_times
from pseudocal.lab.bench.suite_file import read_suite
from pseudocal.lab.bench.tables import compare_over_tasks, tables
from pseudocal.scaling import fit_temperature

HERE = Path(__file__).parents[1]
SEEDS = {
    "emoji": 3,
    "emoji-partial": 1,
    "emoji-source-free": 1,
    "emoji-ablation": 1,
    "emoji-lambda": 1,
    "digits": 1,
    "scenes": 3,
}
OWN = (Path(__file__).parent / "bnm-weight-0.1.toml",)
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
    "Oracle",
)
MARK = "<!-- results -->"


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
        replace_section(section(store.load_suite(args.only), store))
        return
    if args.run:
        with Pool(args.workers) as pool:
            for suite in [built_in(n, seeds=seeds) for n, seeds in SEEDS.items()] + [
                read_suite(path) for path in OWN
            ]:
                run(suite, store, executor=pool)
    names = [*SEEDS, *(path.stem for path in OWN)]
    suites = [found for name in names if (found := _finished(store, name))]
    text = (
        "\n\n".join([preface(store, suites), *(section(suite, store) for suite in suites)]) + "\n"
    )
    (HERE / "docs" / "results.md").write_text(text)
    write_readme(next(suite for suite in suites if suite.name == "emoji"), store)


def replace_section(text: str) -> None:
    """Put a section into docs/results.md in the place of the one with its heading, or else at the end."""
    page = HERE / "docs" / "results.md"
    heading = text.partition("\n")[0]
    before, found, after = page.read_text().partition(f"{heading}\n")
    rest = after.partition("\n## ")
    tail = f"\n## {rest[2]}" if found and rest[1] else ""
    page.write_text(f"{before.rstrip()}\n\n{text}\n{tail}")


def _finished(store: Store, name: str) -> Suite | None:
    """The suite, if all its tasks are scored, but for calibrators that failed."""
    try:
        suite = store.load_suite(name)
    except InputError:
        return None
    for task in suite.tasks:
        notes = (store.folder(task) / "calibrations").glob("*.error.json")
        done = store.scores(task).keys() | {note.name.removesuffix(".error.json") for note in notes}
        if not done >= set(suite.calibrators):
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
        "Cells are means over targets, each the mean over its tasks; ± is the standard deviation of that mean over "
        "seeds. The ensembles of three seeds are one and the same, so theirs comes from the pairs that are drawn, or "
        "is left out. The best of a column is bold; the oracle, which sees target labels, does not compete. ECE has 15 "
        "bins.",
        '"k of n" counts the tasks on which PseudoCal has the lower value; p is that of Wilcoxon\'s signed-rank test '
        "over tasks, each the mean of its seeds. Tasks share domains, so p is a description rather than a proof.",
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
    """The tables, figures and losses of a suite."""
    records = read_records(suite, store)
    seeds = len({record.task.seed for record in records})
    parts = [
        f"## {suite.name}",
        f"{suite.about[0].upper()}{suite.about[1:]}. {_size(records)}, {seeds} seed{'s' * (seeds > 1)}.",
    ]
    for metric in ("ece", "nll", "brier"):
        parts += [markdown(table) for table in tables(suite, records, metric)]
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
    return "\n\n".join(parts)


def _size(records: list[Record]) -> str:
    pairs, methods = unique(r.task.pair for r in records), unique(r.task.method for r in records)
    return f"{len(pairs)} pairs of domains, {len(methods)} method{'s' * (len(methods) > 1)}"


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
    folder = HERE / "docs" / "results"
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
            name: float(np.mean(values)) for name, values in ece.items() if name not in SEE_LABELS
        }
        mine = means.pop("pseudocal")
        better = sorted((value, name) for name, value in means.items() if value < mine)
        if better:
            harm = means.get("none", 1.0) < mine
            names = ", ".join(f"{COMPARED[name].title} {100 * value:.1f}" for value, name in better)
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


def write_readme(suite: Suite, store: Store) -> None:
    """Put some rows of the table into the README, between its two marks."""
    (table,) = tables(suite, read_records(suite, store))
    short = replace(table, rows=tuple(row for row in table.rows if row[0] in IN_README))
    path = HERE / "README.md"
    before, _, after = path.read_text().split(MARK)
    path.write_text(f"{before}{MARK}\n{markdown(short)}\n{MARK}{after}")


if __name__ == "__main__":
    main()
