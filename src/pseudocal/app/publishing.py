"""Results appear in a run folder all at once, or not at all.

A command writes into a folder inside OUT. When all is done, that folder gets another name: this one
rename decides that the command has published. Then its files move to their places. A command that
is killed before the rename leaves a folder to remove. After it, the next command finishes the move.
One command at a time writes into OUT.

OUT may come from somebody else, with links in the places of these folders. A link is never
followed: a folder of ours is a real folder with a marker in it and without links.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pseudocal.app.models.hugging_face import MODEL_FOLDER, MODEL_RECORD
from pseudocal.app.run import (
    CALIBRATION,
    COLLECTED,
    LABEL_PAGE,
    LABEL_TABLE,
    PARTS,
    PARTS_RECORD,
    RECORD,
    RENDERED,
    UNCONFIRMED,
)
from pseudocal.arrays import InputError
from pseudocal.files import OutputError, check_writable, locked, writing

STAGED = ".pseudocal-staged"
DECIDED = ".pseudocal-decided"
MARKER = ".pseudocal"  # the file by which our folders are known
REMOVED = "removed.txt"  # in a decided folder: the files of an earlier run that go
REPLACED = (*COLLECTED, *RENDERED, LABEL_PAGE)  # these go if another run is published
# folders that go too, and the file by which ours are known
FOLDERS = {
    MODEL_FOLDER: MODEL_RECORD,
    UNCONFIRMED + MODEL_FOLDER: MODEL_RECORD,
    PARTS: PARTS_RECORD,
}


@contextmanager
def publishing(out: Path, *, keep_run: bool = False) -> Iterator[Path]:
    """A folder whose files move into `out` if all goes well, and vanish if not.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with publishing(Path(folder) / "out") as aside:
    ...         _ = (aside / "report.html").write_text("hello")
    ...     os.listdir(Path(folder) / "out")
    ['report.html']

    Args:
        out: where the results go. It is made if it is not there.
        keep_run: whether the earlier run stays, and only its results are replaced. A command that
            writes no calibration removes nothing.

    """
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        if out.exists() and not out.is_dir():
            raise OutputError(f"the output folder {out} is a file")
        with writing(out, out):
            out.mkdir(parents=True, exist_ok=True)
        with locked(out) as handle:
            try:
                with writing(out, out):
                    _finish(out)
                    _check_places(out, (*REPLACED, LABEL_TABLE))
                    _check_no_others(out)
                    if os.path.lexists(out / PARTS):
                        check_no_links(out / PARTS)
                    _make_ours(out / STAGED)
                    check_writable(out / STAGED)
                with writing(out, out / STAGED):
                    try:
                        yield out / STAGED
                    except InputError:  # of a file that was written before the folder vanished
                        _check_same(out, handle)
                        raise
                with writing(out, out), _uninterrupted():
                    _check_same(out, handle)
                    _publish(out, keep_run)
            finally:
                with suppress(OSError):  # what went wrong before says more
                    check_no_links(out / STAGED)
                    _remove_ours(out / STAGED)
    finally:
        for made in missing:
            with suppress(OSError):  # it holds something by now
                made.rmdir()


def finish_publishing(out: Path) -> None:
    """Finish what a killed command had decided to publish, and remove what another had not."""
    if os.path.lexists(out / STAGED) or os.path.lexists(out / DECIDED):
        with locked(out), writing(out, out):
            _finish(out)


def _finish(out: Path) -> None:
    _check_ours(out / STAGED)
    _check_ours(out / DECIDED)
    _remove_ours(out / STAGED)
    if os.path.lexists(out / DECIDED):
        _move(out)


def _check_places(out: Path, names: Iterable[str]) -> None:
    """Refuse folders in the places of files, and folders of others in the places of ours."""
    for name in names:
        place = out / name
        if place.is_symlink() or not place.is_dir():  # a link is replaced, its target stays
            continue
        if name not in FOLDERS or not (place / FOLDERS[name]).is_file():
            raise OutputError(f"{place} cannot be written: there is a folder of that name")


def _check_no_others(out: Path) -> None:
    """Refuse a folder without a run in which files of others have the names of ours."""
    if any(os.path.lexists(out / name) for name in (RECORD, CALIBRATION, PARTS)):
        return
    found = [name for name in REPLACED if os.path.lexists(out / name)]
    if found:
        raise OutputError(
            f"{out} has no run, but files that a run would replace or remove "
            f"({', '.join(found[:3])}): choose another folder"
        )


def _check_same(out: Path, handle: int | None) -> None:
    """Refuse an output folder that was replaced since the start: what was written is lost."""
    if handle is None:
        return
    if not out.exists() or not os.path.samestat(os.stat(out), os.fstat(handle)):
        raise OutputError(f"{out} was removed or replaced before the results were written")


def _publish(out: Path, keep_run: bool) -> None:
    """Decide, with one rename, and move the files to their places."""
    aside = out / STAGED
    written = {path.name for path in aside.iterdir()} - {MARKER}
    _check_places(out, written)
    removed = list[str]()
    if CALIBRATION in written:
        earlier = RENDERED if keep_run else REPLACED
        removed = [
            name
            for name in (*earlier, PARTS)
            if name not in written
            and (name not in FOLDERS or (out / name / FOLDERS[name]).exists())
        ]
    (aside / REMOVED).write_text("\n".join(removed), encoding="utf-8")
    aside.rename(out / DECIDED)
    _move(out)


def _move(out: Path) -> None:
    """Move decided files into their places; those moved before are not there any more."""
    decided = out / DECIDED
    listed = decided / REMOVED
    if listed.exists():
        for name in listed.read_text(encoding="utf-8").split("\n"):
            if name in (*REPLACED, PARTS):
                with suppress(OSError):
                    remove(out / name)
    for path in sorted(decided.iterdir()):
        if path.name in (MARKER, REMOVED):
            continue
        if path.is_dir():  # a folder replaces neither another folder nor a link
            remove(out / path.name)
        os.replace(path, out / path.name)
    _remove_ours(decided)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and `kill` back while the files move; they are delivered afterwards.

    A mask of signals would hold them back from this thread, but not from those of the libraries.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can be interrupted
        return
    held = list[int]()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: held.append(number)) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
        for late in held:
            signal.raise_signal(late)


def _make_ours(folder: Path) -> None:
    """Make a folder that is not there yet, with the marker in it."""
    folder.mkdir()
    (folder / MARKER).touch(exist_ok=False)


def _check_ours(folder: Path) -> None:
    """Refuse anything in the place of a folder of ours but such a folder, or an empty one."""
    if not os.path.lexists(folder):
        return
    check_no_links(folder)
    names = os.listdir(folder)
    if names and MARKER not in names:
        raise OutputError(f"pseudocal did not make the folder {folder}: move it away")


def check_no_links(folder: Path) -> None:
    """Refuse a link in the place of a folder, and a folder with a link anywhere below it."""
    mode = os.lstat(folder).st_mode
    if stat.S_ISLNK(mode):
        raise _link(folder)
    if not stat.S_ISDIR(mode):
        raise OutputError(f"{folder} is a file where a folder belongs: move it away")
    for where, folders, files in os.walk(folder, followlinks=False):
        for name in (*folders, *files):
            path = Path(where, name)
            if path.is_symlink():
                raise _link(path)


def _link(path: Path) -> OutputError:
    return OutputError(
        f"{path} is a link to {os.readlink(path)}, and a run folder has none: remove it"
    )


def _remove_ours(folder: Path) -> None:
    """Delete a folder of ours, the marker last: what an interruption leaves is known again."""
    with suppress(OSError):  # it is not there, or the disk refuses; the next command tries again
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
