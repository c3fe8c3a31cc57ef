"""Render a run: write its predictions, its report and the calibrated model.

Everything follows from the run and the calibration. No model is run, except to check an exported
file on two inputs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pseudocal.app.export import export
from pseudocal.app.inputs.choices import JSONL
from pseudocal.app.inputs.sets import open_texts
from pseudocal.app.models.model import OpenModel
from pseudocal.app.pixels import PixelSample
from pseudocal.app.report import Report, Summary, report_of, write_report
from pseudocal.app.report.images import map_images
from pseudocal.app.report.page import card_of
from pseudocal.app.report.predictions import (
    Confidences,
    PredictionTable,
    Write,
    class_name,
    default_table,
    image_table,
    row_chunks,
    row_table,
    writing_table,
)
from pseudocal.app.report.record import Example
from pseudocal.app.run import CALIBRATION, PAGE, PREDICTIONS, REPORT, Run, RunRecord
from pseudocal.app.thresholds import RunThreshold
from pseudocal.arrays import InputError, Labelled, Logits
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.labels import CANNOT_TELL, NONE_OF_THESE, LabelSample
from pseudocal.calibrators.pseudocal import NO_MIXUP
from pseudocal.files import own_file
from pseudocal.maps import IGNORED
from pseudocal.notebook import card

SAMPLED = "; figures from a sample of the pixels"


@dataclass(frozen=True)
class Result:
    """A rendered run.

    Attributes:
        calibration: the calibration, with its verdict and the estimated accuracy.
        report: the content of the report.
        out: the run folder.
        predictions: the table of predictions.

    """

    calibration: Calibration
    report: Report
    out: Path
    predictions: Path

    @property
    def threshold(self) -> RunThreshold | None:
        """Which predictions to accept, if `refine` was asked for it."""
        return self.report.threshold

    def __repr__(self) -> str:
        t = self.calibration.temperature
        return f"Result({self.calibration.verdict}, T = {t:.3f}, in {self.out})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the headline, the verdict with its reasons, where the page is."""
        judged = self.calibration.measured or self.calibration.trust
        lines = [
            str(self.report.headline),
            str(self.report.recommendation),
            repr(self.calibration),
            f"report: {self.out / PAGE}",
        ]
        return card(self.calibration.verdict, lines, () if judged is None else judged.reasons)


def render(
    run: Run,
    calibration: Calibration,
    folder: Path,
    *,
    out: Path,
    kept: bool = True,
    model: OpenModel | None = None,
    labels: LabelSample | None = None,
    threshold: RunThreshold | None = None,
) -> Result:
    """Write predictions, report and calibrated model of a run into `folder`.

    Args:
        run: the run.
        calibration: what was concluded from it.
        folder: where to write.
        out: the run folder, where the files go later; the result and commands of the report name
            it.
        kept: whether the run is kept there.
        model: the open model, to export it; None to export none.
        labels: the labels that the calibration was refined with, for the reliability diagram.
        threshold: which predictions to accept, if that was asked for.

    """
    files = () if model is None else export(run, calibration, model, folder)
    data = run.record.data
    predictions = _predictions_file(run, folder)
    with writing_table(predictions) as write:
        if run.pixels is None:
            summary = _render_rows(run, calibration, threshold, write)
        else:
            summary = _render_images(run, run.pixels, calibration, write)
            data = replace(data, preparation=data.preparation + SAMPLED)
    calibration.save(folder / CALIBRATION)
    report = report_of(
        summary,
        _fitted_on(run, labels),
        model=replace(run.record.model, files=files),
        data=data,
        timing=run.record.timing,
        out=out,
        kept=kept,
        threshold=threshold,
        outputs=_apply_arguments(run.record),
    )
    write_report(report, folder)
    if threshold is not None:
        threshold.save(folder)
    for name in files:
        if (folder / name).is_dir():  # of a Hugging Face model
            path = folder / name / "README.md"
            path.write_text(card_of(report), encoding="utf-8", errors="replace")
    return Result(calibration, report, out, out / predictions.name)


def _apply_arguments(record: RunRecord) -> tuple[str, ...]:
    """The arguments of `pseudocal apply` for saved outputs; empty if it cannot read them."""
    path = Path(record.model.name)
    if not record.saved or not str(path).isprintable():
        return ()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    words = [str(shown)]
    if record.output_type == "probabilities":
        words += ["--output-type", "probabilities"]
    if record.binary:
        words.append("--binary")
    if record.column is not None:
        words += ["--field", record.column]
    suffix = path.suffix.lower()
    written = {JSONL: ".csv", ".npz": ".npy"}.get(suffix, suffix)
    return (*words, "-o", f"calibrated-{path.stem}{written}")


