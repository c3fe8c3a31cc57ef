"""The work of `pseudocal calibrate`: model and data in, a folder of results out."""

from __future__ import annotations

import importlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pseudocal.arrays import InputError, cores
from pseudocal.calibrators import Calibration, PseudoCal
from pseudocal.cli.progress import progress
from pseudocal.cli.staging import staged
from pseudocal.inputs import Inputs, Unreadable, open_inputs, pixels_for, read_batches
from pseudocal.inputs.labels import read_labels
from pseudocal.inputs.opening import holds_pictures
from pseudocal.predictors.files import open_model
from pseudocal.predictors.opened import OpenModel
from pseudocal.predictors.outputs import AsLogits, Meaning
from pseudocal.predictors.recorder import Recorder
from pseudocal.report import Confidences, Run, content_of, page, save_content, write_predictions
from pseudocal.reservoir import Reservoir

RUNTIMES = {
    "onnxruntime": "onnxruntime",
    "pillow": "PIL",
    "pyarrow": "pyarrow",
    "scikit-learn": "sklearn",
    "torch": "torch",
    "transformers": "transformers",
}
MIXES_KEPT = 2**26  # bytes of mixes for the report's diagram; below that it shows all of them


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
    batch_size: int = 64
    max_samples: int | None = None
    max_bad: float = 0.01
    predict: Literal["all", "seen"] = "all"
    table: str | None = None
    save_logits: bool = False
    quiet: bool = False


