"""One long text among many short ones.

Memory grows with the file, not with rows times the longest text.
"""

from __future__ import annotations

import csv
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pseudocal.app.inputs.ground_truth import read_ground_truth
from pseudocal.app.inputs.sets import open_texts, read_batches
from pseudocal.app.inputs.tables import read_columns
from pseudocal.batches import unread_batches
from pseudocal.skipped import Skipped

ROWS = 2_000
LONG = "long " * 2_000  # 10,000 characters; 2,000 rows of that many 4-byte characters are 80 MB
LIMIT = 8 * 2**20  # bytes, forty times the size of the files

COUNT_LETTERS = """
import numpy as np


def logits(texts):
    lengths = np.array([len(text) for text in texts], dtype=np.float64)
    return np.stack([lengths % 7, lengths % 5], axis=1)
"""


def peak(call):
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def table(path: Path, rows: int, long: str) -> Path:
    texts = [f"short {i}" for i in range(rows - 1)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "stars"), *((text, 1) for text in [*texts, long])])
    return path


def test_a_column_with_one_long_text_takes_little_memory(tmp_path):
    path = table(tmp_path / "texts.csv", ROWS, LONG)
    columns, used = peak(lambda: read_columns(path))
    assert columns["text"][-1] == LONG
    assert columns["stars"].sum() == ROWS
    assert used < LIMIT


def test_lines_with_one_long_one_take_little_memory(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("short\n" * (ROWS - 1) + LONG + "\n")
    texts, used = peak(lambda: open_texts(path, None))
    assert texts.texts[-1] == LONG
    assert used < LIMIT


def test_a_batch_of_texts_with_one_long_one_takes_little_memory(tmp_path):
    inputs = open_texts(table(tmp_path / "texts.csv", ROWS, LONG), None)
    unread = unread_batches(np.arange(ROWS), ROWS)
    batches, used = peak(
        lambda: list(read_batches(inputs, unread, workers=1, unreadable=Skipped(ROWS)))
    )
    assert batches[0].inputs[-1] == LONG
    assert used < LIMIT


@pytest.mark.parametrize("suffix", ["csv", "txt"])
def test_labels_with_one_long_class_name_take_little_memory(tmp_path, suffix):
    path = tmp_path / f"labels.{suffix}"
    names = [str(i) for i in range(ROWS)]
    labels = ["cat"] * (ROWS - 1) + [LONG.strip()]
    if suffix == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("file", "label"), *zip(names, labels, strict=True)])
    else:
        path.write_text("\n".join(labels))
    numbers, used = peak(lambda: read_ground_truth(path, names, ["cat", LONG.strip()]))
    assert numbers.tolist() == [0] * (ROWS - 1) + [1]
    assert used < LIMIT


@pytest.mark.slow
def test_the_command_reads_a_text_of_100_000_characters_among_20_000_rows(tmp_path):
    table(tmp_path / "texts.csv", 20_000, "x" * 100_000)
    (tmp_path / "letters.py").write_text(COUNT_LETTERS)
    limit = 4 * 2**30  # bytes of address space: the old code asked for 7.5 GB
    command = [
        sys.executable,
        "-m",
        "pseudocal",
        "calibrate",
        "letters:logits",
        "texts.csv",
        "--text",
        "text",
    ]
    done = subprocess.run(
        [*command, "--output-type", "logits", "-o", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == 0, done.stderr
    assert len(np.load(tmp_path / "out" / "logits.npy")) == 20_000
