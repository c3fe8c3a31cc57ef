"""Results appear in a folder all at once, or not at all.

A run writes into a folder inside OUT. When all is done, that folder gets another name: this one rename decides that the
run has published. Then its files move into their places. A run that was killed before the rename left nothing but a
folder to sweep; one that was killed after it is finished by the next run. One run at a time writes into OUT.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTS, PARTS_RECORD = "predictions", "predictions.json"  # the folder that workers write to, and how it is known
STAGED, DECIDED = ".pseudocal-staged", ".pseudocal-decided"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)

# what a run may write; files of an earlier run that a new one does not write again are removed with it
RESULTS = (
    "calibration.json",
    "config.json",
    "label.html",
    "logits.npy",
    "model.onnx",
    "model.pt",
    "model.pt2",
    "predictions.csv",
    "predictions.parquet",
    "probe.npy",
    "report.html",
    "report.json",
    "target.json",
)


class OutputError(OSError):
    """The output folder cannot be written."""


@contextmanager
def staged(out: Path, *, keeps: tuple[str, ...] = ()) -> Iterator[Path]:
    """A folder whose files move into `out` if all goes well, and vanish if not.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with staged(Path(folder) / "out") as aside:
    ...         _ = (aside / "report.html").write_text("hello")
    ...     os.listdir(Path(folder) / "out")
    ['report.html']

    Args:
        out: where the results go. It is made if it is not there.
        keeps: results of an earlier run that stay though they are not written again; `PARTS` for predictions that are
            written part by part into a folder of their own. A run that writes no calibration removes nothing.

    """
    with _readable_errors(out):
        made = _make(out)
        try:
            with _locked(out):
                finish(out)
                (out / STAGED).mkdir()
                try:
                    yield out / STAGED
                    with _uninterrupted():
                        _publish(out, keeps)
                finally:
                    shutil.rmtree(out / STAGED, ignore_errors=True)
        finally:
            for folder in made:
                with suppress(OSError):  # it holds something by now
                    folder.rmdir()


def finish(out: Path) -> None:
    """Finish what a killed run had decided to publish, and sweep what another had not."""
    shutil.rmtree(out / STAGED, ignore_errors=True)
    if (out / DECIDED).is_dir():
        _move(out)


def _make(out: Path) -> list[Path]:
    """Make the folder, and say which folders were made for it, the innermost first."""
    if out.exists() and not out.is_dir():
        raise OutputError(f"expected an output folder, got {out}, which is a file")
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    return missing


def _publish(out: Path, keeps: tuple[str, ...]) -> None:
    """Decide, with one rename, and move the files to their places."""
    aside = out / STAGED
    written = {path.name for path in aside.iterdir()}
    for name in written:
        if (out / name).is_dir() and not (aside / name).is_dir():
            raise OutputError(f"expected to write {out / name}, got a folder of that name")
    earlier = (*RESULTS, *([PARTS] if (out / PARTS / PARTS_RECORD).exists() else ()))
    gone = [name for name in earlier if name not in (*written, *keeps) and "calibration.json" in written]
    (aside / "gone.txt").write_text("\n".join(gone), encoding="utf-8")
    aside.rename(out / DECIDED)
    _move(out)


def _move(out: Path) -> None:
    """Move files that are decided into their places; whatever was moved before is not there any more."""
    decided = out / DECIDED
    listed = decided / "gone.txt"
    for name in listed.read_text(encoding="utf-8").split("\n") if listed.exists() else ():
        if name == PARTS:
            shutil.rmtree(out / PARTS, ignore_errors=True)
        elif name in RESULTS:
            (out / name).unlink(missing_ok=True)
    for path in sorted(decided.iterdir()):
        if path != listed:
            os.replace(path, out / path.name)
    shutil.rmtree(decided)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the folder: two runs into one would mix their files."""
    try:
        import fcntl
    except ImportError:  # no such locks here; the user takes care
        yield
        return
    folder = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"expected an output folder that no other run writes to, got {out}, which one is writing to right now"
            ) from None
        yield
    finally:
        os.close(folder)


@contextmanager
def _readable_errors(out: Path) -> Iterator[None]:
    """Say what is wrong with the output folder, in words."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        if error.errno in NO_ROOM:
            free = shutil.disk_usage(out if out.exists() else out.parent).free
            wanted = f" ({error.filename})" if error.filename else ""
            raise OutputError(
                error.errno,
                f"expected room for the results in {out}{wanted}, got {error.strerror}: {free:,} bytes free",
            ) from error
        if not out.exists() or (error.errno in REFUSED and _is_inside(error.filename, out)):
            raise OutputError(f"expected an output folder that can be written, got {out}: {error.strerror}") from error
        raise


def _is_inside(name: object, out: Path) -> bool:
    """Whether an error is about the output folder, rather than about what a run reads."""
    return name is None or str(out) in str(name)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and `kill` back for the moment that the files take to move."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
