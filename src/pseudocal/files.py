"""Files that are whole or absent: written aside, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ZEROS = bytes(2**22)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` when the block ends well, and nothing changes when it does not.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as aside:
    ...         _ = aside.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text(), os.listdir(folder)
    ('whole', ['a.txt'])
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")  # NumPy appends suffixes that are not there
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def save_json(path: Path, content: Any) -> None:
    """Write JSON that people can read."""
    with replacing(path) as aside:
        aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def allocate_array(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """A new .npy file as a memory map. Its room on disk is taken now: a full disk is an error, not a crash later.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     array = allocate_array(Path(folder) / "a.npy", (2, 3), np.float32)
    ...     array[0] = 1
    ...     array.sum(), (Path(folder) / "a.npy").stat().st_size
    (np.float32(3.0), 152)
    """
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    size = array.offset + array.nbytes
    del array
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            _fill(file, size)
    return np.lib.format.open_memmap(path, mode="r+")


def _fill(file: Any, size: int) -> None:
    """Write zeros, where the system has no call that takes room; what is there already stays."""
    start = 4096  # a header is shorter, and a disk gives room by such pages
    file.seek(start)
    while file.tell() < size:
        file.write(ZEROS[: size - file.tell()])
