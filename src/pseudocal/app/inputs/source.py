"""Inputs that are numbered and read one by one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.pixels import Pixels


class Inputs(Protocol):
    """Rows a model can eat: how many there are, what each is called, and one of them."""

    def __len__(self) -> int: ...

    def name(self, i: int) -> str:
        """What the user calls input i."""
        ...

    def read(self, i: int) -> NDArray[Any]:
        """Input i, ready for the model."""
        ...

    def picture(self, i: int) -> Path | None:
        """The file to show of input i, if it is one."""
        ...


@dataclass(frozen=True)
class Pictures:
    """Picture files, called by their path below `root`."""

    paths: list[Path]
    root: Path
    pixels: Pixels

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, i: int) -> str:
        """The path of a picture, relative to the folder if it lies in it."""
        path = self.paths[i]
        shown = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        return str(shown).encode("utf-8", "replace").decode("utf-8")  # a name need not be valid text on Linux

    def read(self, i: int) -> NDArray[Any]:
        """Decode and prepare one picture."""
        return self.pixels.read(self.paths[i])

    def picture(self, i: int) -> Path | None:
        """The file itself."""
        return self.paths[i]


@dataclass(frozen=True)
class Arrays:
    """Rows of an array, which may be a memory map, called by their number.

    >>> Arrays(np.array([[1, 2], [3, 4]])).read(1)
    array([3., 4.], dtype=float32)
    """

    array: NDArray[Any]  # (n, ...)
    dtype: str = "float32"

    def __len__(self) -> int:
        return len(self.array)

    def name(self, i: int) -> str:
        """The number of the row."""
        return str(i)

    def read(self, i: int) -> NDArray[Any]:
        """One row in the precision of the model; whole numbers as floats, since rows are mixed."""
        row = np.asarray(self.array[i])
        return row.astype(self.dtype if np.issubdtype(self.dtype, np.floating) else np.float32)

    def picture(self, i: int) -> Path | None:
        """Nothing to show."""
        return None
