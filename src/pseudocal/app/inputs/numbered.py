"""Inputs that are numbered and read one by one, such as pictures, as blocks; and pictures that lie far away."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs import Arrays, Inputs, Pixels, Unreadable, read_batches
from pseudocal.app.inputs.shards import fetched
from pseudocal.calibrators.blocks import Opened, Rows, received, sendable


@dataclass(frozen=True)
class Numbered(Rows):
    """Some batches of numbered inputs; those that cannot be read are left out and named.

    >>> inputs = Sent(Arrays(np.array([[1.0], [2.0], [3.0]])))
    >>> Numbered((np.array([2, 0]),), {}).open(inputs)
    Opened(inputs=[array([[3.],
           [1.]], dtype=float32)], names=['2', '0'], unreadable={})
    """

    threads: int = 2

    def read(self, source: Sent) -> list[NDArray[Any]]:
        """The batches."""
        batches: list[NDArray[Any]] = self.open(source).inputs
        return batches

    def open(self, source: Sent) -> Opened:
        """The batches, what each of their rows is called, and what could not be read; whoever counts it judges it."""
        order, largest = (
            np.concatenate(self.batches),
            max(map(len, self.batches)),
        )  # cut again, they are the same batches
        unreadable = Unreadable(len(order), most=1.0)
        read = read_batches(source.inputs, order, batch_size=largest, workers=self.threads, unreadable=unreadable)
        names, batches = [], []
        for numbers, x in read:
            names += [source.inputs.name(int(i)) for i in numbers]
            batches.append(x)
        return Opened(batches, names, unreadable.why)


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
