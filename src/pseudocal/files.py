"""Atomic writes: a file is written under a temporary name and then renamed, so it is complete or absent."""

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
    """A temporary path to write to. It replaces `path` if the block succeeds and is deleted if it raises.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as aside:
    ...         _ = aside.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text(), os.listdir(folder)
    ('whole', ['a.txt'])
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")  # keep the suffix: NumPy would append it
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def save_json(path: Path, content: Any) -> None:
    """Write indented JSON."""
    with replacing(path) as aside:
        aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def allocate_array(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Create a .npy file and return it as a memory map. Disk space is allocated now, so a full disk raises here.

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
    """Allocate disk space by writing zeros, on systems without `posix_fallocate`; the header is kept."""
    start = 4096  # the header is shorter, and space is allocated in pages of this size
    file.seek(start)
    while file.tell() < size:
        file.write(ZEROS[: size - file.tell()])
