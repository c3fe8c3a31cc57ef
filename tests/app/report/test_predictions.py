"""The table of predictions: parquet and CSV say the same, and neither does anything."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from pseudocal.app.report import predictions
from pseudocal.app.report.predictions import image_table, writing_table


def images(names, classes):
    """A table of images, a quarter of the first class and three quarters of the second."""
    n = len(names)
    return image_table(
        names, np.array([[0.25, 0.75]] * n), np.full(n, 0.9), np.full(n, 0.8), classes
    )


def write_predictions(folder, parts, kind):
    with writing_table(folder / f"predictions.{kind}") as write:
        for part in parts:
            write(part)


def test_csv_and_parquet_agree(tmp_path, made):
    import pyarrow.csv
    import pyarrow.parquet

    run = made.make_run()
    for kind in ("csv", "parquet"):
        _, parts = made.make_summary(run)
        write_predictions(tmp_path, parts, kind)
    parquet = pyarrow.parquet.read_table(tmp_path / "predictions.parquet").to_pydict()
    table = pyarrow.csv.read_csv(tmp_path / "predictions.csv").to_pydict()
    assert parquet["file"] == table["file"] == run.names
    assert parquet["class"] == table["class"] == run.logits.argmax(axis=1).tolist()
    np.testing.assert_allclose(parquet["confidence_after"], table["confidence_after"], rtol=1e-5)
    assert table["top"][0] == ";".join(map(str, parquet["top"][0]))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_small_parts_are_written_together(tmp_path, monkeypatch, kind):
    import pyarrow.parquet

    parts = [images([f"{i}.png"], ["sky", "road"]) for i in range(7)]
    monkeypatch.setattr(predictions, "ROWS_AT_ONCE", 3)
    write_predictions(tmp_path, iter(parts), kind=kind)
    if kind == "parquet":
        file = pyarrow.parquet.ParquetFile(tmp_path / "predictions.parquet")
        assert file.num_row_groups == 3
        assert file.read().to_pydict()["fractions"] == [[0.25, 0.75]] * 7
    else:
        with (tmp_path / "predictions.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["file"] for row in rows] == [f"{i}.png" for i in range(7)]
        assert {row["fractions"] for row in rows} == {"0.25;0.75"}


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_csv_becomes_a_formula(tmp_path, start):
    name = f'{start}HYPERLINK("a","b")'
    table = images([name, "safe=1.png"], ["sky", name])
    write_predictions(tmp_path, [table], kind="csv")
    with (tmp_path / "predictions.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[0] == "file"
    assert [row[0] for row in rows] == [f"'{name}", "safe=1.png"]
    for row in rows:
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_name_that_is_not_unicode_is_written(tmp_path, kind):
    table = images(["caf\udce9.png"], [])
    write_predictions(tmp_path, [table], kind=kind)
    assert b"caf?.png" in (tmp_path / f"predictions.{kind}").read_bytes()


def test_a_table_that_fails_half_way_leaves_no_file(tmp_path):
    def parts():
        yield images(["a.png"], [])
        raise RuntimeError("the model failed")

    for kind in ("csv", "parquet"):
        with pytest.raises(RuntimeError, match="the model failed"):
            write_predictions(tmp_path, parts(), kind=kind)
    assert list(tmp_path.iterdir()) == []
