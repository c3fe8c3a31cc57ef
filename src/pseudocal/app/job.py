"""The settings of a run, given as values or read from a TOML file.

`write_job` writes all that was given and assumed, to repeat a run exactly. Whether model
files may run code is never written: consent is given each time.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, get_type_hints

import tomli_w

from pseudocal.app.inputs.tables import check_regular, read_text
from pseudocal.app.models.files import OutputType
from pseudocal.app.models.model import UntrustedError
from pseudocal.app.records import convert
from pseudocal.arrays import InputError
from pseudocal.calibrators import PseudoCal
from pseudocal.files import brief, is_inside, own_file, replacing
from pseudocal.predictors import models_in
from pseudocal.skipped import one_line

Sampling = Literal["stratified", "random"]
DEFAULT_METHOD = PseudoCal()
NULL = "none"  # TOML has no null
CONSENT = ("job_file", "trust")  # never written to a file
PATHS = ("data", "ground_truth", "labels", "model", "out", "second_opinion")
RANGES: dict[str, tuple[float, float]] = {
    "batch_size": (2, 2**31),
    "max_bad": (0, 1),
    "max_samples": (2, 2**63),
    "workers": (0, 4096),
}


class ImageSettings(TypedDict, total=False):
    """How images are prepared, as far as the user says; see `preprocessing_for`."""

    size: tuple[int, int]
    channels: int
    layout: Literal["nchw", "nhwc"]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float
    resize: Literal["crop", "stretch"]
    edge: int | None
    resample: int
    centre: Literal["even", "down"]
    order: Literal["rgb", "bgr"]
    normalisation: str
    interpolation: str
    crop_pct: float


# tables of a job file
TABLES: dict[str, type] = {
    "method": PseudoCal,
    "preprocessing": ImageSettings,
    "second_preprocessing": ImageSettings,
}


@dataclass(frozen=True)
class Job:
    """The settings of a run: the arguments of `calibrate`, and where they came from.

    Attributes:
        method: the settings of the calibration. Inputs are shuffled and paired within batches, and
            a temperature that should not be applied is replaced by T = 1.
        assumed: settings of `preprocessing` that nobody gave, in the job of an earlier run.
        job_file: the file that the settings were read from; None if the user gave them. Code that a
            file names needs `trust`.

    """

    model: str
    data: str
    out: Path
    method: PseudoCal = DEFAULT_METHOD
    second_opinion: str | tuple[str, ...] | None = None
    trust: bool = False
    job_file: Path | None = dataclasses.field(default=None, compare=False)
    architecture: str | None = None
    preprocessing: ImageSettings = dataclasses.field(default_factory=lambda: ImageSettings())
    second_preprocessing: ImageSettings = dataclasses.field(default_factory=lambda: ImageSettings())
    assumed: tuple[str, ...] = ()
    preprocess_check: bool = True
    logits_tensor: str | None = None
    output_type: OutputType | None = None
    binary: bool = False
    features: tuple[str, ...] | None = None
    text: str | None = None
    field: str | None = None
    classes: tuple[str, ...] = ()
    ground_truth: Path | None = None
    device: str = "cpu"
    workers: int = 0
    batch_size: int | None = None
    max_samples: int | None = None
    max_bad: float = 0.01
    predict: Literal["all", "seen"] = "all"
    table: Literal["csv", "parquet"] | None = None
    keep_logits: bool = True
    labels: Path | None = None
    sampling: Sampling = "stratified"
    ray: str | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InputError(
                    f"{name} is {brief(value)}, not from {low:,} to {high:,}", setting=name
                )
        if self.table not in (None, "csv", "parquet"):
            raise InputError(f"{brief(self.table)} is not csv or parquet", setting="table")
        paths = (self.model, self.data, self.ground_truth, self.labels, self.out)
        for path in (*paths, *models_in(self.second_opinion)):
            if "\0" in str(path or ""):
                raise InputError(f"a path has a null character: {brief(str(path))}")


@dataclass(frozen=True)
class Note:
    """Something that was assumed or found, in one line."""

    text: str
    always: bool = False  # whether it is said in quiet runs too: something is lost


@dataclass(frozen=True)
class Tick:
    """Progress."""

    what: str  # the name of the phase, such as "calibrating"
    done: int  # since the last tick
    total: int
    unit: str = "inputs"


def read_job(
    path: Path,
    *,
    model: str | None = None,
    data: str | None = None,
    out: Path | None = None,
    trust: bool = False,
) -> Job:
    """Read a job from a TOML file.

    Args:
        path: the file, as `write_job` writes it or as a person or a program does: what is missing
            has its default.
        model: another model; None for that of the file.
        data: other data; None for that of the file. Its ground truth and labels are then not used.
        out: the folder for the results; None for that of the file, which must be next to the file
            or below it.
        trust: whether the job may run code: in files of models, functions that it names, and
            clusters.

    """
    check_regular(own_file(path.parent, path.name), "a job file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no Unicode, no TOML, or nested too deep
        raise InputError(f"{path} is not a job in TOML: {one_line(error)}") from error
    if isinstance(content.get("classes"), str):  # a file beside this one
        content["classes"] = _read_classes(path.parent, content["classes"])
    others = {"model": model, "data": data, "out": out}
    content |= {name: str(other) for name, other in others.items() if other is not None}
    if data is not None:
        content.pop("ground_truth", None)
        content.pop("labels", None)
    try:
        job = replace(job_of(content), trust=trust, job_file=path)
    except InputError as error:
        raise InputError(f"{error} in {path}") from error
    if out is None and not is_inside(job.out, path.parent):
        raise InputError(
            f"{path} writes to {job.out}, which is outside its folder: choose where the results go",
            setting="out",
            value="FOLDER",
        )
    if job.ray not in (None, "local") and not trust:
        raise UntrustedError(
            f"{path} names the cluster {job.ray}, which could run code here: check the "
            "file before you allow it"
        )
    return job


def _read_classes(folder: Path, name: str) -> list[str]:
    if Path(name).name != name:
        raise InputError(f"{brief(name)} is not a file of class names beside the job file")
    text = read_text(own_file(folder, name), "a file of class names")
    return text.removesuffix("\n").split("\n")


def job_of(content: dict[str, Any]) -> Job:
    """The job with these settings, as `job_content` returns them or as a file has them."""
    hints = {name: hint for name, hint in get_type_hints(Job).items() if name not in CONSENT}
    _refuse_unknown(content, hints, "settings")
    for name in ("model", "data", "out"):
        if name not in content:
            raise InputError(f"{name} is missing")
    for name, kind in TABLES.items():
        table = convert(content.get(name, {}), dict[str, Any], name)
        _refuse_unknown(table, get_type_hints(kind), name)
        content[name] = {key: None if value == NULL else value for key, value in table.items()}
    return convert(content, Job, "settings")


def _refuse_unknown(given: dict[str, Any], known: dict[str, Any], what: str) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(f"expected {what} among {', '.join(known)}, got {brief(unknown[0])}")


def write_job(job: Job, path: Path, *, classes: str | None = None) -> None:
    """Write a job as TOML, with absolute paths.

    Args:
        job: the job.
        path: the file.
        classes: the name of a file beside it for the class names, one per line; None to write them
            into the job file, where also names with line breaks go.

    """
    comment = ""
    if job.assumed:
        comment = (
            f"# assumed, not given: {', '.join(job.assumed)}; once [preprocessing] is as in "
            'training, delete "assumed"\n'
        )
    content = job_content(job)
    names = "\n".join(job.classes)
    one_per_line = names.count("\n") == len(job.classes) - 1 and "\r" not in names
    if classes is not None and job.classes and one_per_line:
        content["classes"] = classes
        with replacing(path.parent / classes) as aside:
            aside.write_text(names + "\n", encoding="utf-8", newline="\n")
    with replacing(path) as aside:
        aside.write_text(comment + tomli_w.dumps(content), encoding="utf-8")


def job_content(job: Job) -> dict[str, Any]:
    """The settings that differ from their defaults, and all of the method, as TOML values.

    >>> list(job_content(Job("a.onnx", "images", Path("/out"), max_samples=100)))
    ['model', 'data', 'out', 'max_samples', 'method']
    """
    default = Job("", "", Path())
    content = dict[str, Any]()
    for each in fields(job):
        value = getattr(job, each.name)
        if each.name in (*CONSENT, *TABLES) or value == getattr(default, each.name):
            continue
        content[each.name] = _absolute(value) if each.name in PATHS else _plain(value)
    for name in TABLES:
        table = asdict(job.method) if name == "method" else getattr(job, name)
        if table:
            content[name] = {key: _plain(value) for key, value in table.items()}
    return content


def _absolute(name: Any) -> Any:
    """Files and folders that are found from anywhere."""
    if isinstance(name, list | tuple):
        return [absolute(each) for each in name]
    return os.path.abspath(name) if isinstance(name, Path) else absolute(name)


def absolute(name: str) -> str:
    """Make the name of an existing file or folder absolute; leave other names unchanged."""
    return os.path.abspath(name) if Path(name).exists() else name


def _plain(value: Any) -> Any:
    if value is None:
        return NULL
    return list(value) if isinstance(value, tuple) else value
