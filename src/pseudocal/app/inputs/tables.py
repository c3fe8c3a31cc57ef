"""Arrays and tables: read them from .npy, .npz, .csv and .parquet files, and check them.

No pickle is opened. Inputs are finite real numbers.

Text cells of the CSV files that we write are guarded: a spreadsheet takes a cell that begins with
`=`, `+`, `-` or `@` for a formula, and so do some with the full-width variants of these. It may
read a file with another separator than we write, and then a cell begins within ours: after a
semicolon, a bar, a tab or a line break. So an apostrophe goes in front of each place where a
formula could begin. A cell that is a plain number, such as -2.5, is no formula and stays a number.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError, require
from pseudocal.files import what_is_at
from pseudocal.skipped import one_line
from pseudocal.stored import StoredArray

ARRAYS = frozenset({".npy", ".npz"})
TABLES = frozenset({".csv", ".parquet"})
# the kinds of NumPy dtypes that are real numbers: no complex numbers, dates or time differences
REAL = "fiu"
# the first bytes of files
NPY = b"\x93NUMPY"
NPZ = b"PK"
PICKLE_START = b"\x80"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
CHECKED_TOGETHER = 2**24  # bytes of rows that are read at a time to be checked
NUMBER = re.compile(r"[+-]?[0-9]{1,18}")  # a whole number that fits into 64 bits
MISSING = frozenset({"", "#N/A", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"})
# characters; the standard library stops at 2**17, which a long document exceeds
LONGEST_CELL = 2**24

FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"  # with the full-width variants; for a character class
# quotation marks, apostrophes and spaces before a formula
LEADING = "[ \x0b\x0c\xa0\u3000\ufeff\"']*"
SEPARATOR = "[;|\t\r\n]"  # where a cell begins; our own comma is always within quotation marks
# of the text; a spreadsheet may remove a tab or a line break there
FORMULA_AT_START = f"(?={LEADING}[{FORMULA}\t\r\n])"
# as Python and JavaScript understand it: in Python, $ also matches before a last line break
PLAIN_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$(?!\n)"
AT_START = f"^(?!{PLAIN_NUMBER}){FORMULA_AT_START}"
WITHIN = f"({SEPARATOR})(?={LEADING}[{FORMULA}])"
GUARD_AT_START = re.compile(f"^'{FORMULA_AT_START}")
GUARD_WITHIN = re.compile(WITHIN.replace(")", ")'", 1))


def check_regular(path: Path, what: str) -> None:
    """Refuse anything but a regular file: reading a pipe without a writer would never end.

    >>> check_regular(Path("nowhere.npy"), "an array")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected an array, got nowhere.npy: no such file
    """
    if not path.is_file():
        raise InputError(f"expected {what}, got {path}: {what_is_at(path)}")


def read_text(path: Path, what: str) -> str:
    """Read a text file in UTF-8, with or without a byte order mark."""
    check_regular(path, what)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not {what} in UTF-8") from error


def read_array(path: Path, field: str | None = None) -> NDArray[Any] | StoredArray:
    """Read an array from .npz, or open one in .npy, whose rows are read when they are needed."""
    check_regular(path, "a NumPy file")
    with path.open("rb") as file:
        head = file.read(6)
    try:
        if head.startswith(NPZ):
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return np.asarray(arrays[_field(list(arrays), field, path)])
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)  # only its header is read here
        if mapped.ndim == 0:
            return np.array(mapped)
        return StoredArray.of_map(mapped)
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
    """Read a matrix that `scipy.sparse.save_npz` wrote, as compressed rows; else None."""
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
            f"expected a sparse matrix with one input per row, got {matrix.dtype} of shape "
            f"{matrix.shape} in {path}"
        )
    check_finite(matrix.data[:, None], path)
    return matrix


def _what_is_wrong(path: Path, head: bytes, error: str) -> str:
    """Why a file could not be read: NumPy takes any unknown file for a pickle."""
    known = head.startswith((NPY, NPZ))
    if head.startswith(PICKLE_START) or (known and "object" in error.lower()):
        return f"{path} holds a pickle, which could run code: save arrays of numbers or texts"
    if known and "encrypted" in error:
        return f"{path} is encrypted: decrypt it first"
    if known:
        return f"{path} is truncated or damaged: {error}"
    if not head:
        return f"{path} is empty"
    return f"{path} is not a NumPy file"


def _field(fields: list[str], field: str | None, path: Path) -> str:
    if field is None and len(fields) == 1:
        return fields[0]
    if field not in fields:
        held = ", ".join(fields) or "(none)"
        raise InputError(f"{path} holds the arrays {held}", setting="field", value="NAME")
    return str(field)


def read_columns(path: Path) -> dict[str, NDArray[Any]]:
    """Read the columns of a CSV or parquet file by name."""
    check_regular(path, "a table")
    is_csv = path.suffix.lower() == ".csv"
    if is_csv:
        with path.open("rb") as file:
            head = file.read(4096)
        if head.startswith(UTF_16) or b"\0" in head:
            raise InputError(f"{path} is UTF-16 or not text: save it as UTF-8")
    try:
        if is_csv:
            columns = _read_csv(path)
        else:
            table = require("pyarrow.parquet", "parquet").read_table(path)
            arrays = [column.to_numpy() for column in table.columns]
            columns = list(zip(table.column_names, arrays, strict=True))
    except MissingExtraError:
        raise
    except Exception as error:  # of Arrow, csv.Error, OSError, UnicodeDecodeError
        raise InputError(f"the table {path} cannot be read: {one_line(error)}") from error
    names = [name for name, _ in columns]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"{path} has two columns {twice!r}: rename one")
    if is_csv:
        _check_header(path, names)
    return dict(columns)


def unused_columns(path: Path, columns: Iterable[str] | None) -> tuple[str, ...]:
    """The columns of a table that are not among those chosen; only its header is read."""
    if columns is None or path.suffix.lower() not in TABLES:
        return ()
    if path.suffix.lower() == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            names = [name.strip() for name in next(csv.reader(file), [])]
    else:
        names = require("pyarrow.parquet", "parquet").read_schema(path).names
    chosen = frozenset(columns)
    return tuple(name for name in names if name not in chosen)


def chosen_columns(path: Path, columns: Iterable[str] | None) -> dict[str, NDArray[Any]]:
    """Read some columns of a table that has rows."""
    table = read_columns(path)
    names = list(table) if columns is None else list(columns)
    missing = [name for name in names if name not in table]
    if missing:
        renamed = {name.replace(" ", "_") for name in table if " " in name}
        hint = "; LightGBM replaced the spaces" if renamed & set(missing) else ""
        raise InputError(
            f"{path} has no columns {', '.join(missing)}, only {', '.join(table)}{hint}",
            setting="features",
        )
    chosen = {name: table[name] for name in names}
    check_has_rows(chosen, path)
    return chosen


def check_has_rows(table: dict[str, NDArray[Any]], path: Path) -> None:
    """Refuse a table without rows or columns."""
    if not any(map(len, table.values())):
        raise InputError(f"the table {path} has no rows")


def read_table(path: Path, columns: Iterable[str] | None = None) -> NDArray[np.float64]:
    """Read numeric columns of a table as an array `(n, columns)`."""
    return numbers_of(chosen_columns(path, columns), path)


def numbers_of(table: dict[str, NDArray[Any]], path: Path) -> NDArray[np.float64]:
    """The columns of a table, which must be numeric, as an array `(n, columns)`."""
    names = list(table)
    not_numeric = [name for name in names if table[name].dtype.kind not in REAL]
    if not_numeric:
        kinds = {name: str(table[name].dtype).replace("object", "text") for name in not_numeric}
        shown = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        wrong = f"columns of {path} are not numeric: {shown}"
        if len(not_numeric) < len(names):
            raise InputError(wrong, setting="features", value="NAMES")
        raise InputError(
            f"{wrong}; if the model takes texts, name their column",
            setting="text",
            value=f'"{not_numeric[0]}"',
        )
    array = np.stack([table[name].astype(np.float64) for name in names], axis=1)
    check_finite(array, path, names)
    return array


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


def _read_csv(path: Path) -> list[tuple[str, NDArray[Any]]]:
    """Read the columns of a CSV file with their names, which are in its first line.

    A column of whole numbers is int64, one of other numbers float64, with NaN for an empty cell.
    All others are texts, as they are.
    """
    csv.field_size_limit(LONGEST_CELL)
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        names = next(reader, [])
        if len(names) == 1 and ";" in names[0]:  # its numbers may have commas too
            raise ValueError("semicolons between the cells: save it with commas")
        rows: list[list[str]] = []
        for row in reader:
            if row and len(row) != len(names):
                raise ValueError(
                    f"{len(row)} cells in line {reader.line_num}, {len(names)} in the first line"
                )
            if row:
                rows.append(row)
    if not names:
        raise ValueError("an empty file")
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return [(name.strip(), typed_column(cells)) for name, cells in zip(names, columns, strict=True)]


def typed_column(cells: tuple[str, ...]) -> NDArray[Any]:
    """Return the cells of a column as numbers, if they are numbers or missing, or else as texts.

    >>> typed_column(("1", "-2")), typed_column(("0.5", "")), typed_column(("1_0", "NA"))
    (array([ 1, -2]), array([0.5, nan]), array(['1_0', 'NA'], dtype=object))
    """
    plain = [cell.strip() for cell in cells]
    if plain and all(NUMBER.fullmatch(cell) for cell in plain):
        return np.array([int(cell) for cell in plain], dtype=np.int64)
    texts = text_array(cells)
    if all(cell in MISSING for cell in plain) or any("_" in cell for cell in plain):
        return texts
    try:
        return np.array(
            [math.nan if cell in MISSING else float(cell) for cell in plain], dtype=np.float64
        )
    except ValueError:
        return texts


def text_array(texts: Sequence[str]) -> NDArray[np.object_]:
    """Return texts as an array of Python strings.

    A NumPy string array would take as much memory for each text as for the longest.

    >>> text_array(["a", "bc"])
    array(['a', 'bc'], dtype=object)
    """
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


def _check_header(path: Path, names: list[str]) -> None:
    """Refuse a first line of measurements: it would be lost as names of the columns.

    >>> _check_header(Path("p.csv"), ["0", "1"])
    >>> _check_header(Path("p.csv"), ["0.25", "0.75"])
    Traceback (most recent call last):
    pseudocal.arrays.InputError: the first line of p.csv holds numbers (0.25, 0.75): put the names
    of the columns there
    """
    if not names or all(name.isdigit() for name in names):
        return
    if all(typed_column((name,)).dtype.kind in "if" for name in names):
        raise InputError(
            f"the first line of {path} holds numbers ({', '.join(names[:5])}): put the names of "
            "the columns there"
        )


def csv_cell(text: str) -> str:
    """A text as a cell of a CSV file: guarded, and quoted unless it is empty.

    >>> csv_cell("a.png"), csv_cell('12" tube'), csv_cell("")
    ('"a.png"', '"12"" tube"', '')
    """
    if not text:
        return ""
    return '"' + guarded_cell(text).replace('"', '""') + '"'


def guarded_cell(text: str) -> str:
    """A text in which no spreadsheet finds a formula; `plain_cell` gives the text back.

    >>> guarded_cell("=1+1.png"), guarded_cell("a;=1+1;.png")
    ("'=1+1.png", "a;'=1+1;.png")
    >>> guarded_cell("'=1"), guarded_cell("'80s.png")
    ("''=1", "'80s.png")
    >>> guarded_cell("-2.5"), guarded_cell("-2.5+1"), guarded_cell("'-2.5")
    ('-2.5', "'-2.5+1", "''-2.5")
    """
    return re.sub(AT_START, "'", re.sub(WITHIN, r"\1'", text))


def plain_cell(text: str) -> str:
    """The text that `guarded_cell` has guarded. Other texts stay as they are.

    >>> plain_cell("'=1+1.png"), plain_cell("a;'=1+1;.png")
    ('=1+1.png', 'a;=1+1;.png')
    >>> plain_cell("''-a"), plain_cell("'80s"), plain_cell("=1")
    ("'-a", "'80s", '=1')
    """
    return GUARD_AT_START.sub("", GUARD_WITHIN.sub(r"\1", text))
