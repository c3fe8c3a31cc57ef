"""Get ready for the report while the model is at work."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pseudocal.app.report.page import templates


@contextmanager
def beside(task: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Give out what starts a task in a thread, and wait for its end if it was started.

    >>> done = []
    >>> with beside(lambda: done.append("task")) as start:
    ...     start()
    >>> done
    ['task']
    """
    thread = threading.Thread(target=task, name="pseudocal-beside")
    try:
        yield thread.start
    finally:
        if thread.ident is not None:
            thread.join()


def prepare_report() -> None:
    """Import and compile what the report will need, half a second of work; what is missing is said by who needs it."""
    for name in ("scipy.special", "pyarrow.parquet"):
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError):
        templates()
