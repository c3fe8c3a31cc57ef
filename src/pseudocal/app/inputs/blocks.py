"""Blocks of a target that a worker reads by itself: local or remote files, or part of a set.

A folder, a pattern or an address stands for files of rows, which are read one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.images import IMAGE_SUFFIXES
from pseudocal.app.inputs.sets import InputSet, read_batches
from pseudocal.app.inputs.tables import ARRAYS, REAL, check_regular, read_array, read_table
from pseudocal.arrays import InputError
from pseudocal.batches import Batch
from pseudocal.calibrators.blocks import Contents, RowBlock
from pseudocal.extras import MissingExtraError, require
from pseudocal.skipped import Skipped

SHARD_SUFFIXES = (*sorted(ARRAYS), ".parquet")  # of files of rows
THREADS = 2  # that read the inputs of a block


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
        """Read all rows, as floats because pairs of rows are mixed."""
        if "://" not in self.url:
            return self._rows(Path(self.url))
        with TemporaryDirectory(prefix="pseudocal-") as folder:
            local = Path(folder) / self.url.rpartition("/")[2]
            with require("fsspec", "ray").open(self.url, "rb") as remote, local.open("wb") as file:
                copyfileobj(remote, file, 2**20)
            try:
                return self._rows(local)
            except InputError as error:
                raise error.reworded(error.message.replace(str(local), self.url)) from error

    def _rows(self, path: Path) -> NDArray[Any]:
        if path.suffix == ".parquet":
            return read_table(path, self.columns).astype(self.dtype or np.float64)
        array = np.asarray(read_array(path, self.field))
        if array.ndim < 2 or array.dtype.kind not in REAL:
            raise InputError(
                f"expected one input per row, got {array.dtype} of shape {array.shape} in "
                f"{self.url}"
            )
        own = array.dtype if array.dtype.kind == "f" else np.float32
        return array.astype(self.dtype or own, copy=False)


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
    if isinstance(files, str | Path):
        urls = files_at(str(files), SHARD_SUFFIXES)
    else:
        urls = [str(file) for file in files]
    if not urls:
        raise InputError(f"{files} has no files that end in {', '.join(SHARD_SUFFIXES)}")
    kept = None if columns is None else tuple(columns)
    return [Shard(url, field, kept, dtype) for url in urls]


@dataclass(frozen=True)
class InputBlock(RowBlock):
    """Some batches of a set of inputs. Unreadable inputs are skipped and reported.

    >>> from pseudocal.app.inputs.sets import ArraySet
    >>> inputs = ArraySet(np.array([[1.0], [2.0], [3.0]]))
    >>> contents = InputBlock((Batch(0, np.array([2, 0]), None),)).open(inputs)
    >>> contents.inputs[0].inputs.tolist(), contents.unreadable
    ([[3.0], [1.0]], {})
    """

    def read(self, source: InputSet) -> list[Batch]:
        """Read the batches."""
        batches: list[Batch] = self.open(source).inputs
        return batches

    def open(self, source: InputSet) -> Contents:
        """Read the batches, and list unreadable inputs; the caller enforces the limit."""
        unreadable = Skipped(len(self), most=1.0)
        batches = list(read_batches(source, self.batches, workers=THREADS, unreadable=unreadable))
        return Contents(batches, unreadable.why)


class MissingFilesystemError(MissingExtraError):
    """The package that fsspec needs for this kind of address is not installed."""

    def __init__(self, url: str, wanted: ImportError) -> None:
        ImportError.__init__(
            self,
            f"expected the package for {url.partition('://')[0]}:// addresses, got none: {wanted}",
        )


def files_of_rows(data: str) -> list[str]:
    """List the files of rows if the data is a folder, a pattern or an address of such files."""
    if "://" not in data and "*" not in data and not Path(data).is_dir():
        return []
    files = files_at(data, SHARD_SUFFIXES)
    if files and Path(data).is_dir():
        suffixes = {path.suffix.lower() for path in Path(data).rglob("*")}
        if suffixes & IMAGE_SUFFIXES:
            return []
    return files


def files_at(where: str, suffixes: tuple[str, ...]) -> list[str]:
    """The sorted files of a folder, a pattern or an address, so blocks are the same everywhere."""
    if "://" in where:
        return _remote(where, suffixes)
    path = Path(where)
    found: Iterable[Path]
    if path.is_dir():
        found = path.iterdir()
    elif "*" in where:
        base = Path(path.anchor) if path.is_absolute() else Path()
        found = base.glob(str(path.relative_to(base)))
    else:
        check_regular(path, "a folder, a pattern or a file of inputs")
        found = [path]
    return sorted(
        str(p) for p in found if p.name.lower().endswith(suffixes) and not p.name.startswith(".")
    )


def _remote(where: str, suffixes: tuple[str, ...]) -> list[str]:
    fsspec = require("fsspec", "ray")
    try:
        fs, path = fsspec.core.url_to_fs(where)
        if "*" in path:
            found = fs.glob(path)
        elif fs.isdir(path):
            found = fs.find(path)
        else:
            found = [path]
    except ImportError as error:
        raise MissingFilesystemError(where, error) from error
    except Exception as error:  # clients of remote stores may raise anything
        why = " ".join(str(error).split())[:300]
        raise InputError(f"the files at {where} cannot be listed: {why}") from error
    return sorted(fs.unstrip_protocol(name) for name in found if name.lower().endswith(suffixes))


def refuse_shards(data: str) -> None:
    """Refuse an address, a pattern, or a folder of files of rows: only workers read them."""
    path = Path(data)
    what = None
    if "://" in data or ("*" in data and not path.exists()):
        what = "an address or a pattern"
    elif path.is_dir() and (files := files_of_rows(data)):
        suffixes = sorted({Path(file).suffix.lower() for file in files})
        what = f"a folder of files of rows ({', '.join(suffixes)})"
    if what is not None:
        raise InputError(
            f"{data} is {what}, which only a cluster reads", setting="ray", value='"local"'
        )
