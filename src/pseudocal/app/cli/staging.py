"""Write results aside and put them in place at the end, all or nothing."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from pseudocal.app.cli.errors import OutputError

PARTS, RECORD = "predictions", "predictions.json"  # the folder of a run on a cluster, and how it is known

# what `calibrate` may write; those of an earlier run that a new one does not write again are removed with it
KNOWN = (
    "calibration.json",
    "config.json",
    "logits.npy",
    "model.onnx",
    "model.pt",
    "model.pt2",
    "predictions.csv",
    "predictions.parquet",
    "report.html",
    "report.json",
)


@contextmanager
def staged(out: Path, *, keeps_parts: bool = False) -> Iterator[Path]:
    """A folder beside `out` whose files move into it if all goes well, and vanish if not.

    `keeps_parts` says that the predictions are written part by part into a folder of their own.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with staged(Path(folder) / "out") as aside:
    ...         _ = (aside / "report.html").write_text("hello")
    ...     sorted(os.listdir(folder)), os.listdir(Path(folder) / "out")
    (['out'], ['report.html'])
    """
    aside = _make_aside(out)
    try:
        yield aside
        with _uninterrupted():
            _publish(aside, out, keeps_parts)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _make_aside(out: Path) -> Path:
    """Make the folder now, so that an output that cannot be written is known before any work is done."""
    if out.exists() and not out.is_dir():
        raise OutputError(f"expected an output folder, got {out}, which is a file")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        if out.is_dir():
            (probe := Path(mkdtemp(prefix=".probe.", dir=out))).rmdir()
            assert not probe.exists()
    except OSError as error:
        raise OutputError(f"expected an output folder that can be written, got {out}: {error.strerror}") from error
    aside.chmod(0o755)
    return aside


def _publish(aside: Path, out: Path, keeps_parts: bool) -> None:
    out.mkdir(exist_ok=True)
    written = {path.name for path in aside.iterdir()}
    for name in written:
        if (out / name).is_dir() and not (aside / name).is_dir():
            raise OutputError(f"expected to write {out / name}, got a folder of that name")
    for name in sorted(written):
        os.replace(aside / name, out / name)
    if (out / "calibration.json").exists():
        for name in set(KNOWN) - written:
            (out / name).unlink(missing_ok=True)
        if not keeps_parts and (out / PARTS / RECORD).exists():
            shutil.rmtree(out / PARTS)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back for the moment that the files take to move."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
