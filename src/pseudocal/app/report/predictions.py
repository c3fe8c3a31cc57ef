"""The predictions of every input as a table: parquet, or CSV where pyarrow is not installed or not wanted."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.report.confidences import Confidences
from pseudocal.extras import MissingExtraError
from pseudocal.metrics.images import ImageRow

COLUMNS = ("file", "class", "class_name", "confidence_before", "confidence_after", "top", "top_before", "top_after")
IMAGE_COLUMNS = ("file", "class", "class_name", "class_share", "confidence_before", "confidence_after", "shares")
ROWS_AT_ONCE = 65_536
Part = list[list[str] | NDArray[Any]]  # one entry for each column


def write_predictions(
    folder: Path, names: Sequence[str], confidences: Confidences, classes: Sequence[str], *, kind: str | None = None
) -> str:
    """Write `predictions.parquet` or `predictions.csv` and say which."""
    return write_table(folder, _parts(names, confidences, classes), COLUMNS, kind=kind)


def write_table(folder: Path, parts: Iterator[Part], columns: Sequence[str], *, kind: str | None = None) -> str:
    """Write `predictions.parquet` or `predictions.csv` of some columns and say which."""
    kind = kind or ("parquet" if find_spec("pyarrow") else "csv")
    path = folder / f"predictions.{kind}"
    WRITERS[kind](path, parts, columns)
    return path.name


def _parts(names: Sequence[str], c: Confidences, classes: Sequence[str]) -> Iterator[Part]:
    """The table, some rows at a time."""
    for start in range(0, len(c), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        top, before, after = c.top[rows], c.before[rows], c.after[rows]
        shown = [classes[i] if i < len(classes) else "" for i in top[:, 0]]
        yield [list(names[rows]), top[:, 0], shown, before[:, 0], after[:, 0], top, before, after]


def image_columns(names: list[str], rows: Sequence[ImageRow], classes: Sequence[str]) -> list[Any]:
    """A table of images in the order of `IMAGE_COLUMNS`.

    >>> image_columns(["a.png"], [ImageRow(np.array([0.25, 0.75]), 0.9, 0.8)], ["sky", "road"])[:4]
    [['a.png'], array([1]), ['road'], array([0.75])]
    """
    shares = np.stack([row.shares for row in rows])
    top = shares.argmax(axis=1)
    named = [classes[i] if i < len(classes) else "" for i in top]
    before, after = (np.array(column) for column in zip(*((row.before, row.after) for row in rows), strict=True))
    return [names, top, named, shares.max(axis=1), before, after, shares]


def _write_parquet(path: Path, parts: Iterator[Part], columns: Sequence[str]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "cli") from error
    writer = None
    try:
        for part in parts:
            table = pa.Table.from_arrays([_arrow(pa, column) for column in part], names=list(columns))
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _arrow(pa: Any, column: list[str] | NDArray[Any]) -> Any:
    """A column from its bytes: `pyarrow.array` would import pandas, which takes longer than all of the writing."""
    if isinstance(column, list):
        texts = [text.encode() for text in column]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        return pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])
    kind, dtype = (pa.int32(), np.int32) if np.issubdtype(column.dtype, np.integer) else (pa.float32(), np.float32)
    flat = np.ascontiguousarray(column, dtype=dtype).ravel()
    values = pa.Array.from_buffers(kind, len(flat), [None, pa.py_buffer(flat)])
    if column.ndim == 1:
        return values
    ends = np.arange(0, len(flat) + 1, column.shape[1], dtype=np.int32)
    return pa.ListArray.from_buffers(pa.list_(kind), len(column), [None, pa.py_buffer(ends)], children=[values])


def _write_csv(path: Path, parts: Iterator[Part], columns: Sequence[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for part in parts:
            writer.writerows([_cell(value) for value in row] for row in zip(*part, strict=True))


def _cell(value: Any) -> Any:
    """Text for one cell; lists have semicolons between.

    >>> _cell(np.array([0.25, 1 / 3]))
    '0.25;0.333333'
    """
    if isinstance(value, np.ndarray):
        return ";".join(str(_cell(v)) for v in value)
    return f"{value:.6g}" if isinstance(value, float | np.floating) else value


WRITERS = {"csv": _write_csv, "parquet": _write_parquet}
