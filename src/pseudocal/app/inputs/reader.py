"""The reader: threads read the next inputs while the model is busy with these."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.input_sets import InputSet
from pseudocal.arrays import InputError
from pseudocal.batches import Batch
from pseudocal.extras import MissingExtraError
from pseudocal.omissions import Omissions, one_line

BATCHES_AHEAD = 2


def read_batches(
    inputs: InputSet, batches: Sequence[Batch], *, workers: int, unreadable: Omissions
) -> Generator[Batch, None, None]:
    """The batches with their inputs, read ahead in threads; inputs that cannot be read are left out.

    >>> from pseudocal.app.inputs import ArraySet
    >>> from pseudocal.batches import unread_batches
    >>> inputs = ArraySet(np.arange(6).reshape(3, 2))
    >>> batches = unread_batches(np.array([2, 0, 1]), batch_size=2)
    >>> for batch in read_batches(inputs, batches, workers=1, unreadable=Omissions(3)):
    ...     print(batch.rows, batch.inputs.tolist())
    [2 0] [[4.0, 5.0], [0.0, 1.0]]
    [1] [[2.0, 3.0]]

    Args:
        inputs: what to read.
        batches: which inputs belong together; they are not read yet.
        workers: threads that read.
        unreadable: where an input that cannot be read is counted, with the reason.

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


def _gather(inputs: InputSet, batch: Batch, futures: list[Future[NDArray[Any]]], unreadable: Omissions) -> Batch:
    """A batch with those of its inputs that could be read."""
    read = []
    for i, future in zip(batch.rows, futures, strict=True):
        try:
            read.append((i, future.result()))
        except MissingExtraError:
            raise
        except Exception as error:  # a remote store raises whatever it likes
            unreadable.add(inputs.name(int(i)), one_line(error))
    if len({x.shape for _, x in read}) > 1:
        raise InputError(f"expected inputs of one shape, got {sorted({x.shape for _, x in read})}")
    rows = np.array([i for i, _ in read], dtype=np.intp)
    return Batch(batch.number, rows, np.stack([x for _, x in read]) if read else None)
