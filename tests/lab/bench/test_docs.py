"""What the README and the prose of the results claim is what the tables of the results say."""

from __future__ import annotations

import csv
import re
import shutil
import sys
import tomllib
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from pseudocal.lab.bench import Store, built_in, run
from pseudocal.lab.bench.suite_file import parse_suite

ROOT = Path(__file__).parents[3]
NUMBER = re.compile(r"\d+\.\d+")


def table_in_readme() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split("<!-- results -->")[1].strip().splitlines()


def test_every_number_of_the_readme_stands_in_the_results():
    rows = [line for line in table_in_readme() if NUMBER.search(line)]
    results = (ROOT / "docs" / "paper" / "results.md").read_text(encoding="utf-8")
    assert len(rows) >= 5
    for row in rows:
        name = row.split("|")[1].strip()
        assert row in results.splitlines(), f"{name} has other numbers in docs/paper/results.md"
        assert set(NUMBER.findall(row)) <= set(NUMBER.findall(results))


def test_what_is_said_of_make_and_of_segmenters_is_so():
    readme, makefile = (
        (ROOT / "README.md").read_text(encoding="utf-8"),
        (ROOT / "Makefile").read_text(encoding="utf-8"),
    )
    named, targets = (
        set(re.findall(r"\bmake ([a-z]\S*)", readme)),
        set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE)),
    )
    assert {"setup", "demo", "test"} <= {name.strip("`") for name in named} & targets
    command = (ROOT / "docs" / "howto" / "images.md").read_text(encoding="utf-8")
    assert "segmentation.md#the-command" in command
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


# ------------------------------------------------------------------------------ orders


def results() -> str:
    return (ROOT / "docs" / "paper" / "results.md").read_text(encoding="utf-8")


def table_of(page: str, section: str, head: str) -> dict[str, list[str]]:
    """The first table of a section whose head begins so: cells by row, the head under ""."""
    (text,) = re.findall(
        rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL
    )
    start = text.index(f"| {head} |")
    lines = text[start:].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {"": rows[0][1:], **{row[0]: row[1:] for row in rows[2:]}}


def ece_of(page: str, section: str, column: str = "average") -> dict[str, float]:
    """The mean ECE of each calibrator in a section."""
    table = table_of(page, section, "ECE, mean over targets, %")
    place = table[""].index(column)
    skipped = ("", "Accuracy", "mIoU", "Perfectly calibrated, by chance")
    return {
        name: float(cells[place].strip("* ").split("*")[0].split(" ")[0])
        for name, cells in table.items()
        if name not in skipped
    }


def wins_in(page: str, section: str, baseline: str) -> str:
    """On how many tasks of a section PseudoCal has the lower ECE, over all methods."""
    return table_of(page, section, "PseudoCal against")[baseline][-1].split(",")[0]


