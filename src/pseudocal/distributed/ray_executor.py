"""Blocks on the actors of a Ray cluster.

Plain actors over an ordered list of blocks rather than a Ray dataset, whose blocks depend on the size of the cluster:
here the blocks, and with them every random number, are settled before the first worker starts.
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pseudocal.arrays import InputError, cores
from pseudocal.calibrators.executors import Failure, WorkOnBlock
from pseudocal.distributed.addresses import check_address
from pseudocal.distributed.local import tried
from pseudocal.extras import MissingExtraError

LOG = logging.getLogger(__name__)
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed",  # a paragraph on standard output; here it is one line
}


@dataclass(frozen=True)
class RayExecutor:
    """One model on each of `workers` actors; blocks go to whoever is idle.

    >>> RayExecutor(workers=8, num_gpus=1).num_cpus
    1

    Without an address, and where no session is open yet, one is started on this machine for as long as it takes. A
    worker that dies is replaced, and its block is done again; a block that fails too often is left out. Workers do not
    run far ahead of the first block that is missing, so what waits here to be merged is bounded.

    Attributes:
        workers: how many actors.
        address: the address of a cluster, "auto" for the one this machine belongs to; None for a session on this
            machine.
        num_cpus: cores for each worker.
        num_gpus: GPUs for each worker.
        max_bad: the share of blocks that may fail.
        tries: how often a block is tried.
        ahead: how many blocks for each worker may be worked on beyond the first that is missing.

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
                f"expected at least one worker, try and block ahead, got {self.workers}, {self.tries}, {self.ahead}"
            )
        if not 0 <= self.max_bad <= 1:
            raise InputError(f"expected a share of bad blocks from 0 to 1, got {self.max_bad}")

    def map(self, start: Callable[[], WorkOnBlock], blocks: Sequence[Any]) -> Generator[Any, None, None]:
        """What each block gives, in order; closing the generator stops the workers."""
        with self.connected() as ray:
            crew = _Crew(ray, self, ray.put(start), min(self._fitting(ray), len(blocks)))
            try:
                yield from crew.work_on(blocks)
            finally:
                crew.dismiss()

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A session of Ray: the one that is open, or one for as long as this lasts."""
        with _quiet():
            ray = _ray()
            own = not ray.is_initialized()
            if own:
                self._connect(ray)
        try:
            yield ray
        finally:
            if own:
                ray.shutdown()

    def _connect(self, ray: Any) -> None:
        here = self.address in (None, "local")
        if self.address is not None:
            check_address(self.address)
        try:
            ray.init(
                self.address or "local",
                num_cpus=max(cores(), math.ceil(self.workers * self.num_cpus)) if here else None,
                include_dashboard=False if here else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except ConnectionError as error:
            raise InputError(f"expected a Ray cluster at {self.address}, got none: {error}") from error

    def _fitting(self, ray: Any) -> int:
        """How many workers the cluster has room for."""
        there = ray.cluster_resources()
        wanted = {name: each for name, each in (("CPU", self.num_cpus), ("GPU", self.num_gpus)) if each > 0}
        room = min((int(there.get(name, 0) / each) for name, each in wanted.items()), default=self.workers)
        if room < 1:
            has = {name: there.get(name, 0) for name in wanted}
            raise InputError(f"expected a cluster with room for a worker of {wanted}, got one of {has}")
        return min(self.workers, room)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray reads some of its settings when it is imported, others when it is started."""
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update(QUIET)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray") from error
    return ray


class _Worker:
    """An actor: the work is started with the first block, so that a model that cannot be made is a failed block."""

    def __init__(self) -> None:
        self._work: WorkOnBlock | None = None

    def run(self, start: list[Any], number: int, block: Any) -> Any:
        """WorkOnBlock on one block; `start` holds a reference, which is followed once."""

        def work(number: int, block: Any) -> Any:
            import ray

            self._work = self._work or ray.get(start[0])()
            return self._work(number, block)

        return tried(work, number, block)


class _Crew:
    """Actors, who of them does what, and what is done but cannot be given out yet."""

    def __init__(self, ray: Any, settings: RayExecutor, start: Any, size: int) -> None:
        self._ray, self._settings, self._start = ray, settings, start
        self._actors = [self._hire() for _ in range(size)]
        self._busy: dict[Any, tuple[int, Any, int]] = {}  # who does which block, and for which time

    def work_on(self, blocks: Sequence[Any]) -> Generator[Any, None, None]:
        """Give out blocks to whoever is idle, and results in order."""
        idle, again, done = list(self._actors), deque[tuple[int, int]](), dict[int, Any]()
        given, following = 0, 0
        while following < len(blocks):
            limit = min(len(blocks), following + self._settings.ahead * len(self._actors))
            while idle and (again or given < limit):
                number, time = again.popleft() if again else (given, 1)
                given = max(given, number + 1)
                actor = idle.pop()
                self._busy[actor.run.remote([self._start], number, blocks[number])] = (number, actor, time)
            if following in done:
                yield done.pop(following)
                following += 1
                continue
            number, actor, time, result = self._next()
            idle.append(actor)
            if isinstance(result, Failure) and time < self._settings.tries:
                again.append((number, time + 1))
            else:
                done[number] = result

    def _next(self) -> tuple[int, Any, int, Any]:
        """Wait for a block to be done; whoever died over one is replaced."""
        (ready,), _ = self._ray.wait(list(self._busy), num_returns=1)
        number, actor, time = self._busy.pop(ready)
        try:
            return number, actor, time, self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            self._ray.kill(actor)
            self._actors.remove(actor)
            self._actors.append(self._hire())
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:500]
            LOG.warning("a worker died over block %d, try %d, and is replaced: %s", number, time, reason)
            return number, self._actors[-1], time, Failure(reason)

    def dismiss(self) -> None:
        """Stop everyone, whatever they do."""
        for actor in self._actors:
            self._ray.kill(actor)

    def _hire(self) -> Any:
        options = {"num_cpus": self._settings.num_cpus, "num_gpus": self._settings.num_gpus}
        return self._ray.remote(_Worker).options(**options, max_restarts=0, max_task_retries=0).remote()
