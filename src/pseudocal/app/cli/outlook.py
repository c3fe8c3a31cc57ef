"""What a run of the benchmark has before it.

How many models, how long the first took, when all will be there.
"""

from __future__ import annotations

import math
import sys
import time
from datetime import datetime, timedelta


class Outlook:
    """Say beforehand how many models will be trained, and after the first when the last will be.

    Args:
        tasks: the number of models that the tasks themselves need; more are for ensembles.
        workers: how many are trained at a time.
        quiet: whether to say nothing.

    """

    def __init__(self, tasks: int, workers: int, *, quiet: bool) -> None:
        self._tasks, self._workers, self._quiet = tasks, workers, quiet
        self._started = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take note of the progress of a phase.

        Args:
            what: the phase; only "models" is spoken of.
            done: how many are done.
            total: how many there are.

        """
        if self._quiet or what != "models" or not total:
            return
        if done == 0:
            self._started = time.monotonic()
            sys.stderr.write(count_sentence(total, self._tasks) + "\n")
        elif done == 1 and total > 1:
            rounds = math.ceil(total / self._workers) - 1  # after the first
            sys.stderr.write(
                time_sentence(time.monotonic() - self._started, rounds, datetime.now()) + "\n"
            )


def count_sentence(total: int, tasks: int) -> str:
    """Say how many models are to be trained.

    >>> count_sentence(252, 84), count_sentence(1, 84)
    ('252 models to train, 168 or more of them for ensembles only', '1 model to train')
    """
    more = f", {total - tasks} or more of them for ensembles only" if total > tasks else ""
    return f"{total} model{'s' if total > 1 else ''} to train{more}"


def time_sentence(seconds: float, rounds: int, now: datetime) -> str:
    """Say how long the first model took and when the last will be there, after so many more of that length.

    >>> time_sentence(60, 60, datetime(2024, 5, 1, 23, 30))
    'the first took 60 s: all models on 2 May at 00:30'
    """
    end = now + timedelta(seconds=seconds * rounds)
    day = "" if end.date() == now.date() else f" on {end.day} {end:%B}"
    return f"the first took {seconds:.0f} s: all models{day} at {end:%H:%M}"
