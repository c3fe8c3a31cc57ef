"""The predictions of every input as a table, parquet or CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import csv_cell
from pseudocal.arrays import Floats, Logits, softmax
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.calibration import scaled_probabilities
from pseudocal.extras import require
from pseudocal.files import replacing
from pseudocal.passes import block_starts, let_go
from pseudocal.stored import StoredArray

TOP_CLASSES = 5
CHUNK = 1 << 22  # logits that are processed together, which takes some tens of megabytes
ROWS_AT_ONCE = 65_536  # rows of a table that are written together

# columns of one length, by name; arrays may be (n, k)
PredictionTable = dict[str, list[str] | NDArray[Any]]
Write = Callable[[PredictionTable], None]  # writes a part of the predictions


def row_chunks(logits: Logits | StoredArray) -> Iterator[slice]:
    """Yield slices of rows of bounded size.

    The memory of a memory map is released after each slice.

    >>> list(row_chunks(np.zeros((5, 2))))
    [slice(0, 5, None)]
    """
    step = block_starts(logits.shape).step
    rows = step * max(1, CHUNK // (step * logits.shape[1]))
    for start in range(0, len(logits), rows):
        stop = min(start + rows, len(logits))
        yield slice(start, stop)
        if not isinstance(logits, StoredArray):
            let_go(logits, start, stop)


@dataclass(frozen=True, eq=False)
class Confidences:
    """The most likely classes of each input, with their probabilities before and after.

    >>> from pseudocal import TemperatureScaling
    >>> half = Calibration("pseudocal", TemperatureScaling(2.0))
    >>> confidences = Confidences.of(np.array([[0.0, np.log(9.0)]]), half)
    >>> confidences.top, confidences.before.round(3)
    (array([[1, 0]]), array([[0.9, 0.1]]))
    >>> confidences.after.round(3)  # 9 to 1 becomes its square root, 3 to 1
    array([[0.75, 0.25]])
    """

    top: NDArray[np.int64]  # classes `(n, k)`, most likely first
    before: Floats
    after: Floats

    @classmethod
    def of(cls, logits: Logits, calibration: Calibration) -> Confidences:
        """Compute them for some rows of logits, all at once."""
        k = min(TOP_CLASSES, logits.shape[1])
        unsorted = np.tile(np.arange(k), (len(logits), 1))
        if k < logits.shape[1]:
            unsorted = np.argpartition(logits, -k, axis=1)[:, -k:]
        order = np.argsort(-np.take_along_axis(logits, unsorted, axis=1), axis=1, kind="stable")
        top = np.take_along_axis(unsorted, order, axis=1)
        before = np.take_along_axis(softmax(logits), top, axis=1)
        after = np.take_along_axis(scaled_probabilities(calibration.scaling, logits), top, axis=1)
        return cls(top, before, after)


def row_table(
    names: Sequence[str],
    seen: Confidences,
    classes: Sequence[str],
    accepted: NDArray[np.bool_] | None = None,
) -> PredictionTable:
    """Make a table with one row per input of a classifier; `accepted` by a threshold, if any.

    >>> seen = Confidences(np.array([[1, 0]]), np.array([[0.9, 0.1]]), np.array([[0.75, 0.25]]))
    >>> row_table(["a.png"], seen, ["cat", "dog"])["class_name"]
    ['dog']
    """
    top = seen.top[:, 0]
    table: PredictionTable = {
        "file": list(names),
        "class": top,
        "class_name": _names(top, classes),
        "confidence_before": seen.before[:, 0],
        "confidence_after": seen.after[:, 0],
        "top": seen.top,
        "top_before": seen.before,
        "top_after": seen.after,
    }
    if accepted is not None:
        table["accept"] = accepted
    return table


def image_table(
    names: Sequence[str],
    fractions: NDArray[Any],
    before: NDArray[Any],
    after: NDArray[Any],
    classes: Sequence[str],
) -> PredictionTable:
    """Make a table with one row per image of a segmentation model.

    >>> table = image_table(["a.png"], np.array([[0.25, 0.75]]), [0.9], [0.8], ["sky", "road"])
    >>> table["class_name"], table["class_fraction"]
    (['road'], array([0.75]))
    """
    top = fractions.argmax(axis=1)
    return {
        "file": list(names),
        "class": top,
        "class_name": _names(top, classes),
        "class_fraction": fractions.max(axis=1),
        "confidence_before": np.asarray(before),
        "confidence_after": np.asarray(after),
        "fractions": fractions,
    }


def class_name(i: int, classes: Sequence[str]) -> str:
    """Return the name of class i, or its number.

    >>> class_name(0, ["cat"]), class_name(1, ["cat"])
    ('cat', 'class 1')
    """
    return classes[i] if i < len(classes) else f"class {i}"


def _names(numbers: NDArray[Any], classes: Sequence[str]) -> list[str]:
    return [classes[i] if i < len(classes) else "" for i in numbers]


@contextmanager
def writing_table(path: Path) -> Iterator[Write]:
    """Write a .csv or .parquet file part by part; the file is whole or absent.

    All parts have the same columns, and may be small.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "predictions.csv"
    ...     with writing_table(path) as write:
    ...         write({"file": ["a.png"], "class": np.array([1])})
    ...     print(path.read_text(), end="")
    "file","class"
    "a.png",1
    """
    is_csv = path.suffix.lower() == ".csv"
    open_writer: Callable[[Path], Any] = _CsvWriter if is_csv else _ParquetWriter
    with replacing(path) as aside, closing(open_writer(aside)) as writer:
        yield writer.write


def default_table() -> str:
    """The format of the predictions: parquet if pyarrow is installed, else CSV."""
    return "parquet" if find_spec("pyarrow") else "csv"


class _ParquetWriter:
    """Writes small parts together; the first one tells the schema."""

    def __init__(self, path: Path) -> None:
        self._pa = require("pyarrow", "parquet")
        self._pq = require("pyarrow.parquet", "parquet")
        self._path = path
        self._file: Any = None
        self._waiting: list[Any] = []

    def write(self, part: PredictionTable) -> None:
        columns = [_arrow(self._pa, column) for column in part.values()]
        self._waiting.append(self._pa.Table.from_arrays(columns, names=list(part)))
        if sum(map(len, self._waiting)) >= ROWS_AT_ONCE:
            self._write_waiting()

    def _write_waiting(self) -> None:
        table = self._pa.concat_tables(self._waiting)
        if self._file is None:
            self._file = self._pq.ParquetWriter(self._path, table.schema)
        self._file.write_table(table)
        self._waiting.clear()

    def close(self) -> None:
        if self._waiting:
            self._write_waiting()
        if self._file is not None:
            self._file.close()


def _arrow(pa: Any, column: list[str] | NDArray[Any]) -> Any:
    """Make a column from its bytes.

    `pyarrow.array` would import pandas, which takes longer than the writing itself.
    """
    if isinstance(column, list):
        texts = [text.encode(errors="replace") for text in column]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        return pa.Array.from_buffers(
            pa.string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
        )
    if column.dtype == bool:
        bits = np.packbits(column, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(column), [None, pa.py_buffer(bits)])
    whole = np.issubdtype(column.dtype, np.integer)
    kind = pa.int32() if whole else pa.float32()
    flat = np.ascontiguousarray(column, dtype=np.int32 if whole else np.float32).ravel()
    values = pa.Array.from_buffers(kind, len(flat), [None, pa.py_buffer(flat)])
    if column.ndim == 1:
        return values
    ends = np.arange(0, len(flat) + 1, column.shape[1], dtype=np.int32)
    return pa.ListArray.from_buffers(
        pa.list_(kind), len(column), [None, pa.py_buffer(ends)], children=[values]
    )


class _CsvWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", newline="", encoding="utf-8", errors="replace")

    def write(self, part: PredictionTable) -> None:
        if self._file.tell() == 0:
            self._file.write(_csv_line(part))
        self._file.writelines(_csv_line(row) for row in zip(*part.values(), strict=True))

    def close(self) -> None:
        self._file.close()


def _csv_line(row: Iterable[Any]) -> str:
    return ",".join(_cell(value) for value in row) + "\r\n"


def _cell(value: Any) -> str:
    """Format one cell: text is quoted, and lists of numbers are joined by semicolons.

    >>> _cell(np.array([0.25, 1 / 3])), _cell("a.png")
    ('0.25;0.333333', '"a.png"')
    """
    if isinstance(value, str):
        return csv_cell(value)
    if isinstance(value, np.ndarray):
        return ";".join(_cell(v) for v in value)
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
