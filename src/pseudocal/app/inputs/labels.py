"""Labels from a file, for evaluation only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import read_array, read_columns
from pseudocal.arrays import InputError


def read_labels(path: Path, names: Sequence[str], classes: Sequence[str] = ()) -> NDArray[np.int64]:
    """A class number for each input.

    A table with the columns `file` and `label` is matched by name; an array, a table without `file`, or a text file
    with one label a line are taken in the order of the data. Labels are class numbers, or names of classes.
    """
    if not path.is_file():
        raise InputError(f"expected a file of labels, got {path}: no such file")
    values = READERS.get(path.suffix.lower(), _lines)(path, names)
    if len(values) != len(names):
        raise InputError(f"expected {len(names)} labels, one for each input, got {len(values)} in {path}")
    return as_numbers(values, classes, path)


def as_numbers(values: NDArray[Any], classes: Sequence[str], path: Path) -> NDArray[np.int64]:
    """Class numbers, be they given as numbers, as text of numbers or as names.

    >>> as_numbers(np.array(["dog", "cat"]), ["cat", "dog"], Path("labels.txt"))
    array([1, 0])
    >>> as_numbers(np.array(["2", "0"]), ["cat", "dog", "eel"], Path("labels.txt"))
    array([2, 0])
    """
    if values.ndim != 1:
        raise InputError(f"expected one label for each input in {path}, got an array of shape {values.shape}")
    if np.issubdtype(values.dtype, np.floating) and not (values == np.floor(values)).all():
        raise InputError(f"expected whole class numbers in {path}, got {values[values != np.floor(values)][0]}")
    if np.issubdtype(values.dtype, np.number):
        return values.astype(np.int64)
    numbers = {name: i for i, name in enumerate(classes)}
    try:
        return np.array([numbers[str(v)] if str(v) in numbers else int(v) for v in values], dtype=np.int64)
    except ValueError as error:
        raise InputError(f"expected class numbers or names of the model's classes in {path}, got {error}") from error


def _table(path: Path, names: Sequence[str]) -> NDArray[Any]:
    table = read_columns(path)
    if "label" not in table:
        raise InputError(f"expected a column 'label' in {path}, got {', '.join(table)}")
    if "file" not in table:
        return table["label"]
    by_name = dict(zip((str(f) for f in table["file"]), table["label"], strict=True))
    missing = [name for name in names if name not in by_name]
    if missing:
        raise InputError(f"expected a label for each input, got none for {missing[0]} in {path}")
    return np.array([by_name[name] for name in names])


def _lines(path: Path, names: Sequence[str]) -> NDArray[Any]:
    try:
        return np.array([line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()])
    except UnicodeDecodeError as error:
        raise InputError(f"expected a file of labels, got {path}, which is neither a table nor text") from error


def _array(path: Path, names: Sequence[str]) -> NDArray[Any]:
    return read_array(path)


READERS = {".csv": _table, ".npy": _array, ".npz": _array, ".parquet": _table}
