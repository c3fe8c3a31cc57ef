"""Numbers in README and docs agree with stored results.

A page marks a number with a comment, which is invisible in HTML. The path is relative to docs/:

    ECE is <!-- n: evaluation/demo.json#none.ece -->25.3 without calibration.
    In <!-- n: evaluation/exported.csv#held out.worse x100 -->16% of the cases ...

A JSON key is a path of names with dots (a number picks an item of a list). A CSV key is the first
cell of a row (or the first ones: `digits; 50`), a dot, and the name of a column; of a cell like
`18.1 (+3.0)` the first number counts. `x100` turns a stored fraction into percent. The stored
value must round to the number as printed.

A mark must not begin a line: Markdown would end the paragraph there.

A comment before a table compares the whole table with a CSV file:

    <!-- table: evaluation/exported.csv -->

The columns of the table must be columns of the file, and each row must agree with one row there.
`make docs-numbers` prints what disagrees.

A decimal or a percentage without a mark must be in a code block or an output of its page, which
other tests compare with what runs, or in `tests/stated_numbers.txt`. That file lists numbers that
no run produces: settings, definitions, versions, what other papers say. It also lists numbers that
another test checks, and names the test.
"""

from __future__ import annotations

import csv
import importlib
import json
import re
import subprocess
import sys
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
STATED = Path(__file__).with_name("stated_numbers.txt")
NUMBER = r"[-+−]?\d[\d,]*(?:\.\d+)?"
MARK = re.compile(rf"<!-- n: (\S+?)#(.+?)( x100)? -->\**({NUMBER})?")
TABLE = re.compile(r"<!-- table: (\S+) -->\n+((?:\|.*\n?)+)")


def number(text: str) -> Decimal | None:
    """A number as a page prints it: `**1,200**`, `85%`, `1.6x`; None for other text."""
    bare = re.sub(r"[*,%`]|(?<=\d)x$", "", text).replace("−", "-").strip()
    try:
        return Decimal(bare)
    except InvalidOperation:
        return None


def same(shown: str, stored: object) -> bool:
    """Whether a stored value rounds to the number shown; other texts must be equal.

    >>> same("1.60", 1.5953), same("85%", "85.2"), same("1.61", 1.5953), same("none", "none")
    (True, True, False, True)
    """
    value = number(str(stored))
    printed = number(shown)
    if value is None or printed is None:
        return shown.strip("* ") == str(stored).strip()
    half = Decimal(5).scaleb(int(printed.as_tuple().exponent) - 1)
    return abs(value - printed) <= half * Decimal("1.000001")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def names_of(row: dict[str, str]) -> list[str]:
    """The first cell of a row, the first two, and so on: `digits`, `digits; 50`, ..."""
    return list(accumulate(row.values(), "{}; {}".format))


def stored_value(path: Path, key: str) -> Any:
    if path.suffix == ".csv":
        name, _, column = key.rpartition(".")
        rows = [row for row in rows_of(path) if name in names_of(row)]
        assert len(rows) == 1, f"{len(rows)} rows of {path.name} begin with {name!r}"
        return rows[0][column].split(" ")[0]
    value = json.loads(path.read_text(encoding="utf-8"))
    for part in key.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def wrong_numbers(text: str) -> list[str]:
    found = []
    for file, key, percent, shown in MARK.findall(text):
        value = stored_value(DOCS / file, key)
        if percent:
            value = Decimal(str(value)) * 100
        if not shown or not same(shown, value):
            found.append(f"{file}#{key} is {value}, the page says {shown or 'no number'}")
    return found


def agrees(cells: list[str], row: list[str]) -> bool:
    return all(same(cell, stored) for cell, stored in zip(cells, row, strict=True))


def wrong_rows(text: str) -> list[str]:
    found = []
    for file, table in TABLE.findall(text):
        lines = [line.strip().strip("|").split("|") for line in table.splitlines()]
        columns, _, *rows = [[cell.strip() for cell in line] for line in lines]
        stored = [[row[column] for column in columns] for row in rows_of(DOCS / file)]
        missing = [cells for cells in rows if not any(agrees(cells, row) for row in stored)]
        found += [f"{file} has no row like {' | '.join(cells)}" for cells in missing]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_numbers_agree_with_stored_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- n:") == len(MARK.findall(text)), "a mark is misspelled"
    assert text.count("<!-- table:") == len(TABLE.findall(text)), "a mark is misspelled"
    assert not re.search(r"^\s*<!-- n:", text, re.MULTILINE), (
        "a mark at the start of a line breaks it"
    )
    assert wrong_numbers(text) + wrong_rows(text) == []


# ------------------------------------------------------------------------------ unmarked numbers

RESULT = re.compile(r"(?<![\w.:/-])\d[\d,]*(?:\.\d+(?![\d.]*\.\d)|(?:\.\d+)?(?=%))")
CHECKED_WHOLE = {
    "docs/paper/results.md": "tests/lab/bench/test_docs.py compares it with its files",
    "docs/reference/cli.md": "written by .ci/cli_reference.py",
}


def blocks_and_prose(text: str) -> tuple[str, str]:
    """The fenced blocks of a page, and its text without them, checked tables, marked numbers and code."""
    fence = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    prose = TABLE.sub(" ", fence.sub(" ", text))
    for pattern in (
        rf"<!-- n: .*? -->\**{NUMBER}",
        r"`[^`\n]*`",
        r"(?<=\])\([^)\n]*\)",
        r"<[^>\n]*>",
    ):
        prose = re.sub(pattern, " ", prose)
    return "\n".join(fence.findall(text)), prose


