"""Labels from a file, for evaluation only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.csv_cells import plain_cell
from pseudocal.app.inputs.csv_tables import NUMBER, text_array
from pseudocal.app.inputs.tables import REAL, check_regular, read_array, read_columns
from pseudocal.arrays import InputError


def read_labels(path: Path, names: Sequence[str], classes: Sequence[str] = ()) -> NDArray[np.int64]:
    """Read the class number of each input.

    A table with the columns `file` and `label` is matched by name. The labels of an array, of a
    table without `file`, or of a text file with one label per line are taken in the order of the
    data.

    Args:
        path: the file.
        names: the names of the inputs, in order.
        classes: the class names; a label may be one of these instead of a number.

    """
    check_regular(path, "a file of labels")
    values = LABEL_READERS.get(path.suffix.lower(), _lines)(path, names)
    if len(values) != len(names):
        raise InputError(
            f"expected {len(names)} labels, one for each input, got {len(values)} in {path}"
        )
    return as_numbers(values, classes, path)


def as_numbers(values: NDArray[Any], classes: Sequence[str], path: Path) -> NDArray[np.int64]:
    """Turn labels into class numbers; they may be numbers, numbers as text, or class names.

    >>> as_numbers(np.array(["dog", "cat"]), ["cat", "dog"], Path("labels.txt"))
    array([1, 0])
    >>> as_numbers(np.array(["2", "0"]), ["cat", "dog", "eel"], Path("labels.txt"))
    array([2, 0])
    >>> as_numbers(np.array(["1_0"]), [], Path("labels.txt"))
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected class numbers or names of the model's classes in
    labels.txt, got '1_0'
    """
    if values.ndim != 1:
        raise InputError(
            f"expected one label for each input in {path}, got an array of shape {values.shape}"
        )
    if values.dtype.kind in REAL + "b":
        return _whole_numbers(values, path)
    if values.dtype.kind not in "OSUT":  # complex numbers, dates and time differences
        raise InputError(f"expected class numbers or names in {path}, got {values.dtype}")
    numbers = {name: i for i, name in enumerate(classes)}
    return np.array([_number(value, numbers, path) for value in values.tolist()], dtype=np.int64)


def _whole_numbers(values: NDArray[Any], path: Path) -> NDArray[np.int64]:
    if values.dtype.kind == "f":
        values = values.astype(np.float64)  # 2**63 is beyond float16
        bad = ~(np.abs(values) < 2.0**63) | (values != np.floor(values))  # NaN compares as False
    else:
        bad = values > np.iinfo(np.int64).max
    if bad.any():
        raise InputError(
            f"expected whole class numbers of at most 64 bits in {path}, got {values[bad][0]}"
        )
    return values.astype(np.int64)


def _number(value: Any, numbers: dict[str, int], path: Path) -> int:
    """Return the number of one class; `value` is text, or any object from a table."""
    if value is None or value == "":
        raise InputError(f"expected a label for each input in {path}, got an empty one")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    for name in (text, plain_cell(text)):
        if name in numbers:
            return numbers[name]
    if isinstance(value, str | bytes | int) and NUMBER.fullmatch(text):
        return int(text)
    short = repr(text if len(text) <= 50 else text[:50] + "...")
    raise InputError(
        f"expected class numbers or names of the model's classes in {path}, got {short}"
    )


def _table(path: Path, names: Sequence[str]) -> NDArray[Any]:
    table = read_columns(path)
    if "label" not in table:
        raise InputError(f"expected a column 'label' in {path}, got {', '.join(table)}")
    if "file" not in table:
        return table["label"]
    by_name: dict[str, Any] = {}
    for name, label in zip(map(str, table["file"]), table["label"], strict=True):
        if by_name.setdefault(name, label) != label:
            raise InputError(
                f"expected one label for {name} in {path}, got both {by_name[name]} and {label}"
            )
    plain = {plain_cell(name): label for name, label in by_name.items()}
    if len(plain) == len(by_name) and all(name in plain for name in names):  # a table that we wrote
        by_name = plain
    missing = [name for name in names if name not in by_name]
    if missing:
        raise InputError(f"expected a label for each input, got none for {missing[0]} in {path}")
    return np.array([by_name[name] for name in names], dtype=table["label"].dtype)


def _lines(path: Path, names: Sequence[str]) -> NDArray[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected a file of labels, got {path}, which is neither a table nor text"
        ) from error
    return text_array([line.strip() for line in text.splitlines() if line.strip()])


def _array(path: Path, names: Sequence[str]) -> NDArray[Any]:
    return np.asarray(read_array(path))


LABEL_READERS = {".csv": _table, ".npy": _array, ".npz": _array, ".parquet": _table}
