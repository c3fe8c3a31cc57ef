"""The rest of `pseudocal calibrate` where the model labels every pixel.

Logits of all pixels are too many to keep, so once T is known the images go through the model again, batch by batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Labelled, cores
from pseudocal.calibrators import Calibration
from pseudocal.cli.job import Job, Work
from pseudocal.cli.progress import progress
from pseudocal.cli.run import Say, about_data, about_model, asked_of, runtimes, ship
from pseudocal.inputs import read_batches
from pseudocal.metrics.image_rows import COLUMNS
from pseudocal.report import page, save_content
from pseudocal.report.predictions import write_table
from pseudocal.report.segmented import Images, segmented_content

MaskOf = Callable[[int], NDArray[Any] | None]  # the number of an input goes in


def write_segmented(
    work: Work, calibration: Calibration, mixes: Labelled, aside: Path, started: float, say: Say
) -> dict[str, Any]:
    """Write everything that is left to write and return the content of the report."""
    job = work.job
    if job.save_logits:
        raise InputError("expected no --save-logits for a model that labels every pixel, whose logits are many, got it")
    mask_of = _masks(job, work)
    files = ship(job, work.model, calibration, aside, work.recorder.rows[:2], work.inputs, say)
    settings = calibration.settings | asked_of(job)
    calibration = replace(calibration, settings=settings, versions=calibration.versions | runtimes())
    images = _second_pass(work, calibration, mask_of)
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


def _second_pass(work: Work, calibration: Calibration, mask_of: MaskOf) -> Images:
    job, rows, images = work.job, work.recorder.rows, Images(calibration)
    batches = read_batches(
        work.inputs, rows, batch_size=job.batch_size, workers=job.workers or cores(), unreadable=work.unreadable
    )
    with progress(len(rows), quiet=job.quiet) as advance, closing(batches):
        for numbers, x in batches:
            for i, image in zip(numbers.tolist(), work.recorder(x), strict=True):
                images.add(np.asarray(image), work.inputs.name(i), work.inputs.picture(i), mask_of(i))
            advance(len(numbers))
    return images


def _masks(job: Job, work: Work) -> MaskOf:
    """The mask of an image: a picture of the same name in a folder, or a row of an array."""
    if job.labels is None:
        return lambda i: None
    if job.labels.is_dir():
        if "middle" in work.preparation:
            raise InputError("expected --resize stretch with masks of whole pictures, got pictures cut to their middle")
        return lambda i: _read_mask(job.labels / Path(work.inputs.name(i)).with_suffix(".png"))  # type: ignore[operator]
    if job.labels.suffix.lower() not in (".npy", ".npz"):
        raise InputError(
            "expected a folder with a mask for each picture, or an .npy of masks (n, height, width), as --labels for a "
            f"model that labels every pixel, got {job.labels}"
        )
    from pseudocal.inputs.tables import read_array

    masks = read_array(job.labels)
    if masks.ndim != 3 or len(masks) != len(work.inputs):
        raise InputError(
            f"expected masks of shape ({len(work.inputs)}, height, width), got {masks.shape} in {job.labels}"
        )
    return lambda i: np.asarray(masks[i])


def _read_mask(path: Path) -> NDArray[Any]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            mask = np.asarray(image)
    except OSError as error:
        raise InputError(f"expected a mask for each image, got none that can be read at {path}") from error
    if mask.ndim != 2:
        raise InputError(f"expected a mask of one number a pixel, got {path} with shape {mask.shape}")
    return mask
