"""A target in blocks: workers collect from each by itself, and what they collected is merged here, in order.

What is drawn at random depends on the seed and on the block, never on the worker or on who was first. So one worker,
a hundred, and no worker at all give the same answer, and one that dies and is replaced changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.batches import count, fitting, is_array, may_be_large, take
from pseudocal.calibrators.blocks import Block, as_blocks, opened, received, rows_in_blocks, sendable
from pseudocal.calibrators.collected import Collected, Packed, Settled
from pseudocal.predictors import as_predictor
from pseudocal.synthesis import Strategy

if TYPE_CHECKING:
    from pseudocal.calibrators.pseudocal import PseudoCal

SAMPLE = 2**23  # bytes that a block may always send back, however many blocks there are

Work = Callable[[int, Any], Any]  # the number of a block and the block itself go in


@dataclass(frozen=True)
class Failure:
    """Why a block could not be done."""

    reason: str


class Executor(Protocol):
    """Where blocks are worked on."""

    @property
    def max_bad(self) -> float:
        """The share of blocks that may fail."""
        ...

    def map(self, start: Callable[[], Work], blocks: Sequence[Any]) -> Generator[Any, None, None]:
        """What the work that `start` makes on each worker gives for each block, or a `Failure`, in order.

        Whoever closes the generator cancels what is left.
        """
        ...


def collect_in_blocks(
    method: PseudoCal,
    model: Any,
    data: Any,
    executor: Executor,
    *,
    batch_size: int,
    second_opinion: Any = None,
    strategy: Strategy | None = None,
) -> tuple[Collected, dict[str, Any]]:
    """Collect from an array or from blocks on the workers of `executor`; also what belongs into the record."""
    pair_rng, keep_rng, _ = np.random.default_rng(method.seed).spawn(3)
    if is_array(data):
        batch_size = _fitting(method, model, data, executor, batch_size)
        blocks: Sequence[Any] = rows_in_blocks(pair_rng.permutation(count(data)), batch_size, pair_rng)
        source = data.tocsr() if hasattr(data, "tocsr") else data
    else:
        given, source = as_blocks(data), None
        blocks = [given[i] for i in in_random_order(method.seed, len(given))]
    collected, record = merge_blocks(
        method,
        (model, second_opinion),
        blocks,
        source,
        executor,
        keep_rng,
        batch_size=batch_size,
        memory=method.memory,
        strategy=strategy,
    )
    return collected, record | {"batch_size": batch_size}


def _fitting(method: PseudoCal, model: Any, data: Any, executor: Executor, batch_size: int) -> int:
    """The batch size that one process would choose; the model is asked where it is, on a worker."""
    if not may_be_large(data, batch_size, method.memory):
        return batch_size
    start = partial(_ask, model, batch_size, method.memory)
    with closing(executor.map(start, [take(data, np.array([0]))])) as results:
        found = next(results)
    return batch_size if isinstance(found, Failure) else int(found)


def _ask(model: Any, batch_size: int, memory: int) -> Work:
    predict = as_predictor(model)
    return lambda number, row: fitting(predict, row, batch_size, memory)


def in_random_order(seed: int, n: int) -> NDArray[np.intp]:
    """The numbers from 0 to n - 1 as the seed shuffles them: an early stop has then seen blocks from everywhere.

    >>> sorted(in_random_order(0, 3).tolist())
    [0, 1, 2]
    """
    return np.random.default_rng(seed).spawn(4)[3].permutation(n)


def merge_blocks(
    method: PseudoCal,
    models: tuple[Any, Any],
    blocks: Sequence[Block],
    source: Any,
    executor: Executor,
    keep_rng: np.random.Generator,
    *,
    batch_size: int,
    memory: float = math.inf,
    strategy: Strategy | None = None,
) -> tuple[Collected, dict[str, Any]]:
    """Let workers collect from each block and merge what they send, in order, until it is enough.

    The models are the one to calibrate and a second opinion, or None. `memory` is what a batch of maps may take.
    """
    model, second = models
    sample = min(method.memory, max(SAMPLE, 4 * method.memory // len(blocks)))
    mine = replace(method, memory=sample, tolerance=None, pairing="batch")
    start = partial(_start, mine, model, second, sendable(source), batch_size, memory, strategy)
    collected, settled = Collected(method.memory * 3 // 4, keep_rng), Settled(method.tolerance)
    left_out, unreadable = LeftOut(len(blocks), executor.max_bad), unreadable_in(blocks, executor.max_bad)
    done = 0
    with closing(executor.map(start, blocks)) as results:
        for block, result in zip(blocks, results, strict=True):
            done += 1
            if isinstance(result, Failure):
                left_out.add(block.name, result.reason)
                continue
            packed, bad = result
            unreadable.update(bad)
            collected.merge_packed(packed)
            if settled(collected):
                break
    record = {"blocks": len(blocks), "blocks_used": done - len(left_out.why), "left_out": left_out.why}
    return collected, record | ({"unreadable": unreadable.why} if unreadable.why else {})


def _start(
    method: PseudoCal, model: Any, second: Any, source: Any, batch_size: int, memory: float, strategy: Strategy | None
) -> Work:
    """On a worker: make the models once; then collect from one block after another."""
    predict, whole = as_predictor(model), received(source)
    opinion = None if second is None else as_predictor(second)

    def work(number: int, block: Any) -> tuple[Packed, dict[str, str]]:
        rng = block.rng() if hasattr(block, "rng") else None
        read = opened(block, whole)
        collected = method.collect(
            predict,
            read.inputs,
            second_opinion=opinion,
            batch_size=fitting(predict, read.inputs, batch_size, memory),
            strategy=strategy,
            part=number,
            pair_rng=rng,
        )
        return collected.pack(), read.unreadable

    return work


def unreadable_in(blocks: Sequence[Block], most: float) -> LeftOut:
    """The count of inputs that cannot be read, among those of blocks that know how many they have."""
    return LeftOut(sum(len(block) for block in blocks if isinstance(block, Sized)), most, "inputs to be unreadable")


class LeftOut:
    """The blocks that failed, or the inputs, which are fatal once they are more than a share of all.

    >>> left_out = LeftOut(total=100, most=0.01)
    >>> left_out.add("a.npz", "OSError: truncated")
    >>> left_out.add("b.npz", "OSError: gone")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected at most 1% of 100 blocks to fail, got 2: a.npz: OSError: truncated
    """

    def __init__(self, total: int, most: float, what: str = "blocks to fail") -> None:
        self.total, self.most, self.what = total, most, what
        self.why: dict[str, str] = {}

    def update(self, why: Mapping[str, str]) -> None:
        """Count some."""
        for name, reason in why.items():
            self.add(name, reason)

    def add(self, name: str, reason: str) -> None:
        """Count one, and stop if it is one too many."""
        self.why[name] = reason
        if len(self.why) > self.most * self.total:
            first, why = next(iter(self.why.items()))
            raise InputError(
                f"expected at most {self.most * 100:g}% of {self.total} {self.what}, "
                f"got {len(self.why)}: {first}: {why}"
            )
