"""The predictions of every input as a table, parquet or CSV, and what is kept of the target that they are of."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import csv_cell
from pseudocal.app.models.files import OutputType
from pseudocal.app.models.model import SECOND_ONLY
from pseudocal.app.report.record import from_json, to_json
from pseudocal.app.report.signature import is_signed, signature_of
from pseudocal.arrays import Floats, InputError, Logits, softmax
from pseudocal.calibrators import Calibration
from pseudocal.extras import require
from pseudocal.files import brief, load_json, own_file, replacing
from pseudocal.metrics.images import ImageRow
from pseudocal.passes import block_starts, let_go
from pseudocal.stored import StoredArray

TOP_CLASSES = 5
CHUNK = 1 << 22  # logits that are processed together, which takes some tens of megabytes
ROWS_AT_ONCE = 65_536  # rows of a table that are written together

PredictionTable = dict[
    str, list[str] | NDArray[Any]
]  # columns of one length, by name; arrays may be (n, k)


def row_chunks(logits: Logits | StoredArray) -> Iterator[slice]:
    """Yield slices of rows of bounded size.

    The memory of a memory map is released after each slice.

    >>> list(row_chunks(np.zeros((5, 2))))
    [slice(0, 5, None)]

    Args:
        logits: `(n, classes)`: an array, a memory map or an array in a file.

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
    """The most likely classes of each input, most likely first, with their probabilities before and after calibration.

    >>> from pseudocal import TemperatureScaling
    >>> half = Calibration("pseudocal", TemperatureScaling(2.0))
    >>> confidences = Confidences.of(np.array([[0.0, np.log(9.0)]]), half)
    >>> confidences.top, confidences.before.round(3), confidences.after.round(3)   # 9 to 1, and its root: 3 to 1
    (array([[1, 0]]), array([[0.9, 0.1]]), array([[0.75, 0.25]]))

    Attributes:
        top: classes `(n, k)`.
        before: their probabilities `(n, k)` before calibration.
        after: their probabilities `(n, k)` after it.

    """

    top: NDArray[np.int64]
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
        both = (
            np.take_along_axis(p, top, axis=1)
            for p in (softmax(logits), calibration.probabilities(logits))
        )
        return cls(top, *both)


