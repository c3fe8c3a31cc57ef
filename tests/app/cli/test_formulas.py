"""Hostile names and texts on their way through the commands.

Into CSV files as text, and back unchanged.
"""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

FORMULA = ("=", "+", "-", "@")
NAMES = (
    "a;=1+1;.png",
    "a\t=1+1\t.png",
    "e\r=HYPERLINK(1).png",
    "b|@sum.png",
    "'=1.png",
    "=1.png",
    "f\n-1.png",
    "g.png",
)


def formulas(path):
    found = []
    for separator in (",", ";", "\t", "|"):
        with path.open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file, delimiter=separator) for cell in row]
        found += [(separator, cell) for cell in cells if cell.strip().startswith(FORMULA)]
    return found


def fill_in(path):
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row | {"label": i % 2} for i, row in enumerate(csv.DictReader(file))]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_images_with_hostile_names(pseudocal, tmp_path, monkeypatch):
    from PIL import Image

    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for name in NAMES:
        Image.fromarray(rng.integers(0, 255, size=(8, 8, 3), dtype=np.uint8)).save(
            tmp_path / "images" / name
        )
    (tmp_path / "hostile_names.py").write_text(
        "def two(x):\n    return x.mean(axis=(2, 3))[:, :2] * 9\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "out"
    words = (
        "hostile_names:two",
        tmp_path / "images",
        "--size",
        8,
        "--output-type",
        "logits",
        "--format",
        "csv",
    )
    done = pseudocal("calibrate", *words, "-o", out)
    assert done.code == 0, done.err
    assert formulas(out / "predictions.csv") == []
    assert pseudocal("label", out, "-n", len(NAMES)).code == 0
    assert formulas(out / "to-label.csv") == []
    fill_in(out / "to-label.csv")
    done = pseudocal("refine", out, out / "to-label.csv")
    assert done.code == 0, done.err
    assert f"measured on {len(NAMES)} labels" in done.out
    assert set(json.loads((out / "run.json").read_text())["names"]) == set(NAMES)
    fill_in(out / "predictions.csv")
    done = pseudocal(
        "calibrate", *words, "-o", tmp_path / "again", "--ground-truth", out / "predictions.csv"
    )
    assert done.code == 0, done.err


def test_texts_with_formulas(pseudocal, tmp_path):
    np.save(tmp_path / "logits.npy", np.random.default_rng(0).normal(size=(len(NAMES), 2)))
    with (tmp_path / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("=text;=1", "more"), *((name, name) for name in NAMES)])
    done = pseudocal(
        "label",
        tmp_path / "logits.npy",
        "--output-type",
        "logits",
        "--inputs",
        tmp_path / "texts.csv",
        "-n",
        8,
    )
    assert done.code == 0, done.err
    assert formulas(tmp_path / "logits" / "to-label.csv") == []


def test_numbers_stay_numbers(pseudocal, tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    np.save(tmp_path / "logits.npy", rng.normal(size=(20, 2)))
    frame = pandas.DataFrame({"number": rng.normal(size=20), "text": ["-1-1", *["a"] * 19]})
    frame.to_csv(tmp_path / "inputs.csv", index=False)
    done = pseudocal(
        "label", tmp_path / "logits.npy", "--inputs", tmp_path / "inputs.csv", "-n", 20
    )
    assert done.code == 0, done.err
    table = pandas.read_csv(tmp_path / "logits" / "to-label.csv").set_index("file").sort_index()
    np.testing.assert_allclose(table["number"], frame["number"], rtol=1e-3)
    assert table["text"][0] == "'-1-1"
