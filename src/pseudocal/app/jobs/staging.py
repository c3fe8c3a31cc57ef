"""Results appear in a folder all at once, or not at all.

A run writes into a folder inside OUT. When all is done, that folder gets another name: this one
rename decides that the run has published. Then its files move into their places. A run that was
killed before the rename left nothing but a folder to sweep; one that was killed after it is
finished by the next run. One run at a time writes into OUT. Among the files is `job.toml`, by which
the run can be done again.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from pseudocal.app.inputs.sets import opinion_names
from pseudocal.app.jobs.job import (
    FOUND_ANYWHERE,
    JOB_FILE,
    NO_VALUE,
    NOT_WRITTEN,
    SOME,
    TABLES_OF_JOB,
    Job,
)
from pseudocal.app.jobs.made_here import (
    MARKER,
    check_made_here,
    check_no_links,
    make_here,
    remove,
    remove_made_here,
)
from pseudocal.app.jobs.setup import Setup
from pseudocal.app.models.hugging_face import MODEL_FOLDER, MODEL_RECORD
from pseudocal.files import OutputError, check_writable, locked, replacing, writing

# the folder that workers write to, and how it is known
PARTS = "predictions"
PARTS_RECORD = "predictions.json"
STAGED, DECIDED = ".pseudocal-staged", ".pseudocal-decided"

# what a run may write; files of an earlier run that a new one does not write again are removed with
# it
RESULTS = (
    "calibration.json",
    "job.toml",
    "label.html",
    "logits.npy",
    "model.onnx",
    "model.pt",
    "model.pt2",
    "pixels.npz",
    "predictions.csv",
    "predictions.parquet",
    "probe.npy",
    "report.html",
    "report.json",
    "target.json",
)
FOLDERS = {
    MODEL_FOLDER: MODEL_RECORD
}  # folders that a run may write, and the file by which ours are known


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
        keeps: results of an earlier run that stay though they are not written again; `PARTS` for
            predictions that are written part by part into a folder of their own. A run that writes
            no calibration removes nothing.

    """
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        _make(out)
        with locked(out) as folder:
            try:
                with writing(out, out):
                    _finish(out)
                    _check_places(out, (*RESULTS, *FOLDERS))
                    if PARTS in keeps and os.path.lexists(out / PARTS):
                        check_no_links(out / PARTS)
                    make_here(out / STAGED)
                    check_writable(out / STAGED)
                with writing(out, out / STAGED):
                    yield out / STAGED
                with writing(out, out), _uninterrupted():
                    _check_same(out, folder)
                    _publish(out, keeps)
            finally:
                with suppress(OSError):  # what went wrong before says more
                    check_no_links(out / STAGED)
                    remove_made_here(out / STAGED)
    finally:
        for made in missing:
            with suppress(OSError):  # it holds something by now
                made.rmdir()


def finish(out: Path) -> None:
    """Finish what a killed run had decided to publish, sweep what another had not, and leave a running one alone."""
    if os.path.lexists(out / STAGED) or os.path.lexists(out / DECIDED):
        with locked(out), writing(out, out):
            _finish(out)


def _finish(out: Path) -> None:
    check_made_here(out / STAGED)
    check_made_here(out / DECIDED)
    remove_made_here(out / STAGED)
    if os.path.lexists(out / DECIDED):
        _move(out)


