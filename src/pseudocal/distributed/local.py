"""The blocks one after another, in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from pseudocal.calibrators.executors import Failure, WorkOnBlock


@dataclass(frozen=True)
class LocalExecutor:
    """No cluster at all: what a run on one must agree with, and a way to read blocks that do not fit into memory.

    >>> list(LocalExecutor().map(lambda: lambda number, block: number * block, [5, 6, 7]))
    [0, 6, 14]

    Attributes:
        max_bad: the share of blocks that may fail.

    """

    max_bad: float = 0.01

    def map(self, start: Callable[[], WorkOnBlock], blocks: Sequence[Any]) -> Generator[Any, None, None]:
        """Work on each block in order."""
        work = start()
        for number, block in enumerate(blocks):
            yield tried(work, number, block)


def tried(work: WorkOnBlock, number: int, block: Any) -> Any:
    """The result, or a `Failure`: decoders, networks and models raise whatever they like."""
    try:
        return work(number, block)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}"[:500])
