"""Arrays and tables from files, checked: no pickle, no NaN, nothing but real numbers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.omissions import one_line

ARRAYS = frozenset({".npy", ".npz"})
TABLES = frozenset({".csv", ".parquet"})
REAL = "fiu"  # the kinds of NumPy types that are real numbers: no complex ones, no dates, no spans of time
NPY, NPZ = b"\x93NUMPY", b"PK"  # how the files begin
PICKLE_START = b"\x80"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def check_regular(path: Path, what: str) -> None:
    """Refuse what is no regular file: a pipe without a writer would never be read to its end.

    >>> check_regular(Path("nowhere.npy"), "an array")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected an array, got nowhere.npy: no such file

    Args:
        path: the file.
        what: what it should hold, for the error.

    """
    if not path.is_file():
        got = "a folder" if path.is_dir() else "a pipe or a device" if path.exists() else "no such file"
        raise InputError(f"expected {what}, got {path}: {got}")


def read_array(path: Path, field: str | None = None) -> NDArray[Any]:
    """An array from .npy, as a memory map, or from .npz.

    Args:
        path: the file.
        field: which array of an .npz file, where it holds several.

    """
    check_regular(path, "a NumPy file")
    with path.open("rb") as file:
        head = file.read(6)
    try:
        if head.startswith(NPZ):
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return np.asarray(arrays[_field(list(arrays), field, path)])
        loaded: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return loaded
    except InputError:
        raise
    except Exception as error:  # a damaged header or archive raises whatever it likes
        raise InputError(_what_is_wrong(path, head, one_line(error))) from error


def _what_is_wrong(path: Path, head: bytes, error: str) -> str:
    """NumPy takes whatever it does not know for a pickle; the first bytes know better."""
    known = head.startswith((NPY, NPZ))
    if head.startswith(PICKLE_START) or (known and "object" in error.lower()):
        return f"expected a NumPy file without pickles, got {path}, which holds one"
    if known and "encrypted" in error:
        return f"expected a NumPy file that is not encrypted, got {path}"
    if known:
        return f"expected a whole NumPy file, got {path}, which is truncated or damaged: {error}"
    return f"expected a NumPy file, got {path}, which is {'none' if head else 'empty'}"


def _field(fields: list[str], field: str | None, path: Path) -> str:
    if field is None and len(fields) == 1:
        return fields[0]
    if field not in fields:
        held = ", ".join(fields) or "nothing"
        raise InputError(f"expected the name of an array in {path}, which holds {held}, got {field}: give field=NAME")
    return str(field)


def read_columns(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a CSV or parquet file by name."""
    check_regular(path, "a table")
    csv, parquet = require("pyarrow.csv", "cli"), require("pyarrow.parquet", "cli")
    is_csv = path.suffix.lower() == ".csv"
    if is_csv:
        _check_encoding(path)
    try:
        table = csv.read_csv(path) if is_csv else parquet.read_table(path)
        names = list(table.column_names)
        columns = [column.to_numpy() for column in table.columns]
    except Exception as error:  # Arrow's own, OSError for a damaged parquet file, UnicodeDecodeError for its names
        raise InputError(f"expected a table, got {path}: {one_line(error)}") from error
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"expected columns of different names, got {twice!r} twice in {path}")
    return dict(zip(names, columns, strict=True))


def _check_encoding(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(UTF_16) or b"\0" in head:
        raise InputError(f"expected a CSV file in UTF-8, got {path}, which is UTF-16 or not text")


def read_table(path: Path, columns: Iterable[str] | None = None) -> NDArray[np.float64]:
    """Numeric columns of a table as an array `(n, columns)`.

    Args:
        path: the file.
        columns: the names of the columns, in order; None for all.

    """
    table = read_columns(path)
    names = list(table) if columns is None else list(columns)
    missing = [name for name in names if name not in table]
    if missing:
        raise InputError(f"expected the columns {', '.join(missing)} in {path}, got {', '.join(table)}")
    other = [f"{name} ({table[name].dtype})" for name in names if table[name].dtype.kind not in REAL]
    if other:
        raise InputError(
            f"expected columns of numbers, got {', '.join(other)} in {path}: name the features with features=a,b,c"
        )
    if not names or len(table[names[0]]) == 0:
        raise InputError(f"expected a table with rows of numbers, got none in {path}")
    array = np.stack([table[name].astype(np.float64) for name in names], axis=1)
    check_finite(array, path, names)
    return array


def check_finite(array: NDArray[Any], path: Path, names: list[str] | None = None) -> None:
    """Refuse what is not a finite number, saying where it stands."""
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        row, *rest = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        where = f"column {names[rest[0]]!r}" if names else f"position {tuple(rest)}"
        raise InputError(f"expected finite numbers, got {array[(row, *rest)]} in row {row}, {where} of {path}")
