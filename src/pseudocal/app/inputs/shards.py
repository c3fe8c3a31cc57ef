"""Files of inputs, near or far, each a block: npz, npy and parquet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import read_array, read_table
from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError

SUFFIXES = (".npy", ".npz", ".parquet")


@dataclass(frozen=True)
class Shard:
    """One file of inputs, wherever fsspec can reach it."""

    url: str
    field: str | None = None
    columns: tuple[str, ...] | None = None
    dtype: str | None = None

    @property
    def name(self) -> str:
        """The address of the file."""
        return self.url

    def read(self, source: Any = None) -> NDArray[Any]:
        """All its rows, as floats: rows are mixed."""
        if "://" not in self.url:
            return self._rows(Path(self.url))
        with TemporaryDirectory(prefix="pseudocal-") as folder:
            local = Path(folder) / self.url.rpartition("/")[2]
            _fetch(self.url, local)
            try:
                return self._rows(local)
            except InputError as error:
                raise InputError(str(error).replace(str(local), self.url)) from error

    def _rows(self, path: Path) -> NDArray[Any]:
        if path.suffix == ".parquet":
            return read_table(path, self.columns).astype(self.dtype or np.float64)
        array = np.asarray(read_array(path, self.field))
        if array.ndim < 2 or not np.issubdtype(array.dtype, np.number):
            raise InputError(f"expected inputs, one a row, got {array.dtype} of shape {array.shape} in {self.url}")
        return array.astype(self.dtype or (array.dtype if np.issubdtype(array.dtype, np.floating) else np.float32))


def shards(
    files: str | Path | Iterable[str | Path],
    *,
    field: str | None = None,
    columns: Iterable[str] | None = None,
    dtype: str | None = None,
) -> list[Shard]:
    """Blocks from a folder, a pattern or a list of files; each is read by the worker that needs it.

    >>> [shard.name for shard in shards(["b.npz", "s3://bucket/a.npz"])]
    ['b.npz', 's3://bucket/a.npz']

    Inputs are mixed within a file, so a file should hold a bit of everything: shuffle before you write them. `field`
    is the array of an .npz file, `columns` are the features of a table, `dtype` is what the model eats.
    """
    urls = listed(str(files), SUFFIXES) if isinstance(files, str | Path) else [str(file) for file in files]
    kept = None if columns is None else tuple(columns)
    if not urls:
        raise InputError(f"expected files that end in {', '.join(SUFFIXES)}, got none in {files}")
    return [Shard(url, field, kept, dtype) for url in urls]


def listed(where: str, suffixes: tuple[str, ...]) -> list[str]:
    """The files of a folder or of a pattern, sorted by name, so that the blocks are the same wherever it is run."""
    if "://" in where:
        return _far(where, suffixes)
    path = Path(where)
    found: Iterable[Path]
    if path.is_dir():
        found = path.iterdir()
    elif "*" in where:
        base = Path(path.anchor) if path.is_absolute() else Path()
        found = base.glob(str(path.relative_to(base)))
    elif path.is_file():
        found = iter([path])
    else:
        raise InputError(f"expected a folder, a pattern or a file of inputs, got {where}: no such file")
    return sorted(str(p) for p in found if p.name.lower().endswith(suffixes) and not p.name.startswith("."))


class MissingFilesystemError(MissingExtraError):
    """fsspec needs another package for this kind of address."""

    def __init__(self, url: str, wanted: ImportError) -> None:
        ImportError.__init__(
            self, f"expected the package for {url.partition('://')[0]}:// addresses, got none: {wanted}"
        )


def _far(where: str, suffixes: tuple[str, ...]) -> list[str]:
    try:
        fs, path = _fsspec().core.url_to_fs(where)
        found = fs.glob(path) if "*" in path else fs.find(path) if fs.isdir(path) else [path]
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingFilesystemError(where, error) from error
    except Exception as error:  # clients of far stores raise whatever they like
        why = " ".join(str(error).split())[:300]
        raise InputError(f"expected an address that can be listed, got {where}: {why}") from error
    return sorted(fs.unstrip_protocol(name) for name in found if name.lower().endswith(suffixes))


def fetched(url: str) -> bytes:
    """The content of a far file."""
    with _fsspec().open(url, "rb") as file:
        content: bytes = file.read()
    return content


def _fetch(url: str, path: Path) -> None:
    with _fsspec().open(url, "rb") as far, path.open("wb") as near:
        copyfileobj(far, near, 2**20)


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError("fsspec", "ray") from error
    return fsspec
