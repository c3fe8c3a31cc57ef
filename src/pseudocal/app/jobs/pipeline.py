"""The calibration job: takes the names of a model and of data, and writes a folder of results.

A `LocalRun` runs it in this process, a `RayRun` on a cluster. Whether the model classifies inputs or pixels is known
from its first output. The pipeline is the same for all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pseudocal.app.jobs.job import Job, Note, Result, Tick
from pseudocal.app.jobs.local import LocalRun, PlaceToRun, Predicted
from pseudocal.app.jobs.setup import Models, data_name, open_models
from pseudocal.app.jobs.staging import staged
from pseudocal.app.models.model import OpenModel
from pseudocal.app.report import AboutModel, report_of, timing_since, write_report
from pseudocal.arrays import InputError, Inputs
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.calibration import warn_of_distrust
from pseudocal.calibrators.evidence import Evidence

RUNTIMES = {
    "onnxruntime": "onnxruntime",
    "pillow": "PIL",
    "pyarrow": "pyarrow",
    "ray": "ray",
    "scikit-learn": "sklearn",
    "torch": "torch",
    "transformers": "transformers",
}


def calibrate(model: str | Path, data: str | Path, out: str | Path, **settings: Any) -> Result:
    """Calibrate a model on unlabelled data, and write a calibrated model, predictions and a report.

        result = calibrate("model.onnx", "images/", "out/", second_opinion="other.onnx")
        result.calibration.trust.verdict, result.report

    Args:
        model: a model file, a Hugging Face folder or id, or `module:function`.
        data: a folder or list of pictures, an array or a table.
        out: the folder for the results.
        settings: the other fields of `Job`, such as `second_opinion` or `method=PseudoCal(...)`.

    """
    named: dict[str, Any] = {"model": model, "data": data, "out": out}
    for name, value in named.items():
        if not isinstance(value, str | Path):
            kind = type(value).__name__
            raise InputError(f"expected {name} as a name, got {kind}: PseudoCal().fit takes models and data in memory")
    if isinstance(settings.get("labels"), str):
        settings["labels"] = Path(settings["labels"])
    steps = job_steps(Job(str(model), str(data), Path(out), **settings))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            warn_of_distrust(result.calibration)
            return result


def job_steps(job: Job, models: Models | None = None) -> Generator[Note | Tick, None, Result]:
    """Run a job step by step, and yield notes and progress for the caller to show.

    Args:
        job: what to do.
        models: the models of the job if they are open already.

    """
    started = time.monotonic()
    job = replace(job, method=replace(job.method, pairing="batch"))  # inputs come in random order
    with staged(job.out, keeps_parts=job.ray is not None) as aside:
        run = _run(job, models, aside)
        yield from map(Note, run.setup.notes)
        with run.connected():
            evidence, record = yield from run.collect()
            calibration = _concluded(job, evidence, record)
            files, why_none = _ship(job, run.setup.model, calibration, aside, run.probe())
            yield from map(Note, why_none)
            predicted: Predicted = yield from run.predict(calibration, evidence)
        calibration.save(aside / "calibration.json")
        report = report_of(
            predicted.summary,
            evidence.mixes.labelled,
            model=_about_model(job, run.setup.model, files),
            data=predicted.data,
            timing=timing_since(started),
        )
        write_report(report, aside)
    predictions = None if predicted.predictions is None else job.out / predicted.predictions
    return Result(calibration, report, job.out, predictions)


def _run(job: Job, models: Models | None, aside: Path) -> PlaceToRun:
    """Where the job runs."""
    if job.ray is None:
        return LocalRun(job, models or open_models(job), aside)
    from pseudocal.app.jobs.cluster import RayRun  # imports Ray, which a local job does not need

    return RayRun(job, models or open_models(job, device="cpu"))


def _concluded(job: Job, evidence: Evidence, record: dict[str, Any]) -> Calibration:
    """Conclude the calibration, with all settings needed to repeat the job."""
    asked = {
        "model": job.model,
        "second_opinion": job.second_opinion,
        "data": data_name(job),
        "max_samples": job.max_samples,
    }
    calibration = job.method.conclude(evidence, record | asked)
    runtimes = {name: version(name) for name, module in RUNTIMES.items() if module in sys.modules}
    return replace(calibration, versions=calibration.versions | runtimes)


def _ship(
    job: Job, model: OpenModel, calibration: Calibration, aside: Path, probe: Inputs
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the model with the temperature inside if the format allows it; return its files, or why there are none."""
    if model.ship is None:
        return (), ()
    if job.outputs == "probabilities" and model.kind != "onnx":
        return (), (f"no calibrated model is written: the {model.kind} returns probabilities, not logits",)
    if calibration.bound:
        return (), ("no calibrated model is written: the temperature is at the limit of the search range",)
    return tuple(model.ship(calibration.temperature, aside, probe)), ()


def _about_model(job: Job, model: OpenModel, files: tuple[str, ...]) -> AboutModel:
    inside = model.kind == "onnx" and model.output is None
    return AboutModel(
        name=job.model,
        title=Path(job.model).name,
        kind=model.kind,
        recipe="onnx-inside" if inside else model.kind,
        output=model.output,
        notes=model.notes,
        files=files,
    )
