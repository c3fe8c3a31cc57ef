"""A target in blocks.

Workers collect evidence from each block, and it is merged here in the order of the blocks.

Random numbers depend on the seed and on the block, never on the worker or on the order in which
blocks finish. So one worker, a hundred workers and no workers give the same result, and so does a
worker that dies and is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudocal.batches import (
    DEFAULT_BATCH_SIZE,
    as_inputs,
    count,
    fitting,
    is_array,
    may_be_large,
    take,
)
from pseudocal.calibrators.blocks import Block, as_blocks, contents_of, row_blocks, sendable
from pseudocal.calibrators.evidence import Evidence, Packed
from pseudocal.calibrators.surrogate import ready
from pseudocal.mixup import Strategy
from pseudocal.predictors import as_predictor, models_in
from pseudocal.randomness import Streams
from pseudocal.skipped import Skipped

if TYPE_CHECKING:
    from pseudocal.calibrators.pseudocal import PseudoCal

ALWAYS_SENT = 2**23  # bytes that each block may send back, however many blocks there are

WorkOnBlock = Callable[[int, Any], Any]  # takes the number of a block and the block


@dataclass(frozen=True)
class Failure:
    """A block that failed.

    Attributes:
        reason: Why it failed.

    """

    reason: str


class Executor(Protocol):
    """Runs work on blocks: in this process, or on workers elsewhere."""

    @property
    def max_bad(self) -> float:
        """The fraction of blocks that may fail."""
        ...

    def map(
        self, start: Callable[[], WorkOnBlock], blocks: Sequence[Any]
    ) -> Generator[Any, None, None]:
        """The result for each block, or a `Failure`, in order.

        Closing the generator cancels the rest.

        Args:
            start: Called once on each worker; returns the function that is called on each block.
            blocks: The blocks.

        """
        ...


@dataclass(frozen=True)
class BlockWork:
    """The work of each worker on its blocks.

    It is sent to the workers, so it holds only settings and models.

    Attributes:
        method: The settings of the calibration.
        models: The model to calibrate, and None, a second opinion or a sequence of them.
        source: The array that blocks of rows read from, if there is one.
        batch_size: The number of inputs that are predicted together.
        memory: The most bytes that a batch of maps may take.
        strategy: Replaces mixup, if given.
        total: The number of inputs in all blocks, if it is known.

    """

    method: PseudoCal
    models: tuple[Any, Any]
    source: Any = None
    batch_size: int = DEFAULT_BATCH_SIZE
    memory: float = math.inf
    strategy: Strategy | None = None
    total: int | None = None

    def start(self) -> WorkOnBlock:
        """On a worker.

        Create the models once, and return the function that collects evidence from a block.
        """
        model, seconds = self.models
        opinions = [ready(second) for second in models_in(seconds)]
        return partial(self._evidence, as_predictor(model), opinions, self.source)

    def _evidence(
        self, predict: Any, opinions: Any, whole: Any, number: int, block: Any
    ) -> tuple[Packed, Any]:
        contents = contents_of(block, whole)
        evidence = self.method.empty_evidence(part=number)
        for step in self.method.steps(
            predict,
            contents.inputs,
            second_opinion=opinions,
            batch_size=fitting(predict, contents.inputs, self.batch_size, self.memory),
            strategy=self.strategy,
            part=None if contents.numbered else number,
            total=self.total,
        ):
            evidence.add(step)
        return evidence.pack(), contents.unreadable


def collect_in_blocks(
    method: PseudoCal,
    models: tuple[Any, Any],
    data: Any,
    executor: Executor,
    *,
    batch_size: int,
    strategy: Strategy | None = None,
) -> tuple[Evidence, dict[str, Any]]:
    """Collect evidence from an array or from blocks with `executor`.

    Also returns settings for the record of the run.

    Args:
        method: The settings of the calibration.
        models: The model to calibrate, and None, a second opinion or a sequence of them.
        data: An array, or a list of blocks.
        executor: Runs the work on the blocks.
        batch_size: The number of inputs that are predicted together.
        strategy: Replaces mixup, if given.

    """
    streams = Streams(method.seed)
    source = None
    total = None
    memory = float(method.memory)
    if is_array(data):
        data = as_inputs(data)
        batch_size = _fitting_on_worker(method, models[0], data, executor, batch_size)
        blocks: Sequence[Any] = row_blocks(streams.order().permutation(count(data)), batch_size)
        source = data
        total = count(data)
    else:
        given = as_blocks(data)
        blocks = [given[i] for i in block_order(method.seed, len(given))]
    work = BlockWork(method, models, sendable(source), batch_size, memory, strategy, total)
    merging = Merging(work, blocks, executor)
    for _ in merging.steps():
        pass
    return merging.evidence, merging.record | {"batch_size": batch_size}


def _fitting_on_worker(
    method: PseudoCal, model: Any, data: Any, executor: Executor, batch_size: int
) -> int:
    """The batch size that a single process would choose; found on a worker, where the model is."""
    if not may_be_large(data, batch_size, method.memory):
        return batch_size
    start = partial(_ask_for_size, model, batch_size, method.memory)
    with closing(executor.map(start, [take(data, np.array([0]))])) as results:
        found = next(results)
    return batch_size if isinstance(found, Failure) else int(found)


def _ask_for_size(model: Any, batch_size: int, memory: int) -> WorkOnBlock:
    predict = as_predictor(model)
    return lambda number, row: fitting(predict, row, batch_size, memory)


def block_order(seed: int, n: int) -> NDArray[np.intp]:
    """The numbers of n blocks in random order, so that a run that stops early has seen blocks from everywhere.

    >>> sorted(block_order(0, 3).tolist())
    [0, 1, 2]
    """
    return Streams(seed).blocks().permutation(n)


def method_for_blocks(method: PseudoCal, blocks: int) -> PseudoCal:
    """The settings for one of many blocks: a smaller sample, no early stop, pairs within a batch.

    The samples of all blocks together take at most four times the memory of the method, or 8 MiB
    for each block.

    >>> from pseudocal import PseudoCal
    >>> small = method_for_blocks(PseudoCal(memory=2**29, tolerance=0.02), 64)
    >>> small.memory == 2**29 * 4 // 64, small.tolerance, small.pairing
    (True, None, 'batch')

    Args:
        method: The settings of the calibration.
        blocks: The number of blocks.

    """
    memory = min(method.memory, max(ALWAYS_SENT, 4 * method.memory // blocks))
    return replace(method, memory=memory, tolerance=None, pairing="batch")


class Merging:
    """Merge the evidence of each block, in order, until the tolerance is reached.

    `steps` does the work and yields the number of finished blocks after each one, for progress
    bars.
    """

    def __init__(self, work: BlockWork, blocks: Sequence[Block], executor: Executor) -> None:
        method = work.method
        self._tolerance = method.tolerance
        epochs = 1 if method.epochs is None and work.total is None else method.epochs
        block_method = method_for_blocks(replace(method, epochs=epochs), len(blocks))
        self._work = replace(work, method=block_method)
        self._blocks, self._executor = blocks, executor
        self._skipped = Skipped(len(blocks), executor.max_bad, "blocks to fail")
        self._unreadable = unreadable_in(blocks, executor.max_bad)
        self._done = 0
        self.evidence = method.empty_evidence()

    def steps(self) -> Iterator[int]:
        """Work on the blocks and yield the number of finished ones."""
        with closing(self._executor.map(self._work.start, self._blocks)) as results:
            for block, result in zip(self._blocks, results, strict=True):
                self._done += 1
                if isinstance(result, Failure):
                    self._skipped.add(block.name, result.reason)
                else:
                    packed, bad = result
                    self._unreadable.update(bad)
                    self.evidence.merge(packed)
                yield self._done
                if self.evidence.converged(self._tolerance):
                    break

    @property
    def record(self) -> dict[str, Any]:
        """Settings for the record of the run."""
        used = self._done - len(self._skipped.why)
        record = {"blocks": len(self._blocks), "blocks_used": used, "skipped": self._skipped.why}
        return record | ({"unreadable": self._unreadable.why} if self._unreadable.why else {})


def unreadable_in(blocks: Sequence[Block], most: float) -> Skipped:
    """An empty record of unreadable inputs, for all blocks that know their number of inputs."""
    return Skipped(sum(len(block) for block in blocks if isinstance(block, Sized)), most)
