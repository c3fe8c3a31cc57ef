"""What workers keep of a target for questions and answers.

A file for each block, which the driver joins at the end.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs import InputSet
from pseudocal.app.jobs.kept_target import KeptPixels, frame_of, pixels_each, small_maps
from pseudocal.app.jobs.local import LogitStore
from pseudocal.app.jobs.setup import Setup
from pseudocal.app.report.summaries import MAPS
from pseudocal.arrays import Logits, Maps, Predictor
from pseudocal.files import replacing
from pseudocal.metrics.images import ImageRow

KEPT_NAME = "kept-{:06d}.npz"

Outputs = list[tuple[NDArray[np.intp], Any]]  # rows of the data, and what is kept of their logits


def kept_of(
    inputs: InputSet,
    rows: NDArray[np.intp],
    logits: Logits | Maps,
    images: list[ImageRow],
    total: int,
) -> Any:
    """What to keep of a batch.

    All logits of a classifier, and some pixels of each image of a segmenter.

    Args:
        inputs: the inputs.
        rows: the numbers of those of the batch.
        logits: what the model says of them.
        images: the sums over the pixels of each image of a segmenter.
        total: how many inputs there are in all.

    """
    if logits.ndim == 2:
        return logits
    most = pixels_each(total, logits.shape[1])
    numbered = zip(rows.tolist(), logits, images, strict=True)
    parts = [
        KeptPixels.of(np.asarray(z), row, i, most=most, frame=frame_of(inputs, i))
        for i, z, row in numbered
    ]
    return KeptPixels.concatenate(parts)


def write_kept(path: Path, outputs: Outputs) -> None:
    """Write what is kept of a block; a file that exists is complete."""
    rows = np.concatenate([rows for rows, _ in outputs])
    kept = [part for _, part in outputs]
    columns: dict[str, Any] = (
        {"logits": np.concatenate(kept)} if isinstance(kept[0], np.ndarray) else {}
    )
    if not columns:
        whole = KeptPixels.concatenate(kept)
        columns = {field.name: getattr(whole, field.name) for field in fields(whole)}
    with replacing(path) as aside:
        np.savez(aside, rows=rows, **columns)


def join_kept(parts: Path, aside: Path, setup: Setup, predict: Predictor) -> None:
    """Write what a job in one process would keep, and remove the files of the blocks.

    Args:
        parts: the folder of the files of the blocks.
        aside: the temporary folder that results are written to.
        setup: the job.
        predict: the model, to predict the images of a segmenter that are shown pixel by pixel.

    """
    store = LogitStore(aside / "logits.npy", len(setup.inputs))
    pixels = list[KeptPixels]()
    rows = []
    for path in sorted(parts.glob("kept-*.npz")):
        with np.load(path, allow_pickle=False) as file:
            columns = dict(file)
        rows.append(columns.pop("rows"))
        if "at" in columns:
            pixels.append(KeptPixels(**columns))
        else:
            store.keep(rows[-1], columns["logits"])
    predicted = np.concatenate(rows)
    if pixels:
        maps = (np.asarray(predict(setup.inputs.read(int(i))[None])[0]) for i in predicted[:MAPS])
        KeptPixels.concatenate(pixels).save(aside, [small_maps(image, None) for image in maps])
    else:
        store.drop_empty()
    setup.target_of(predicted).save(aside)
    np.save(aside / "probe.npy", np.stack([setup.inputs.read(int(i)) for i in predicted[:2]]))
    for path in parts.glob("kept-*.npz"):
        path.unlink()
