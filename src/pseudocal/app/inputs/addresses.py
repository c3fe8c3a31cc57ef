"""Local and remote files.

Expand a folder, a pattern or an address into files, and fetch remote ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from shutil import copyfileobj

from pseudocal.app.inputs.images import IMAGE_SUFFIXES
from pseudocal.app.inputs.tables import ARRAYS, check_regular
from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError, require

SHARD_SUFFIXES = (*sorted(ARRAYS), ".parquet")  # of files of rows


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
    mixed = (
        files
        and Path(data).is_dir()
        and any(p.suffix.lower() in IMAGE_SUFFIXES for p in Path(data).rglob("*"))
    )
    return [] if mixed else files


def files_at(where: str, suffixes: tuple[str, ...]) -> list[str]:
    """List the files that a folder, a pattern or an address stands for, sorted so that blocks are the same everywhere.

    Args:
        where: a folder, a file, a pattern with `*`, or an address such as "s3://bucket/folder".
        suffixes: the file name suffixes to keep.

    """
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
        found = iter([path])
    return sorted(
        str(p) for p in found if p.name.lower().endswith(suffixes) and not p.name.startswith(".")
    )


def fetched(url: str) -> bytes:
    """Return the content of a remote file."""
    with require("fsspec", "ray").open(url, "rb") as file:
        content: bytes = file.read()
    return content


def fetch_to(url: str, path: Path) -> None:
    """Copy a remote file to `path`."""
    with require("fsspec", "ray").open(url, "rb") as remote, path.open("wb") as local:
        copyfileobj(remote, local, 2**20)


def _remote(where: str, suffixes: tuple[str, ...]) -> list[str]:
    fsspec = require("fsspec", "ray")
    try:
        fs, path = fsspec.core.url_to_fs(where)
        found = fs.glob(path) if "*" in path else fs.find(path) if fs.isdir(path) else [path]
    except ImportError as error:
        raise MissingFilesystemError(where, error) from error
    except Exception as error:  # clients of remote stores may raise anything
        why = " ".join(str(error).split())[:300]
        raise InputError(f"expected an address that can be listed, got {where}: {why}") from error
    return sorted(fs.unstrip_protocol(name) for name in found if name.lower().endswith(suffixes))
