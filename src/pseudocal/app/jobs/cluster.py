"""A job on a Ray cluster: the same calibration over blocks that workers read by themselves."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs import ArraySet, ImageSet, InputSet
from pseudocal.app.inputs.blocks import InputBlock, Shard, files_of_rows, shards
from pseudocal.app.inputs.sets import RemoteImageSet, opinion_names
from pseudocal.app.jobs.job import Job, Tick
from pseudocal.app.jobs.kept_parts import join_kept
from pseudocal.app.jobs.local import Predicted, Ticks, as_opinion
from pseudocal.app.jobs.predictions import Parts, PartWork, read_images
from pseudocal.app.jobs.setup import (
    Models,
    Setup,
    as_logits_of,
    batch_size_for,
    input_order,
    open_data,
    reading,
    remote_images,
    views_of,
)
from pseudocal.app.jobs.staging import PARTS
from pseudocal.app.models.files import model_file
from pseudocal.app.report import AboutData, ImageSummary, RowSummary
from pseudocal.arrays import InputError, Inputs, Labelled, cores
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.blocks import Block, row_blocks, sendable
from pseudocal.calibrators.evidence import Evidence
from pseudocal.calibrators.executors import BlockWork, Merging, block_order
from pseudocal.distributed import Deferred, RayExecutor
from pseudocal.extras import MissingExtraError

ALL_WORKERS = 100_000  # more workers than any cluster has
PREDICTED_ROWS = 2048  # inputs per block of predictions
PROBED = (
    6  # inputs that are also read on the driver, to check a calibrated model and to show examples
)


@dataclass(frozen=True)
class BlockPlan:
    """How a target is divided into blocks.

    Attributes:
        blocks: the blocks in the order of the calibration.
        in_order: the blocks in the order of the data, for the predictions.
        source: what the blocks read from.
        rows: the number of inputs; None if they have not been counted.
        about: a key that identifies the data.
        probe: row numbers of inputs of the setup that the driver can read.
        kept: whether each input can be asked about: it has a name, and a file on this machine.

    """

    blocks: Sequence[Block]
    in_order: Sequence[Block]
    source: Any
    rows: int | None
    about: str
    probe: NDArray[np.intp]
    kept: bool = False


class RayRun:
    """A job on a Ray cluster, or on a local one that is started for it.

    Args:
        job: what to do.
        models: the open models, to try them on the driver.
        aside: the temporary folder that results are written to.

    """

    def __init__(self, job: Job, models: Models, aside: Path) -> None:
        self.setup, self._plan = _planned(job, models)
        self._aside = aside
        local = job.ray == "local"
        self._executor = RayExecutor(
            job.workers or (cores() if local else ALL_WORKERS),
            None if local else job.ray,
            num_gpus=1 if job.device.startswith("cuda") else 0,
            max_bad=job.max_bad,
        )
        self._record: dict[str, Any] = {}
        if job.classes or job.answers is not None:
            logits = as_logits_of(job, self.setup.model)(self.probe()[:1])
            row, groups = (
                (logits, None)
                if logits.ndim == 2
                else (logits[:, :, 0, 0], np.zeros(1, dtype=np.int64))
            )
            self.setup.check(Labelled(row, row.argmax(axis=1), groups=groups))

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to the cluster; a worker that dies is logged, and is not an error."""
        log = logging.getLogger("pseudocal")
        before = log.level
        log.setLevel(logging.ERROR)
        try:
            with self._executor.connected():
                yield
        finally:
            log.setLevel(before)

    def collect(self) -> Ticks:
        """Let the workers collect evidence from each block, and merge it."""
        job, plan = self.setup.job, self._plan
        work = BlockWork(
            job.method,
            self._sent_models(),
            sendable(plan.source),
            self.setup.batch_size,
            total=None if plan.rows is None else len(self.setup.order),
        )
        merging = Merging(work, plan.blocks, self._executor)
        for _ in merging.steps():
            yield Tick("calibrating", 1, len(plan.blocks), "blocks")
        self._record = merging.record
        return merging.evidence, merging.record | {"batch_size": self.setup.batch_size}

    def probe(self) -> Inputs:
        """Read a few inputs to try a model on."""
        return np.stack([self.setup.inputs.read(int(i)) for i in self._plan.probe])

    def predict(self, calibration: Calibration, evidence: Evidence) -> Ticks:
        """Let the workers write the predictions; the report is made from a sample of the inputs."""
        job, plan = self.setup.job, self._plan
        done: dict[str, Any] = {}
        if job.predict == "all":
            model = self._sent_models()[0]
            out = (job.out / PARTS).resolve()
            keep = (
                len(self.setup.order)
                if plan.kept and (job.keep_logits or job.answers is not None)
                else 0
            )
            settings: dict[str, Any] = {"classes": self.setup.classes, "keep": keep}
            work = PartWork(
                calibration, model, out, sendable(plan.source), self.setup.batch_size, **settings
            )
            parts = Parts(work, plan.in_order, self._executor, plan.about)
            for _ in parts.steps():
                yield Tick("predicting", 1, len(plan.in_order), "blocks")
            done = parts.record
            if keep:
                join_kept(out, self._aside, self.setup, as_logits_of(job, self.setup.model))
        summary = self._summary(calibration, evidence, predicted=bool(done))
        return Predicted(summary, self._about(evidence, done), PARTS if done else None)

    def _sent(self, name: str) -> Deferred:
        """Return a model that each worker opens for itself."""
        path = str(Path(name).resolve()) if Path(name).exists() else name
        settings = reading(self.setup.job) | {"classes": self.setup.classes}
        return model_file(path, device=self.setup.job.device, **settings)

    def _sent_models(self) -> tuple[Deferred, list[Any]]:
        """Return the model and the second opinions as the workers use them."""
        job, views = self.setup.job, self.setup.views
        sent = [
            self._sent(name) for name in (job.model, *opinion_names(job.second_opinion, job.data))
        ]
        first, *seconds = sent if views is None else views.split(*sent)
        return first, [
            as_opinion(one, each) for one, each in zip(self.setup.seconds, seconds, strict=True)
        ]

    def _about(self, evidence: Evidence, done: dict[str, Any]) -> AboutData:
        plan, used = self._plan, evidence.inputs
        skipped, unreadable = (
            tuple((self._record.get(key, {}) | done.get(key, {})).items())
            for key in ("skipped", "unreadable")
        )
        return AboutData(
            name=self.setup.job.data,
            inputs=plan.rows or used,
            used=used,
            preparation=f"{self.setup.preparation}; in {len(plan.blocks):,} blocks, figures from a sample",
            assumed=self.setup.assumed,
            unreadable=unreadable,
            skipped=skipped,
            blocks=f"{len(plan.blocks):,} {'files' if plan.rows is None else 'blocks of inputs'}",
        )

    def _summary(
        self, calibration: Calibration, evidence: Evidence, *, predicted: bool
    ) -> RowSummary | ImageSummary:
        """Summarise the predictions for the report.

        Sums over a sample and, for a segmenter, a few maps.
        """
        real = evidence.real.labelled
        if real.groups is None:
            rows = RowSummary(calibration, self.setup.classes)
            rows.add(real.logits, [f"input {i} of a sample" for i in range(len(real))])
            return rows
        images = ImageSummary(calibration, self.setup.classes)
        inputs = self.setup.inputs
        images.add_sample(real)
        predict = as_logits_of(self.setup.job, self.setup.model)
        for i in np.sort(self._plan.probe).tolist():
            images.show(
                np.asarray(predict(inputs.read(i)[None])[0]),
                inputs.name(i),
                image_file=inputs.image_file(i),
            )
        for name, row in read_images(self.setup.job.out / PARTS) if predicted else ():
            images.add_row(name, row, image_file=_image(inputs, name))
        return images


