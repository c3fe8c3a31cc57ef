"""The logits of the real inputs, written to a file as they are made, so that they need no further pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Logits, Maps, check_rows
from pseudocal.files import allocate_array

Numbers = NDArray[np.intp]


class LogitStore:
    """The logits of `total` inputs in a file: a memory map, so they take disk rather than memory.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = LogitStore(Path(folder) / "logits.npy", total=3)
    ...     store.keep(np.array([2, 0]), np.array([[30.0, 40.0], [10.0, 20.0]]))
    ...     store.rows, np.array(store.logits)
    (array([0, 2]), array([[10., 20.],
           [30., 40.]]))
    """

    def __init__(self, path: Path, total: int) -> None:
        self._path = path
        self._kept = np.zeros(total, dtype=bool)
        self._store: Any = None
        self.maps = False  # whether the model labels every pixel: such logits are too many to keep

    @property
    def rows(self) -> Numbers:
        """The inputs that were predicted, in ascending order."""
        return np.flatnonzero(self._kept)

    @property
    def logits(self) -> Logits:
        """The logits of `rows`, as a memory map if none is missing."""
        if self._store is None:
            raise InputError("expected at least one prediction, got none")
        whole: Logits = self._store
        return whole if self._kept.all() else whole[self._kept]

    def keep(self, rows: Numbers, logits: Logits | Maps) -> None:
        """Write the logits of some inputs."""
        if logits.ndim == 4:
            self.maps = True
            self._kept[rows] = True
            return
        check_rows(logits)
        if self._store is None:
            shape = (len(self._kept), logits.shape[1])
            dtype = np.promote_types(logits.dtype, np.float32)
            self._store = allocate_array(self._path, shape, dtype)
        if logits.shape != (len(rows), self._store.shape[1]):
            raise InputError(f"expected logits of shape {(len(rows), self._store.shape[1])}, got {logits.shape}")
        self._store[rows] = logits
        self._kept[rows] = True
