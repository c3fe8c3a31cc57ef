"""A job as a TOML file: all that was asked and assumed, so that it can be done again to the last digit.

Whether model files may run code is not part of it: that is said anew each time.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from pseudocal.app.inputs.tables import check_regular
from pseudocal.app.jobs.job import Job
from pseudocal.app.jobs.setup import Setup
from pseudocal.app.report.record import from_json
from pseudocal.arrays import InputError
from pseudocal.calibrators import PseudoCal
from pseudocal.files import replacing
from pseudocal.omissions import one_line

JOB_FILE = "job.toml"
PATHS = ("answers", "labels", "out")
FOUND_ANYWHERE = ("answers", "data", "labels", "model", "second_opinion")  # written as absolute paths if they exist
NOT_WRITTEN = ("trust",)
NO_VALUE = "none"  # TOML has no null
SOME = {
    name for name, value in asdict(PseudoCal()).items() if value is not None
}  # settings that are not None by default
TABLES_OF_JOB = ("method", "preprocessing", "second_preprocessing")


def write_job(setup: Setup, folder: Path) -> None:
    """Write `job.toml`: the job with its paths made absolute, its batch size, and all settings of the pictures.

    Args:
        setup: the job with everything open.
        folder: where to write the file.

    """
    job = setup.job
    preprocessing = getattr(setup.inputs, "preprocessing", None)
    resolved = replace(
        job,
        batch_size=setup.batch_size,
        preprocessing=job.preprocessing if preprocessing is None else asdict(preprocessing),
    )
    assumed = f"# assumed, not given: {', '.join(setup.assumed)}\n" if setup.assumed else ""
    with replacing(folder / JOB_FILE) as aside:
        aside.write_text(assumed + job_text(resolved), encoding="utf-8")


def job_text(job: Job) -> str:
    """Return a job as TOML.

    >>> print(job_text(Job("model.onnx", "images", Path("out"), max_samples=100))[:73])
    model = "model.onnx"
    data = "images"
    out = "out"
    max_samples = 100
    """
    default = Job("", "", Path())
    lines, tables = list[str](), list[str]()
    for each in fields(job):
        value = getattr(job, each.name)
        if (
            each.name in NOT_WRITTEN
            or value == ()
            or (value == getattr(default, each.name) and each.name not in TABLES_OF_JOB)
        ):
            continue
        if each.name not in TABLES_OF_JOB:
            lines.append(f"{each.name} = {_toml(_absolute(value) if each.name in FOUND_ANYWHERE else value)}")
            continue
        table = asdict(value) if each.name == "method" else value
        if table:
            rows = [f"{key} = {_toml(part)}" for key, part in table.items() if part is not None or key in SOME]
            tables.append("\n".join(["", f"[{each.name}]", *rows]))
    return "\n".join([*lines, *tables]) + "\n"


def read_job(path: Path) -> Job:
    """Read a job from a TOML file.

    Args:
        path: the file, as `write_job` writes it or as a person or a program does: what is missing has its default.

    """
    check_regular(path, "a job file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"expected a job in TOML, got {path}: {one_line(error)}") from error
    hints = {name: hint for name, hint in get_type_hints(Job).items() if name not in NOT_WRITTEN}
    unknown = sorted(set(content) - set(hints))
    if unknown:
        raise InputError(f"expected settings among {', '.join(hints)} in {path}, got {unknown[0]}")
    missing = [name for name in ("model", "data", "out") if name not in content]
    if missing:
        raise InputError(f"expected {missing[0]} in {path}, got none")
    try:
        return Job(**{name: _value(name, hints[name], value) for name, value in content.items()})
    except InputError as error:
        raise InputError(f"{error} in {path}") from error


def _value(name: str, hint: Any, value: Any) -> Any:
    """Check one setting of a file, and give it the type that a job has."""
    if name in PATHS:
        return Path(from_json(str, value, name))
    if name == "method":
        given = {
            key: None if part == NO_VALUE else part for key, part in from_json(dict[str, Any], value, name).items()
        }
        return from_json(PseudoCal, asdict(PseudoCal()) | given, name)
    if name == "second_opinion" and isinstance(value, list):
        return from_json(tuple[str, ...], value, name)
    if name == "second_opinion":
        return from_json(str, value, name)
    if name in TABLES_OF_JOB:
        given = from_json(dict[str, Any], value, name)
        return {key: tuple(part) if isinstance(part, list) else part for key, part in given.items()}
    return from_json(hint, value, name)


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