def calibrate(job: Job, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Do the job and return the content of its report; what was assumed is said on the way."""
    started = time.monotonic()
    with staged(job.out) as aside, _importing("jinja2", "scipy.special", "pyarrow.parquet"):
        model = open_model(job.model, device=job.device, output=job.output, outputs=job.outputs, binary=job.binary)
        inputs, preparation = _inputs(job, model)
        for note in (*model.notes, preparation):
            say(note)
        unreadable = Unreadable(len(inputs), job.max_bad)
        recorder = Recorder(AsLogits(model.predict, job.outputs, job.binary), aside / "logits.npy", len(inputs))
        calibration, mixes = _fit(job, inputs, recorder, unreadable)
        files = _ship(job, model, calibration, inputs, recorder, aside, say)
        described = _described(job, model, files)
        data = {
            "name": "standard input" if job.data == "-" else job.data,
            "inputs": len(inputs),
            "used": len(recorder.rows),
            "preparation": preparation,
            "unreadable": [list(item) for item in unreadable.why.items()],
        }
        run = _run(job, described, data, calibration, inputs, recorder, mixes, job.classes or model.classes)
        return _write(job, run, aside, started)


@contextmanager
def _importing(*names: str) -> Iterator[None]:
    """Import what the report will need while the model is at work: together they take half a second."""

    def load() -> None:
        for name in names:
            with suppress(ImportError):
                importlib.import_module(name)

    thread = threading.Thread(target=load, name="pseudocal-import")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _inputs(job: Job, model: OpenModel) -> tuple[Inputs, str]:
    """Open the data, and say how it is made ready for the model."""
    if not holds_pictures(job.data):
        columns = job.features or model.expects.columns
        inputs = open_inputs(job.data, dtype=model.expects.dtype, columns=columns, field=job.field)
        return inputs, f"{len(inputs):,} rows, passed to the model as they are"
    pixels, assumed = pixels_for(model.expects.shape, model.expects.pixels, job.pixels)
    doubt = f" (assumed, since nobody says: {', '.join(assumed)})" if assumed else ""
    inputs = open_inputs(job.data, pixels=pixels)
    return inputs, f"{len(inputs):,} pictures: {pixels.words()}{doubt}"


def _fit(job: Job, inputs: Inputs, recorder: Recorder, unreadable: Unreadable) -> tuple[Calibration, Reservoir]:
    """Calibrate on the inputs in random order, keeping what the model says of each."""
    order_rng, mixes_rng = np.random.default_rng(job.method.seed).spawn(4)[2:]  # the method itself takes the first two
    order = order_rng.permutation(len(inputs))[: job.max_samples]
    mixes = Reservoir(MIXES_KEPT, mixes_rng)
    batches = read_batches(
        inputs, order, batch_size=job.batch_size, workers=job.workers or cores(), unreadable=unreadable
    )
    with progress(len(order), quiet=job.quiet) as advance, closing(batches), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="expected logits")  # `AsLogits` has asked already
        stream = _counted(recorder.stream(batches), advance)
        calibration = job.method.fit(recorder, stream, batch_size=job.batch_size, watch=mixes.add)
        if job.predict == "all":
            for x in stream:  # what an early stop has left
                recorder(x)
    return calibration, mixes


def _counted(stream: Iterator[Any], advance: Callable[[int], None]) -> Iterator[Any]:
    for x in stream:
        yield x
        advance(len(x))


def _ship(
    job: Job,
    model: OpenModel,
    calibration: Calibration,
    inputs: Inputs,
    recorder: Recorder,
    aside: Path,
    say: Callable[[str], None],
) -> list[str]:
    """Write the model with the temperature inside, where there is a way to."""
    if model.ship is None:
        return []
    if job.outputs == "probabilities" and model.kind != "onnx":
        say(f"no calibrated model is written: the {model.kind} gives probabilities, and has no logits to divide")
        return []
    if calibration.bound:
        say("no calibrated model is written: the temperature lies at the end of the searched range")
        return []
    probe = np.stack([inputs.read(int(i)) for i in recorder.rows[:4]])
    return model.ship(calibration.temperature, aside, probe)


def _run(
    job: Job,
    model: dict[str, Any],
    data: dict[str, Any],
    calibration: Calibration,
    inputs: Inputs,
    recorder: Recorder,
    mixes: Reservoir,
    classes: tuple[str, ...],
) -> Run:
    rows = recorder.rows
    names = [inputs.name(int(i)) for i in rows]
    labels = None if job.labels is None else _labels(job.labels, inputs, rows, classes, recorder.logits.shape[1])
    settings = calibration.settings | {"model": job.model, "data": data["name"], "max_samples": job.max_samples}
    return Run(
        model=model,
        data=data,
        calibration=replace(calibration, settings=settings, versions=calibration.versions | _versions()),
        logits=recorder.logits,
        names=names,
        classes=classes,
        mixes=mixes.labelled,
        pictures=[inputs.picture(int(i)) for i in rows],
        labels=labels,
    )


def _versions() -> dict[str, str]:
    """The versions of what ran the model and read the inputs."""
    return {name: version(name) for name, module in RUNTIMES.items() if module in sys.modules}


def _described(job: Job, model: OpenModel, files: list[str]) -> dict[str, Any]:
    """The model as the report knows it."""
    inside = model.kind == "onnx" and model.output is None
    return {
        "name": job.model,
        "title": Path(job.model).name,
        "kind": model.kind,
        "recipe": "onnx-inside" if inside else model.kind,
        "output": model.output,
        "notes": list(model.notes),
        "files": files,
    }


def _labels(path: Path, inputs: Inputs, rows: Any, classes: tuple[str, ...], count: int) -> Any:
    labels = read_labels(path, [inputs.name(i) for i in range(len(inputs))], classes)[rows]
    if labels.min() < 0 or labels.max() >= count:
        raise InputError(f"expected labels from 0 to {count - 1}, got {labels.min()} to {labels.max()} in {path}")
    return labels


def _write(job: Job, run: Run, aside: Path, started: float) -> dict[str, Any]:
    """Write everything that is left to write."""
    confidences = Confidences.of(run.logits, run.calibration)
    write_predictions(aside, run.names, confidences, run.classes, kind=job.table)
    run.calibration.save(aside / "calibration.json")
    finished = {"seconds": time.monotonic() - started, "finished": datetime.now(UTC).isoformat(timespec="seconds")}
    content = content_of(replace(run, timing=finished), confidences)
    save_content(content, aside / "report.json")
    (aside / "report.html").write_text(page(content), encoding="utf-8")
    if not job.save_logits:
        (aside / "logits.npy").unlink()
    return content
