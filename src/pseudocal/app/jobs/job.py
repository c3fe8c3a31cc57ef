"""The settings of a calibration job, given as values or read from a TOML file, and its result.

`staging.py` writes that file: all that was asked and assumed, so that a job can be done again to
the last digit. Whether model files may run code is not part of it: that is said anew each time.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from pseudocal.app.inputs import Preprocessing
from pseudocal.app.inputs.tables import check_regular
from pseudocal.app.models.files import OutputType
from pseudocal.app.models.model import UntrustedError
from pseudocal.app.report import Report
from pseudocal.app.report.headline import headline
from pseudocal.app.report.predictions import check_path
from pseudocal.app.report.record import from_json
from pseudocal.arrays import InputError
from pseudocal.calibrators import Calibration, PseudoCal
from pseudocal.files import brief, is_inside, own_file
from pseudocal.notebook import card
from pseudocal.skipped import one_line

DrawnBy = Literal["ask", "random"]
DEFAULT_METHOD = PseudoCal()
JOB_FILE = "job.toml"
PATHS = ("answers", "labels", "out")
FOUND_ANYWHERE = (
    "answers",
    "data",
    "labels",
    "model",
    "second_opinion",
)  # written as absolute paths if they exist
NOT_WRITTEN = ("job_file", "trust")
NO_VALUE = "none"  # TOML has no null
SOME = {
    name for name, value in asdict(PseudoCal()).items() if value is not None
}  # not None by default
RANGES: dict[str, tuple[float, float]] = {
    "batch_size": (2, 2**31),
    "max_bad": (0, 1),
    "max_samples": (2, 2**63),
    "workers": (0, 4096),
}
TABLES_OF_JOB = ("method", "preprocessing", "second_preprocessing")


@dataclass(frozen=True)
class Job:
    """The settings of a calibration job.

    Attributes:
        model: a model file, a Hugging Face folder, `hf:owner/name`, or `module:function`.
        data: a folder or list of images, an array or a table; with `ray` also files of rows, a
            pattern or an address.
        out: the folder for the results.
        method: the settings of the calibration. A temperature that should not be applied is always
            replaced by T = 1.
        second_opinion: another model of the same classes, named like `model`, or several of them;
            None for none. "surrogate" or "surrogate:BACKBONE" is a surrogate of the model's own
            predictions, "zero-shot:FOLDER" a CLIP or SigLIP that is told the class names.
        trust: whether the files of both models may run code.
        job_file: the file that the settings were read from; None if the user gave them. Code that a
            file names needs `trust`.
        architecture: the network of a state dict, such as "resnet50"; None if no model is one.
        preprocessing: how images are prepared, as far as the user says: settings of `Preprocessing`
            (size, mean, std, layout, resize, edge), and `normalisation`, `interpolation` and
            `crop_pct` of `preprocessing_for`.
        second_preprocessing: the same for a second opinion, where it differs from the model and its
            file does not say.
        output: the name of the model output that holds the logits; None if there is only one
            output.
        outputs: whether the model returns "logits" or "probabilities"; None for logits, refused if
            they look like probabilities.
        binary: whether the model returns one number per input, for the second of two classes.
        features: the columns of a table to use; None for all.
        text: the column of texts of a table, for a model that takes texts; None for `text`.
        field: the name of the array to use if an .npz file holds several.
        classes: the class names; empty for those of the model.
        labels: a file of labels, or a folder of masks, for evaluation only.
        device: the device the models run on: "cpu", "cuda", "cuda:1", ...
        workers: the number of threads that read inputs, or of workers of a cluster; 0 for one per
            core.
        batch_size: inputs per forward pass; None for 128, or for a segmenter as many as fit into
            memory.
        max_samples: the largest number of inputs to use, drawn at random; None for all.
        max_bad: the fraction of inputs that may be unreadable.
        predict: after an early stop, predict "all" inputs or only those already "seen".
        table: the format of the predictions, "parquet" or "csv"; None for parquet if pyarrow is
            installed.
        keep_logits: whether to keep the logits and the names of the inputs, which `ask` and
            `refine` need.
        answers: a file of answers that a person gave to the questions of `ask`.
        drawn_by: who drew the inputs that have an answer: "ask", or "random" if someone else did,
            at random.
        ray: the address of a Ray cluster, or "local" to start one on this machine; None to run in
            this process.

    """

    model: str
    data: str
    out: Path
    method: PseudoCal = DEFAULT_METHOD
    second_opinion: str | list[str] | tuple[str, ...] | None = None
    trust: bool = False
    job_file: Path | None = field(default=None, compare=False)
    architecture: str | None = None
    preprocessing: dict[str, Any] = field(default_factory=dict)
    second_preprocessing: dict[str, Any] = field(default_factory=dict)
    output: str | None = None
    outputs: OutputType | None = None
    binary: bool = False
    features: tuple[str, ...] | None = None
    text: str | None = None
    field: str | None = None
    classes: tuple[str, ...] = ()
    labels: Path | None = None
    device: str = "cpu"
    workers: int = 0
    batch_size: int | None = None
    max_samples: int | None = None
    max_bad: float = 0.01
    predict: Literal["all", "seen"] = "all"
    table: Literal["csv", "parquet"] | None = None
    keep_logits: bool = True
    answers: Path | None = None
    drawn_by: DrawnBy = "ask"
    ray: str | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InputError(f"expected {name} from {low:,} to {high:,}, got {brief(value)}")
        if self.table not in (None, "csv", "parquet"):
            raise InputError(f"expected table as csv or parquet, got {brief(self.table)}")
        opinions = (
            (self.second_opinion,)
            if isinstance(self.second_opinion, str)
            else self.second_opinion or ()
        )
        for path in (self.model, self.data, *opinions, *(self.labels, self.answers, self.out)):
            check_path(str(path or ""))


@dataclass(frozen=True)
class Result:
    """The result of a calibration job.

    Attributes:
        calibration: the fitted calibration, with its verdict and estimate.
        report: the content of the report.
        out: the folder of the results.
        predictions: the file or folder of the predictions; None if none were written.

    """

    calibration: Calibration
    report: Report
    out: Path
    predictions: Path | None

    def __repr__(self) -> str:
        return f"Result({self.calibration.verdict}, T = {self.calibration.temperature:.3f}, in {self.out})"

    def _repr_html_(self) -> str:
        """What a notebook shows.

        The first sentence of the report, the verdict with its reasons, where the page is.
        """
        judged = self.calibration.measured or self.calibration.trust
        lines = [
            headline(self.report),
            repr(self.calibration),
            f"report: {self.out / 'report.html'}",
        ]
        return card(self.calibration.verdict, lines, () if judged is None else judged.reasons)


@dataclass(frozen=True)
class Note:
    """Something that was assumed or found during a job.

    Attributes:
        text: the note, in one line.

    """

    text: str


@dataclass(frozen=True)
class Tick:
    """The progress of a job.

    Attributes:
        what: the name of the phase, such as "calibrating".
        done: how many more are done since the last tick.
        total: how many there are in all.
        unit: what is counted.

    """

    what: str
    done: int
    total: int
    unit: str = "inputs"


def read_job(path: Path, *, out: Path | None = None, trust: bool = False) -> Job:
    """Read a job from a TOML file.

    Args:
        path: the file, as `write_job` writes it or as a person or a program does: what is missing
            has its default.
        out: the folder for the results; None for that of the file, which must be next to the file
            or below it.
        trust: whether the job may run code: in files of models, functions that it names, and
            clusters.

    """
    check_regular(own_file(path.parent, path.name), "a job file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no Unicode, no TOML, or nested too deep
        raise InputError(f"expected a job in TOML, got {path}: {one_line(error)}") from error
    hints = {name: hint for name, hint in get_type_hints(Job).items() if name not in NOT_WRITTEN}
    unknown = sorted(set(content) - set(hints))
    if unknown:
        raise InputError(f"expected settings among {', '.join(hints)} in {path}, got {unknown[0]}")
    missing = [
        name
        for name in ("model", "data", *(("out",) if out is None else ()))
        if name not in content
    ]
    if missing:
        raise InputError(f"expected {missing[0]} in {path}, got none")
    given: dict[str, Any] = {"trust": trust, "job_file": path} | (
        {} if out is None else {"out": out}
    )
    try:
        job = Job(
            **({name: _value(name, hints[name], value) for name, value in content.items()} | given)
        )
    except InputError as error:
        raise error.reworded(f"{error.message} in {path}") from error
    if out is None and not is_inside(job.out, path.parent):
        raise InputError(
            f"the results {job.out} are outside of the folder of {path}",
            setting="out",
            value="FOLDER",
        )
    if job.ray not in (None, "local") and not trust:
        raise UntrustedError(
            f"{path} names the cluster {job.ray}, which could run code here: look at it first",
            setting="trust",
            value="True",
        )
    return job


def _value(name: str, hint: Any, value: Any) -> Any:
    """Check one setting of a file, and give it the type that a job has."""
    if name in PATHS:
        return Path(from_json(str, value, name))
    if name == "method":
        given = {
            key: None if part == NO_VALUE else part
            for key, part in from_json(dict[str, Any], value, name).items()
        }
        return from_json(PseudoCal, asdict(PseudoCal()) | given, name)
    if name == "second_opinion" and isinstance(value, list):
        return from_json(tuple[str, ...], value, name)
    if name == "second_opinion":
        return from_json(str, value, name)
    if name in TABLES_OF_JOB:
        return _preprocessing(from_json(dict[str, Any], value, name), name)
    return from_json(hint, value, name)


def _preprocessing(given: dict[str, Any], name: str) -> dict[str, Any]:
    """Check how images are prepared: the settings of `preprocessing_for`."""
    hints = get_type_hints(Preprocessing) | {
        "crop_pct": float,
        "interpolation": str,
        "normalisation": str,
    }
    unknown = sorted(set(given) - set(hints))
    if unknown:
        raise InputError(
            f"expected settings among {', '.join(hints)} as {name}, got {brief(unknown[0])}"
        )
    return {key: from_json(hints[key], value, f"{name}.{key}") for key, value in given.items()}
