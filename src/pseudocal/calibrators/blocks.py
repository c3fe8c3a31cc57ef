"""Blocks: parts of a target that a worker can read on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.batches import Batch, take, unread_batches
from pseudocal.stored import StoredArray

BLOCK_ROWS = 2048  # inputs per block of an array


class Block(Protocol):
    """A part of the target that a worker can read on its own."""

    @property
    def name(self) -> str:
        """The name of the block in a report."""
        ...

    def read(self, source: Any) -> Any:
        """The inputs: one array, or a list of batches; inputs are paired within a batch."""
        ...


@dataclass(frozen=True)
class Contents:
    """The contents of a block.

    Attributes:
        inputs: One array, or a list of batches.
        unreadable: The inputs that could not be read, with the reason for each.

    """

    inputs: Any
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def numbered(self) -> bool:
        """Whether the inputs are batches that are numbered across the whole target."""
        return isinstance(self.inputs, list) and all(
            isinstance(batch, Batch) for batch in self.inputs
        )


def contents_of(block: Block, source: Any) -> Contents:
    """Read a block, with its method `open` if it has one, which also lists unreadable inputs.

    >>> contents_of(RowBlock((Batch(0, np.array([2, 0]), None),)), np.array([10, 20, 30])).inputs[0].inputs
    array([30, 10])
    """
    if hasattr(block, "open"):
        contents: Contents = block.open(source)
        return contents
    return Contents(block.read(source))


@dataclass(frozen=True)
class RowBlock:
    """Some batches of rows of one array.

    Attributes:
        batches: The batches, whose inputs have not been read yet.
        name: The name of the block in a report.

    """

    batches: tuple[Batch, ...]
    name: str = "block"

    def __len__(self) -> int:
        return sum(len(batch.rows) for batch in self.batches)

    def read(self, source: Any) -> list[Batch]:
        """The batches with their inputs."""
        return [Batch(batch.number, batch.rows, take(source, batch.rows)) for batch in self.batches]


def row_blocks(
    order: NDArray[np.intp], batch_size: int, block_rows: int = BLOCK_ROWS
) -> list[RowBlock]:
    """Split rows into the same batches that a single process would use, and the batches into blocks.

    >>> blocks = row_blocks(np.arange(10), 2, block_rows=4)
    >>> [[batch.rows.tolist() for batch in block.batches] for block in blocks]
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9]]]
    """
    batches = unread_batches(order, batch_size)
    at_once = max(1, block_rows // batch_size)
    parts = [tuple(batches[i : i + at_once]) for i in range(0, len(batches), at_once)]
    return [
        RowBlock(part, f"block {i} of {len(batches[0].rows)} x {len(part)} rows")
        for i, part in enumerate(parts)
    ]


def sendable(source: Any) -> Any:
    """What to send to a worker for `source`.

    For a memory map, the name of its file, which every worker must read.
    """
    if (
        isinstance(source, np.memmap)
        and source.filename is not None
        and not isinstance(source.base, np.ndarray)
    ):
        return StoredArray.of_map(source)
    return source


def as_blocks(data: Any) -> Sequence[Block]:
    """Check that `data` is a list of blocks."""
    if (
        not isinstance(data, Sequence)
        or not data
        or not all(hasattr(block, "read") for block in data)
    ):
        raise InputError(
            "expected an array, or a list of blocks that workers can read on their own, got "
            f"{type(data).__name__}"
        )
    return data
