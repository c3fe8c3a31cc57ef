"""The rest of `pseudocal calibrate` where the model labels every pixel.

Logits of all pixels are too many to keep, so once T is known the images go through the model again, batch by batch.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.cli.job import Work
from pseudocal.app.cli.progress import progress
from pseudocal.app.cli.run import Say, about_data, about_model, asked_of, runtimes, ship
from pseudocal.app.inputs import read_batches
from pseudocal.app.report import page, save_content
from pseudocal.app.report.predictions import write_table
from pseudocal.app.report.segmented import Images, segmented_content
from pseudocal.arrays import Labelled, cores
from pseudocal.batches import unread_batches
from pseudocal.calibrators import Calibration
from pseudocal.metrics.image_rows import COLUMNS


def write_segmented(
    work: Work, calibration: Calibration, mixes: Labelled, aside: Path, started: float, say: Say
) -> dict[str, Any]:
    """Write everything that is left to write and return the content of the report."""
    job = work.job
    files = ship(job, work.model, calibration, aside, work.recorder.rows[:2], work.inputs, say)
    settings = calibration.settings | asked_of(job)
    calibration = replace(calibration, settings=settings, versions=calibration.versions | runtimes())
    images = _second_pass(work, calibration)
    write_table(aside, iter([images.columns(work.classes)]), COLUMNS, kind=job.table)
    about = {"model": about_model(job, work.model, files), "data": about_data(work), "classes": work.classes}
    return write_segmented_report(images, mixes, about, aside, started)


def write_segmented_report(
    images: Images, mixes: Labelled, about: dict[str, Any], aside: Path, started: float
) -> dict[str, Any]:
    """Write the calibration and what the report says, and return the latter."""
    images.calibration.save(aside / "calibration.json")
    timing = {"seconds": time.monotonic() - started, "finished": datetime.now(UTC).isoformat(timespec="seconds")}
    content = segmented_content(images, mixes, timing=timing, **about)
    save_content(content, aside / "report.json")
    (aside / "report.html").write_text(page(content), encoding="utf-8")
    return content


def _second_pass(work: Work, calibration: Calibration) -> Images:
    job, rows, images = work.job, work.recorder.rows, Images(calibration)
    unread = unread_batches(rows, job.batch_size)
    batches = read_batches(work.inputs, unread, workers=job.workers or cores(), unreadable=work.unreadable)
    with progress(len(rows), quiet=job.quiet) as advance, closing(batches):
        for batch in batches:
            for i, image in zip(batch.rows.tolist(), work.predict(batch.inputs), strict=True):
                mask = None if work.masks is None else work.masks[i]
                images.add(np.asarray(image), work.inputs.name(i), work.inputs.picture(i), mask)
            advance(len(batch.rows))
    return images