def wins_in_paper() -> str:
    path = ROOT / "src" / "pseudocal" / "lab" / "bench" / "published.csv"
    found: dict[tuple[str, ...], dict[str, float]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["metric"] == "ece":
                key = (row["scenario"], row["dataset"], row["uda_method"], row["task"])
                found.setdefault(key, {})[row["calibrator"]] = float(row["value"])
    both = [each for each in found.values() if {"PseudoCal", "TransCal"} <= each.keys()]
    return f"{sum(each['PseudoCal'] < each['TransCal'] for each in both)} of {len(both)}"


def check_orders(page: str) -> int:
    """Check every list of calibrators in an order against the table of its suite."""
    listed = re.findall(r"^- `([\w.-]+)`: (.* < .*)$", page, re.MULTILINE)
    for suite, order in listed:
        said = [part.rsplit(" ", 1) for part in order.split(" < ")]
        values = [float(value) for _, value in said]
        assert values == sorted(values), suite
        assert {name: float(value) for name, value in said} == ece_of(page, suite), suite
    return len(listed)


def check_counts(page: str, text: str) -> int:
    """Check on how many tasks a text says that PseudoCal beats TransCal."""
    (paper,) = re.findall(r"lower\sECE than TransCal on\s(\d+ of \d+) tasks", text)
    assert paper == wins_in_paper()
    released, _, fixed = text.partition("With a fixed exponent")
    counts = re.findall(r"in `([\w.-]+)`\s+on (\d+ of \d+)", released)
    for suite, said in counts:
        assert said == wins_in(page, suite, "TransCal, as released"), suite
    for suite, said in re.findall(r"in `([\w.-]+)`\s+on (\d+ of \d+)", fixed):
        assert said == wins_in(page, suite, "TransCal"), suite
    return len(counts)


def test_orders_in_the_results_are_those_of_the_tables():
    assert check_orders(results()) >= 3


def test_counts_of_wins_in_prose_are_those_of_the_tables():
    page = results()
    assert check_counts(page, page) >= 1
    assert check_counts(page, (ROOT / "README.md").read_text(encoding="utf-8")) >= 1


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


def test_changes_in_the_readme_are_those_of_the_tables():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.findall(
        r"In `([\w-]+)`, with \d+ classes, .* changes the ECE after MCC\s+from ([\d.]+) to ([\d.]+)\.",
        text,
    )
    assert len(said) >= 1
    for suite, before, after in said:
        ece = ece_of(results(), suite, "mcc")
        assert float(before) == pytest.approx(ece["No calibration"], abs=0.0501)
        assert float(after) == pytest.approx(ece["PseudoCal"], abs=0.0501)


def test_a_changed_table_is_noticed():
    page = results()
    row = re.search(r"^\| PseudoCal \|.*\|$", page, re.MULTILINE)
    assert row is not None
    worse = re.sub(r"\d+\.\d+", "99.99", row.group())
    with pytest.raises(AssertionError):
        check_orders(page.replace(row.group(), worse, 1))


def test_all_methods_beat_source_only():
    """Which docs/paper/adaptation.md says."""
    text = (ROOT / "docs" / "paper" / "adaptation.md").read_text(encoding="utf-8")
    assert "All methods beat source-only." in text
    table = table_of(results(), "emoji", "ECE, mean over targets, %")
    values = dict(zip(table[""], table["Accuracy"], strict=True))
    source_only = float(values["source-only"].split(" ")[0])
    methods = [name for name in values if name not in ("source-only", "average", "CPU s a task")]
    assert len(methods) == 6
    assert all(float(values[name].split(" ")[0]) > source_only for name in methods)


def test_the_page_of_a_store_has_accuracy_repeats_seeds_and_the_constant(
    tiny, done, tmp_path, monkeypatch
):
    """The command that writes the page, on a suite of seconds."""
    pytest.importorskip("matplotlib")
    path = ROOT / "benchmarks" / "results.py"
    spec = spec_from_file_location("results_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "results_page", module)
    spec.loader.exec_module(module)
    names = ("none", "tempscal", "transcal-released", "transcal", "constant", "pseudocal", "oracle")
    tasks = tuple(task.of_seed(seed) for seed in (0, 1) for task in tiny.tasks[:2])
    suite = replace(tiny, name="page", about="a page", tasks=tasks, calibrators=names, repeats=2)
    store = Store(shutil.copytree(done.out, tmp_path / "copy"))
    assert run(suite, store) == []
    section = module.section(suite, store)
    assert "1 pair, 2 methods, 2 seeds, 2 repetitions." in section
    assert "Regime: 10 classes; the models are right on" in section
    page = module.with_summary(f"# Results\n\n{section}\n")
    assert "| Perfectly calibrated, by chance |" in page
    assert "| PseudoCal, chance level |" in page
    assert {"No calibration", "Constant, T = 2", "PseudoCal"} <= ece_of(page, "page").keys()
    assert "Accuracy" in table_of(page, "page", "ECE, mean over targets, %")
    assert check_orders(page) == 1
    assert check_counts(page, page) == 1
    assert module.with_summary(page) == page