def _image(inputs: InputSet, name: str) -> Path | None:
    """Return the image file of an input, to show it."""
    if isinstance(inputs, ImageSet) and (path := inputs.root / name).is_file():
        return path
    return None


def _planned(job: Job, models: Models) -> tuple[Setup, BlockPlan]:
    """Find out what the data is: images, an array or a table, or files of rows."""
    if job.labels is not None:
        raise InputError(f"a cluster reads no labels, got {job.labels}", setting="labels")
    if job.table == "csv":
        raise InputError(
            "a cluster writes its predictions as parquet", setting="table", value='"parquet"'
        )
    if job.answers is not None and (
        "://" in job.data or job.predict == "seen" or files_of_rows(job.data)
    ):
        what = "files of rows, addresses and inputs that are not predicted"
        raise InputError(
            f"expected no answers about {what}, got {job.answers} for {job.data}",
            setting="answers",
        )
    model, *seconds = models
    if files := files_of_rows(job.data):
        return _shard_plan(job, models, files)
    data = remote_images(job, model) if "://" in job.data else open_data(job, model)
    if data.unmixed is not None:
        raise InputError(
            f"expected inputs that can be mixed on a cluster, got {job.data}: {data.unmixed}"
        )
    inputs = data.inputs
    if isinstance(inputs, ImageSet):
        inputs = replace(
            inputs, paths=[path.resolve() for path in inputs.paths], root=inputs.root.resolve()
        )
    order = input_order(job, len(inputs))
    batch_size = batch_size_for(job, model, inputs)
    views = views_of(job, models, inputs)
    opened: dict[str, Any] = {"views": views, "assumed": data.assumed}
    setup = Setup(job, model, tuple(seconds), inputs, data.preparation, order, batch_size, **opened)
    return setup, _input_plan(setup)


