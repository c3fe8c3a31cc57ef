"""Blocks on the actors of a Ray cluster.

It uses plain actors and an ordered list of blocks, not a Ray dataset, whose blocks depend on the
size of the cluster. So the blocks, and with them all random numbers, are fixed before the first
worker starts.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pseudocal.arrays import InputError, cores
from pseudocal.calibrators.executors import Failure, WorkOnBlock
from pseudocal.distributed.local import tried
from pseudocal.distributed.ray_session import close_session, open_session
from pseudocal.extras import require
from pseudocal.files import OutputError

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RayExecutor:
    """Run one model on each of several Ray actors; each block goes to an idle actor.

    >>> RayExecutor(workers=8, num_gpus=1).num_cpus
    1

    A worker that dies is replaced, and its block is tried again.

    Attributes:
        workers: The number of workers.
        address: The address of a cluster, or "auto" for the one of this machine. None uses the open
            session of Ray, or starts one on this machine for the duration of the run.
        num_cpus: The CPUs of each worker.
        num_gpus: The GPUs of each worker.
        max_bad: The fraction of blocks that may fail.
        tries: How often a block is tried before it is left out.
        ahead: How many blocks per worker may be started beyond the first unfinished one, which
            bounds the results that wait to be merged.

    """

    workers: int = 2
    address: str | None = None
    num_cpus: float = 1
    num_gpus: float = 0
    max_bad: float = 0.01
    tries: int = 3
    ahead: int = 4

    def __post_init__(self) -> None:
        if self.workers < 1 or self.tries < 1 or self.ahead < 1:
            raise InputError(
                f"expected at least one worker, try and block ahead, got {self.workers}, "
                f"{self.tries}, {self.ahead}"
            )
        if not 0 <= self.max_bad <= 1:
            raise InputError(f"expected a fraction of bad blocks from 0 to 1, got {self.max_bad}")

    def map(
        self, start: Callable[[], WorkOnBlock], blocks: Sequence[Any]
    ) -> Generator[Any, None, None]:
        """The result for each block, in order; closing the generator stops the workers.

        Args:
            start: Called once on each worker; returns the function that is called on each block.
            blocks: The blocks.

        """
        with self.connected() as ray:
            crew = _Crew(ray, self, ray.put(start), min(self._fitting(ray), len(blocks)))
            try:
                yield from crew.work_on(blocks)
            finally:
                crew.dismiss()

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A session of Ray: the one that is open, or one for as long as this lasts."""
        here = self.address in (None, "local")
        cpus = max(cores(), math.ceil(self.workers * self.num_cpus)) if here else None
        new_session = open_session(self.address, cpus)
        ray = require("ray", "ray")
        try:
            yield ray
        finally:
            if new_session:
                close_session()

    def _fitting(self, ray: Any) -> int:
        """The number of workers that the cluster has room for."""
        available = ray.cluster_resources()
        wanted = {
            name: each
            for name, each in (("CPU", self.num_cpus), ("GPU", self.num_gpus))
            if each > 0
        }
        room = min(
            (int(available.get(name, 0) / each) for name, each in wanted.items()),
            default=self.workers,
        )
        if room < 1:
            has = {name: available.get(name, 0) for name in wanted}
            raise InputError(
                f"expected a cluster with room for a worker of {wanted}, got one of {has}"
            )
        return min(self.workers, room)


class _Worker:
    """An actor.

    The work starts with the first block, so that a model that cannot be created is a failed block.
    """

    def __init__(self) -> None:
        self._work: WorkOnBlock | None = None

    def run(self, start: list[Any], number: int, block: Any) -> Any:
        """Work on one block; `start` holds a reference that is resolved once."""

        def work(number: int, block: Any) -> Any:
            import ray

            self._work = self._work or ray.get(start[0])()
            return self._work(number, block)

        return tried(work, number, block)


class _Crew:
    """The actors, and the blocks that they are working on."""

    def __init__(self, ray: Any, settings: RayExecutor, start: Any, size: int) -> None:
        self._ray, self._settings, self._start = ray, settings, start
        self._actors = [self._hire() for _ in range(size)]
        self._busy: dict[
            Any, tuple[int, Any, int]
        ] = {}  # block number, actor and try of each running task

    def work_on(self, blocks: Sequence[Any]) -> Generator[Any, None, None]:
        """Send blocks to idle actors, and yield the results in order."""
        idle = list(self._actors)
        again = deque[tuple[int, int]]()
        done = dict[int, Any]()
        given, following = 0, 0
        while following < len(blocks):
            limit = min(len(blocks), following + self._settings.ahead * len(self._actors))
            while idle and (again or given < limit):
                number, attempt = again.popleft() if again else (given, 1)
                given = max(given, number + 1)
                actor = idle.pop()
                self._busy[actor.run.remote([self._start], number, blocks[number])] = (
                    number,
                    actor,
                    attempt,
                )
            if following in done:
                yield done.pop(following)
                following += 1
                continue
            number, actor, attempt, result = self._next()
            idle.append(actor)
            if isinstance(result, Failure) and attempt < self._settings.tries:
                again.append((number, attempt + 1))
            else:
                done[number] = result

    def _next(self) -> tuple[int, Any, int, Any]:
        """Wait for a block to finish; an actor that died is replaced."""
        (ready,), _ = self._ray.wait(list(self._busy), num_returns=1)
        number, actor, attempt = self._busy.pop(ready)
        try:
            return number, actor, attempt, self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            if isinstance(cause := getattr(error, "cause", None), OutputError):
                raise cause from None
            self._ray.kill(actor)
            self._actors.remove(actor)
            self._actors.append(self._hire())
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:500]
            LOG.warning(
                "a worker died on block %d, try %d, and is replaced: %s", number, attempt, reason
            )
            return number, self._actors[-1], attempt, Failure(reason)

    def dismiss(self) -> None:
        """Stop all actors."""
        for actor in self._actors:
            self._ray.kill(actor)

    def _hire(self) -> Any:
        options = {"num_cpus": self._settings.num_cpus, "num_gpus": self._settings.num_gpus}
        return (
            self._ray.remote(_Worker)
            .options(**options, max_restarts=0, max_task_retries=0)
            .remote()
        )
