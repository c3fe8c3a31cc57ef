"""Accept predictions above a threshold: `threshold.json`, and a column in the predictions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from pseudocal.app.job import Sampling
from pseudocal.app.label_files import read_labels
from pseudocal.app.publishing import publishing
from pseudocal.app.report import Report, write_report
from pseudocal.app.report.predictions import (
    Confidences,
    default_table,
    row_chunks,
    row_table,
    writing_predictions,
)
from pseudocal.app.run import REPORT, THRESHOLD, Run
from pseudocal.app.thresholds import RunThreshold, predictions_of, threshold_of
from pseudocal.calibrators import Calibration
from pseudocal.files import own_file

CLASSES_SHOWN = 20  # lines of the table by class in the terminal


def threshold(
    out: Path | str,
    labels: Path | str | None = None,
    *,
    max_error: float,
    sampling: Sampling = "stratified",
    one_model: bool = False,
) -> RunThreshold:
    """Find the confidence above which at most `max_error` of the predictions are wrong.

        pseudocal.app.label("out/", 100, for_threshold=0.05)    # then somebody opens out/label.html
        found = pseudocal.app.threshold("out/", "labels.csv", max_error=0.05)
        found.basis, found.confidence, found.coverage

    It writes `threshold.json`, and the predictions again with a column `accept`.

    Args:
        out: the folder that `calibrate` or `collect_outputs` wrote.
        labels: a table of labels, as `refine` takes it, or of inputs that `label` drew with
            `for_threshold`. None for an estimate.
        max_error: the fraction of the accepted predictions that may be wrong.
        sampling: how the inputs were drawn, if the table does not say so: "stratified" by `label`,
            or "random" by someone else.
        one_model: whether to rank by confidence alone, though the run has a second model.

    """
    out = Path(out)
    with publishing(out) as aside:
        run = Run.open(out)
        given = None if labels is None else read_labels(Path(labels), run, sampling)
        calibration = run.calibration_in_force()
        found = threshold_of(
            run,
            calibration.temperature,
            max_error,
            given,
            one_model=one_model,
            same_labels=calibration.measured is not None
            and given is not None
            and given.pool is None,
        )
        write_accepted(run, calibration, found, aside)
    return found


def write_accepted(run: Run, calibration: Calibration, found: RunThreshold, folder: Path) -> None:
    """Write `threshold.json`, the predictions with a column `accept`, and the report."""
    predicted, confidence, second = predictions_of(run, calibration.temperature)
    agrees = None
    if found.agreement and second is not None:
        agrees = second == predicted
    accepted = found.accepts(confidence, agrees)
    record = run.record
    with writing_predictions(folder, record.table or default_table()) as write:
        for rows in row_chunks(run.logits):
            seen = Confidences.of(np.asarray(run.logits[rows]), calibration)
            table = row_table(record.names[rows], seen, record.classes)
            write(table | {"accept": accepted[rows]})
    found.save(folder / THRESHOLD)
    report = folder / REPORT if (folder / REPORT).exists() else run.folder / REPORT
    if os.path.lexists(report):  # saved outputs have none before `refine`
        loaded = Report.load(own_file(report.parent, REPORT))
        write_report(replace(loaded, threshold=found), folder)


def threshold_lines(found: RunThreshold, run: Run) -> Iterator[str]:
    """What the terminal says of a threshold."""
    yield _rule(found, len(run.logits))
    yield found.promise
    if found.classes:
        lights = Counter(line.light for line in found.classes)
        yield "by class: " + ", ".join(f"{count} {light}" for light, count in lights.items())
        for line in found.classes[:CLASSES_SHOWN]:
            least = "nothing" if line.confidence is None else f"from {line.confidence:.3f}"
            yield (
                f"  {line.name}: {least}, {line.coverage:.1%} accepted, {line.light} "
                f"({line.labels} labels)"
            )
        if len(found.classes) > CLASSES_SHOWN:
            yield f"  ... and {len(found.classes) - CLASSES_SHOWN} more in {THRESHOLD}"
    most = f"{100 * found.max_error:.6g}%"
    if found.basis == "guaranteed":
        return
    if found.labels_needed is None:
        yield "next: no number of labels is expected to give a guarantee; allow more errors"
        return
    yield f"next: pseudocal label {run.folder} --for-threshold {most} -n {found.labels_needed}"


def _rule(found: RunThreshold, rows: int) -> str:
    if found.confidence is None:
        return f"accept none of {rows:,} inputs"
    rule = f"accept {found.coverage:.1%} of {rows:,} inputs: confidence of at least "
    if not found.agreement:
        return rule + f"{found.confidence:.4f}"
    if found.if_disagree is None:
        return rule + f"{found.confidence:.4f} where both models agree"
    return rule + f"{found.if_disagree:.4f}, and all where both models agree"
