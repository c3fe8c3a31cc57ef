"""The reader: threads read the next inputs while the model is busy with these."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.addresses import first_line
from pseudocal.app.inputs.input_sets import InputSet
from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError
from pseudocal.omissions import Omissions

BATCHES_AHEAD = 2

Numbered = tuple[NDArray[np.intp], NDArray[Any]]  # a batch of inputs, with their numbers before it


def read_batches(
    inputs: InputSet, order: NDArray[np.intp], *, batch_size: int, workers: int, unreadable: Omissions
) -> Generator[Numbered, None, None]:
    """Batches of inputs in the given order, each with the numbers of its inputs; unreadable ones are left out.

    >>> from pseudocal.app.inputs import ArraySet
    >>> rows = ArraySet(np.arange(6).reshape(3, 2))
    >>> for numbers, x in read_batches(rows, np.array([2, 0, 1]), batch_size=2, workers=1, unreadable=Omissions(3)):
    ...     print(numbers, x.tolist())
    [2 0] [[4.0, 5.0], [0.0, 1.0]]
    [1] [[2.0, 3.0]]

    Args:
        inputs: what to read.
        order: the numbers of the inputs, in the order to read them.
        batch_size: inputs in a batch, at most.
        workers: threads that read.
        unreadable: where an input that cannot be read is counted, with the reason.

    """
    parts = np.array_split(order, -(-len(order) // batch_size))
    pool = ThreadPoolExecutor(workers, thread_name_prefix="pseudocal-read")
    stacker = ThreadPoolExecutor(1, thread_name_prefix="pseudocal-stack")
    waiting: deque[Future[Numbered]] = deque()
    try:
        for part in [*parts, *[None] * BATCHES_AHEAD]:
            if part is not None:
                rows = [pool.submit(inputs.read, int(i)) for i in part]
                waiting.append(stacker.submit(_gather, inputs, part, rows, unreadable))
            if waiting and (part is None or len(waiting) > BATCHES_AHEAD):
                numbers, x = waiting.popleft().result()
                if len(numbers):
                    yield numbers, x
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        stacker.shutdown(wait=True, cancel_futures=True)


def _gather(
    inputs: InputSet, part: NDArray[np.intp], futures: list[Future[NDArray[Any]]], unreadable: Omissions
) -> Numbered:
    """The inputs of a batch that could be read, with their numbers."""
    read = []
    for i, future in zip(part, futures, strict=True):
        try:
            read.append((i, future.result()))
        except MissingExtraError:
            raise
        except Exception as error:  # a remote store raises whatever it likes
            unreadable.add(inputs.name(int(i)), first_line(error))
    if len({x.shape for _, x in read}) > 1:
        raise InputError(f"expected inputs of one shape, got {sorted({x.shape for _, x in read})}")
    return np.array([i for i, _ in read], dtype=np.intp), np.stack([x for _, x in read]) if read else np.empty(0)
