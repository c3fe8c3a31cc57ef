"""The work of `evaluate` and `apply`: saved logits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.inputs.labels import read_labels
from pseudocal.app.inputs.tables import read_array, read_table
from pseudocal.app.jobs.staging import OutputError
from pseudocal.app.models.outputs import AsLogits, Meaning
from pseudocal.app.report import measure
from pseudocal.app.report.confidences import blocks
from pseudocal.arrays import InputError, Logits, as_logits
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Outcomes


def load_logits(path: Path, *, outputs: Meaning = "logits", field: str | None = None) -> Logits:
    """Logits from a file; probabilities become logits by their logarithm."""
    if not path.is_file():
        raise InputError(f"expected a file of logits, got {path}: no such file")
    array = read_table(path) if path.suffix.lower() in (".csv", ".parquet") else read_array(path, field)
    logits = as_logits(array)
    return AsLogits(lambda x: x, outputs)(logits) if outputs == "probabilities" else logits


def score_files(
    logits: Path, labels: Path, calibration: Calibration | None, *, outputs: Meaning, field: str | None
) -> list[dict[str, Any]]:
    """Metrics of saved logits, and of the calibrated ones if there is a calibration."""
    values = load_logits(logits, outputs=outputs, field=field)
    truth = read_labels(labels, [str(i) for i in range(len(values))])
    before = Outcomes.from_logits(values, truth)
    after = None if calibration is None else Outcomes.from_logits(calibration(values), truth)
    return measure(before, after)


def apply_file(
    calibration: Calibration, logits: Path, out: Path, *, outputs: Meaning, field: str | None
) -> tuple[int, ...]:
    """Write calibrated probabilities, a block of rows at a time; the file appears when it is whole."""
    values = load_logits(logits, outputs=outputs, field=field)
    if out.suffix != ".npy":
        raise InputError(f"expected an output file that ends in .npy, got {out}")
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        dtype = np.float64 if values.dtype.itemsize > 4 else np.float32
        written = np.lib.format.open_memmap(aside, mode="w+", dtype=dtype, shape=values.shape)
        done = 0
        for block in blocks(values):
            written[done : done + len(block)] = calibration.probabilities(block)
            done += len(block)
        written.flush()
        os.replace(aside, out)
    except OSError as error:
        raise OutputError(f"expected an output file that can be written, got {out}: {error.strerror}") from error
    finally:
        aside.unlink(missing_ok=True)
    return tuple(values.shape)
