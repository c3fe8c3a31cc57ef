"""Blocks one after another, in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from pseudocal.calibrators.executors import Failure, WorkOnBlock
from pseudocal.files import OutputError


@dataclass(frozen=True)
class LocalExecutor:
    """Work on blocks in this process, for data that does not fit into memory.

    A cluster gives the same result.

    >>> list(LocalExecutor().map(lambda: lambda number, block: number * block, [5, 6, 7]))
    [0, 6, 14]

    Attributes:
        max_bad: The fraction of blocks that may fail.

    """

    max_bad: float = 0.01

    def map(
        self, start: Callable[[], WorkOnBlock], blocks: Sequence[Any]
    ) -> Generator[Any, None, None]:
        """The result for each block, in order.

        Args:
            start: Called once; returns the function that is called on each block.
            blocks: The blocks.

        """
        work = start()
        for number, block in enumerate(blocks):
            yield tried(work, number, block)


def tried(work: WorkOnBlock, number: int, block: Any) -> Any:
    """The result, or a `Failure`: decoders, networks and models raise whatever they like.

    Results that cannot be written are another matter: no other block could be written either.
    """
    try:
        return work(number, block)
    except OutputError:
        raise
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}"[:500])
