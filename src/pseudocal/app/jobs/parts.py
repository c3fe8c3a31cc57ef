"""The tables of predictions that workers write, a part each: rows of probabilities, or a row for each image."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.report import image_table
from pseudocal.arrays import Probabilities
from pseudocal.extras import MissingExtraError
from pseudocal.metrics.images import ImageRow


def part_columns(names: list[str], said: Probabilities | list[ImageRow], classes: Sequence[str]) -> dict[str, Any]:
    """The columns of a part; those of images are the columns that predictions of images have anywhere."""
    pa = _pyarrow()
    if isinstance(said, list):
        columns = image_table(names, said, classes)
        kinds = {"file": pa.string(), "class": pa.int32(), "class_name": pa.string(), "shares": pa.list_(pa.float32())}
        return {name: pa.array(list(column), kinds.get(name, pa.float32())) for name, column in columns.items()}
    rows: NDArray[np.int64] = np.arange(len(names))
    top = said.argmax(axis=1)
    flat = pa.array(np.ascontiguousarray(said, dtype=np.float32).ravel())
    return {
        "file": pa.array(names, pa.string()),
        "row": pa.array(rows),
        "class": pa.array(top.astype(np.int32)),
        "confidence": pa.array(said[rows, top].astype(np.float32)),
        "probabilities": pa.FixedSizeListArray.from_arrays(flat, said.shape[1]),
    }


def write_part(path: Path, columns: dict[str, Any]) -> None:
    """Write a part aside and rename it, so that one that is there is whole."""
    pa = _pyarrow()
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pa.parquet.write_table(pa.table(columns), aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def read_images(out: Path) -> Iterator[tuple[str, ImageRow]]:
    """The name of each image and what was written of it, part by part."""
    wanted = ["file", "shares", "confidence_before", "confidence_after"]
    for path in sorted(out.glob("part-*.parquet")):
        columns = _pyarrow().parquet.read_table(path, columns=wanted).to_pydict()
        for name, shares, before, after in zip(*(columns[key] for key in wanted), strict=True):
            yield name, ImageRow(np.array(shares), before, after)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "cli") from error
    return pyarrow
