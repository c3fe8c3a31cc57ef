"""The predictions of every input as a table: parquet, or CSV where pyarrow is not installed or not wanted."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pseudocal.arrays import MissingExtraError
from pseudocal.report.confidences import Confidences

COLUMNS = ("file", "class", "class_name", "confidence_before", "confidence_after", "top", "top_before", "top_after")
ROWS_AT_ONCE = 65_536


def write_predictions(
    folder: Path, names: Sequence[str], confidences: Confidences, classes: Sequence[str], *, kind: str | None = None
) -> str:
    """Write `predictions.parquet` or `predictions.csv` and say which."""
    kind = kind or ("parquet" if find_spec("pyarrow") else "csv")
    path = folder / f"predictions.{kind}"
    WRITERS[kind](path, _parts(names, confidences, classes))
    return path.name


def _parts(names: Sequence[str], c: Confidences, classes: Sequence[str]) -> Iterator[dict[str, list[Any]]]:
    """The table, some rows at a time."""
    for start in range(0, len(c), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        first = c.top[rows, 0].tolist()
        shown = [classes[i] if i < len(classes) else "" for i in first]
        before, after = c.before[rows], c.after[rows]
        values = (list(names[rows]), first, shown, before[:, 0].tolist(), after[:, 0].tolist())
        lists = (c.top[rows].tolist(), before.tolist(), after.tolist())
        yield dict(zip(COLUMNS, values + lists, strict=True))


def _write_parquet(path: Path, parts: Iterator[dict[str, list[Any]]]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "cli") from error
    number, floats = pa.float32(), pa.list_(pa.float32())
    types = (pa.string(), pa.int32(), pa.string(), number, number, pa.list_(pa.int32()), floats, floats)
    schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
    with pq.ParquetWriter(path, schema) as writer:
        for part in parts:
            writer.write_table(pa.table(part, schema=schema))


def _write_csv(path: Path, parts: Iterator[dict[str, list[Any]]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for part in parts:
            writer.writerows([_cell(value) for value in row] for row in zip(*part.values(), strict=True))


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ";".join(str(_cell(v)) for v in value)
    return f"{value:.6g}" if isinstance(value, float) else value


WRITERS = {"csv": _write_csv, "parquet": _write_parquet}
