"""Run many jobs in several processes or on Ray.

Both are called like `map`, which runs them one by one.

Results come as they finish, in any order. A job writes files and returns little, and its files do
not depend on which executor ran it.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, Protocol, TypeVar

from pseudocal.distributed.ray_session import close_session, open_session
from pseudocal.extras import require
from pseudocal.lab.data import cache_folder

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Workers(Protocol):
    """A callable like `map` whose results come in any order."""

    def __call__(
        self, do: Callable[[Item], Outcome], items: Sequence[Item], /
    ) -> Iterator[Outcome]:
        """Apply `do` to each item."""
        ...


class Pool:
    """A context manager that runs jobs in new processes, which share no state with this one.

    Args:
        workers: the number of processes.
        gpus: the GPUs that the processes take in turn, as `CUDA_VISIBLE_DEVICES` names them: each
            sees one, as "cuda". None to leave all of them to every process.

    """

    def __init__(self, workers: int, gpus: Sequence[str] = ()) -> None:
        context = multiprocessing.get_context("spawn")
        turns = context.SimpleQueue()
        for number in range(workers if gpus else 0):
            turns.put(gpus[number % len(gpus)])
        self._pool = ProcessPoolExecutor(
            workers, context, _start_worker, (turns if gpus else None,)
        )

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(wait=exception[0] is None, cancel_futures=True)

    def __call__(
        self, do: Callable[[Item], Outcome], items: Sequence[Item], /
    ) -> Iterator[Outcome]:
        """Apply `do` to each item in one of the processes."""
        for future in as_completed([self._pool.submit(do, item) for item in items]):
            yield future.result()


def _start_worker(gpus: Any) -> None:
    """Take a GPU, and exit when the parent process is killed.

    Else the worker would wait for work forever.
    """
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus.get()  # torch reads it when it first needs a GPU
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Ray:
    """Run jobs as Ray tasks of one core each.

    Args:
        address: a cluster whose nodes share the output and cache folders; None for this machine.
        workers: the number of cores to use on this machine.
        gpus: the number of GPUs that a job needs; Ray gives it these, and it sees no others.

    """

    def __init__(
        self, address: str | None = None, workers: int | None = None, gpus: int = 0
    ) -> None:
        self._started = open_session(address, workers)
        self._gpus = gpus
        self._ray = require("ray", "ray")

    def __enter__(self) -> Ray:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._started:
            close_session()

    def __call__(
        self, do: Callable[[Item], Outcome], items: Sequence[Item], /
    ) -> Iterator[Outcome]:
        """Apply `do` to each item on a worker."""
        remote = self._ray.remote(max_retries=0, num_gpus=self._gpus)(_apply)
        waiting = [remote.remote(do, item, str(cache_folder())) for item in items]
        while waiting:
            finished, waiting = self._ray.wait(waiting, num_returns=1)
            yield self._ray.get(finished[0])


def visible_gpus() -> list[str]:
    """List the GPUs of this machine that torch may use, as `CUDA_VISIBLE_DEVICES` names them."""
    torch = require("torch", "bench")
    named = [
        name.strip()
        for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if name.strip()
    ]
    return named or [str(number) for number in range(torch.cuda.device_count())]


def _apply(do: Callable[[Any], Any], item: Any, cache: str) -> Any:
    os.environ["PSEUDOCAL_CACHE"] = cache  # a worker may have been started with another setting
    return do(item)
