"""What `pseudocal calibrate` is asked to do, and what is open while it does it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.cli.masks import Masks, open_masks
from pseudocal.app.cli.second import check_second
from pseudocal.app.inputs import Inputs, Unreadable, open_inputs, pixels_for
from pseudocal.app.inputs.labels import read_labels
from pseudocal.app.inputs.opening import ARRAYS, PICTURES, holds_pictures
from pseudocal.app.jobs.recorder import LogitStore
from pseudocal.app.models.files import open_model
from pseudocal.app.models.opened import OpenModel
from pseudocal.app.models.outputs import AsLogits, Meaning
from pseudocal.arrays import InputError, Predictor
from pseudocal.batches import fitting
from pseudocal.calibrators import PseudoCal
from pseudocal.predictors import Checked
from pseudocal.randomness import Streams

PARTS = ARRAYS | {".parquet"}  # files of rows that a folder may hold
BATCH = 64  # inputs per forward pass, unless the user says how many
TRIES = 10  # inputs that may be unreadable before nobody asks the model about one
ALONE = "it also works on this machine alone"


@dataclass(frozen=True)
class Job:
    """All that the command line says."""

    model: str
    data: str
    out: Path
    method: PseudoCal
    pixels: dict[str, Any] = field(default_factory=dict)  # what the user said of size, mean, std, layout, resize
    output: str | None = None
    outputs: Meaning | None = None
    binary: bool = False
    features: tuple[str, ...] | None = None
    field: str | None = None
    classes: tuple[str, ...] = ()
    labels: Path | None = None
    device: str = "cpu"
    workers: int = 0
    batch_size: int = BATCH
    trim: bool = True  # whether batches may be smaller, where every pixel has a class and so many do not fit
    max_samples: int | None = None
    max_bad: float = 0.01
    predict: Literal["all", "seen"] = "all"
    table: str | None = None
    save_logits: bool = False
    quiet: bool = False
    ray: str | None = None  # the address of a cluster, "local" for one that is made here
    second_opinion: str | None = None  # another model of the same classes

    @property
    def reading(self) -> dict[str, Any]:
        """How the outputs of a model, and of a second opinion, are to be understood."""
        return {"output": self.output, "outputs": self.outputs, "binary": self.binary}

    def as_logits(self, model: OpenModel) -> Predictor:
        """An open model as one that gives logits."""
        return AsLogits(model.predict, self.outputs, self.binary)


Models = tuple[OpenModel, OpenModel | None]  # the one to calibrate, and a second opinion


@dataclass(frozen=True)
class Work:
    """A job with its model and its inputs open, and the recorder that will hold the logits."""

    job: Job
    model: OpenModel
    inputs: Inputs
    preparation: str
    order: NDArray[np.intp]  # the inputs that are used, in the order of the calibration
    recorder: LogitStore
    predict: Checked
    unreadable: Unreadable
    second: Predictor | None = None
    masks: Masks | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes: the user's, else the model's."""
        return self.job.classes or self.model.classes

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The class of each input, for evaluation only."""
        assert self.job.labels is not None
        names = [self.inputs.name(i) for i in range(len(self.inputs))]
        return read_labels(self.job.labels, names, self.classes)


def open_models(job: Job, *, device: str | None = None) -> Models:
    """Open the model, and the second opinion if there is one."""
    named = (job.model, job.second_opinion)
    first, second = (None if n is None else open_model(n, device=device or job.device, **job.reading) for n in named)
    assert first is not None
    return first, second


def open_job(job: Job, aside: Path, models: Models | None = None) -> Work:
    """Open the data, and the models that are not open yet; logits will be recorded in the folder `aside`."""
    model, second = models or open_models(job)
    inputs, preparation = open_data(job, model)
    if second is not None:
        check_second(model, second, inputs, job.pixels)
    order = Streams(job.method.seed).order().permutation(len(inputs))[: job.max_samples]
    return Work(
        trimmed(job, model, inputs),
        model,
        inputs,
        preparation,
        order,
        LogitStore(aside / "logits.npy", len(inputs)),
        Checked(job.as_logits(model), doubt=False),
        Unreadable(len(inputs), job.max_bad),
        None if second is None else job.as_logits(second),
        None if job.labels is None else open_masks(job.labels, inputs, order),
    )


def trimmed(job: Job, model: OpenModel, inputs: Inputs) -> Job:
    """The job with batches that fit into memory, if the model labels every pixel; it is asked about the first input."""
    for i in range(min(TRIES, len(inputs)) if job.trim else 0):
        with suppress(Exception):  # those that cannot be read are counted later
            one = inputs.read(i)[None]
            return replace(job, batch_size=fitting(model.predict, one, job.batch_size, job.method.memory))
    return job


def open_data(job: Job, model: OpenModel) -> tuple[Inputs, str]:
    """Open the data, and say how it is made ready for the model."""
    if job.ray is None:
        _refuse_parts(job.data)
    if not holds_pictures(job.data):
        columns = job.features or model.expects.columns
        inputs = open_inputs(job.data, dtype=model.expects.dtype, columns=columns, field=job.field)
        return inputs, f"{len(inputs):,} rows, passed to the model as they are"
    pixels, assumed = pixels_for(model.expects.shape, model.expects.pixels, job.pixels)
    doubt = f" (assumed, since nobody says: {', '.join(assumed)})" if assumed else ""
    inputs = open_inputs(job.data, pixels=pixels)
    return inputs, f"{len(inputs):,} pictures: {pixels.words()}{doubt}"


def _refuse_parts(data: str) -> None:
    """What only workers read: an address, a pattern, or a folder of files that hold rows."""
    path = Path(data)
    if "://" in data or ("*" in data and not path.exists()):
        raise InputError(f"expected --ray with an address or a pattern, got {data} without it: {ALONE}")
    found = {p.suffix.lower() for p in path.iterdir()} & PARTS if path.is_dir() else set()
    if found and not any(p.suffix.lower() in PICTURES for p in path.rglob("*")):
        what = ", ".join(sorted(found))
        raise InputError(f"expected --ray with a folder of files of rows ({what}), got {data} without it: {ALONE}")
