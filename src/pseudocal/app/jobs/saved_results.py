"""Jobs on saved results.

Score logits, apply a calibration to them, draw a report again, compare reports.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import numpy as np

from pseudocal.app.inputs.ground_truth import read_ground_truth
from pseudocal.app.inputs.tables import ARRAYS, read_array
from pseudocal.app.jobs.saved_outputs import saved_array, saved_classes
from pseudocal.app.jobs.staging import finish
from pseudocal.app.models.files import AsLogits, OutputType
from pseudocal.app.report import Report, measure, row_chunks, write_page
from pseudocal.app.report.comparison import ComparedLine, comparison, line_of
from pseudocal.app.report.predictions import Target
from pseudocal.app.report.record import to_json
from pseudocal.arrays import (
    InputError,
    Labels,
    Logits,
    Maps,
    as_labels,
    as_logits,
    as_maps,
    check_rows,
)
from pseudocal.calibrators import Calibration
from pseudocal.files import allocate_array, own_file, replacing
from pseudocal.maps import check_maps
from pseudocal.metrics import Outcomes, Segmented
from pseudocal.stored import StoredArray

TELLING_ROWS = (
    1000  # rows that show whether the numbers are probabilities; all may not fit into memory
)


def load_outputs(
    path: Path, *, outputs: OutputType | None = None, field: str | None = None
) -> Logits | Maps | StoredArray:
    """Open logits `(n, classes)`, or those of every pixel.

    Probabilities become logits by taking the logarithm.

    Args:
        path: the file.
        outputs: as in `AsLogits`: None for logits, refused if they look like probabilities.
        field: the name of the array to use if an .npz file holds several.

    """
    array = saved_array(path, field)
    read = AsLogits(lambda x: x, outputs)
    as_checked = as_maps if array.ndim == 4 else as_logits
    if outputs == "probabilities" or array.ndim not in (2, 4) or array.dtype.kind != "f":
        return read(as_checked(np.asarray(array)))
    read(as_checked(array[: 1 if array.ndim == 4 else TELLING_ROWS]))
    return array


def score_files(
    logits: Path,
    labels: Path,
    calibration: Path | None,
    *,
    outputs: OutputType | None,
    field: str | None,
) -> list[dict[str, Any]]:
    """Compute metrics of saved logits, and of the calibrated ones if there is a calibration.

    Labels may be names of classes: those of the columns of a table, or of the model in the folder
    of the calibration.
    """
    loaded = None if calibration is None else load_calibration(calibration)
    values = load_outputs(logits, outputs=outputs, field=field)
    if values.ndim == 4:
        scored: Any = _scored_maps(values, labels, loaded)
    else:
        classes = saved_classes(logits) or _classes_beside(calibration)
        truth = read_ground_truth(labels, [str(i) for i in range(len(values))], classes)
        scored = _scored_rows(values, truth, loaded)
    rows = [to_json(row) for row in measure(*scored)]
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def load_calibration(path: Path) -> Calibration:
    """Read a calibration file.

    It may lie in a folder from somebody else, and be a link that leaves it.
    """
    return Calibration.load(own_file(path.parent, path.name))


def _classes_beside(calibration: Path | None) -> tuple[str, ...]:
    """The names of the classes that the folder of a calibration knows."""
    folder = None if calibration is None else calibration.parent
    return (
        ()
        if folder is None or not (folder / "target.json").exists()
        else Target.load(folder).classes
    )


def _scored_rows(
    logits: Logits | StoredArray, truth: Labels, calibration: Calibration | None
) -> tuple[Outcomes, Outcomes | None]:
    """Score logits a few rows at a time: all may not fit into memory."""
    truth = as_labels(truth, cast("Logits", logits))  # only the shape of the logits matters here
    before = []
    after = []
    for rows, some in _checked_chunks(logits):
        before.append(Outcomes.from_logits(some, truth[rows]))
        if calibration is not None:
            after.append(Outcomes.from_logits(calibration(some), truth[rows]))
    return Outcomes.concatenate(before), Outcomes.concatenate(after) if after else None


def _checked_chunks(logits: Logits | StoredArray) -> Iterator[tuple[slice, Logits]]:
    """Read logits a few rows at a time; an error names the row of the file."""
    for rows in row_chunks(logits):
        some = logits[rows]
        check_rows(some, np.arange(rows.start, rows.stop))
        yield rows, some


def _scored_maps(
    maps: Maps | StoredArray, labels: Path, calibration: Calibration | None
) -> tuple[Segmented, Segmented | None]:
    """Score maps one image at a time: the maps of all may not fit into memory."""
    masks = read_array(labels) if labels.suffix.lower() in ARRAYS else np.empty(0)
    if masks.ndim != 3 or len(masks) != len(maps):
        raise InputError(
            f"expected an .npy of masks ({len(maps)}, height, width), got {labels} of shape {masks.shape}"
        )
    if masks.dtype != bool and not np.issubdtype(masks.dtype, np.integer):
        raise InputError(f"expected masks that are integers, got dtype {masks.dtype} in {labels}")
    before = []
    after = []
    for i in range(len(maps)):
        image = np.array(maps[i : i + 1])
        mask = np.asarray(masks[i : i + 1]).astype(np.int64)
        before.append(Segmented.of(image, mask))
        if calibration is not None:
            after.append(Segmented.of(calibration(image), mask))
    return Segmented.concatenate(before), Segmented.concatenate(after) if after else None


def apply_file(
    calibration: Calibration,
    logits: Path,
    out: Path,
    *,
    outputs: OutputType | None,
    field: str | None,
) -> tuple[int, ...]:
    """Write calibrated probabilities, a few rows or one image at a time.

    The file appears once it is complete.
    """
    values = load_outputs(logits, outputs=outputs, field=field)
    if out.suffix != ".npy":
        raise InputError(f"expected an output file that ends in .npy, got {out}")
    chunks = _checked_images(values) if values.ndim == 4 else _checked_chunks(values)
    with replacing(out) as aside:
        written = allocate_array(
            aside, values.shape, np.float64 if values.dtype.itemsize > 4 else np.float32
        )
        for rows, some in chunks:
            written[rows] = calibration.probabilities(some)
        del written
    return tuple(values.shape)


def _checked_images(maps: Maps | StoredArray) -> Iterator[tuple[slice, Maps]]:
    """Read maps one image at a time; an error names the image of the file."""
    for i in range(len(maps)):
        image = maps[i : i + 1]
        check_maps(image, first=i)
        yield slice(i, i + 1), image


def rewrite_report(folder: Path) -> Path:
    """Draw `report.html` again from `report.json`, and return its path."""
    finish(folder)
    write_page(Report.load(own_file(folder, "report.json")), folder)
    return folder / "report.html"


def compare_reports(folders: Sequence[Path], out: Path) -> list[ComparedLine]:
    """Write one page with a line for each folder that `calibrate` wrote, and return the lines."""
    lines = []
    for folder in folders:
        finish(folder)
        address = quote(os.path.relpath(folder / "report.html", out.parent))
        lines.append(line_of(Report.load(own_file(folder, "report.json")), str(folder), address))
    with replacing(out) as aside:
        aside.write_text(comparison(lines), encoding="utf-8", errors="replace")
    return lines
