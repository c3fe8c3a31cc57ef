"""How far it is: a bar on a terminal, a line now and then elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Protocol, TextIO

from pseudocal.app.jobs.job import Note, Result, Tick

EVERY = 10.0  # seconds between lines
BUILDING = "pseudocal.lab.data"  # the logger that is told when data are built


class Progress(Protocol):
    """Told of the rows that are done."""

    def __call__(self, done: int) -> None:
        """So many more are done."""


@contextmanager
def progress(
    total: int, *, quiet: bool = False, stream: TextIO | None = None, what: str = "calibrating", unit: str = "inputs"
) -> Iterator[Progress]:
    """Show how many of `total` are done."""
    stream = stream or sys.stderr
    if quiet:
        yield lambda done: None
    elif stream.isatty():
        with _bar(total, what) as advance:
            yield advance
    else:
        yield Lines(total, stream, unit)


def shown(steps: Generator[Note | Tick, None, Result], *, quiet: bool) -> Result:
    """Pull the steps of a job: print its notes, show how far it is, and give back its result."""
    what, advance = "", None
    with closing(steps), ExitStack() as bar:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, Note):
                if not quiet:
                    sys.stderr.write(step.text + "\n")
                continue
            if advance is None or step.what != what:
                bar.close()
                what = step.what
                advance = bar.enter_context(progress(step.total, quiet=quiet, what=what, unit=step.unit))
            advance(step.done)


class Lines:
    """A line every ten seconds, with rate and time left.

    >>> lines = Lines(100, sys.stdout)
    >>> lines(10)                       # too soon after the start for a line
    >>> lines.started, lines.spoken = lines.started - 20, lines.spoken - 20
    >>> lines(40)
    50 of 100 inputs, 2.5 a second, 20 s left
    """

    def __init__(self, total: int, stream: TextIO, unit: str = "inputs") -> None:
        self.total = total
        self.unit = unit
        self.done = 0
        self.started = self.spoken = time.monotonic()
        self._stream = stream

    def __call__(self, done: int) -> None:
        """So many more are done."""
        self.done += done
        now = time.monotonic()
        if now - self.spoken >= EVERY:
            self.spoken = now
            rate = self.done / (now - self.started)
            left = (self.total - self.done) / rate
            line = f"{self.done:,} of {self.total:,} {self.unit}, {pace(rate)}, {left:.0f} s left"
            self._stream.write(line + "\n")


def pace(rate: float) -> str:
    """How fast it goes: so many a second, or of what is slow so many seconds each.

    >>> pace(2.5), pace(0.02)
    ('2.5 a second', '50 s each')
    """
    return f"{rate:.1f} a second" if rate >= 0.1 or rate == 0 else f"{1 / rate:.0f} s each"


@contextmanager
def told_of_building(*, quiet: bool = False, stream: TextIO | None = None) -> Iterator[None]:
    """Say so in a line when data are built on first use, which takes a while."""
    import logging

    logger, handler = logging.getLogger(BUILDING), logging.StreamHandler(stream or sys.stderr)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.CRITICAL if quiet else logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def _bar(total: int, what: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    rate = TextColumn("{task.fields[pace]}")
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=total, pace="")
        yield lambda done: shown.update(task, advance=done, pace=pace(shown.tasks[0].speed or 0.0))
