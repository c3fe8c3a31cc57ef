"""A job in this process.

Read, predict and mix batch by batch, and keep the logits of the inputs on disk.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs import read_batches
from pseudocal.app.jobs.job import Job, Tick
from pseudocal.app.jobs.kept_target import KeptPixels, frame_of, pixels_each, small_maps, texts_of
from pseudocal.app.jobs.setup import Models, Setup, as_logits_of, open_setup
from pseudocal.app.models.encoders import COLUMNS
from pseudocal.app.models.model import OpenModel
from pseudocal.app.report import (
    AboutData,
    ImageSummary,
    PredictionTable,
    RowSummary,
    row_chunks,
    write_predictions,
)
from pseudocal.app.report.page import templates
from pseudocal.app.report.predictions import Target
from pseudocal.app.report.summaries import MAPS
from pseudocal.arrays import InputError, Inputs, Logits, Maps, check_rows, cores
from pseudocal.batches import Batch, unread_batches
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.evidence import Evidence, Step
from pseudocal.calibrators.pseudocal import unmixed_steps
from pseudocal.calibrators.surrogate import Surrogate
from pseudocal.files import allocate_array, replacing
from pseudocal.metrics.images import ImageRow
from pseudocal.predictors import Checked
from pseudocal.skipped import Skipped

Ticks = Generator[Tick, None, Any]


@dataclass(frozen=True)
class Predicted:
    """The outcome of predicting the inputs.

    Attributes:
        summary: the predictions, summarised for the report.
        data: the description of the data for the report.
        predictions: the name of the file or folder of the predictions; None if there is none.

    """

    summary: RowSummary | ImageSummary
    data: AboutData
    predictions: str | None


class Backend(Protocol):
    """Where a job runs: in this process, or on a cluster."""

    setup: Setup

    def connected(self) -> AbstractContextManager[None]:
        """Connect to the workers, if there are any."""
        ...

    def collect(self) -> Ticks:
        """Collect the evidence; return it with what belongs in the record."""
        ...

    def probe(self) -> Inputs:
        """Read a few inputs to try a calibrated model on."""
        ...

    def predict(self, calibration: Calibration, evidence: Evidence) -> Ticks:
        """Write the predictions; return a `Predicted`."""
        ...


class LocalRun:
    """A job in this process.

    A classifier's logits are stored as they come; a segmenter predicts its images twice.

    Args:
        job: what to do.
        models: the open models.
        aside: the temporary folder that results are written to.

    """

    def __init__(self, job: Job, models: Models, aside: Path) -> None:
        self.setup: Setup = open_setup(job, models)
        self._aside = aside
        raw = [as_logits_of(job, one) for one in (self.setup.model, *self.setup.seconds)]
        predictors = raw if self.setup.views is None else self.setup.views.split(*raw)
        self._predict, *self._seconds = (
            as_opinion(one, predict if one.encodes else Checked(predict, doubt=False))
            for one, predict in zip(
                (self.setup.model, *self.setup.seconds), predictors, strict=True
            )
        )
        self._store = LogitStore(aside / "logits.npy", len(self.setup.inputs))
        self._unreadable = Skipped(len(self.setup.inputs), job.max_bad)

    def connected(self) -> AbstractContextManager[None]:
        """Nothing to connect to."""
        return nullcontext()

    def collect(self) -> Ticks:
        """Run the steps of the method, and store the logits of each."""
        setup, method = self.setup, self.setup.job.method
        evidence = method.empty_evidence()
        with closing(self._batches(setup.order)) as batches, ThreadPoolExecutor(1) as background:
            for step in self._steps(batches):
                if evidence.inputs == 0:
                    setup.check(step.real)
                    background.submit(warm_up)  # while the model predicts
                evidence.add(step)
                if step.epoch == 0:
                    self._store.keep(step.rows, step.logits)
                    yield Tick("calibrating", len(step.rows), len(setup.order))
                if evidence.converged(method.tolerance):
                    break
            if setup.job.predict == "all":
                for batch in batches:  # those left after an early stop
                    logits = None if self._store.maps else self._predict(batch.inputs)
                    self._store.keep(batch.rows, logits)
                    yield Tick("predicting", len(batch.rows), len(setup.order))
        return evidence, {"batch_size": setup.batch_size}

    def _steps(self, batches: Iterator[Batch]) -> Iterator[Step]:
        """The steps of the method, or without mixup samples if the inputs cannot be mixed."""
        if self.setup.unmixed is not None:
            return unmixed_steps(self._predict, batches)
        total = len(self.setup.order)
        return self.setup.job.method.steps(
            self._predict, batches, second_opinion=self._seconds, total=total
        )

    def probe(self) -> Inputs:
        """Read two inputs to try a calibrated model on."""
        return np.stack([self.setup.inputs.read(int(i)) for i in self._store.rows[:2]])

    def predict(self, calibration: Calibration, evidence: Evidence) -> Ticks:
        """Write the table of predictions, and summarise them for the report."""
        setup = self.setup
        total = len(self._store.rows)
        summary: RowSummary | ImageSummary
        if self._store.maps:
            summary = ImageSummary(calibration, setup.classes)
            tables = list[PredictionTable]()
            for table in self._image_tables(summary):
                tables.append(table)
                yield Tick("predicting", 1, total)
            name = write_predictions(self._aside, tables, kind=setup.job.table)
        else:
            summary = RowSummary(calibration, setup.classes)
            tables_of_rows = row_tables(summary, self._store.logits, self._target)
            name = write_predictions(self._aside, tables_of_rows, kind=setup.job.table)
            self._store.drop_empty()
        self._target.save(self._aside)
        probe = self.probe()
        if probe.dtype == object:  # texts; Python strings could only be saved as a pickle
            probe = probe.astype(str)
        np.save(self._aside / "probe.npy", probe, allow_pickle=False)
        data = AboutData(
            name=data_name(setup.job),
            inputs=len(setup.inputs),
            used=total,
            preparation=setup.preparation,
            assumed=setup.assumed,
            unreadable=tuple(self._unreadable.why.items()),
        )
        return Predicted(summary, data, name)

    def _batches(self, rows: Any) -> Generator[Batch, None, None]:
        unread = unread_batches(rows, self.setup.batch_size)
        workers = self.setup.job.workers or cores()
        return read_batches(
            self.setup.read_by_models, unread, workers=workers, unreadable=self._unreadable
        )

    @cached_property
    def _target(self) -> Target:
        """What is kept of these inputs, once all of them are predicted."""
        return self.setup.target_of(self._store.rows)

    def _image_tables(self, summary: ImageSummary) -> Iterator[PredictionTable]:
        """Yield the table of a segmenter, which predicts again.

        Of its logits only those of some pixels are kept.
        """
        inputs = self.setup.inputs
        masks = self.setup.masks
        kept = list[KeptPixels]()
        shown: list[tuple[Maps, NDArray[Any] | None]] = []
        with closing(self._batches(self._store.rows)) as batches:
            for batch in batches:
                for i, image in zip(batch.rows.tolist(), self._predict(batch.inputs), strict=True):
                    mask = None if masks is None else masks[i]
                    table = summary.add(
                        np.asarray(image),
                        inputs.name(i),
                        image_file=inputs.image_file(i),
                        mask=mask,
                    )
                    kept.append(self._pixels(image, table, i, mask))
                    if len(shown) < MAPS:
                        shown.append(small_maps(image, mask))
                    yield table
        KeptPixels.concatenate(kept).save(self._aside, shown)

    def _pixels(
        self, image: Maps, table: PredictionTable, i: int, mask: NDArray[Any] | None
    ) -> KeptPixels:
        most = pixels_each(len(self.setup.order), len(image))
        row = ImageRow(
            np.asarray(table["fractions"])[0],
            float(np.asarray(table["confidence_before"])[0]),
            np.nan,
        )
        return KeptPixels.of(
            image, row, i, most=most, frame=frame_of(self.setup.inputs, i), mask=mask
        )


def as_opinion(model: OpenModel, predict: Any) -> Any:
    """A model as the method takes it: ready to predict, or a surrogate with its encoder."""
    return Surrogate(None if model.kind == COLUMNS else predict) if model.encodes else predict


def row_tables(summary: RowSummary, logits: Logits, target: Target) -> Iterator[PredictionTable]:
    """The table of a classifier, a chunk of the logits at a time."""
    texts = texts_of(target)
    for rows in row_chunks(logits):
        image_files = (
            None
            if target.image_files is None
            else [Path(path) for path in target.image_files[rows]]
        )
        labels = None if target.labels is None else np.array(target.labels[rows])
        some = None if texts is None else texts[rows]
        yield summary.add(
            logits[rows], target.names[rows], image_files=image_files, texts=some, labels=labels
        )


def warm_up() -> None:
    """Import and compile what the report needs, half a second of work.

    The report itself names missing packages.
    """
    for name in ("scipy.special", "pyarrow.parquet"):
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError):
        templates()


class LogitStore:
    """The logits of all inputs in a memory-mapped file, so they take disk space rather than memory.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = LogitStore(Path(folder) / "logits.npy", total=3)
    ...     store.keep(np.array([2, 0]), np.array([[30.0, 40.0], [10.0, 20.0]]))
    ...     store.rows, np.array(store.logits)
    (array([0, 2]), array([[10., 20.],
           [30., 40.]]))

    Args:
        path: the .npy file to write.
        total: the number of inputs.

    """

    def __init__(self, path: Path, total: int) -> None:
        self._path = path
        self._kept = np.zeros(total, dtype=bool)
        self._store: Any = None
        self.maps = (
            False  # whether the model labels every pixel: then the logits are too large to store
        )

    @property
    def rows(self) -> NDArray[np.intp]:
        """The numbers of the inputs that were predicted, in ascending order."""
        return np.flatnonzero(self._kept)

    @property
    def logits(self) -> Logits:
        """The logits of `rows`, as a memory map if none is missing."""
        if self._store is None:
            raise InputError("expected at least one prediction, got none")
        whole: Logits = self._store
        return whole if self._kept.all() else whole[self._kept]

    def drop_empty(self) -> None:
        """Leave only the rows of inputs that were predicted in the file."""
        if not self._kept.all():
            with replacing(self._path) as aside:
                np.save(aside, self.logits)

    def keep(self, rows: NDArray[np.intp], logits: Logits | None) -> None:
        """Store the logits of some inputs; None stands for maps."""
        if logits is None:
            self.maps = True
            self._kept[rows] = True
            return
        check_rows(logits)
        if self._store is None:
            shape = (len(self._kept), logits.shape[1])
            dtype = np.promote_types(logits.dtype, np.float32)
            self._store = allocate_array(self._path, shape, dtype)
        if logits.shape != (len(rows), self._store.shape[1]):
            raise InputError(
                f"expected logits of shape {(len(rows), self._store.shape[1])}, got {logits.shape}"
            )
        self._store[rows] = logits
        self._kept[rows] = True


def data_name(job: Job) -> str:
    """Return the name of the data for records."""
    return "standard input" if job.data == "-" else job.data
