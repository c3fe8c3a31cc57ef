"""The rest of `pseudocal calibrate` where the model labels every pixel.

Logits of all pixels are too many to keep, so once T is known the images go through the model again, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from pseudocal.app.cli.job import Work
from pseudocal.app.cli.progress import progress
from pseudocal.app.inputs import read_batches
from pseudocal.app.report import ImageSummary, PredictionTable, write_predictions
from pseudocal.arrays import cores
from pseudocal.batches import unread_batches
from pseudocal.calibrators import Calibration


def write_segmented(work: Work, calibration: Calibration, aside: Path) -> ImageSummary:
    """Write the table of predictions, and give back what the report needs to know of them."""
    summary = ImageSummary(calibration, work.classes)
    write_predictions(aside, _second_pass(work, summary), kind=work.job.table)
    return summary


def _second_pass(work: Work, summary: ImageSummary) -> Iterator[PredictionTable]:
    job, rows = work.job, work.recorder.rows
    unread = unread_batches(rows, job.batch_size)
    batches = read_batches(work.inputs, unread, workers=job.workers or cores(), unreadable=work.unreadable)
    with progress(len(rows), quiet=job.quiet) as advance, closing(batches):
        for batch in batches:
            for i, image in zip(batch.rows.tolist(), work.predict(batch.inputs), strict=True):
                mask = None if work.masks is None else work.masks[i]
                name, picture = work.inputs.name(i), work.inputs.picture(i)
                yield summary.add(np.asarray(image), name, picture=picture, mask=mask)
            advance(len(batch.rows))
