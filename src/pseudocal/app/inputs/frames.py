"""Tables with text, dates or missing values: rows of a pandas data frame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import REAL, chosen_columns
from pseudocal.arrays import InputError
from pseudocal.batches import take
from pseudocal.extras import require


@dataclass(frozen=True)
class FrameSet:
    """Rows of a data frame, named by their number. A batch of them is a data frame.

    Attributes:
        frame: the columns that the model takes.
        numeric: whether all columns are numbers, some of them missing.

    """

    frame: Any
    numeric: bool = False

    def __len__(self) -> int:
        return len(self.frame)

    def name(self, i: int) -> str:
        """Return the number of the row as text."""
        return str(i)

    def read(self, i: int) -> NDArray[Any]:
        """Return row i as an array of objects; models get data frames from `rows`."""
        row: NDArray[Any] = self.frame.iloc[i].to_numpy(dtype=object)
        return row

    def rows(self, numbers: NDArray[np.intp]) -> Any:
        """Return the rows with these numbers as a data frame."""
        return take(self.frame, numbers)

    def image_file(self, i: int) -> Path | None:
        """Return None: a row is not an image."""
        return None


def open_frame(path: Path, columns: Iterable[str] | None) -> FrameSet | None:
    """Open a table as a data frame; None if all of its values are numbers.

    Text, categories, dates and missing values are as pandas reads them.
    """
    table = chosen_columns(path, columns)
    numeric = all(column.dtype.kind in REAL for column in table.values())
    if numeric and not any(np.isnan(column).any() for column in table.values()):
        return None
    pandas = require("pandas", "sklearn")
    if path.suffix.lower() == ".csv":
        frame = pandas.read_csv(path, encoding="utf-8-sig", index_col=False)
        frame.columns = [str(name).strip() for name in frame.columns]
    else:
        arrow = require("pyarrow.parquet", "parquet").read_table(path)
        frame = arrow.to_pandas(ignore_metadata=True)
    rows = len(next(iter(table.values())))
    if len(frame) != rows or not set(table) <= set(frame.columns):
        raise InputError(f"pandas reads {path} as another table: save it as Parquet")
    return FrameSet(frame[list(table)], numeric)
