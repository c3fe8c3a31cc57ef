"""Read arrays and tables from files, and check them: no pickles, no NaN, real numbers only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.csv_tables import check_header, read_csv
from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError, require
from pseudocal.skipped import one_line
from pseudocal.stored import StoredArray

ARRAYS = frozenset({".npy", ".npz"})
TABLES = frozenset({".csv", ".parquet"})
# the kinds of NumPy dtypes that are real numbers: no complex numbers, dates or time differences
REAL = "fiu"
NPY, NPZ = b"\x93NUMPY", b"PK"  # the first bytes of the files
PICKLE_START = b"\x80"
CHECKED_TOGETHER = 2**24  # bytes of rows that are read at a time to be checked
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def check_regular(path: Path, what: str) -> None:
    """Refuse anything but a regular file: reading a pipe without a writer would never end.

    >>> check_regular(Path("nowhere.npy"), "an array")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected an array, got nowhere.npy: no such file

    Args:
        path: the file.
        what: what the file should hold, for the error message.

    """
    if not path.is_file():
        got = (
            "a folder"
            if path.is_dir()
            else "a pipe or a device"
            if path.exists()
            else "no such file"
        )
        raise InputError(f"expected {what}, got {path}: {got}")


def read_array(path: Path, field: str | None = None) -> NDArray[Any] | StoredArray:
    """Read an array from .npz, or open one in .npy, whose rows are read when they are needed.

    Args:
        path: the file.
        field: the name of the array to use if an .npz file holds several.

    """
    check_regular(path, "a NumPy file")
    with path.open("rb") as file:
        head = file.read(6)
    try:
        if head.startswith(NPZ):
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return np.asarray(arrays[_field(list(arrays), field, path)])
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)  # only its header is read here
        return StoredArray.of_map(mapped) if mapped.ndim else np.load(path, allow_pickle=False)
    except InputError:
        raise
    except Exception as error:  # a damaged header or archive may raise anything
        raise InputError(_what_is_wrong(path, head, one_line(error))) from error


def map_array(path: Path) -> NDArray[Any]:
    """Open an .npy file as a memory map.

    The file must be ours: a map of a file that somebody truncates ends the process with a bus
    error.
    """
    read_array(path)  # which says what is wrong with it
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def read_sparse(path: Path) -> Any:
    """Read a matrix that `scipy.sparse.save_npz` wrote, as compressed rows.

    None for any other file.
    """
    with path.open("rb") as file:
        if file.read(2) != NPZ:
            return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if not {"format", "shape", "data"} <= set(arrays):
                return None
        from scipy import sparse

        loaded: Any = sparse.load_npz(path)
        matrix = loaded.tocsr()
    except Exception as error:  # a damaged archive may raise anything
        raise InputError(f"expected a sparse matrix, got {path}: {one_line(error)}") from error
    if matrix.dtype.kind not in REAL or 0 in matrix.shape:
        raise InputError(
            f"expected a sparse matrix with one input per row, got {matrix.dtype} of shape {matrix.shape}"
        )
    check_finite(matrix.data[:, None], path)
    return matrix


def _what_is_wrong(path: Path, head: bytes, error: str) -> str:
    """Explain why a file could not be read.

    NumPy takes any unknown file for a pickle, the first bytes tell more.
    """
    known = head.startswith((NPY, NPZ))
    if head.startswith(PICKLE_START) or (known and "object" in error.lower()):
        return f"expected a NumPy file without pickles, got {path}, which holds one"
    if known and "encrypted" in error:
        return f"expected a NumPy file that is not encrypted, got {path}"
    if known:
        return f"expected a whole NumPy file, got {path}, which is truncated or damaged: {error}"
    return f"expected a NumPy file, got {path}, which is {'not one' if head else 'empty'}"


def _field(fields: list[str], field: str | None, path: Path) -> str:
    if field is None and len(fields) == 1:
        return fields[0]
    if field not in fields:
        held = ", ".join(fields) or "nothing"
        raise InputError(
            f"expected the name of an array in {path}, which holds {held}, got {field}: give field=NAME"
        )
    return str(field)


def read_columns(path: Path) -> dict[str, NDArray[Any]]:
    """Read the columns of a CSV or parquet file by name."""
    check_regular(path, "a table")
    is_csv = path.suffix.lower() == ".csv"
    if is_csv:
        _check_encoding(path)
    read = read_csv if is_csv else _read_parquet
    try:
        columns = read(path)
    except MissingExtraError:
        raise
    except (
        Exception
    ) as error:  # Arrow's own errors, csv.Error, OSError for a damaged file, UnicodeDecodeError
        raise InputError(f"expected a table, got {path}: {one_line(error)}") from error
    names = [name for name, _ in columns]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"expected columns with different names, got {twice!r} twice in {path}")
    if is_csv:
        check_header(path, names)
    return dict(columns)


def _read_parquet(path: Path) -> list[tuple[str, NDArray[Any]]]:
    table = require("pyarrow.parquet", "parquet").read_table(path)
    return [
        (name, column.to_numpy())
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]


def _check_encoding(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(UTF_16) or b"\0" in head:
        raise InputError(f"expected a CSV file in UTF-8, got {path}, which is UTF-16 or not text")


def read_table(path: Path, columns: Iterable[str] | None = None) -> NDArray[np.float64]:
    """Read numeric columns of a table as an array `(n, columns)`.

    Args:
        path: the file.
        columns: the names of the columns, in order; None for all.

    """
    table = read_columns(path)
    names = list(table) if columns is None else list(columns)
    missing = [name for name in names if name not in table]
    if missing:
        raise InputError(
            f"expected the columns {', '.join(missing)} in {path}, got {', '.join(table)}"
        )
    if not names or len(table[names[0]]) == 0:
        raise InputError(f"expected a table with rows of numbers, got none in {path}")
    not_numeric = [
        f"{name} ({_kind(table[name])})" for name in names if table[name].dtype.kind not in REAL
    ]
    if not_numeric:
        others = "" if columns is not None else "name the features with features=a,b,c, or "
        raise InputError(
            f"expected numeric columns, got {', '.join(not_numeric)} in {path}: {others}"
            f"give text={not_numeric[0].split(' (')[0]} for a model of texts"
        )
    array = np.stack([table[name].astype(np.float64) for name in names], axis=1)
    check_finite(array, path, names)
    return array


def _kind(column: NDArray[Any]) -> str:
    return "text" if column.dtype.kind == "O" else str(column.dtype)


def check_finite(
    array: NDArray[Any] | StoredArray, path: Path, names: list[str] | None = None
) -> None:
    """Refuse NaN and infinity, and say where they are."""
    if not np.issubdtype(array.dtype, np.floating):
        return
    step = max(1, CHECKED_TOGETHER * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), step):
        rows = array[start : start + step]
        if not np.isfinite(rows).all():
            row, *rest = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
            where = f"column {names[rest[0]]!r}" if names else f"position {tuple(rest)}"
            got = rows[(row, *rest)]
            raise InputError(
                f"expected finite numbers, got {got} in row {start + row}, {where} of {path}"
            )