def _make(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise OutputError(f"expected an output folder, got {out}, which is a file")
    with writing(out, out):
        out.mkdir(parents=True, exist_ok=True)


def _check_places(out: Path, names: Iterable[str]) -> None:
    """Refuse folders in the places of files, and folders of others in the places of ours."""
    for name in names:
        place = out / name
        if place.is_symlink():  # which is replaced; what it points to stays
            continue
        if place.is_dir() and not (name in FOLDERS and (place / FOLDERS[name]).is_file()):
            raise OutputError(f"expected to write {out / name}, got a folder of that name")


def _check_same(out: Path, folder: int | None) -> None:
    """Refuse an output folder that is not the one that was there at the start.

    What was written into that is lost.
    """
    if folder is not None and not (
        out.exists() and os.path.samestat(os.stat(out), os.fstat(folder))
    ):
        raise OutputError(
            f"expected {out} to stay until the results are written, got it removed or replaced"
        )


def _publish(out: Path, keeps: tuple[str, ...]) -> None:
    """Decide, with one rename, and move the files to their places."""
    aside = out / STAGED
    written = {path.name for path in aside.iterdir()} - {MARKER}
    _check_places(out, written)
    folders = {PARTS: PARTS_RECORD, **FOLDERS}
    earlier = (
        *RESULTS,
        *(name for name, record in folders.items() if (out / name / record).exists()),
    )
    gone = [
        name for name in earlier if name not in (*written, *keeps) and "calibration.json" in written
    ]
    (aside / "gone.txt").write_text("\n".join(gone), encoding="utf-8")
    aside.rename(out / DECIDED)
    _move(out)


def _move(out: Path) -> None:
    """Move files that are decided into their places.

    Whatever was moved before is not there any more.
    """
    decided = out / DECIDED
    listed = decided / "gone.txt"
    for name in listed.read_text(encoding="utf-8").split("\n") if listed.exists() else ():
        if name == PARTS or name in FOLDERS:
            with suppress(OSError):
                remove(out / name)
        elif name in RESULTS:
            (out / name).unlink(missing_ok=True)
    for path in sorted(decided.iterdir()):
        if path.name in (MARKER, listed.name):
            continue
        if path.is_dir():  # a folder does not replace another, nor a link
            remove(out / path.name)
        os.replace(path, out / path.name)
    remove_made_here(decided)


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


def write_job(setup: Setup, folder: Path) -> None:
    """Write `job.toml`.

    The job with its paths made absolute, its batch size, and all settings of the images.

    Args:
        setup: the job with everything open.
        folder: where to write the file.

    """
    job = setup.job
    preprocessing = getattr(setup.inputs, "preprocessing", None)
    resolved = replace(
        job,
        out=Path(os.path.abspath(job.out)),
        second_opinion=tuple(opinion_names(job.second_opinion, job.data)),
        batch_size=setup.batch_size,
        preprocessing=job.preprocessing if preprocessing is None else asdict(preprocessing),
    )
    assumed = f"# assumed, not given: {', '.join(setup.assumed)}\n" if setup.assumed else ""
    with replacing(folder / JOB_FILE) as aside:
        aside.write_text(assumed + job_text(resolved), encoding="utf-8")


def job_text(job: Job) -> str:
    """Return a job as TOML.

    >>> job_text(Job("a.onnx", "images", Path("out"), max_samples=100)).splitlines()[:4]
    ['model = "a.onnx"', 'data = "images"', 'out = "out"', 'max_samples = 100']
    """
    default = Job("", "", Path())
    lines = list[str]()
    tables = list[str]()
    for each in fields(job):
        value = getattr(job, each.name)
        if (
            each.name in NOT_WRITTEN
            or value == ()
            or (value == getattr(default, each.name) and each.name not in TABLES_OF_JOB)
        ):
            continue
        if each.name not in TABLES_OF_JOB:
            lines.append(
                f"{each.name} = {_toml(_absolute(value) if each.name in FOUND_ANYWHERE else value)}"
            )
            continue
        table = asdict(value) if each.name == "method" else value
        if table:
            rows = [
                f"{key} = {_toml(part)}"
                for key, part in table.items()
                if part is not None or key in SOME
            ]
            tables.append("\n".join(["", f"[{each.name}]", *rows]))
    return "\n".join([*lines, *tables]) + "\n"


def _absolute(name: Any) -> Any:
    """A file or folder that can be found from anywhere; other names stay as they are."""
    if isinstance(name, list | tuple):
        return [_absolute(each) for each in name]
    return str(Path(name).absolute()) if Path(name).exists() else str(name)


def _toml(value: Any) -> str:
    """Write a value as TOML, whose strings are those of JSON.

    >>> _toml(True), _toml((0.5, 2)), _toml("text"), _toml(Path("out"))
    ('true', '[0.5, 2]', '"text"', '"out"')
    """
    if value is None:
        return f'"{NO_VALUE}"'
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
