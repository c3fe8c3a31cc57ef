"""Parts of a target that a worker can read by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.batches import take
from pseudocal.synthesis.pairs import ring

BLOCK_ROWS = 2048  # rows of an array in a block


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
class Opened:
    """The inputs of a block, what each is called if it has a name, and those that could not be read, with why."""

    inputs: Any
    names: list[str] | None = None
    unreadable: dict[str, str] = field(default_factory=dict)


def opened(block: Block, source: Any) -> Opened:
    """Read a block; one that has more to tell than its inputs does so by a method `open`.

    >>> opened(Rows((np.array([2, 0]),), {}), np.array([10, 20, 30]))
    Opened(inputs=[array([30, 10])], names=None, unreadable={})
    """
    if hasattr(block, "open"):
        found: Opened = block.open(source)
        return found
    return Opened(block.read(source))


@dataclass(frozen=True)
class Rows:
    """Some batches of the rows of one source, with the state of the random numbers that pair them.

    >>> Rows((np.array([2, 0]),), {}).read(np.array([10, 20, 30]))
    [array([30, 10])]
    """

    batches: tuple[NDArray[np.intp], ...]
    state: Mapping[str, Any]
    name: str = "block"

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def read(self, source: Any) -> list[Any]:
        """The batches."""
        return [take(source, rows) for rows in self.batches]

    def rng(self) -> np.random.Generator:
        """The random numbers, where a pass over the whole would be when it comes to these rows."""
        rng = np.random.default_rng()
        rng.bit_generator.state = self.state
        return rng


def rows_in_blocks(
    order: NDArray[np.intp], batch_size: int, rng: np.random.Generator, block_rows: int = BLOCK_ROWS
) -> list[Rows]:
    """Cut rows in random order into the batches that one process would make, and those into blocks.

    >>> blocks = rows_in_blocks(np.arange(10), 2, np.random.default_rng(0), block_rows=4)
    >>> [[batch.tolist() for batch in block.batches] for block in blocks]
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9]]]
    """
    batches = np.array_split(order, max(1, -(-len(order) // batch_size)))
    at_once = max(1, block_rows // batch_size)
    blocks: list[Rows] = []
    for i in range(0, len(batches), at_once):
        mine = tuple(batches[i : i + at_once])
        blocks.append(
            Rows(mine, rng.bit_generator.state, f"block {i // at_once} of {len(batches[0])} x {len(mine)} rows")
        )
        for batch in mine:  # draw what pairing them will draw
            if len(batch) > 1:
                ring(len(batch), rng)
    return blocks


@dataclass(frozen=True)
class Mapped:
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
        return Mapped(str(Path(source.filename).resolve()), source.dtype.str, source.shape, source.offset, order)
    return source


def received(source: Any) -> Any:
    """What `sendable` stands for."""
    if isinstance(source, Mapped):
        return np.memmap(source.path, source.dtype, "r", source.offset, source.shape, source.order)
    return source


def as_blocks(data: Any) -> Sequence[Block]:
    """See `data` as blocks."""
    if not isinstance(data, Sequence) or not data or not all(hasattr(block, "read") for block in data):
        raise InputError(
            f"expected an array, or a list of blocks that workers can read by themselves, got {type(data).__name__}"
        )
    return data