@dataclass(frozen=True)
class Target:
    """What is kept of a target beside its logits.

    Attributes:
        names: what the inputs are called, in the order of the logits.
        image_files: the file of each; None if they are rows of an array or a table.
        data: the file of the rows; None for images.
        field: the array of an .npz file, or the column of texts, that was used.
        classes: the names of the classes, as far as they have names.
        labels: the class of each input, for evaluation only; None without labels.
        model: the model as it can be opened again; the file of the outputs if `saved`.
        output: the output of the model that holds the logits.
        outputs: whether the model gives "logits" or "probabilities".
        binary: one number per input stands for two classes.
        saved: whether the outputs came from a file, so that there is no model to write again.
        signature: says that this user wrote the paths above on this machine; None if nobody says
            so.
        format: what kind of file `target.json` is.
        format_version: of which version.

    """

    names: tuple[str, ...]
    image_files: tuple[str, ...] | None
    data: str | None
    field: str | None
    classes: tuple[str, ...]
    labels: tuple[int, ...] | None
    model: str
    output: str | None
    outputs: OutputType | None
    binary: bool
    saved: bool = False
    signature: str | None = None
    format: Literal["pseudocal-target"] = "pseudocal-target"
    format_version: Literal[3] = 3

    def __post_init__(self) -> None:
        if (
            len(
                {
                    len(part)
                    for part in (self.names, self.image_files, self.labels)
                    if part is not None
                }
            )
            > 1
        ):
            raise InputError(
                "expected names, images and labels of the same inputs, got different ones"
            )
        if not self.names:
            raise InputError("expected at least one input, got none")
        if self.labels is not None and min(self.labels) < 0:
            raise InputError(f"expected labels of at least 0, got {min(self.labels)}")
        if self.model.startswith(SECOND_ONLY):
            raise InputError(
                f"expected a model, got {self.model}, which can only be a second opinion"
            )
        for path in (*(self.image_files or ()), self.data or "", self.model):
            check_path(path)

    @property
    def paths(self) -> list[Any]:
        """The paths outside the record, as far as they are opened again, in the order in which they are signed."""
        return [self.image_files, self.data, self.model]

    @property
    def signed(self) -> bool:
        """Whether this user wrote the paths on this machine."""
        return is_signed(self.paths, self.signature)

    def save(self, folder: Path) -> None:
        """Write `target.json`, signed: whoever saves it has named its paths, or trusts them."""
        signed = replace(self, signature=signature_of(self.paths))
        with replacing(folder / "target.json") as aside:
            aside.write_text(json.dumps(to_json(signed), indent=0) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Target:
        """Read what `save` wrote."""
        path = own_file(folder, "target.json")
        if not path.exists():
            raise InputError(
                f"expected a folder in which a calibration has kept its logits, got {folder} without {path.name}: "
                "either no calibration was written there, or it kept none, like one with keep_logits=False, or on a "
                "cluster over files of rows or an address"
            )
        content = load_json(path, "the record of a target")
        try:
            target: Target = from_json(cls, content, "target")
        except InputError as error:
            raise InputError(f"expected the record of a target, got {path}: {error}") from error
        return target


def check_path(text: str) -> None:
    r"""Refuse text that cannot be the name of a file.

    >>> check_path("a\0b")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected the name of a file, got 'a\x00b'
    """
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InputError(f"expected the name of a file, got {brief(text)}") from None
    if "\0" in text:
        raise InputError(f"expected the name of a file, got {brief(text)}")


def row_table(names: Sequence[str], seen: Confidences, classes: Sequence[str]) -> PredictionTable:
    """Make a table with one row per input of a classifier.

    >>> seen = Confidences(np.array([[1, 0]]), np.array([[0.9, 0.1]]), np.array([[0.75, 0.25]]))
    >>> row_table(["a.png"], seen, ["cat", "dog"])["class_name"]
    ['dog']
    """
    top = seen.top[:, 0]
    return {
        "file": list(names),
        "class": top,
        "class_name": _names(top, classes),
        "confidence_before": seen.before[:, 0],
        "confidence_after": seen.after[:, 0],
        "top": seen.top,
        "top_before": seen.before,
        "top_after": seen.after,
    }


def image_table(
    names: Sequence[str], rows: Sequence[ImageRow], classes: Sequence[str]
) -> PredictionTable:
    """Make a table with one row per image of a segmenter.

    >>> image_table(["a.png"], [ImageRow(np.array([0.25, 0.75]), 0.9, 0.8)], ["sky", "road"])["class_fraction"]
    array([0.75])

    Args:
        names: the name of each image.
        rows: the class shares and mean confidences of each image.
        classes: the class names, as far as they are known.

    """
    fractions = np.stack([row.fractions for row in rows])
    top = fractions.argmax(axis=1)
    return {
        "file": list(names),
        "class": top,
        "class_name": _names(top, classes),
        "class_fraction": fractions.max(axis=1),
        "confidence_before": np.array([row.before for row in rows]),
        "confidence_after": np.array([row.after for row in rows]),
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


def write_predictions(
    folder: Path, tables: Iterable[PredictionTable], *, kind: str | None = None
) -> str:
    """Write `predictions.parquet` or `predictions.csv` and return the name of the file.

    Args:
        folder: the folder to write it to.
        tables: the parts of the table in order, all with the same columns; they may be small.
        kind: "parquet" or "csv"; None for parquet if pyarrow is installed, else CSV.

    """
    kind = kind or ("parquet" if find_spec("pyarrow") else "csv")
    path = folder / f"predictions.{kind}"
    with replacing(path) as aside:
        WRITERS[kind](aside, _grouped(tables))
    return path.name


def _grouped(tables: Iterable[PredictionTable]) -> Iterator[PredictionTable]:
    """Join parts until they have enough rows to be written together."""
    group: list[PredictionTable] = []
    rows = 0
    for table in tables:
        group.append(table)
        rows += len(table["file"])
        if rows >= ROWS_AT_ONCE:
            yield _joined(group)
            group = []
            rows = 0
    if group:
        yield _joined(group)


def _joined(tables: list[PredictionTable]) -> PredictionTable:
    columns = {name: [table[name] for table in tables] for name in tables[0]}
    return {name: _column(parts) for name, parts in columns.items()}


def _column(parts: list[Any]) -> list[str] | NDArray[Any]:
    return (
        [text for part in parts for text in part]
        if isinstance(parts[0], list)
        else np.concatenate(parts)
    )


def _write_parquet(path: Path, tables: Iterator[PredictionTable]) -> None:
    pa = require("pyarrow", "parquet")
    pq = require("pyarrow.parquet", "parquet")
    writer = None
    try:
        for part in tables:
            table = pa.Table.from_arrays(
                [_arrow(pa, column) for column in part.values()], names=list(part)
            )
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


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
    kind, dtype = (
        (pa.int32(), np.int32)
        if np.issubdtype(column.dtype, np.integer)
        else (pa.float32(), np.float32)
    )
    flat = np.ascontiguousarray(column, dtype=dtype).ravel()
    values = pa.Array.from_buffers(kind, len(flat), [None, pa.py_buffer(flat)])
    if column.ndim == 1:
        return values
    ends = np.arange(0, len(flat) + 1, column.shape[1], dtype=np.int32)
    return pa.ListArray.from_buffers(
        pa.list_(kind), len(column), [None, pa.py_buffer(ends)], children=[values]
    )


def _write_csv(path: Path, tables: Iterator[PredictionTable]) -> None:
    with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
        for i, table in enumerate(tables):
            if i == 0:
                file.write(_csv_line(table))
            file.writelines(_csv_line(row) for row in zip(*table.values(), strict=True))


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


WRITERS = {"csv": _write_csv, "parquet": _write_parquet}
