"""The prose of the results page is what its tables say, and its tables are what its files say."""

from __future__ import annotations

import csv
import re
import shutil
import sys
import tomllib
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pseudocal.files import save_json
from pseudocal.lab.bench import Store, built_in, run
from pseudocal.lab.bench.calibrators import ESTIMATORS
from pseudocal.lab.bench.suite_file import parse_suite

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "paper" / "results.md"
FILES = ROOT / "docs" / "paper" / "results"
HEAD = "ECE, mean over targets, %"
NOT_CALIBRATORS = ("", "Accuracy", "mIoU", "Perfectly calibrated, by chance")


def test_what_is_said_of_segmenters_is_so():
    command = (ROOT / "docs" / "howto" / "images.md").read_text(encoding="utf-8")
    assert "segmentation.md" in command
    assert "(segmentation) are refused" not in command


def test_the_suite_files_of_the_page_are_suites():
    text = (ROOT / "docs" / "paper" / "bench.md").read_text(encoding="utf-8")
    found = [
        parse_suite(tomllib.loads(each), "s")
        for each in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    ]
    assert len(found) >= 4
    without = next(suite for suite in found if len(suite.tasks) == 72)
    assert "ensemble" not in without.calibrators
    assert set(without.tasks) == set(
        built_in("office-home", weights="weights/").tasks
    )  # so their models are shared


def test_the_pages_name_the_estimators_of_suites():
    for page in ("bench", "calibrators"):
        text = (ROOT / "docs" / "paper" / f"{page}.md").read_text(encoding="utf-8")
        assert [name for name in ESTIMATORS if f"`{name}`" not in text] == [], page


# ------------------------------------------------------------------------------ results


def results() -> str:
    return PAGE.read_text(encoding="utf-8")


