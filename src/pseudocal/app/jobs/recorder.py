"""Keep what the model says of the real inputs while a calibrator runs it, so that they need no further pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Batch, InputError, Logits, Predictor, check_rows

Rows = NDArray[np.intp]


class Recorder:
    """A predictor that writes the logits of the real inputs to a file of `total` rows as they are made.

    A calibrator predicts each batch of the stream as it is, and mixes of it besides. A batch that is the very object
    the stream gave out is a real one; everything else is a mix and is not kept. The file is a memory map, so what is
    recorded takes disk rather than memory.

    >>> from tempfile import TemporaryDirectory
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> with TemporaryDirectory() as folder:
    ...     recorder = Recorder(lambda x: 10 * x, Path(folder) / "logits.npy", total=3)
    ...     for batch in recorder.stream([(np.array([2, 0]), x)]):
    ...         _ = recorder(batch), recorder(batch + 1)
    ...     recorder.rows, np.array(recorder.logits)
    (array([0, 2]), array([[30., 40.],
           [10., 20.]]))
    """

    def __init__(self, predict: Predictor, path: Path, total: int) -> None:
        self._predict = predict
        self._path = path
        self._kept = np.zeros(total, dtype=bool)
        self._store: Any = None
        self._current: tuple[Rows, Batch] | None = None
        self.maps = False  # whether the model labels every pixel: such logits are too many to keep

    def stream(self, batches: Iterable[tuple[Rows, Batch]]) -> Iterator[Batch]:
        """Give out the inputs of numbered batches, remembering which was the last."""
        for rows, x in batches:
            self._current = (rows, x)
            yield x

    def __call__(self, x: Batch, /) -> Logits:
        """Predict one batch; keep the logits if it is a real one."""
        logits = self._predict(x)
        if self._current is not None and x is self._current[1]:
            self._keep(self._current[0], np.asarray(logits))
        return logits

    @property
    def rows(self) -> Rows:
        """The inputs that were predicted, in ascending order."""
        return np.flatnonzero(self._kept)

    @property
    def logits(self) -> Logits:
        """The logits of `rows`, as a memory map if none is missing."""
        if self._store is None:
            raise InputError("expected at least one prediction, got none")
        whole: Logits = self._store
        return whole if self._kept.all() else whole[self._kept]

    def _keep(self, rows: Rows, logits: Logits) -> None:
        if logits.ndim == 4:
            self.maps = True
            self._kept[rows] = True
            return
        check_rows(logits)
        if self._store is None:
            shape = (len(self._kept), logits.shape[1])
            dtype = np.promote_types(logits.dtype, np.float32)
            self._store = np.lib.format.open_memmap(self._path, mode="w+", dtype=dtype, shape=shape)
        if logits.shape != (len(rows), self._store.shape[1]):
            raise InputError(f"expected logits of shape {(len(rows), self._store.shape[1])}, got {logits.shape}")
        self._store[rows] = logits
        self._kept[rows] = True