def printed_in(shown: str, blocks: str) -> bool:
    """Whether a block has a percentage or decimal that rounds to this number.

    >>> printed_in("9.5", "ECE 9.46%"), printed_in("9.5", "ECE 0.0946"), printed_in("9", "9 rows")
    (True, True, False)
    """
    found = [Decimal(each) for each in re.findall(r"\d+\.\d+|\d+(?=%)", blocks)]
    return any(same(shown, each) or same(shown, 100 * each) for each in found)


def stated_on(page: str) -> list[str]:
    """The phrases of a page in `stated_numbers.txt`."""
    lines = STATED.read_text(encoding="utf-8").splitlines()
    pairs = [line.split(": ", 1) for line in lines if line and not line.startswith("#")]
    return [phrase for name, phrase in pairs if name == page]


def unmarked_numbers(text: str, stated: list[str]) -> list[str]:
    blocks, prose = blocks_and_prose(text)
    prose = " ".join(prose.split())
    for phrase in stated:
        prose = prose.replace(phrase, " ")
    found = [(match.group(), match.start()) for match in RESULT.finditer(prose)]
    return [
        f"{shown} in: {prose[max(0, at - 60) : at + 40]}"
        for shown, at in found
        if not printed_in(shown.replace(",", ""), blocks)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_number_is_marked_printed_or_stated(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    if name in CHECKED_WHOLE:
        return
    text = page.read_text(encoding="utf-8")
    stated = stated_on(name)
    prose = " ".join(blocks_and_prose(text)[1].split())
    assert [phrase for phrase in stated if phrase not in prose] == [], "not on the page any more"
    assert unmarked_numbers(text, stated) == []


def test_an_unmarked_number_is_found() -> None:
    text = "It fell to 7.4%, with <!-- n: a.json#b -->12% of 0.65 and 1,200 rows.\n\n```text\n7.38\n```\n"
    assert unmarked_numbers(text, ["of 0.65 and"]) == []
    assert len(unmarked_numbers(text, [])) == 1
    assert len(unmarked_numbers(text.replace("7.38", "7.31"), ["of 0.65 and"])) == 1


def test_a_wrong_number_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "DOCS", tmp_path)
    (tmp_path / "a.json").write_text('{"ece": [0.1604, 25.34]}', encoding="utf-8")
    (tmp_path / "a.csv").write_text("set,ece,n\ndemo,7.36,1200\n", encoding="utf-8")
    mark = "<!-- n: a.json#ece.0 x100 -->{}% and <!-- n: a.csv#demo; 7.36.ece -->{}"
    assert wrong_numbers(mark.format("16.0", "**7.4**")) == []
    assert len(wrong_numbers(mark.format("16.1", "7.3"))) == 2
    table = "<!-- table: a.csv -->\n\n| set | n | ece |\n|---|---|---|\n| demo | {} | {} |\n"
    assert wrong_rows(table.format("1,200", "7.4")) == []
    assert wrong_rows(table.format("1,200", "7.5")) == ["a.csv has no row like demo | 1,200 | 7.5"]


def test_the_command_prints_the_number_of_the_docs() -> None:
    pytest.importorskip("tomli_w")  # the application needs it
    thresholds = importlib.import_module("pseudocal.app.thresholds")
    path = DOCS / "evaluation/results/thresholds_held_out-1.csv"
    stored = stored_value(path, "5%; agreement, confidence.broken estimates")
    assert same(f"{100 * thresholds.ESTIMATES_BROKEN:.0f}", stored)


def test_the_evaluation_says_how_often_held_out_data_was_evaluated() -> None:
    """Count the lines of the log by what was opened; the page must say as many."""
    log = (ROOT / "benchmarks" / "trust_openings.jsonl").read_text(encoding="utf-8")
    opened = [json.loads(line)["opened"] for line in log.splitlines()]

    def count(start: str) -> int:
        return sum(each.startswith(start) for each in opened)

    page = (DOCS / "evaluation" / "index.md").read_text(encoding="utf-8")
    said = re.search(
        r"behind the table above was evaluated (\d+) times: (\d+) times .*?, (\d+) times .*?, once"
        r"\s+for thresholds, and once for verdicts by a script.*?two-class family was evaluated (\d+) "
        r"times, .*?(\d+) times\.",
        page,
        re.DOTALL,
    )
    assert said is not None
    bank, two_classes = count("bank: "), count("two classes: ")
    parts = [count("bank: estimate, "), count("bank: ECE against ")]
    assert [int(each) for each in said.groups()] == [
        bank,
        *parts,
        two_classes,
        len(opened) - bank - two_classes,
    ]
    assert count("bank: thresholds") == count("bank: verdicts") == bank - sum(parts) - 1 == 1


def test_the_ratio_without_gas_drift_is_that_of_the_table() -> None:
    page = (DOCS / "evaluation" / "index.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"without gas drift, the mean ratio is ([\d.]+)\.\n", page)
    rows = rows_of(DOCS / "evaluation/results/held_out-what-is-exported-without-labels.csv")
    ratios = [float(row["ratio"]) for row in rows if row["family"].startswith("emoji")]
    assert len(ratios) == 3
    assert same(said, sum(ratios) / 3)


def test_printed_tables_become_files(tmp_path: Path) -> None:
    printed = tmp_path / "printed.md"
    printed.write_text("## The estimate\n\n| a | b | b |\n|---|---|---|\n| x | 1 | 2 |\n\n| c |\n")
    script = ROOT / "benchmarks" / "store_tables.py"
    subprocess.run([sys.executable, script, printed, tmp_path / "out"], check=True)
    assert rows_of(tmp_path / "out-the-estimate.csv") == [{"a": "x", "b": "1", "b 2": "2"}]
    assert (tmp_path / "out-the-estimate-2.csv").read_text() == "c\n"