def render_threshold(
    run: Run, calibration: Calibration, threshold: RunThreshold, folder: Path
) -> None:
    """Write what a threshold changes: `threshold.json`, the predictions, and the last report."""
    with writing_table(_predictions_file(run, folder)) as write:
        for *_, table in _parts_of(run, calibration, threshold):
            write(table)
    threshold.save(folder)
    if os.path.lexists(run.folder / REPORT):  # saved outputs have none before `refine`
        report = Report.load(own_file(run.folder, REPORT))
        write_report(replace(report, threshold=threshold), folder)


def _predictions_file(run: Run, folder: Path) -> Path:
    return folder / PREDICTIONS.format(run.record.table or default_table())


def _parts_of(
    run: Run, calibration: Calibration, threshold: RunThreshold | None
) -> Iterator[tuple[slice, Logits, Confidences, PredictionTable]]:
    """The predictions of a classifier part by part, each with the table to write."""
    record = run.record
    accepted = None if threshold is None else threshold.accepted_rows(run)
    for rows in row_chunks(run.logits):
        logits = np.asarray(run.logits[rows])
        seen = Confidences.of(logits, calibration)
        accept = None if accepted is None else accepted[rows]
        yield rows, logits, seen, row_table(record.names[rows], seen, record.classes, accept)


def _render_rows(
    run: Run, calibration: Calibration, threshold: RunThreshold | None, write: Write
) -> Summary:
    """Write the predictions of a classifier, and summarise them."""
    record = run.record
    summary = Summary(calibration, record.classes)
    files = record.image_files
    texts = _texts(record)
    truth = record.ground_truth
    for rows, logits, seen, table in _parts_of(run, calibration, threshold):
        write(table)
        summary.add_rows(
            logits,
            seen,
            record.names[rows],
            image_files=None if files is None else [Path(path) for path in files[rows]],
            texts=None if texts is None else texts[rows],
            ground_truth=None if truth is None else np.array(truth[rows]),
        )
    return summary


def _render_images(
    run: Run, sample: PixelSample, calibration: Calibration, write: Write
) -> Summary:
    """Write a row for each image of a segmentation model, and summarise its sampled pixels.

    Classes and the confidence before calibration are those of all pixels. How much the confidence
    changes is known from the sample.
    """
    record = run.record
    summary = Summary(calibration, record.classes, "pixels")
    has_truth = bool((sample.ground_truth != IGNORED).any())
    first = np.searchsorted(sample.image, np.arange(len(record.names) + 1))
    after = np.array(sample.before)
    for i, name in enumerate(record.names):
        pixels = slice(first[i], first[i + 1])
        logits = np.array(run.logits[pixels])
        if len(logits):
            change = confidences(logits, calibration.temperature) - confidences(logits)
            after[i] = np.clip(sample.before[i] + change.mean(), 0, 1)
            weights = np.full(len(logits), sample.pixels[i] / len(logits))
            seen = Confidences.of(logits, calibration)
            summary.add_predictions(seen, logits.shape[1], weights=weights)
            if has_truth:
                summary.measure(logits.T[:, None], sample.ground_truth[pixels][None])
        most = class_name(int(sample.fractions[i].argmax()), record.classes)
        example = Example(name, f"mostly {most}", float(sample.before[i]), float(after[i]))
        summary.consider(example, run.image_file(i))
    write(image_table(record.names, sample.fractions, sample.before, after, record.classes))
    for i, (image, mask) in enumerate(run.shown_maps()):
        t = calibration.temperature
        summary.maps.append(map_images(image, record.names[i], t, run.image_file(i), mask))
    return summary


def _fitted_on(run: Run, labels: LabelSample | None) -> Labelled:
    """What the temperature was fitted on: the rows that a person has labelled, or mixup samples.

    Where the label is "none of these", it is that of the second likeliest class: the prediction is
    wrong.
    """
    if labels is None:
        evidence = run.evidence()
        if evidence is None or not evidence.mixup_samples.seen:
            return NO_MIXUP
        return evidence.mixup_samples.labelled
    known = labels.labels != CANNOT_TELL
    rows = labels.rows[known]
    logits = np.array(run.logits[rows])
    second = np.argsort(logits, axis=1, kind="stable")[:, -2]
    given = labels.labels[known]
    truth = np.where(given == NONE_OF_THESE, second, given)
    return Labelled(logits, truth, groups=None if run.groups is None else run.groups[rows])


def _texts(record: RunRecord) -> list[str] | None:
    """The texts that were predicted; None if the inputs are no texts, or cannot be read any more."""
    if record.source is None or record.of_array:
        return None
    try:
        if record.saved:
            texts = open_texts(Path(record.source), None).texts
            return [texts[row] for row in range(len(record.names))]
        if record.column is not None:
            texts = open_texts(Path(record.source), record.column).texts
            return [texts[int(name)] for name in record.names]
        return None
    except (InputError, ValueError, IndexError):  # other data: the page goes without the texts
        return None
