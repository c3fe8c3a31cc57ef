"""Arrays that stay in their file: rows are read when they are needed, through a file handle.

A memory map of a file that somebody truncates ends the process with a bus error. A read through a
handle comes back short instead, and becomes an `InputError`.
"""

from __future__ import annotations

import io
import math
import os
import threading
import weakref
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError


class ChangedFileError(InputError):
    """A file was written to, or truncated, while it was read."""


class StoredArray:
    """An array in a file, indexed by rows like a NumPy array.

    It is pickled as the name of its file, not as data.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "x.npy", np.array([[1, 2], [3, 4], [5, 6]]))
    ...     x = StoredArray.of_map(np.load(Path(folder) / "x.npy", mmap_mode="r"))
    ...     x.shape, x[1], x[1:], x[np.array([2, 0])]
    ...     del x  # Windows deletes no open file
    ((3, 2), array([3, 4]), array([[3, 4],
           [5, 6]]), array([[5, 6],
           [1, 2]]))

    Args:
        path: the file.
        dtype: the dtype of the array.
        shape: the shape of the array, at least one-dimensional.
        offset: the position of the array in the file, in bytes.
        order: the memory layout of the array: rows one after another ("C"), or columns ("F").

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        offset: int,
        order: Literal["C", "F"] = "C",
    ) -> None:
        self.path = str(Path(path).resolve())
        self.dtype = dtype
        self.shape = shape
        self.offset = offset
        self.order = order
        self._lock = threading.Lock()
        self._file = io.FileIO(path)
        weakref.finalize(self, self._file.close)
        self._version = self._current_version()
        if self._version[0] < offset + self.nbytes:
            raise self._changed()

    @classmethod
    def of_map(cls, mapped: np.memmap[Any, Any]) -> StoredArray:
        """The array of a memory map, through a handle of its file."""
        if mapped.filename is None:
            raise InputError("expected a memory map of a file with a name, got one without")
        order: Literal["C", "F"] = "C" if mapped.flags.c_contiguous else "F"
        return cls(mapped.filename, mapped.dtype, mapped.shape, mapped.offset, order)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the whole array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        if isinstance(rows, int | np.integer):
            i = range(len(self))[rows]  # counts from the end if negative, and raises IndexError
            row: NDArray[Any] = self._run(i, i + 1)[0]
            return row
        if isinstance(rows, slice):
            numbers = range(len(self))[rows]
            if numbers.step == 1:
                return self._run(numbers.start, max(numbers.start, numbers.stop))
            return self[np.array(numbers, dtype=np.intp)]
        picked = np.empty((len(rows), *self.shape[1:]), dtype=self.dtype)
        for k, row in enumerate(rows):
            i = range(len(self))[int(row)]
            picked[k] = self._unchecked_run(i, i + 1)[0]
        self._check_unchanged()
        return picked

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredArray, (self.path, self.dtype, self.shape, self.offset, self.order)

    def _run(self, start: int, stop: int) -> NDArray[Any]:
        """Read consecutive rows."""
        rows = self._unchecked_run(start, stop)
        self._check_unchanged()
        return rows

    def _unchecked_run(self, start: int, stop: int) -> NDArray[Any]:
        size = self.dtype.itemsize
        if self.order == "C":
            rows = np.empty((stop - start, *self.shape[1:]), dtype=self.dtype)
            self._fill(rows, self.offset + start * math.prod(self.shape[1:]) * size)
            return rows
        columns = np.empty((*self.shape[:0:-1], stop - start), dtype=self.dtype)
        each = columns.reshape(math.prod(self.shape[1:]), stop - start)
        for k in range(len(each)):
            self._fill(each[k], self.offset + (k * len(self) + start) * size)
        return columns.T

    def _fill(self, array: NDArray[Any], position: int) -> None:
        """Read the bytes of a contiguous array from a position of the file."""
        if array.nbytes == 0:
            return
        view = array.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(view):
            count = self._read_at(view[done:], position + done)
            if count == 0:
                raise self._changed()
            done += count

    def _read_at(self, view: memoryview, position: int) -> int:
        if hasattr(os, "preadv"):  # several threads may read at the same time
            return os.preadv(self._file.fileno(), [view], position)
        with self._lock:
            self._file.seek(position)
            return self._file.readinto(view) or 0

    def _current_version(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _check_unchanged(self) -> None:
        if self._current_version() != self._version:
            raise self._changed()

    def _changed(self) -> ChangedFileError:
        return ChangedFileError(
            f"expected a file that nobody writes to, got {self.path}, which changed while it was "
            "read: start again"
        )
