"""The work of `pseudocal calibrate --ray`: the same calibration, with the workers of a cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.cli.first import check_names
from pseudocal.app.cli.job import Job, open_models
from pseudocal.app.cli.progress import progress
from pseudocal.app.cli.run import Say, about_model, asked_of, batch_note, runtimes, ship, write_report
from pseudocal.app.cli.second import check_second
from pseudocal.app.cli.segment import write_segmented_report
from pseudocal.app.cli.staging import PARTS, staged
from pseudocal.app.cli.target import Target, open_target
from pseudocal.app.jobs.parts import read_images
from pseudocal.app.jobs.predictions import predict_blocks
from pseudocal.app.models.files import model_file
from pseudocal.app.models.opened import OpenModel
from pseudocal.app.report import Confidences, Run
from pseudocal.app.report.segmented import Images
from pseudocal.arrays import InputError, Labelled, cores
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.blocks import sendable
from pseudocal.calibrators.evidence import Evidence
from pseudocal.calibrators.executors import BlockWork, Merging
from pseudocal.distributed import Deferred, RayExecutor

EVERYONE = 100_000  # more workers than any cluster has
MANY = 10_000  # images that are held to find the few that the report shows


def calibrate_on_cluster(job: Job, say: Say = lambda text: None) -> dict[str, Any]:
    """Do the job and return the content of its report."""
    started = time.monotonic()
    _refuse(job)
    executor = _executor(job)
    with staged(job.out, keeps_parts=True) as aside, _log_of(job):
        model, second = open_models(job, device="cpu")
        target = open_target(job, model)
        if second is not None:
            check_second(model, second, target.inputs, job.pixels)
        asked, job = job, replace(job, batch_size=target.batch_size)
        for note in (*model.notes, target.preparation, *batch_note(asked, job)):
            say(note)
        if job.classes:
            probe = target.inputs.read(int(target.probe[0]))[None]
            check_names(job, job.as_logits(model)(probe).shape[1])
        sent = _deferred(job, job.model)
        opinion = None if job.second_opinion is None else _deferred(job, job.second_opinion)
        with executor.connected():
            collected, calibration = _fit(job, (sent, opinion), target, executor)
            files = ship(job, model, calibration, aside, target.probe, target.inputs, say)
            classes = job.classes or model.classes
            done = _predict(job, calibration, sent, target, executor, classes) if job.predict == "all" else None
        run = _run(job, model, target, collected, calibration, files, done)
        if run.mixes.groups is not None:
            images = _images(job, model, target, run.calibration, collected.real.labelled, done is not None)
            about = {"model": run.model, "data": run.data, "classes": run.classes}
            return write_segmented_report(images, run.mixes, about, aside, started)
        return write_report(run, Confidences.of(run.logits, run.calibration), aside, started)


@contextmanager
def _log_of(job: Job) -> Iterator[None]:
    """Workers that die are a line in the log, which is no error."""
    log = logging.getLogger("pseudocal")
    before = log.level
    log.setLevel(logging.ERROR if job.quiet else before)
    try:
        yield
    finally:
        log.setLevel(before)


def _refuse(job: Job) -> None:
    """What needs the logits of all inputs in one place."""
    asked = {"--labels": job.labels, "--save-logits": job.save_logits, "--format csv": job.table == "csv"}
    for name, value in asked.items():
        if value:
            raise InputError(f"expected no {name} with --ray, whose predictions are parquet files, got it")


def _executor(job: Job) -> RayExecutor:
    here = job.ray == "local"
    workers = job.workers or (cores() if here else EVERYONE)
    gpus = 1 if job.device.startswith("cuda") else 0
    return RayExecutor(workers, None if here else job.ray, num_gpus=gpus, max_bad=job.max_bad)


def _deferred(job: Job, model: str) -> Deferred:
    """A model that each worker opens for itself."""
    name = str(Path(model).resolve()) if Path(model).exists() else model
    return model_file(name, device=job.device, **job.reading)


def _fit(
    job: Job, models: tuple[Deferred, Deferred | None], target: Target, executor: RayExecutor
) -> tuple[Evidence, Calibration]:
    work = BlockWork(job.method, models, sendable(target.source), job.batch_size)
    merging = Merging(work, target.blocks, executor)
    with progress(len(target.blocks), quiet=job.quiet, unit="blocks") as advance:
        for _ in merging.steps():
            advance(1)
    return merging.evidence, job.method.conclude(merging.evidence, merging.record)


def _predict(
    job: Job,
    calibration: Calibration,
    model: Deferred,
    target: Target,
    executor: RayExecutor,
    classes: tuple[str, ...],
) -> dict[str, Any]:
    with progress(len(target.in_order), quiet=job.quiet, what="predicting", unit="blocks") as advance:
        return predict_blocks(
            calibration,
            model,
            target.in_order,
            job.out / PARTS,
            executor=executor,
            source=target.source,
            batch_size=job.batch_size,
            about=target.about,
            classes=classes,
            advance=lambda rows: advance(1),
        )


def _run(
    job: Job,
    model: OpenModel,
    target: Target,
    collected: Evidence,
    calibration: Calibration,
    files: list[str],
    done: dict[str, Any] | None,
) -> Run:
    """All that the report is made from: a sample of the inputs stands for all of them."""
    versions = calibration.versions | runtimes() | _ray_version()
    real = collected.real.labelled
    used = collected.inputs
    left_out, unreadable = (
        calibration.settings.get(key, {}) | (done or {}).get(key, {}) for key in ("left_out", "unreadable")
    )
    data = {
        "name": job.data,
        "inputs": target.rows or used,
        "used": used,
        "preparation": f"{target.preparation}; in {len(target.blocks):,} blocks, the figures from a sample",
        "unreadable": [list(item) for item in unreadable.items()],
        "left_out": [list(item) for item in left_out.items()],
        "blocks": f"{len(target.blocks):,} {'files' if target.rows is None else 'blocks of inputs'}",
    }
    return Run(
        model=about_model(job, model, files),
        data=data,
        calibration=replace(calibration, settings=calibration.settings | asked_of(job), versions=versions),
        logits=real.logits,
        names=[f"input {i} of a sample" for i in range(len(real))],
        classes=job.classes or model.classes,
        mixes=collected.mixes.labelled,
    )


def _images(
    job: Job, model: OpenModel, target: Target, calibration: Calibration, pixels: Labelled, predicted: bool
) -> Images:
    """What the report shows of images: sums over a sample of pixels, a few maps made here, rows that were written."""
    images = Images(calibration)
    images.add_sample(pixels)
    predict = job.as_logits(model)
    for i in np.sort(target.probe).tolist():
        image = predict(target.inputs.read(i)[None])[0]
        images.show(np.asarray(image), target.inputs.name(i), target.inputs.picture(i))
    for name, row in read_images(job.out / PARTS) if predicted else ():
        images.add_row(name, target.picture(name), row)
        if len(images.rows) > MANY:
            images.forget()
    images.forget()
    return images


def _ray_version() -> dict[str, str]:
    import ray

    return {"ray": ray.__version__}
