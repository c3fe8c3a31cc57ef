"""Tables in CSV files, read with the standard library.

Numbers as numbers, everything else as text.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError

NUMBER = re.compile(r"[+-]?[0-9]{1,18}")  # a whole number that fits into 64 bits
MISSING = frozenset({"", "#N/A", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"})
LONGEST_CELL = (
    2**24
)  # characters of a cell; the standard library stops at 2**17, which a long document exceeds


def read_csv(path: Path) -> list[tuple[str, NDArray[Any]]]:
    """Read the columns of a CSV file with their names, which are in its first line.

    A column of whole numbers is int64, one of other numbers float64, with NaN for an empty cell.
    All others are texts, as they are.

    Args:
        path: the file, in UTF-8.

    """
    csv.field_size_limit(LONGEST_CELL)
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        names = next(reader, [])
        if (
            len(names) == 1 and ";" in names[0]
        ):  # its numbers may have commas too, so it is not read
            raise ValueError("expected commas between the cells, got semicolons")
        rows: list[list[str]] = []
        for row in reader:
            if row and len(row) != len(names):
                raise ValueError(
                    f"expected {len(names)} cells as in the first line, got {len(row)} in line {reader.line_num}"
                )
            if row:
                rows.append(row)
    if not names:
        raise ValueError("an empty file")
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return [
        (name.strip(), typed_column(column)) for name, column in zip(names, columns, strict=True)
    ]


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


def check_header(path: Path, names: list[str]) -> None:
    """Refuse a first line of measurements: it would be lost as names of the columns.

    >>> check_header(Path("p.csv"), ["0", "1"])
    >>> check_header(Path("p.csv"), ["0.25", "0.75"])
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected the names of the columns in the first line of p.csv, got
    numbers: 0.25, 0.75

    Args:
        path: the file, for the error message.
        names: what its first line holds.

    """
    if (
        names
        and all(typed_column((name,)).dtype.kind in "if" for name in names)
        and not all(map(str.isdigit, names))
    ):
        got = ", ".join(names[:5])
        raise InputError(
            f"expected the names of the columns in the first line of {path}, got numbers: {got}"
        )
