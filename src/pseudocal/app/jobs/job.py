"""What a calibration job is asked to do, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pseudocal.app.models.files import Meaning
from pseudocal.app.report import Report
from pseudocal.calibrators import Calibration, PseudoCal

IN_BATCHES = PseudoCal(pairing="batch")  # inputs come in random order, so each batch is a fair sample
USUAL_BATCH = 64  # inputs per forward pass, unless the user says how many


@dataclass(frozen=True)
class Job:
    """All that a calibration job is asked to do.

    Attributes:
        model: a model file, a Hugging Face folder or id, or `module:function`.
        data: a folder or list of pictures, an array, a table; with `ray` also files of rows, a pattern or an address.
        out: the folder for the results.
        method: the settings of the calibration.
        second_opinion: another model of the same classes.
        trust: whether the files of both models may run code.
        preprocessing: what is known of the preparation of pictures: size, mean, std, layout, resize.
        output: the output of the model that holds the logits.
        outputs: whether the model gives "logits" or "probabilities".
        binary: one number per input stands for two classes.
        features: the columns of a table to use.
        field: the array of an .npz file to use.
        classes: the names of the classes.
        labels: a file of labels, or a folder of masks, for evaluation only.
        device: where the models run.
        workers: threads that read inputs, or workers of a cluster; 0 for one per core.
        batch_size: inputs per forward pass; None for 64, or what fits into memory where every pixel gets a class.
        max_samples: use so many inputs at most, drawn at random.
        max_bad: the share of inputs that may be unreadable.
        predict: after an early stop predict "all" inputs, or only those that were "seen".
        table: the format of the predictions, "parquet" or "csv".
        save_logits: whether to write the logits as well.
        ray: the address of a Ray cluster, "local" for one that is made here.

    """

    model: str
    data: str
    out: Path
    method: PseudoCal = IN_BATCHES
    second_opinion: str | None = None
    trust: bool = False
    preprocessing: dict[str, Any] = field(default_factory=dict)
    output: str | None = None
    outputs: Meaning | None = None
    binary: bool = False
    features: tuple[str, ...] | None = None
    field: str | None = None
    classes: tuple[str, ...] = ()
    labels: Path | None = None
    device: str = "cpu"
    workers: int = 0
    batch_size: int | None = None
    max_samples: int | None = None
    max_bad: float = 0.01
    predict: Literal["all", "seen"] = "all"
    table: str | None = None
    save_logits: bool = False
    ray: str | None = None


@dataclass(frozen=True)
class Result:
    """What a calibration job gives back.

    Attributes:
        calibration: the fitted calibration, with its verdict and forecast.
        report: all that the report says.
        out: the folder of the results.
        predictions: the file or the folder of the predictions; None if none were asked for.

    """

    calibration: Calibration
    report: Report
    out: Path
    predictions: Path | None


@dataclass(frozen=True)
class Note:
    """Something that was assumed or found on the way."""

    text: str


@dataclass(frozen=True)
class Tick:
    """How far a job is: so many more `unit` are done, of `total`."""

    what: str
    done: int
    total: int
    unit: str = "inputs"
