"""Files that are whole or absent: written aside, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` when the block ends well, and nothing changes when it does not.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as aside:
    ...         _ = aside.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text(), os.listdir(folder)
    ('whole', ['a.txt'])
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")  # NumPy appends suffixes that are not there
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def save_json(path: Path, content: Any) -> None:
    """Write JSON that people can read."""
    with replacing(path) as aside:
        aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
