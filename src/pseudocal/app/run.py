"""The run folder: what the models said of the data, and everything that follows from it.

`collect` writes a run, `conclude` reads it, `render` adds the results:

| file | content |
|---|---|
| `run.json` | names of the inputs and classes, settings, versions |
| `logits.npy` | logits, a row for each input; of a segmentation model, a row for each sampled pixel |
| `second-0.npy`, ... | logits of the second models for the same rows |
| `evidence.npz` | mixup samples and counts (`calibrators/evidence.py`) |
| `pixels.npz` | of a segmentation model: where its pixels are, and sums over each image |
| `probe.npy` | two inputs, to check an exported model |
| `job.toml`, `classes.txt` | all settings, to repeat the run |
| `calibration.json`, `report.json`, `report.html`, `predictions.*`, `model*`, `unconfirmed-model*` | results |
| `threshold.json` | which predictions to accept, and what that promises |
| `label.html`, `to-label.csv` | the labelling page and its table |
| `summary.json`, `joined-inputs.csv` | of a monitor: sums of a batch's signals; inputs of several runs |

Other modules take these names from here. `publishing.py` lets the files appear all at once.

A run folder may come from somebody else. It is data: nothing in it is imported, links are not
followed out of it, and files that it names elsewhere are read only with consent (`check_paths`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import ARRAYS, check_regular, map_array, read_array
from pseudocal.app.models.files import CODE, OutputType
from pseudocal.app.models.hugging_face import MODEL_FOLDER
from pseudocal.app.models.model import SECOND_ONLY
from pseudocal.app.pixels import PixelSample, load_shown_maps
from pseudocal.app.records import decode_json, encode_json
from pseudocal.arrays import InputError, Inputs, Logits, Maps, check_rows
from pseudocal.calibrators import Calibration, PseudoCal, uncalibrated
from pseudocal.calibrators.calibration import versions
from pseudocal.calibrators.evidence import Evidence, check_packed
from pseudocal.files import allocate_array, brief, is_inside, own_file, replacing
from pseudocal.maps import rows_at

RECORD = "run.json"
LOGITS = "logits.npy"
SECOND = "second-{}.npy"
EVIDENCE = "evidence.npz"
PIXELS = "pixels.npz"
PROBE = "probe.npy"
JOB = "job.toml"
CLASSES = "classes.txt"  # of the job
OF_JOB = (JOB, CLASSES)
CALIBRATION = "calibration.json"
REPORT = "report.json"
PAGE = "report.html"
THRESHOLD = "threshold.json"
LABEL_PAGE = "label.html"
LABEL_TABLE = "to-label.csv"
JOINED = "joined-inputs.csv"  # of a monitor: the inputs of several runs
SUMMARY = "summary.json"  # of a batch of a monitor: sums of its signals
PREDICTIONS = "predictions.{}"
PARTS = "parts"  # the folder of blocks that workers have collected, until they are joined
PARTS_RECORD = "parts.json"

MOST_SECOND = 100  # second models of one run
COLLECTED = (
    RECORD,
    LOGITS,
    EVIDENCE,
    PIXELS,
    PROBE,
    *OF_JOB,
    *(SECOND.format(i) for i in range(MOST_SECOND)),
)
# before the name of a calibrated model with the verdict "caution": nobody deploys it by accident
UNCONFIRMED = "unconfirmed-"
CONFIRMED_FILES = (MODEL_FOLDER, "model.onnx", "model.pt", "model.pt2", "model.pth")
MODEL_FILES = (*CONFIRMED_FILES, *(UNCONFIRMED + name for name in CONFIRMED_FILES))
RENDERED = (
    CALIBRATION,
    REPORT,
    PAGE,
    THRESHOLD,
    *(PREDICTIONS.format(each) for each in ("csv", "parquet")),
    *MODEL_FILES,
)
# packages whose versions are recorded, and their modules, which formats of models are named after
RUNTIMES = {
    "catboost": "catboost",
    "lightgbm": "lightgbm",
    "onnxruntime": "onnxruntime",
    "pandas": "pandas",
    "pillow": "PIL",
    "pyarrow": "pyarrow",
    "ray": "ray",
    "scikit-learn": "sklearn",
    "skops": "skops",
    "torch": "torch",
    "transformers": "transformers",
    "xgboost": "xgboost",
    "xgboost-cpu": "xgboost",
}


# ------------------------------------------------------------------------------ the record


@dataclass(frozen=True)
class AboutModel:
    """The model that was calibrated."""

    name: str  # the model as the user named it: a path, a hub name or an import name
    title: str  # a short name for headings
    kind: str  # the format of the model, such as "onnx"
    recipe: str  # which code snippet applies the result: the kind, or "onnx-inside"
    output: str | None  # the name of the calibrated output; None if it has no name
    notes: tuple[str, ...] = ()  # what was found or assumed when it was opened
    files: tuple[str, ...] = ()  # the file names of the calibrated model


@dataclass(frozen=True)
class AboutData:
    """The data that the model was calibrated on."""

    name: str  # the data as the user named it
    inputs: int  # the number of inputs
    used: int  # the number of inputs that were used
    preparation: str  # what happens to an input before the model sees it, in words
    unreadable: tuple[tuple[str, str], ...] = ()  # the inputs that could not be read, and why
    skipped: tuple[tuple[str, str], ...] = ()  # the blocks that workers could not process, and why
    blocks: str | None = None  # the number and kind of blocks, in words; None if there were none
    # settings of the preparation that neither the user nor the model gave
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timing:
    """How many seconds the run took, and when it finished, in UTC, ISO 8601."""

    seconds: float
    finished: str


@dataclass(frozen=True)
class RunRecord:
    """What is known of a run beside its arrays."""

    model: AboutModel
    data: AboutData
    names: tuple[str, ...]  # the name of each input, in the order of the logits
    image_files: tuple[str, ...] | None  # the file of each input; None if they are no image files
    source: str | None  # the file of the rows; None for images
    column: str | None  # the array of an .npz file, or the column of texts, that was used
    classes: tuple[str, ...]  # the names of the classes, as far as they have names
    # the class of each input, for evaluation only; None if unknown
    ground_truth: tuple[int, ...] | None
    logits_tensor: str | None  # the output of the model that holds the logits
    output_type: OutputType | None  # whether the model returns "logits" or "probabilities"
    binary: bool  # whether one number per input stands for two classes
    timing: Timing  # when the run was collected, and how long it took
    architecture: str | None = None  # the network of a state dict
    # the format of the predictions; None for the default
    table: Literal["csv", "parquet"] | None = None
    saved: bool = False  # whether the outputs came from a file, so that there is no model to export
    second_models: int = 0  # how many second models have logits here
    second_files: tuple[str, ...] = ()  # the files of the second models
    probe: tuple[int, ...] = ()  # the positions of the inputs in `probe.npy`
    # why inputs were not mixed, a code of `ReasonCode`; None if they were
    not_mixed: str | None = None
    method: PseudoCal = field(default_factory=PseudoCal)  # the settings of the calibration
    ignored: tuple[str, ...] = ()  # columns of the table that the model does not use
    # further settings for the record of the calibration
    settings: dict[str, Any] = field(default_factory=dict)
    # the versions of the packages that were used
    versions: dict[str, str] = field(default_factory=dict)
    signature: str | None = None  # of the paths, by the user who wrote them; see `signature_of`
    format: Literal["pseudocal-run"] = "pseudocal-run"
    format_version: Literal[1] = 1

    def __post_init__(self) -> None:
        if self.model.name.startswith(SECOND_ONLY):
            raise InputError(
                f"{brief(self.model.name)} can only be a second opinion, not the model"
            )
        if not 0 <= self.second_models < MOST_SECOND:
            raise InputError(f"{self.second_models} second models are not in a run folder")
        for part in (self.image_files, self.ground_truth):
            if part is not None and len(part) != len(self.names):
                raise InputError("names, image files and ground truth have different lengths")
        if not all(0 <= i < len(self.names) for i in self.probe):
            raise InputError(f"the probe is of inputs that are not there: {self.probe}")
        if self.ground_truth is not None and min(self.ground_truth, default=0) < 0:
            raise InputError(f"ground truth has the negative class {min(self.ground_truth)}")
        for path in self.paths:
            if "\0" in path:
                raise InputError(f"a path has a null character: {brief(path)}")

    @property
    def paths(self) -> list[str]:
        """All files that the record names."""
        found = [*(self.image_files or ()), *self.second_files]
        if self.source is not None:
            found.append(self.source)
        if not self.saved and not CODE.fullmatch(self.model.name):
            found.append(self.model.name)
        return found

    @property
    def of_array(self) -> bool:
        """Whether the inputs are rows of numbers, not texts or the columns of a table."""
        return self.source is not None and Path(self.source).suffix.lower() in ARRAYS


def runtime_versions(kinds: Collection[str]) -> dict[str, str]:
    """The versions of everything that has a part in a run with models of these formats."""
    found = {}
    for name, module in RUNTIMES.items():
        if module in sys.modules or module in kinds:  # another process imports CatBoost
            with suppress(PackageNotFoundError):  # one of two names of a package
                found[name] = version(name)
    return versions() | found


# ------------------------------------------------------------------------------ reading a run


class Run:
    """A run folder, open for reading. Arrays are loaded on demand, logits as a memory map."""

    def __init__(self, folder: Path, record: RunRecord) -> None:
        self.folder = folder
        self.record = record

    @classmethod
    def open(cls, folder: Path | str, *, trust_paths: bool | None = None) -> Run:
        """Open a run folder, and check that its arrays fit together.

        Args:
            folder: the folder.
            trust_paths: whether to read files that the record names outside the folder, if somebody
                else wrote it; None if no such file will be read.

        """
        folder = Path(folder)
        path = own_file(folder, RECORD)
        if not path.is_file():
            raise InputError(
                f"{folder} has no {RECORD}, so there are no logits to work with: pass a folder that "
                "pseudocal calibrate MODEL DATA -o FOLDER wrote without --no-logits"
            )
        run = cls(folder, decode_json(path, RunRecord, "a run record"))
        if trust_paths is not None:
            run.check_paths(trust_paths)
        run.check()
        return run

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        rows = len(self.logits)
        images = len(self.record.names)
        of_pixels = self.pixels is not None
        if self.logits.ndim != 2 or rows == 0 or not (of_pixels or rows == images):
            raise InputError(
                f"{self.folder} has logits of shape {self.logits.shape} for {images} inputs"
            )
        if self.record.ground_truth is not None:
            largest = max(self.record.ground_truth, default=0)
            if largest >= self.logits.shape[1]:
                raise InputError(f"ground truth has class {largest} of {self.logits.shape[1]}")

    def check_paths(self, trust_paths: bool) -> None:
        """Refuse to read what a folder from somebody else names outside itself.

        What this user wrote on this machine is signed. `module:function` is never imported from a
        record, and the file of saved outputs is not opened again.
        """
        outside = [path for path in self.record.paths if not is_inside(path, self.folder)]
        if outside and not trust_paths and not is_signed(self.record):
            raise not_yours(self.folder, brief(outside[0]))

    @cached_property
    def logits(self) -> Logits:
        """The logits of each input, or of each sampled pixel."""
        return map_array(own_file(self.folder, LOGITS))

    @cached_property
    def second_logits(self) -> list[Logits]:
        """The logits of each second model for the same rows.

        Of saved outputs, the second may have predicted classes only.
        """
        files = [own_file(self.folder, SECOND.format(i)) for i in range(self.record.second_models)]
        found = [map_array(file) for file in files]
        for file, logits in zip(files, found, strict=True):
            of_classes = self.record.saved and logits.shape == self.logits.shape[:1]
            if logits.shape != self.logits.shape and not of_classes:
                raise InputError(f"{file} has shape {logits.shape}, not {self.logits.shape}")
        return found

    @cached_property
    def pixels(self) -> PixelSample | None:
        """Where the rows are, if they are pixels."""
        if not os.path.lexists(self.folder / PIXELS):
            return None
        path = own_file(self.folder, PIXELS)
        return PixelSample.load(path, self.logits, len(self.record.names))

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """The image of each row, if rows are pixels."""
        return None if self.pixels is None else self.pixels.image

    @property
    def row_names(self) -> Sequence[str]:
        """The name of each row, as a labels file has it."""
        if self.pixels is None:
            return self.record.names
        spots = zip(self.pixels.image, self.pixels.y, self.pixels.x, strict=True)
        return [pixel_name(self.record.names[i], y, x) for i, y, x in spots]

    def shown_maps(self) -> Iterator[tuple[Maps, NDArray[Any] | None]]:
        """The maps of the first images, in low resolution, with their true classes if known."""
        return load_shown_maps(own_file(self.folder, PIXELS), self.logits.shape[1])

    def image_file(self, i: int) -> Path | None:
        """The file of input i; None if it is no image file."""
        files = self.record.image_files
        return None if files is None else Path(files[i])

    def evidence(self) -> Evidence | None:
        """What the pass over the data has collected; None for saved outputs."""
        path = own_file(self.folder, EVIDENCE)
        if not path.exists():
            return None
        check_regular(path, "the evidence of a run")  # a pipe would never end
        evidence = self.record.method.empty_evidence()
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                packed = dict(arrays)
            check_packed(packed, self.logits.shape[1], of_pixels=self.pixels is not None)
            evidence.merge(packed)
        except InputError as error:
            raise error.reworded(f"{path} is damaged: {error.message}") from error
        except Exception as error:  # a damaged archive may raise anything
            raise InputError(f"{path} is damaged: {type(error).__name__}: {error}") from error
        return evidence

    def probe(self) -> Inputs:
        """Two inputs, to check an exported model."""
        return np.array(read_array(own_file(self.folder, PROBE)))

    def compare(self, outputs: Logits | Maps) -> tuple[Logits, Logits]:
        """What a model says of the probe, and what was collected, as rows to compare."""
        if not 0 < len(outputs) == len(self.record.probe):
            raise InputError(
                f"expected {RECORD} to name the {len(outputs)} inputs of {PROBE}, got "
                f"{list(self.record.probe)}"
            )
        if self.pixels is None or outputs.ndim != 4:
            return outputs, self.logits[list(self.record.probe)]
        found = []
        collected = []
        for i, maps in zip(self.record.probe, outputs, strict=False):
            of_image = self.pixels.image == i
            at = self.pixels.at[of_image]
            if at.max(initial=0) >= maps[0].size:
                raise InputError(f"the model returns maps of another size: {maps.shape}")
            found.append(rows_at(maps, at))
            collected.append(self.logits[of_image])
        return np.concatenate(found), np.concatenate(collected)

    def calibration(self) -> Calibration:
        """The calibration that was rendered last."""
        return Calibration.load(own_file(self.folder, CALIBRATION))

    def calibration_in_force(self) -> Calibration:
        """The calibration that was rendered last; T = 1 for saved outputs before `refine`."""
        if self.record.saved and not os.path.lexists(self.folder / CALIBRATION):
            return uncalibrated()
        return self.calibration()


def pixel_name(name: str, y: object, x: object) -> str:
    """What a pixel is called.

    >>> pixel_name("frame.png", 3, 4)
    'frame.png (y 3, x 4)'
    """
    return f"{name} (y {y}, x {x})"


# ------------------------------------------------------------------------------ writing a run


class LogitWriter:
    """Write the logits of inputs, in any order, to memory-mapped files.

    They take disk space rather than memory.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     writer = LogitWriter(Path(folder), total=3)
    ...     writer.write(np.array([2, 0]), np.array([[30.0, 40.0], [10.0, 20.0]]))
    ...     writer.finish()
    ...     np.load(Path(folder) / "logits.npy")
    array([0, 2])
    array([[10., 20.],
           [30., 40.]])
    """

    def __init__(self, folder: Path, total: int) -> None:
        self._folder = folder
        self._written = np.zeros(total, dtype=bool)
        self._files: list[Any] = []  # of the model, then of the second models

    def write(self, rows: NDArray[np.intp], *logits: Logits) -> None:
        """Write the logits of some inputs, of the model and then of each second model.

        Without logits, the inputs count as predicted: maps of pixels are too large to write.
        """
        if not self._files:
            for i, each in enumerate(logits):
                shape = (len(self._written), each.shape[1])
                dtype = np.promote_types(each.dtype, np.float32)
                self._files.append(allocate_array(self._folder / _logits_file(i), shape, dtype))
        for file, each in zip(self._files, logits, strict=True):
            check_rows(each)
            if each.shape != (len(rows), file.shape[1]):
                raise InputError(f"expected logits {(len(rows), file.shape[1])}, got {each.shape}")
            file[rows] = each
        self._written[rows] = True

    def finish(self) -> NDArray[np.intp]:
        """Drop the rows of inputs that were not predicted; return the numbers of the others."""
        if not self._written.any():
            raise InputError("no input could be predicted")
        for i, file in enumerate(self._files):
            if not self._written.all():
                with replacing(self._folder / _logits_file(i)) as aside:
                    np.save(aside, file[self._written])
            else:
                file.flush()
        self._files = []
        return np.flatnonzero(self._written)


def _logits_file(i: int) -> str:
    return LOGITS if i == 0 else SECOND.format(i - 1)


def save_pixels(
    folder: Path, sample: PixelSample, shown: Sequence[tuple[Maps, NDArray[Any] | None]]
) -> None:
    """Write the pixels of a segmentation model, and the `small_maps` of its first images."""
    sample.save(folder / PIXELS, shown)
    np.save(folder / LOGITS, sample.logits)


def save_run(folder: Path, record: RunRecord, evidence: Evidence | None, probe: Inputs) -> Run:
    """Write what a run consists of beside its logits, and open it."""
    if evidence is not None:
        np.savez(folder / EVIDENCE, **evidence.pack())  # type: ignore[arg-type]
    if len(probe):
        array = np.asarray(probe)
        if array.dtype == object:  # texts: objects would be pickled
            array = array.astype(np.str_)
        np.save(folder / PROBE, array, allow_pickle=False)
    save_record(folder, record)
    return Run(folder, record)


def save_record(folder: Path, record: RunRecord) -> None:
    """Write the record, with the user's signature under its paths."""
    encode_json(folder / RECORD, replace(record, signature=signature_of(record.paths)))


