"""Blocks: parts of a target that a worker can read by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.batches import Batch, take, unread_batches

BLOCK_ROWS = 2048  # inputs of an array in a block


class Block(Protocol):
    """A part of the target that a worker can read by itself."""

    @property
    def name(self) -> str:
        """What to call it in a report."""
        ...

    def read(self, source: Any) -> Any:
        """Its inputs: one array, or a list of batches that are to be paired each within itself."""
        ...


@dataclass(frozen=True)
class Contents:
    """What a block holds.

    Attributes:
        inputs: one array, or a list of batches.
        names: what each input is called, if it has a name.
        unreadable: the inputs that could not be read, with why.

    """

    inputs: Any
    names: list[str] | None = None
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def numbered(self) -> bool:
        """Whether the inputs are batches that know their place in the whole target."""
        return isinstance(self.inputs, list) and all(isinstance(batch, Batch) for batch in self.inputs)


def contents_of(block: Block, source: Any) -> Contents:
    """Read a block; one that has more to tell than its inputs does so by a method `open`.

    >>> contents_of(RowBlock((Batch(0, np.array([2, 0]), None),)), np.array([10, 20, 30])).inputs[0].inputs
    array([30, 10])
    """
    if hasattr(block, "open"):
        found: Contents = block.open(source)
        return found
    return Contents(block.read(source))


@dataclass(frozen=True)
class RowBlock:
    """Some batches of the rows of one source.

    Attributes:
        batches: their numbers and rows; their inputs are not read yet.
        name: what to call the block in a report.

    """

    batches: tuple[Batch, ...]
    name: str = "block"

    def __len__(self) -> int:
        return sum(len(batch.rows) for batch in self.batches)

    def read(self, source: Any) -> list[Batch]:
        """The batches with their inputs."""
        return [Batch(batch.number, batch.rows, take(source, batch.rows)) for batch in self.batches]


def row_blocks(order: NDArray[np.intp], batch_size: int, block_rows: int = BLOCK_ROWS) -> list[RowBlock]:
    """Cut rows into the batches that one process would make, and those into blocks.

    >>> blocks = row_blocks(np.arange(10), 2, block_rows=4)
    >>> [[batch.rows.tolist() for batch in block.batches] for block in blocks]
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9]]]
    """
    batches = unread_batches(order, batch_size)
    at_once = max(1, block_rows // batch_size)
    parts = [tuple(batches[i : i + at_once]) for i in range(0, len(batches), at_once)]
    return [RowBlock(mine, f"block {i} of {len(batches[0].rows)} x {len(mine)} rows") for i, mine in enumerate(parts)]


@dataclass(frozen=True)
class MappedFile:
    """A memory map by the name of its file, which every worker must be able to read."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    order: Literal["C", "F"]


def sendable(source: Any) -> Any:
    """What stands for `source` on its way to a worker: a memory map goes by name, not by content."""
    if isinstance(source, np.memmap) and source.filename is not None and not isinstance(source.base, np.ndarray):
        order: Literal["C", "F"] = "C" if source.flags.c_contiguous else "F"
        return MappedFile(str(Path(source.filename).resolve()), source.dtype.str, source.shape, source.offset, order)
    return source


def received(source: Any) -> Any:
    """What `sendable` stands for."""
    if isinstance(source, MappedFile):
        return np.memmap(source.path, source.dtype, "r", source.offset, source.shape, source.order)
    return source


def as_blocks(data: Any) -> Sequence[Block]:
    """See `data` as blocks."""
    if not isinstance(data, Sequence) or not data or not all(hasattr(block, "read") for block in data):
        raise InputError(
            f"expected an array, or a list of blocks that workers can read by themselves, got {type(data).__name__}"
        )
    return data