def _shard_plan(job: Job, models: Models, files: list[str]) -> tuple[Setup, BlockPlan]:
    model, *seconds = models
    if job.max_samples is not None:
        raise InputError(
            f"expected no max_samples with files of rows, which are read in full, got {job.max_samples}: "
            "set a tolerance instead"
        )
    absolute = [file if "://" in file else str(Path(file).resolve()) for file in files]
    columns = job.features or model.expects.columns
    blocks = shards(
        absolute, field=job.field, columns=columns, dtype=model.expects.dtype or "float32"
    )
    first_rows = _first_readable(blocks)
    inputs = ArraySet(first_rows, str(first_rows.dtype))
    rows = np.arange(len(first_rows))
    preparation = f"{len(blocks):,} files of rows, passed to the model as they are"
    views_of(job, models, inputs)  # which refuses a second opinion that takes other rows
    setup = Setup(
        job, model, tuple(seconds), inputs, preparation, rows, batch_size_for(job, model, inputs)
    )
    shuffled = [blocks[i] for i in block_order(job.method.seed, len(blocks))]
    return setup, BlockPlan(shuffled, blocks, None, None, job.data, rows)


def _first_readable(blocks: Sequence[Shard]) -> NDArray[Any]:
    """Read a few rows from the first file that can be read."""
    problem: Exception | None = None
    for block in blocks[:10]:
        try:
            return block.read()[:4]
        except (InputError, OSError) as error:
            problem = problem or error
    tried = len(blocks[:10])
    raise InputError(
        f"expected files of rows, got {tried} that cannot be read, the first: {problem}"
    ) from problem


def _input_plan(setup: Setup) -> BlockPlan:
    """Divide inputs into blocks with the same batches that one process would make."""
    order, size = setup.order, setup.batch_size
    mixed = row_blocks(order, size)
    plain = row_blocks(np.sort(order), size, PREDICTED_ROWS)
    blocks, in_order = ([InputBlock(b.batches, b.name) for b in rows] for rows in (mixed, plain))
    digest = hashlib.sha256(order.tobytes())
    for i in range(len(setup.inputs)):
        digest.update(setup.inputs.name(i).encode() + b"\0")
    probe = _readable(setup.inputs, order)
    kept = not isinstance(setup.inputs, RemoteImageSet)
    source = setup.read_by_models
    return BlockPlan(blocks, in_order, source, len(setup.inputs), digest.hexdigest(), probe, kept)


def _readable(inputs: InputSet, order: NDArray[np.intp]) -> NDArray[np.intp]:
    """Find a few inputs that can be read; the workers count those that cannot."""
    found: list[int] = []
    problem: Exception | None = None
    for i in order[:100].tolist():
        if len(found) == PROBED:
            break
        try:
            inputs.read(i)
        except MissingExtraError:
            raise
        except Exception as error:  # decoders may raise anything on a broken file
            problem = problem or error
        else:
            found.append(i)
    if not found:
        tried = len(order[:100])
        raise InputError(
            f"expected readable inputs, got {tried} that cannot be read, the first: {problem}"
        ) from problem
    return np.array(found)