# ------------------------------------------------------------------------------ signatures

KEY_FILE = "key"
KEY_SIZE = 32


def state_folder() -> Path:
    """`pseudocal/` in `$XDG_STATE_HOME`, `%LOCALAPPDATA%` or `~/.local/state`."""
    chosen = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    base = Path(chosen) if chosen else Path.home() / ".local" / "state"
    return base / "pseudocal"


def not_yours(place: Path, name: str) -> InputError:
    """The error of a file or a folder from somebody else that names a file outside itself."""
    return InputError(
        f"{place} refers to {name}, and you did not write it on this machine: check the file "
        "before you allow it",
        setting="trust_paths",
        value="True",
    )


def is_signed(record: RunRecord) -> bool:
    """Whether this user wrote the paths of a record on this machine."""
    return is_signature_of(record.paths, record.signature)


def signature_of(paths: Sequence[str]) -> str | None:
    """The user's signature under paths; None if no key can be kept.

    The key is random and stays in the user's state folder. A record from somebody else has no valid
    signature.
    """
    key = _read_key() or _new_key()
    return None if key is None else _digest(key, paths)


def is_signature_of(paths: Sequence[str], signature: str | None) -> bool:
    """Whether this user wrote these paths on this machine."""
    key = _read_key()
    if key is None or signature is None:
        return False
    return hmac.compare_digest(_digest(key, paths).encode(), signature.encode(errors="replace"))


def _digest(key: bytes, paths: Sequence[str]) -> str:
    return hmac.new(key, json.dumps(list(paths)).encode(), hashlib.sha256).hexdigest()


def _read_key() -> bytes | None:
    try:
        key = (state_folder() / KEY_FILE).read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    return key if len(key) == KEY_SIZE else None


def _new_key() -> bytes | None:
    key = secrets.token_bytes(KEY_SIZE)
    try:
        folder = state_folder()
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:  # another run has just made one
        return _read_key()
    except (OSError, RuntimeError):
        return None
    with os.fdopen(file, "wb") as opened:
        opened.write(key)
    return key
