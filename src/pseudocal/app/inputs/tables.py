"""Arrays and tables from files, checked: no pickle, no NaN, nothing but numbers."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError

NPY, NPZ = b"\x93NUMPY", b"PK"  # how the files begin
PICKLE = b"\x80"


def read_array(path: Path, field: str | None = None) -> NDArray[Any]:
    """An array from .npy, as a memory map, or from .npz, where `field` says which if there are several."""
    with path.open("rb") as file:
        head = file.read(6)
    try:
        if head.startswith(NPZ):
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return np.asarray(arrays[_field(list(arrays), field, path)])
        loaded: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return loaded
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(_what_is_wrong(path, head, str(error))) from error


def _what_is_wrong(path: Path, head: bytes, error: str) -> str:
    """NumPy takes whatever it does not know for a pickle; the first bytes know better."""
    known = head.startswith((NPY, NPZ))
    if head.startswith(PICKLE) or (known and "object" in error.lower()):
        return f"expected a NumPy file without pickles, got {path}, which holds one"
    if known:
        return f"expected a whole NumPy file, got {path}, which is truncated or damaged: {error}"
    return f"expected a NumPy file, got {path}, which is {'none' if head else 'empty'}"


def _field(fields: list[str], field: str | None, path: Path) -> str:
    if field is None and len(fields) == 1:
        return fields[0]
    if field not in fields:
        raise InputError(f"expected --field to name one of {', '.join(fields) or 'no arrays'} in {path}, got {field}")
    return str(field)


def read_columns(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a CSV or parquet file by name."""
    try:
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "cli") from error
    try:
        table = pyarrow.csv.read_csv(path) if path.suffix.lower() == ".csv" else pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise InputError(f"expected a table, got {path}: {str(error).splitlines()[0]}") from error
    return {name: table[name].to_numpy() for name in table.column_names}


def read_table(path: Path, columns: Iterable[str] | None = None) -> NDArray[np.float64]:
    """Numeric columns of a table as an array `(n, columns)`: those that are named, else all."""
    table = read_columns(path)
    names = list(table) if columns is None else list(columns)
    missing = [name for name in names if name not in table]
    if missing:
        raise InputError(f"expected the columns {', '.join(missing)} in {path}, got {', '.join(table)}")
    text = [name for name in names if not np.issubdtype(table[name].dtype, np.number)]
    if text:
        raise InputError(
            f"expected columns of numbers, got {', '.join(text)} in {path}: name the features with --features a,b,c"
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
