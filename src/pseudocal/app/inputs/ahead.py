"""Read the next inputs in threads while the model is busy with these."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.source import Inputs
from pseudocal.arrays import InputError
from pseudocal.batches import Batch
from pseudocal.extras import MissingExtraError

BATCHES_AHEAD = 2


@dataclass
class Unreadable:
    """The inputs that could not be read, which are fatal once they are more than a share of all.

    >>> bad = Unreadable(total=100, most=0.01)
    >>> bad.add("a.png", OSError("cannot identify it"))
    >>> bad.add("b.png", OSError("truncated"))
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected at most 1% of 100 inputs to be unreadable, got 2: a.png: cannot identify it
    """

    total: int
    most: float = 0.01
    why: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, error: BaseException) -> None:
        """Count one, and stop if it is one too many."""
        text = (str(error).splitlines() or [type(error).__name__])[0]
        self.why[name] = text.removeprefix("[Errno 2] ")[:300]
        if len(self.why) > self.most * self.total:
            first, reason = next(iter(self.why.items()))
            raise InputError(
                f"expected at most {self.most * 100:g}% of {self.total} inputs to be unreadable, "
                f"got {len(self.why)}: {first}: {reason}"
            )


def read_batches(
    inputs: Inputs, batches: Sequence[Batch], *, workers: int, unreadable: Unreadable
) -> Generator[Batch, None, None]:
    """The batches with their inputs, read ahead in threads; inputs that cannot be read are left out.

    >>> from pseudocal.app.inputs import Arrays
    >>> from pseudocal.batches import unread_batches
    >>> rows = Arrays(np.arange(6).reshape(3, 2))
    >>> batches = unread_batches(np.array([2, 0, 1]), batch_size=2)
    >>> for batch in read_batches(rows, batches, workers=1, unreadable=Unreadable(3)):
    ...     print(batch.rows, batch.inputs.tolist())
    [2 0] [[4.0, 5.0], [0.0, 1.0]]
    [1] [[2.0, 3.0]]
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="pseudocal-read")
    stacker = ThreadPoolExecutor(1, thread_name_prefix="pseudocal-stack")
    waiting: deque[Future[Batch]] = deque()
    try:
        for batch in [*batches, *[None] * BATCHES_AHEAD]:
            if batch is not None:
                rows = [pool.submit(inputs.read, int(i)) for i in batch.rows]
                waiting.append(stacker.submit(_gather, inputs, batch, rows, unreadable))
            if waiting and (batch is None or len(waiting) > BATCHES_AHEAD):
                read = waiting.popleft().result()
                if len(read.rows):
                    yield read
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        stacker.shutdown(wait=True, cancel_futures=True)


def _gather(inputs: Inputs, batch: Batch, futures: list[Future[NDArray[Any]]], unreadable: Unreadable) -> Batch:
    """A batch with those of its inputs that could be read."""
    read = []
    for i, future in zip(batch.rows, futures, strict=True):
        try:
            read.append((i, future.result()))
        except MissingExtraError:
            raise
        except Exception as error:  # decoders raise whatever they like on a broken file
            unreadable.add(inputs.name(int(i)), error)
    if len({x.shape for _, x in read}) > 1:
        raise InputError(f"expected inputs of one shape, got {sorted({x.shape for _, x in read})}")
    rows = np.array([i for i, _ in read], dtype=np.intp)
    return Batch(batch.number, rows, np.stack([x for _, x in read]) if read else None)
