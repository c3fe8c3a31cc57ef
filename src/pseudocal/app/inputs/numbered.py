"""Inputs that are numbered and read one by one, such as pictures, as blocks; and pictures that lie far away."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pseudocal.app.inputs import Arrays, Inputs, Pixels, Unreadable, read_batches
from pseudocal.app.inputs.shards import fetched
from pseudocal.batches import Batch
from pseudocal.calibrators.blocks import Contents, RowBlock, received, sendable


@dataclass(frozen=True)
class Numbered(RowBlock):
    """Some batches of numbered inputs; those that cannot be read are left out and named.

    >>> import numpy as np
    >>> inputs = Sent(Arrays(np.array([[1.0], [2.0], [3.0]])))
    >>> contents = Numbered((Batch(0, np.array([2, 0]), None),)).open(inputs)
    >>> contents.inputs[0].inputs.tolist(), contents.names, contents.unreadable
    ([[3.0], [1.0]], ['2', '0'], {})
    """

    threads: int = 2

    def read(self, source: Sent) -> list[Batch]:
        """The batches."""
        batches: list[Batch] = self.open(source).inputs
        return batches

    def open(self, source: Sent) -> Contents:
        """The batches, what each of their rows is called, and what could not be read; whoever counts it judges it."""
        unreadable = Unreadable(len(self), most=1.0)
        read = read_batches(source.inputs, self.batches, workers=self.threads, unreadable=unreadable)
        batches = list(read)
        names = [source.inputs.name(int(i)) for batch in batches for i in batch.rows]
        return Contents(batches, names, unreadable.why)


@dataclass(frozen=True)
class Sent:
    """Inputs on their way to a worker: a memory map goes by name."""

    inputs: Inputs

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if isinstance(self.inputs, Arrays):
            return _arrived, (sendable(self.inputs.array), self.inputs.dtype)
        return Sent, (self.inputs,)


def _arrived(array: Any, dtype: str) -> Sent:
    return Sent(Arrays(received(array), dtype))


@dataclass(frozen=True)
class FarPictures:
    """Pictures wherever fsspec can reach them, called by their address."""

    urls: list[str]
    pixels: Pixels

    def __len__(self) -> int:
        return len(self.urls)

    def name(self, i: int) -> str:
        """The address of a picture."""
        return self.urls[i]

    def read(self, i: int) -> NDArray[Any]:
        """Fetch, decode and prepare one picture."""
        return self.pixels.read(io.BytesIO(fetched(self.urls[i])))

    def picture(self, i: int) -> Path | None:
        """No file to show."""
        return None
