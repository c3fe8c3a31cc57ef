"""Recognise what DATA is and open it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.pixels import Pixels
from pseudocal.app.inputs.source import Arrays, Inputs, Pictures
from pseudocal.app.inputs.tables import check_finite, read_array, read_table
from pseudocal.arrays import InputError

PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
ARRAYS = {".npy", ".npz"}
TABLES = {".csv", ".parquet"}


def holds_pictures(data: str) -> bool:
    """Whether DATA is a folder or a list of paths, rather than numbers.

    >>> holds_pictures("-"), holds_pictures("features.parquet")
    (True, False)
    """
    return Path(data).suffix.lower() not in ARRAYS | TABLES or Path(data).is_dir()


def open_inputs(
    data: str,
    *,
    pixels: Pixels | None = None,
    dtype: str | None = None,
    columns: Iterable[str] | None = None,
    field: str | None = None,
    stdin: TextIO | None = None,
) -> Inputs:
    """Open a folder or a list of pictures, an array or a table.

    `columns` are the features of a table, in the model's order; `field` is the array of an .npz file.
    """
    path = Path(data)
    if data != "-" and not path.exists():
        raise InputError(f"expected a folder, a list of paths, an array or a table, got {data}: no such file")
    if holds_pictures(data):
        assert pixels is not None
        return _pictures(data, pixels, stdin or sys.stdin)
    if path.suffix.lower() in TABLES:
        return Arrays(read_table(path, columns), dtype or "float64")
    return Arrays(_rows(read_array(path, field), path), dtype or "float32")


def _rows(array: NDArray[Any], path: Path) -> NDArray[Any]:
    if array.ndim < 2 or len(array) == 0 or not np.issubdtype(array.dtype, np.number):
        raise InputError(f"expected an array of inputs, one a row, got {array.dtype} of shape {array.shape} in {path}")
    if array.nbytes < 2**31:  # what is larger is checked as the model reads it
        check_finite(array, path)
    return array


def _pictures(data: str, pixels: Pixels, stdin: TextIO) -> Pictures:
    path = Path(data)
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.suffix.lower() in PICTURES and _visible(p, path) and p.is_file())
        if not found:
            raise InputError(f"expected a folder with pictures ({', '.join(sorted(PICTURES))}), got {data} with none")
        return Pictures(found, path, pixels)
    if path.suffix.lower() in PICTURES:
        raise InputError(
            f"expected a folder or a list of pictures, since pairs of them are mixed, got one picture {data}"
        )
    base = Path.cwd() if data == "-" else path.parent
    listed = [base / line for line in _lines(stdin if data == "-" else path)]
    if not listed:
        raise InputError(f"expected a list of paths, one a line, got {data}, which is empty")
    return Pictures(listed, base, pixels)


def _visible(path: Path, root: Path) -> bool:
    return not any(part.startswith(".") for part in path.relative_to(root).parts)


def _lines(source: Path | TextIO) -> list[str]:
    try:
        text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source.read()
    except UnicodeDecodeError as error:
        raise InputError(f"expected a text file of paths, got {source}, which is not text") from error
    return [line for line in text.splitlines() if line.strip()]
