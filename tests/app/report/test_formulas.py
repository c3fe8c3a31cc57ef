"""CSV files that we write.

No spreadsheet finds a formula with any separator, and names come back exactly.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pseudocal.app.inputs.ground_truth import read_ground_truth
from pseudocal.app.inputs.tables import AT_START, WITHIN, csv_cell
from pseudocal.app.label_files import read_label_lines
from pseudocal.app.labelling import label
from pseudocal.app.outputs import collect_outputs
from pseudocal.app.report.predictions import Confidences, row_table, writing_table
from pseudocal.app.run import Run, save_record

FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
SEPARATORS = (",", ";", "\t", "|")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?(,.*)?", re.ASCII | re.DOTALL)
SPACES = " \t\r\n\x0b\x0c\xa0\u3000\ufeff"
PARTS = [
    *FORMULA,
    "'",
    '"',
    ",",
    ";",
    "|",
    "\t",
    "\r",
    "\n",
    " ",
    "\u3000",
    "a",
    "1",
    "HYPERLINK(1)",
]
HOSTILE = [
    "a;=1+1;.png",
    "a\t=1+1\t.png",
    "e\r=HYPERLINK(1)",
    "b|\n@sum",
    'c;"=1"',
    "=1",
    "'=1",
    "\uff1d1",
    ' "=1',
    "\t=1",
    "d\r\n-1",
    "'80s",
    "end;",
    "-1",
    "'-1",
    "+.5e-3",
    "-1\n",
    "-1;+1",
    "-1-1",
]

strange_texts = st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("".join)
any_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
different_names = st.lists(strange_texts | any_texts, min_size=2, max_size=5, unique=True)


def formulas(path: Path) -> list[tuple[str, str]]:
    """The cells that a spreadsheet would compute, each with the separator that shows it.

    A number is none, and with another separator neither is a number before our comma.
    """
    found = []
    for separator in SEPARATORS:
        with path.open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file, delimiter=separator) for cell in row]
        cells = [cell for cell in cells if not NUMBER.fullmatch(cell)]
        found += [(separator, cell) for cell in cells if cell.lstrip(SPACES).startswith(FORMULA)]
    return found


def with_labels(path: Path, filled: Path) -> list[dict[str, str]]:
    """Write a copy of a table whose labels are the numbers of its rows."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row | {"label": str(i)} for i, row in enumerate(csv.DictReader(file))]
    with filled.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


@given(different_names, different_names)
@example(HOSTILE, HOSTILE[::-1])
def test_predictions_hold_no_formula_and_name_their_inputs_as_labels(names, classes):
    names = [f"{name}.png" for name in names]  # a column of nothing but numbers is read as numbers
    top = np.arange(len(names))[:, None] % len(classes)
    seen = Confidences(top, np.full(top.shape, 0.75), np.full(top.shape, 0.5))
    with TemporaryDirectory() as folder:
        with writing_table(Path(folder) / "predictions.csv") as write:
            write(row_table(names, seen, classes))
        path = Path(folder) / "predictions.csv"
        assert formulas(path) == []
        with_labels(path, Path(folder) / "labels.csv")
        assert read_ground_truth(Path(folder) / "labels.csv", names).tolist() == list(
            range(len(names))
        )


@given(different_names)
@example(HOSTILE)
@settings(max_examples=40)
def test_the_table_to_label_holds_no_formula_and_labels_find_their_inputs(names):
    n = len(names)
    with TemporaryDirectory() as folder:
        np.save(Path(folder) / "outputs.npy", 9 * np.eye(n))
        out = collect_outputs(Path(folder) / "outputs.npy", Path(folder) / "out")
        save_record(out, replace(Run.open(out).record, names=tuple(names)))
        label(out, n)
        path = out / "to-label.csv"
        assert formulas(path) == []
        with_labels(path, Path(folder) / "labels.csv")
        found = read_label_lines(Path(folder) / "labels.csv", names, [str(i) for i in range(n)])
        assert sorted(given.name for given, _ in found) == sorted(names)
        Path(folder, "labels.csv").replace(path)
        label(out, n)  # labels in the table stay
        assert formulas(path) == []
        assert read_label_lines(path, names, [str(i) for i in range(n)]) == found


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
def test_the_page_writes_the_same_cells():
    script = (
        files("pseudocal.app.report").joinpath("templates/label.js").read_text(encoding="utf-8")
    )
    found = re.search(r"function cell\(text\) \{.*?\n\}", script, re.DOTALL)
    assert found is not None
    rng = np.random.default_rng(0)
    texts = [*HOSTILE, *("".join(rng.choice(PARTS, size=rng.integers(1, 9))) for _ in range(2000))]
    guards = json.dumps({"start": AT_START, "within": WITHIN})
    read = "JSON.parse(require('fs').readFileSync(0, 'utf8'))"
    program = f"const guards = {guards}; {found[0]}; console.log(JSON.stringify({read}.map(cell)))"
    done = subprocess.run(
        ["node", "-e", program], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [csv_cell(text) for text in texts]
