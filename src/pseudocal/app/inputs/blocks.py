"""The blocks of a target that a worker reads by itself.

Local or remote files of rows, or part of a set of inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.addresses import SHARD_SUFFIXES, fetch_to, files_at
from pseudocal.app.inputs.input_sets import InputSet, read_batches
from pseudocal.app.inputs.tables import REAL, read_array, read_table
from pseudocal.arrays import InputError
from pseudocal.batches import Batch
from pseudocal.calibrators.blocks import Contents, RowBlock
from pseudocal.skipped import Skipped


@dataclass(frozen=True)
class Shard:
    """One file of inputs, on disk or anywhere that fsspec can reach.

    Attributes:
        url: the path or address of the file.
        field: the name of the array to use if an .npz file holds several.
        columns: the feature columns of a table; None for all.
        dtype: the dtype of the model's inputs; None for float64 from a table and the file's own
            float type otherwise.

    """

    url: str
    field: str | None = None
    columns: tuple[str, ...] | None = None
    dtype: str | None = None

    @property
    def name(self) -> str:
        """The address of the file."""
        return self.url

    def read(self, source: Any = None) -> NDArray[Any]:
        """Read all rows, as floats because pairs of rows are mixed.

        Args:
            source: not used: a shard knows its own file. Blocks of other kinds read from a shared
                source.

        """
        if "://" not in self.url:
            return self._rows(Path(self.url))
        with TemporaryDirectory(prefix="pseudocal-") as folder:
            local = Path(folder) / self.url.rpartition("/")[2]
            fetch_to(self.url, local)
            try:
                return self._rows(local)
            except InputError as error:
                raise InputError(str(error).replace(str(local), self.url)) from error

    def _rows(self, path: Path) -> NDArray[Any]:
        if path.suffix == ".parquet":
            return read_table(path, self.columns).astype(self.dtype or np.float64)
        array = np.asarray(read_array(path, self.field))
        if array.ndim < 2 or array.dtype.kind not in REAL:
            raise InputError(
                f"expected one input per row, got {array.dtype} of shape {array.shape} in {self.url}"
            )
        return array.astype(
            self.dtype or (array.dtype if array.dtype.kind == "f" else np.float32), copy=False
        )


def shards(
    files: str | Path | Iterable[str | Path],
    *,
    field: str | None = None,
    columns: Iterable[str] | None = None,
    dtype: str | None = None,
) -> list[Shard]:
    """Make one block per file of a folder, a pattern or a list.

    Each is read by the worker that needs it.

    >>> [shard.name for shard in shards(["b.npz", "s3://bucket/a.npz"])]
    ['b.npz', 's3://bucket/a.npz']

    Inputs are only mixed within a file, so shuffle the inputs before you write the files.

    Args:
        files: a folder, a pattern with `*`, an address such as "s3://bucket/folder", or a list of
            files.
        field: the name of the array to use if an .npz file holds several.
        columns: the feature columns of a table; None for all.
        dtype: the dtype of the model's inputs; None for float64 from a table and the file's own
            float type otherwise.

    """
    urls = (
        files_at(str(files), SHARD_SUFFIXES)
        if isinstance(files, str | Path)
        else [str(file) for file in files]
    )
    kept = None if columns is None else tuple(columns)
    if not urls:
        raise InputError(
            f"expected files that end in {', '.join(SHARD_SUFFIXES)}, got none in {files}"
        )
    return [Shard(url, field, kept, dtype) for url in urls]


@dataclass(frozen=True)
class InputBlock(RowBlock):
    """Some batches of a set of inputs. Inputs that cannot be read are left out and reported.

    >>> from pseudocal.app.inputs import ArraySet
    >>> inputs = ArraySet(np.array([[1.0], [2.0], [3.0]]))
    >>> contents = InputBlock((Batch(0, np.array([2, 0]), None),)).open(inputs)
    >>> contents.inputs[0].inputs.tolist(), contents.names, contents.unreadable
    ([[3.0], [1.0]], ['2', '0'], {})

    Attributes:
        batches: the batches, not read yet.
        name: the name of the block in records and errors.
        threads: the number of threads that read inputs.

    """

    threads: int = 2

    def read(self, source: InputSet) -> list[Batch]:
        """Read the batches."""
        batches: list[Batch] = self.open(source).inputs
        return batches

    def open(self, source: InputSet) -> Contents:
        """Read the batches and the names of their inputs, and list unreadable inputs.

        The caller enforces the limit.
        """
        unreadable = Skipped(len(self), most=1.0)
        batches = list(
            read_batches(source, self.batches, workers=self.threads, unreadable=unreadable)
        )
        names = [source.name(int(i)) for batch in batches for i in batch.rows]
        return Contents(batches, names, unreadable.why)
