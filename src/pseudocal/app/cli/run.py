"""The work of `pseudocal calibrate`: model and data in, a folder of results out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.cli.beside import beside, prepare_report
from pseudocal.app.cli.first import check_answer
from pseudocal.app.cli.job import Job, Models, Work, open_job
from pseudocal.app.cli.progress import progress
from pseudocal.app.cli.staging import staged
from pseudocal.app.inputs import Inputs, read_batches
from pseudocal.app.models.opened import OpenModel
from pseudocal.app.report import Confidences, Run, content_of, page, save_content, write_predictions
from pseudocal.arrays import cores
from pseudocal.batches import unread_batches
from pseudocal.calibrators import Calibration
from pseudocal.reservoir import Reservoir

RUNTIMES = {
    "onnxruntime": "onnxruntime",
    "pillow": "PIL",
    "pyarrow": "pyarrow",
    "scikit-learn": "sklearn",
    "torch": "torch",
    "transformers": "transformers",
}

Say = Callable[[str], None]


def calibrate(job: Job, say: Say = lambda text: None, models: Models | None = None) -> dict[str, Any]:
    """Do the job and return the content of its report; what was assumed is said on the way.

    `models` are those of the job, if they are open already.
    """
    started = time.monotonic()
    with staged(job.out) as aside:
        work = open_job(job, aside, models)
        for note in (*work.model.notes, work.preparation, *batch_note(job, work.job)):
            say(note)
        with beside(prepare_report) as prepare:
            calibration, mixes = _fit(work, prepare)
        if work.recorder.maps:
            from pseudocal.app.cli.segment import write_segmented

            return write_segmented(work, calibration, mixes.labelled, aside, started, say)
        files = ship(work.job, work.model, calibration, aside, work.recorder.rows[:2], work.inputs, say)
        return _write(work.job, _run(work, calibration, mixes, files), aside, started)


def batch_note(asked: Job, done: Job) -> list[str]:
    """That batches are smaller than usual, if they are."""
    size = done.batch_size
    return [] if size == asked.batch_size else [f"{size} inputs per forward pass, so that their pixels fit into memory"]


def _fit(work: Work, prepare: Callable[[], None]) -> tuple[Calibration, Reservoir]:
    """Calibrate on the inputs in random order, keeping what the model says of each; `prepare` once it is at work."""
    job, recorder, predict = work.job, work.recorder, work.predict
    order, evidence = work.order, job.method.no_evidence()
    workers = job.workers or cores()
    unread = unread_batches(order, job.batch_size)
    batches = read_batches(work.inputs, unread, workers=workers, unreadable=work.unreadable)
    with progress(len(order), quiet=job.quiet) as advance, closing(batches):
        stream = _watched(batches, prepare, advance)
        for i, step in enumerate(job.method.steps(predict, stream, second_opinion=work.second)):
            if i == 0:
                check_answer(work, step.logits)
            recorder.keep(step.rows, step.logits)
            evidence.add(step)
            if evidence.settled(job.method.tolerance):
                break
        if job.predict == "all":
            for batch in stream:  # what an early stop has left
                recorder.keep(batch.rows, predict(batch.inputs))
    return job.method.conclude(evidence), evidence.mixes


def _watched(stream: Iterator[Any], start: Callable[[], None], advance: Callable[[int], None]) -> Iterator[Any]:
    """Say when the first batch is ready, since until then the model waits for those who read it; count them all."""
    for i, x in enumerate(stream):
        if i == 0:
            start()
        yield x
        advance(len(x.rows))


def ship(
    job: Job, model: OpenModel, calibration: Calibration, aside: Path, rows: Iterable[int], inputs: Inputs, say: Say
) -> list[str]:
    """Write the model with the temperature inside, where there is a way to; it is tried on some `rows` first."""
    if model.ship is None:
        return []
    if job.outputs == "probabilities" and model.kind != "onnx":
        say(f"no calibrated model is written: the {model.kind} gives probabilities, and has no logits to divide")
        return []
    if calibration.bound:
        say("no calibrated model is written: the temperature lies at the end of the searched range")
        return []
    return model.ship(calibration.temperature, aside, np.stack([inputs.read(int(i)) for i in rows]))


def _run(work: Work, calibration: Calibration, mixes: Reservoir, files: list[str]) -> Run:
    """All that the report is made from."""
    job, rows = work.job, work.recorder.rows
    data = about_data(work)
    settings = calibration.settings | asked_of(job) | {"data": data["name"]}
    return Run(
        model=about_model(job, work.model, files),
        data=data,
        calibration=replace(calibration, settings=settings, versions=calibration.versions | runtimes()),
        logits=work.recorder.logits,
        names=[work.inputs.name(int(i)) for i in rows],
        classes=work.classes,
        mixes=mixes.labelled,
        pictures=[work.inputs.picture(int(i)) for i in rows],
        labels=None if job.labels is None else work.labels[rows],
    )


def asked_of(job: Job) -> dict[str, Any]:
    """What was asked of the command beside the settings of the method."""
    return {
        "model": job.model,
        "second_opinion": job.second_opinion,
        "data": job.data,
        "max_samples": job.max_samples,
        "batch_size": job.batch_size,
    }


def about_model(job: Job, model: OpenModel, files: list[str]) -> dict[str, Any]:
    """What the report says of the model."""
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


def about_data(work: Work) -> dict[str, Any]:
    """What the report says of the data."""
    return {
        "name": "standard input" if work.job.data == "-" else work.job.data,
        "inputs": len(work.inputs),
        "used": len(work.recorder.rows),
        "preparation": work.preparation,
        "unreadable": [list(item) for item in work.unreadable.why.items()],
    }


def runtimes() -> dict[str, str]:
    """The versions of what ran the model and read the inputs."""
    return {name: version(name) for name, module in RUNTIMES.items() if module in sys.modules}


def _write(job: Job, run: Run, aside: Path, started: float) -> dict[str, Any]:
    """Write everything that is left to write."""
    confidences = Confidences.of(run.logits, run.calibration)
    write_predictions(aside, run.names, confidences, run.classes, kind=job.table)
    if not job.save_logits:
        (aside / "logits.npy").unlink()
    return write_report(run, confidences, aside, started)


def write_report(run: Run, confidences: Confidences, aside: Path, started: float) -> dict[str, Any]:
    """Write the calibration and what the report says, and return the latter."""
    run.calibration.save(aside / "calibration.json")
    finished = {"seconds": time.monotonic() - started, "finished": datetime.now(UTC).isoformat(timespec="seconds")}
    content = content_of(replace(run, timing=finished), confidences)
    save_content(content, aside / "report.json")
    (aside / "report.html").write_text(page(content), encoding="utf-8")
    return content