def rows_of(name: str, folder: Path = FILES) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def sections_of(page: str) -> dict[str, str]:
    """The text of each suite, by its name."""
    found = re.findall(r"^## ([\w.-]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return {name: text for name, text in found if f"| {HEAD} |" in text}


def table_of(page: str, section: str, head: str = HEAD) -> dict[str, list[str]]:
    """The first table of a section whose head begins so: cells by row, the head under ""."""
    text = sections_of(page)[section]
    start = text.index(f"| {head} |")
    lines = text[start:].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {"": rows[0][1:], **{row[0]: row[1:] for row in rows[2:]}}


def number(cell: str) -> float:
    """The mean in a cell, without its deviation."""
    return float(cell.split(" ")[0].strip("*"))


def ece_of(page: str, section: str, column: str = "average") -> dict[str, float]:
    """The mean ECE of each calibrator in a section."""
    table = table_of(page, section)
    place = table[""].index(column)
    names = [name for name in table if name not in NOT_CALIBRATORS]
    return {name: number(table[name][place]) for name in names if table[name][place] != "-"}


def wins_in(page: str, section: str, baseline: str) -> str:
    """On how many tasks of a section PseudoCal has the lower ECE, over all methods."""
    return table_of(page, section)[baseline][-1].replace("/", " of ")


def wins_in_paper() -> str:
    path = ROOT / "src" / "pseudocal" / "lab" / "bench" / "published.csv"
    found: dict[tuple[str, ...], dict[str, float]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["metric"] == "ece" and row["task"] != "avg":
                key = (row["scenario"], row["dataset"], row["uda_method"], row["task"])
                found.setdefault(key, {})[row["calibrator"]] = float(row["value"])
    both = [each for each in found.values() if {"PseudoCal", "TransCal"} <= each.keys()]
    return f"{sum(each['PseudoCal'] < each['TransCal'] for each in both)} of {len(both)}"


# ------------------------------------------------------------------------------ prose and tables


def check_orders(page: str) -> int:
    """Check every list of calibrators in an order against the table of its suite."""
    listed = re.findall(r"^- `([\w.-]+)`: (.* < .*)$", page, re.MULTILINE)
    for suite, order in listed:
        said = {
            name: float(value) for name, value in re.findall(r"(\S.*?) (\d+\.\d+)(?: < |$)", order)
        }
        assert list(said.values()) == sorted(said.values()), suite
        table = ece_of(page, suite)
        assert said == {name: table[name] for name in said}, suite
        assert {"No calibration", "PseudoCal", "Oracle"} <= said.keys()
    return len(listed)


def check_constant(page: str) -> int:
    """Check in which suites the page says that PseudoCal beats a constant temperature."""
    said = re.findall(
        r"PseudoCal has a (lower|higher) mean ECE than a constant T = 2 in ((?:`[\w.-]+`(?:, )?)+)",
        page,
    )
    suites = []
    for word, names in said:
        for suite in re.findall(r"`([\w.-]+)`", names):
            ece = ece_of(page, suite)
            assert (ece["PseudoCal"] < ece["Constant, T = 2"]) == (word == "lower"), suite
            suites.append(suite)
    return len(suites)


def check_counts(page: str) -> int:
    """Check on how many tasks the page says that PseudoCal beats TransCal."""
    (paper,) = re.findall(r"lower\sECE than TransCal on\s(\d+ of \d+) tasks", page)
    assert paper == wins_in_paper()
    released, _, fixed = page.partition("With a fixed exponent the")
    counts = re.findall(r"in `([\w.-]+)`\s+on (\d+ of \d+)", released)
    for suite, said in counts:
        assert said == wins_in(page, suite, "TransCal, as released"), suite
    for suite, said in re.findall(r"in `([\w.-]+)`\s+on (\d+ of \d+)", fixed):
        assert said == wins_in(page, suite, "TransCal"), suite
    return len(counts)


def check_summary(page: str) -> int:
    """Check the rows of the summary against the tables of their suites."""
    # other tables of suites have fewer columns
    found = re.findall(r"^\| `([\w.-]+)` \| ((?:[^|]+ \| ){6}[^|]+) \|$", page, re.MULTILINE)
    for suite, cells in found:
        _, *values, better, than_transcal = cells.split(" | ")
        ece = ece_of(page, suite)
        names = ("No calibration", "Constant, T = 2", "PseudoCal", "Oracle")
        assert values == [f"{ece[name]:.2f}" if name in ece else "-" for name in names], suite
        assert better == wins_in(page, suite, "No calibration"), suite
        if than_transcal != "-":
            assert than_transcal == wins_in(page, suite, "TransCal, as released"), suite
    return len(found)


def check_search(page: str, folder: Path) -> int:
    """Check what the page says of TransCal's lead, the tests, the methods and the bound."""
    checked = 0
    tests = {
        (row["suite"], row["method"], row["baseline"]): row
        for row in rows_of("comparisons", folder)
    }
    released, _, fixed = page.partition("With a fixed exponent the")
    for text, baseline in ((released, "TransCal, as released"), (fixed, "TransCal")):
        for suite, p in re.findall(r"in `([\w.-]+)` on \d+ of \d+ \(p = ([\de.-]+)\)", text):
            assert float(p) == pytest.approx(float(tests[suite, "all", baseline]["p"]), rel=0.05)
            if baseline == "TransCal":
                (same,) = re.findall(r"no clear difference \(p above 0\.05\) in (.*?)\. ", fixed)
                assert (f"`{suite}`" in same) == (float(p) > 0.05), suite
            checked += 1
    for suite, names, there, won, rest in re.findall(
        r"lead in `([\w.-]+)` comes from (.*?): PseudoCal is better on 0 of (\d+) tasks there, "
        r"and on (\d+) of (\d+) elsewhere",
        page,
    ):
        own = [tests[suite, name, "TransCal, as released"] for name in names.split(" and ")]
        whole = tests[suite, "all", "TransCal, as released"]
        assert sum(int(row["wins"]) for row in own) == 0
        assert sum(int(row["tasks"]) for row in own) == int(there)
        assert (whole["wins"], int(whole["tasks"]) - int(there)) == (won, int(rest))
        checked += 1
    for count, tasks, suite in re.findall(r"run on (\d+) of (\d+) tasks of `([\w.-]+)`", page):
        own = [row for row in rows_of(suite, folder) if row["calibrator"] == "TransCal"]
        assert int(tasks) == len(own)
        assert int(count) == sum(float(row["temperature"]) > 1000 for row in own)
        checked += 1
    for suite, own_mean, side, none in re.findall(
        r"lead disappears in `([\w.-]+)` because the version with a fixed exponent is worse; "
        r"PseudoCal's mean ECE of ([\d.]+) is (above|below) that of no calibration, ([\d.]+)\.",
        page,
    ):
        ece = ece_of(page, suite)
        assert (float(own_mean), float(none)) == (ece["PseudoCal"], ece["No calibration"])
        assert (float(own_mean) > float(none)) == (side == "above")
        for baseline, most in (("TransCal, as released", False), ("TransCal", True)):
            won, tasks = wins_in(page, suite, baseline).split(" of ")
            assert (2 * int(won) > int(tasks)) == most, suite
        checked += 1
    (worse,) = re.findall(r"higher mean ECE than the released one in (.*?\))\.", page)
    for suite, fixed_mean, mean in re.findall(r"`([\w.-]+)` \(([\d.]+) against ([\d.]+)\)", worse):
        ece = ece_of(page, suite)
        assert float(fixed_mean) == ece["TransCal"] > ece["TransCal, as released"] == float(mean)
        checked += 1
    return checked


def check_first_batch(page: str, folder: Path) -> int:
    """Check what the page says of PseudoCal as released."""
    said = re.findall(
        r"^\| `([\w.-]+)` \| ([\d.]+) \| ([\d.]+) \| (\d+ of \d+) \| ([\de.-]+) \|$",
        page,
        re.MULTILINE,
    )
    tests = {
        row["suite"]: float(row["p"])
        for row in rows_of("comparisons", folder)
        if (row["method"], row["baseline"]) == ("all", "PseudoCal, as released")
    }
    for suite, released, own, wins, p in said:
        ece = ece_of(page, suite)
        assert float(released) == ece["PseudoCal, as released"]
        assert float(own) == ece["PseudoCal"]
        assert wins == wins_in(page, suite, "PseudoCal, as released")
        assert float(p) == tests[suite]
    return len(said)


def check_sweep(page: str, folder: Path) -> int:
    """Check which weights the page says have the lowest ECE."""
    means: dict[str, dict[str, float]] = {}
    for row in rows_of("means", folder):
        lam = re.fullmatch(r"λ = ([\d.]+), hard", row["calibrator"])
        if (row["suite"], row["metric"]) == ("emoji-lambda", "ece") and lam is not None:
            means.setdefault(row["method"], {})[lam[1]] = float(row["mean"])
    (whole,) = re.findall(r"With hard labels, the lowest mean ECE is (.*)\.$", page, re.MULTILINE)
    average, _, methods = whole.partition("; it is ")
    said = {"average": average} | dict(
        re.findall(r"([\w-]+) ([\d.]+ at [\d.]+)(?:, |$)", methods.partition("model: ")[2])
    )
    assert said.keys() == means.keys()
    for method, text in said.items():
        best = min(means[method], key=means[method].__getitem__)
        assert text == f"{means[method][best]:.2f} at {best}", method
    assert methods.startswith(f"{means['average']['0.65']:.2f} at 0.65")
    return len(said)


def test_orders_in_the_results_are_those_of_the_tables():
    assert check_orders(results()) >= 3


def test_the_summary_has_the_numbers_of_the_tables():
    assert check_summary(results()) >= 3


def test_counts_of_wins_in_prose_are_those_of_the_tables():
    assert check_counts(results()) >= 2


def test_what_is_said_of_searches_first_batches_and_weights_is_in_the_tables():
    assert check_search(results(), FILES) == 8 + 1 + 1 + 1 + 4
    assert check_first_batch(results(), FILES) >= 1
    assert check_sweep(results(), FILES) >= 3


def test_suites_in_which_pseudocal_beats_a_constant_are_those_of_the_tables():
    assert check_constant(results()) >= 2


def test_what_is_said_of_the_starts_of_transcal_is_in_the_tables():
    page = results()
    (starts,) = re.findall(r"of the released version from T = ([\d., ]+) \(", page)
    said = re.findall(
        r"^- (\w+, [\w-]+): ([\d., ]+)\. Lower than PseudoCal's ([\d.]+) from (\d) of (\d) starts",
        page,
        re.MULTILINE,
    )
    assert {column for column, *_ in said} >= {"mcc, emoji", "bnm, emoji"}
    for column, values, own, better, total in said:
        ece = ece_of(page, "transcal-starts", column)
        found = []
        for start in starts.split(", "):
            name = "TransCal, as released" + ("" if start == "2.0" else f", start {start}")
            found.append(ece[name])
        assert [float(value) for value in values.split(", ")] == found
        assert float(own) == ece["PseudoCal"]
        assert (int(better), int(total)) == (sum(v < ece["PseudoCal"] for v in found), len(found))


@pytest.mark.parametrize(
    "check",
    [
        check_orders,
        check_constant,
        check_summary,
        lambda page: check_first_batch(page, FILES),
    ],
)
def test_a_changed_table_is_noticed(check):
    page = results()
    worse = page
    for text in sections_of(page).values():
        row = re.search(r"^\| PseudoCal \|.*\|$", text, re.MULTILINE)
        assert row is not None
        worse = worse.replace(row.group(), re.sub(r"\d+\.\d+", "99.99", row.group()))
    with pytest.raises(AssertionError):
        check(worse)


def test_all_methods_beat_source_only():
    """Which docs/paper/adaptation.md says."""
    text = (ROOT / "docs" / "paper" / "adaptation.md").read_text(encoding="utf-8")
    assert "With 52 classes, all six methods of this suite beat source-only." in text
    table = table_of(results(), "emoji")
    values = dict(zip(table[""], table["Accuracy"], strict=True))
    methods = [name for name in values if name not in ("average", "PseudoCal better")]
    assert len(methods) == 7
    others = [number(values[name]) for name in methods if name != "source-only"]
    assert min(others) > number(values["source-only"])


# ------------------------------------------------------------------------------ tables and files

TASK_HEAD = (
    "method,source,target,calibrator,runs,ece_sd,ece,nll,brier,accuracy,miou,temperature,"
    "correspondence,chance,perfect_ece,cpu_seconds"
)


def mean_over_targets(rows: list[dict[str, str]], metric: str) -> float:
    """The mean over methods and targets of the means over their tasks."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["target"]), []).append(float(row[metric]))
    return float(np.mean([np.mean(values) for values in groups.values()]))


def check_files(page: str, folder: Path) -> int:
    """Recompute the tables of the page from the files of their suites."""
    checked = 0
    for suite, text in sections_of(page).items():
        rows = rows_of(suite, folder)
        assert (folder / f"{suite}.csv").read_text(encoding="utf-8").startswith(TASK_HEAD + "\n")
        table = table_of(page, suite)
        whole = "Missing:" not in text  # else a table has whole runs only
        for name in table if whole else ():
            if name in ("", "mIoU"):
                continue
            of_name = {"Accuracy": "No calibration", NOT_CALIBRATORS[-1]: "Oracle"}.get(name, name)
            metric = {"Accuracy": "accuracy", NOT_CALIBRATORS[-1]: "perfect_ece"}.get(name, "ece")
            own = [row for row in rows if row["calibrator"] == of_name]
            for column, cell in zip(table[""], table[name], strict=True):
                if column == "PseudoCal better":
                    continue
                chosen = [row for row in own if column in ("average", row["method"])]
                expected = mean_over_targets(chosen, metric)
                assert number(cell) == pytest.approx(expected, abs=0.0105), (suite, name, column)
                checked += 1
        check_wins(table, rows, suite)
    return checked


def check_wins(table: dict[str, list[str]], rows: list[dict[str, str]], suite: str) -> None:
    """Count on how many tasks PseudoCal is better, from the file."""
    ece: dict[str, dict[tuple[str, ...], float]] = {}
    for row in rows:
        task = (row["method"], row["source"], row["target"])
        ece.setdefault(row["calibrator"], {})[task] = float(row["ece"])
    own = ece["PseudoCal"]
    for name, cells in table.items():
        said = re.fullmatch(r"(\d+)/(\d+)", cells[-1])
        if said is None:
            continue
        other = ece[name]
        won = sum(own[task] < other[task] for task in other)
        ties = sum(own[task] == other[task] for task in other)  # when rounded
        assert won <= int(said[1]) <= won + ties, (suite, name)
        assert int(said[2]) == len(other), (suite, name)


def test_the_tables_are_the_means_of_the_files():
    assert check_files(results(), FILES) >= 100


def test_what_is_said_of_losses_is_in_the_files():
    page = results()
    losses = rows_of("losses")
    assert list(losses[0]) == ["suite", "method", "source", "target", "pseudocal", "none", "better"]
    for suite, text in sections_of(page).items():
        said = re.search(
            r"worse than no calibration on (\d+) of (\d+) tasks.*?On (\d+) tasks, at least one other",
            text,
        )
        assert said is not None, suite
        own = [row for row in losses if row["suite"] == suite]
        assert int(said[1]) == sum("No calibration" in row["better"] for row in own), suite
        assert int(said[3]) == len(own), suite


def test_every_linked_file_is_there():
    linked = re.findall(r"\(results/([\w.-]+)\)", results())
    assert len(linked) >= 10
    assert set(linked) == {path.name for path in FILES.iterdir()}


# ------------------------------------------------------------------------------ the command


@pytest.fixture
def command(monkeypatch) -> ModuleType:
    path = ROOT / "benchmarks" / "results.py"
    spec = spec_from_file_location("results_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "results_page", module)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_what_the_command_writes_of_the_paper(command):
    page = results()
    assert f"| {' | '.join(command.paper_row())} |" in page
    assert [note for note in command.NOTES if note not in page] == []
    (said,) = re.findall(
        r"lower ECE than TransCal on (\d+ of \d+) tasks",
        (ROOT / "docs" / "paper" / "index.md").read_text(encoding="utf-8"),
    )
    assert said == wins_in_paper()


def test_the_page_of_a_store_has_accuracy_repeats_seeds_and_the_constant(
    tiny, done, tmp_path, command
):
    """The functions that write the page and its files, on a suite of seconds."""
    pytest.importorskip("matplotlib")
    names = ("none", "tempscal", "transcal-released", "transcal", "constant", "pseudocal", "oracle")
    tasks = tuple(task.of_seed(seed) for seed in (0, 1) for task in tiny.tasks[:2])
    suite = replace(tiny, name="digits", about="a page", tasks=tasks, calibrators=names, repeats=2)
    store = Store(shutil.copytree(done.out, tmp_path / "copy"))
    assert run(suite, store) == []
    section = command.Section.read(suite, store)
    folder = tmp_path / "files"
    command.write_csv([section], folder)
    page = command.page([section], store, folder)
    assert "1 pair, 2 methods, 2 seeds, 2 repetitions." in page
    assert "Regime: 10 classes; the models are right on" in page
    assert "(chance level" in page
    table = table_of(page, "digits")
    assert {"No calibration", "Constant, T = 2", "PseudoCal", "Accuracy"} <= table.keys()
    assert NOT_CALIBRATORS[-1] in table
    assert " ± " in table["PseudoCal"][-2]
    assert check_orders(page) == check_counts(page) == check_constant(page) == 1
    assert check_summary(page) == 1
    assert check_files(page, folder) == 9 * 3
    runs = {row["calibrator"]: row["runs"] for row in rows_of("digits", folder)}
    assert runs["PseudoCal"] == "4"  # two seeds, two repetitions
    assert runs["TempScal"] == "2"
    assert {row["calibrator"] for row in rows_of("means", folder)} >= {"PseudoCal", "Accuracy"}
    assert rows_of("comparisons", folder)[0].keys() >= {"baseline", "wins", "p"}

    more = command.Section.read(replace(suite, calibrators=(*names, "cpcs")), store)
    assert more.missing == ["CPCS in 4 runs (not run)"]
    page = command.page([more], store, folder)
    assert "Missing: CPCS in 4 runs (not run)." in page
    assert table_of(page, "digits")["CPCS"] == ["-"] * 4
    assert check_orders(page) == 1
    assert command.unfinished(suite, store) == []
    (waits,) = command.unfinished(more.suite, store)
    assert waits.startswith("digits: 4 of 4 tasks, first digits/closed-set/optdigits-fonts/")

    # PseudoCal refused all models of a task: its averages are unknown, and nothing is claimed.
    for task in (task for task in tasks if task.method == tasks[0].method):
        bad = store.folder(task)
        for path in bad.glob("calibrations/pseudocal*"):
            path.unlink()
        scores = {name: each for name, each in store.scores(task).items() if "pseudo" not in name}
        save_json(bad / "scores.json", scores)
        for name in ("pseudocal", "pseudocal, repeat=1"):
            note = {"error": "InputError: one class"}
            save_json(bad / "calibrations" / f"{name}.error.json", note)
    assert command.unfinished(suite, store) == []
    page = command.page([command.Section.read(suite, store)], store, folder)
    assert "Missing: PseudoCal in 4 runs (InputError: one class)." in page
    assert "nan" not in page
    assert "a constant T = 2 in" not in page
    assert re.search(r"worse than no calibration on \d of 1 tasks", page)
