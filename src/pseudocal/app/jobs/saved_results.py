"""Jobs on saved results: score logits, apply a calibration to them, draw a report again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.inputs.labels import read_labels
from pseudocal.app.inputs.tables import read_array, read_table
from pseudocal.app.jobs.staging import finish
from pseudocal.app.models.files import AsLogits, Meaning
from pseudocal.app.report import Report, measure, row_chunks, write_page
from pseudocal.app.report.record import to_json
from pseudocal.arrays import InputError, Logits, as_logits
from pseudocal.calibrators import Calibration
from pseudocal.files import allocate_array, replacing
from pseudocal.metrics import Outcomes


def load_logits(path: Path, *, outputs: Meaning = "logits", field: str | None = None) -> Logits:
    """Read logits from a file; probabilities are turned into logits by taking the logarithm."""
    if not path.is_file():
        raise InputError(f"expected a file of logits, got {path}: no such file")
    array = read_table(path) if path.suffix.lower() in (".csv", ".parquet") else read_array(path, field)
    logits = as_logits(array)
    return AsLogits(lambda x: x, outputs)(logits) if outputs == "probabilities" else logits


def score_files(
    logits: Path, labels: Path, calibration: Calibration | None, *, outputs: Meaning, field: str | None
) -> list[dict[str, Any]]:
    """Compute metrics of saved logits, and of the calibrated ones if there is a calibration."""
    values = load_logits(logits, outputs=outputs, field=field)
    truth = read_labels(labels, [str(i) for i in range(len(values))])
    before = Outcomes.from_logits(values, truth)
    after = None if calibration is None else Outcomes.from_logits(calibration(values), truth)
    rows = [to_json(row) for row in measure(before, after)]
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def apply_file(
    calibration: Calibration, logits: Path, out: Path, *, outputs: Meaning, field: str | None
) -> tuple[int, ...]:
    """Write calibrated probabilities, one chunk of rows at a time; the file appears once it is complete."""
    values = load_logits(logits, outputs=outputs, field=field)
    if out.suffix != ".npy":
        raise InputError(f"expected an output file that ends in .npy, got {out}")
    with replacing(out) as aside:
        written = allocate_array(aside, values.shape, np.float64 if values.dtype.itemsize > 4 else np.float32)
        for rows in row_chunks(values):
            written[rows] = calibration.probabilities(values[rows])
        del written
    return tuple(values.shape)


def rewrite_report(folder: Path) -> Path:
    """Draw `report.html` again from `report.json`, and return its path."""
    finish(folder)
    write_page(Report.load(folder / "report.json"), folder)
    return folder / "report.html"
