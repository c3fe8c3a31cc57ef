"""Folders that this program makes inside OUT while it writes.

It moves and deletes files in these alone.

OUT may come from somebody else, with links in the places of these folders. A link is never
followed: a folder of ours is a real folder with a marker in it and without links.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from pseudocal.files import OutputError

MARKER = ".pseudocal"  # the file by which our folders are known


def make_here(folder: Path) -> None:
    """Make a folder that is not there yet, with the marker in it."""
    folder.mkdir()
    (folder / MARKER).touch(exist_ok=False)


def check_made_here(folder: Path) -> None:
    """Refuse anything in the place of a folder of ours but such a folder, one that is empty, and nothing."""
    if not os.path.lexists(folder):
        return
    check_no_links(folder)
    names = os.listdir(folder)
    if names and MARKER not in names:
        raise OutputError(
            f"expected no folder {folder} but one that pseudocal made, got another: move it away"
        )


def check_no_links(folder: Path) -> None:
    """Refuse a link in the place of a folder, and a folder with a link anywhere below it."""
    mode = os.lstat(folder).st_mode
    if stat.S_ISLNK(mode):
        raise _link(folder)
    if not stat.S_ISDIR(mode):
        raise OutputError(f"expected a folder as {folder}, got a file: move it away")
    for where, folders, files in os.walk(folder, followlinks=False):
        for name in (*folders, *files):
            path = Path(where, name)
            if path.is_symlink():
                raise _link(path)


def _link(path: Path) -> OutputError:
    return OutputError(
        f"expected no links among the files of a run, got {path} -> {os.readlink(path)}: remove it"
    )


def remove_made_here(folder: Path) -> None:
    """Delete a folder of ours, the marker last.

    What is left if that is interrupted is known again.
    """
    with suppress(OSError):  # it is not there, or the disk refuses; the next run tries again
        for name in os.listdir(folder):
            if name != MARKER:
                remove(folder / name)
        with suppress(FileNotFoundError):
            os.unlink(folder / MARKER)
        os.rmdir(folder)


def remove(path: Path) -> None:
    """Delete a folder with its files, or a file; of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
