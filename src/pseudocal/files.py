"""Files that are whole or absent: written aside, then renamed.

What cannot be written ends in an `OutputError`.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pseudocal.arrays import InputError

ZEROS = bytes(2**22)
PROBE = bytes(2**16)  # written and removed, to see whether a folder can be written at all
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_SUCH_CALL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
ASIDE = ".aside"  # in the names of temporary files, by which they are found again


class OutputError(OSError):
    """A file or a folder cannot be written."""


@contextmanager
def writing(what: Path, folder: Path) -> Iterator[None]:
    """Say in words that there is no room for `what`, or that `folder`, where it is written, refuses it.

    Errors about other files pass through.

    >>> with writing(Path("out"), Path("out")):
    ...     raise OSError(errno.EROFS, "Read-only file system", "out/report.html")
    Traceback (most recent call last):
    pseudocal.files.OutputError: expected an output that can be written, got out: Read-only file
    system
    """
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        if (
            error.errno in NO_ROOM or "requested and" in reason
        ):  # NumPy: "9 requested and 5 written"
            raise OutputError(
                f"expected room for {what}, got {reason}: {_free(folder)} bytes free"
            ) from error
        if not folder.exists() or _is_in(error.filename, folder):
            raise OutputError(
                f"expected an output that can be written, got {what}: {reason}"
            ) from error
        raise


def _free(folder: Path) -> str:
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return f"{shutil.disk_usage(there).free:,}"


def _is_in(name: object, folder: Path) -> bool:
    return isinstance(name, str | os.PathLike) and folder in (Path(name), *Path(name).parents)


def check_writable(folder: Path) -> None:
    """Make a folder and write a little into it, to find problems before there is much to lose."""
    with writing(folder, folder):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe.{os.getpid()}"
        try:
            probe.write_bytes(PROBE)
        finally:
            probe.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to.

    It replaces `path` if the block succeeds and is deleted if it raises.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as aside:
    ...         _ = aside.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text(), os.listdir(folder)
    ('whole', ['a.txt'])
    """
    # the suffix stays the last: NumPy appends those that are not there. Nobody can guess the name
    # and put a link there
    aside = path.with_name(f".{path.stem}.{secrets.token_hex(8)}{ASIDE}{path.suffix}")
    with writing(path, path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield aside
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


def own_file(folder: Path, name: str) -> Path:
    """The path of a file in a folder that may come from anyone.

    A link that leaves the folder is refused.

    >>> own_file(Path("out"), "report.json") == Path("out/report.json")
    True

    Args:
        folder: the folder. It may be a link itself: the user named it.
        name: the name of the file, without slashes.

    """
    path = folder / name
    if path.is_symlink() and not is_inside(path, folder):
        raise InputError(
            f"expected a file in {folder}, got {path}, a link to {os.readlink(path)}: "
            "if you trust it, put the file itself there"
        )
    return path


def is_inside(path: Path | str, folder: Path) -> bool:
    """Whether a path is in a folder or below it once all links are followed.

    >>> is_inside("out/a.png", Path("out")), is_inside("out/../a.png", Path("out"))
    (True, False)
    """
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def left_aside(folder: Path) -> list[Path]:
    """The temporary files that killed runs left in a folder and below it, and those of a run that lives."""
    return [path for path in folder.rglob(f".*.*{ASIDE}*") if path.is_file()]


def sweep(folder: Path) -> None:
    """Delete what killed runs left aside in a folder and below it.

    No other run may be at work there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / ".model.123.aside.npz").write_text("half"), (Path(folder) / ".mine").write_text("whole")
    ...     sweep(Path(folder))
    ...     os.listdir(folder)
    ['.mine']
    """
    for path in left_aside(folder):
        path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[int | None]:
    """Hold a folder, open, for one run alone: a second one is refused.

    Its number, or None where there are no locks.

    Args:
        folder: the folder.
        wait: whether a second run waits for the first one instead.

    """
    try:
        import fcntl
    except ImportError:  # no such locks here; the user takes care
        yield None
        return
    with writing(folder, folder):
        held = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            why = f"{folder}, which one is writing to right now"
            raise OutputError(
                f"expected an output folder that no other run writes to, got {why}"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:  # some file systems have none
                raise
        yield held
    finally:
        os.close(held)


def save_json(path: Path, content: Any) -> None:
    """Write indented JSON."""
    with replacing(path) as aside:
        aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load_json(path: Path, what: str) -> Any:
    """Read a JSON file that may come from anyone.

    Args:
        path: the file.
        what: what it is meant to be, for errors.

    """
    if not path.is_file():  # a pipe would never end
        raise InputError(f"expected {what}, got {path}: {what_is_at(path)}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"expected {what} that can be read, got {path}: {error.strerror}"
        ) from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # numbers of thousands of digits and deep nesting among them
        raise InputError(f"expected {what}, got {path}, which is not JSON: {error}") from error


def what_is_at(path: Path) -> str:
    """What is there instead of a regular file.

    >>> what_is_at(Path("nowhere.json"))
    'no such file'
    """
    if path.is_dir():
        return "a folder"
    return "a pipe or a device" if path.exists() else "no such file"


def brief(value: Any) -> str:
    """A value for an error, cut where it is long.

    >>> brief("a" * 100)[-6:]
    'aaa...'
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # numbers of thousands of digits, or deep nesting
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= 80 else text[:77] + "..."


def allocate_array(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Create a .npy file and return it as a memory map.

    Disk space is allocated now, so a full disk raises here.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     array = allocate_array(Path(folder) / "a.npy", (2, 3), np.float32)
    ...     array[0] = 1
    ...     array.sum(), (Path(folder) / "a.npy").stat().st_size
    ...     del array  # Windows deletes no open file
    (np.float32(3.0), 152)
    """
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    size = array.offset + array.nbytes
    del array
    with path.open("r+b") as file:
        _take_room(file, size)
    return np.lib.format.open_memmap(path, mode="r+")


def _take_room(file: Any, size: int) -> None:
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except AttributeError:  # not every system has it
        _fill(file, size)
    except OSError as error:
        if error.errno not in NO_SUCH_CALL:
            raise
        _fill(file, size)  # nor every file system


def _fill(file: Any, size: int) -> None:
    """Allocate disk space by writing zeros, on systems without `posix_fallocate`.

    The header is kept.
    """
    start = 4096  # the header is shorter, and space is allocated in pages of this size
    file.seek(start)
    while file.tell() < size:
        file.write(ZEROS[: size - file.tell()])
