"""Collect a run on a Ray cluster: workers read, predict and mix blocks of the inputs.

A worker writes what it collects from a block to a file in OUT/parts, under a temporary name that is
then renamed: a file that exists is complete. The evidence is merged here in the order of the
blocks, so one worker, many workers and none give the same result. A run that was killed goes on
where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.collect import (
    PROBED,
    Data,
    Models,
    Plan,
    Progress,
    as_logits_of,
    as_opinion,
    batch_size_for,
    input_order,
    open_data,
    opinion_names,
    reading_options,
    record_of,
    recorded_settings,
    remote_images,
    sample_of_image,
    views_of,
    write_job_of,
)
from pseudocal.app.inputs import ArraySet, ImageSet, InputSet
from pseudocal.app.inputs.blocks import InputBlock, Shard, files_of_rows, shards
from pseudocal.app.job import Job, Tick
from pseudocal.app.models.files import model_file
from pseudocal.app.pixels import SHOWN_MAPS, PixelSample, small_maps
from pseudocal.app.run import (
    PARTS,
    PARTS_RECORD,
    LogitWriter,
    RunRecord,
    save_pixels,
    save_run,
)
from pseudocal.arrays import InputError, Labelled, cores
from pseudocal.batches import Batch, cut
from pseudocal.calibrators.blocks import Block, contents_of, row_blocks, sendable
from pseudocal.calibrators.evidence import Evidence
from pseudocal.calibrators.executors import (
    Failure,
    WorkOnBlock,
    block_order,
    method_for_blocks,
    unreadable_in,
)
from pseudocal.calibrators.pseudocal import PseudoCal
from pseudocal.calibrators.surrogate import Surrogate, ready
from pseudocal.distributed import Deferred, RayExecutor
from pseudocal.extras import MissingExtraError
from pseudocal.files import load_json, own_file, replacing, save_json, sweep
from pseudocal.predictors import Checked, as_predictor
from pseudocal.skipped import Skipped

ALL_WORKERS = 100_000  # more workers than any cluster has
PART = "part-{:06d}.npz"
PACKED = "evidence."  # how the names of packed evidence begin in a part
SECOND = "second_{}"


@dataclass(frozen=True)
class BlockPlan:
    """A plan, and how its inputs are divided into blocks.

    Attributes:
        plan: the run; its inputs are a few that were read here, if workers read files of rows.
        blocks: the blocks in the order of the calibration.
        source: what the blocks read from.
        shards: whether the blocks are files of rows, whose inputs have not been counted.
        probe: numbers of inputs that can be read here.

    """

    plan: Plan
    blocks: Sequence[Block]
    source: Any
    shards: bool
    probe: NDArray[np.intp]

    @property
    def key(self) -> str:
        """What identifies a run: parts with another key belong to another run."""
        job = self.plan.job
        settings = (
            asdict(job.method) | recorded_settings(job) | {"batch_size": self.plan.batch_size}
        )
        names = [block.name for block in self.blocks]
        rows = [[b.rows.tolist() for b in getattr(block, "batches", ())] for block in self.blocks]
        text = json.dumps([settings, reading_options(job), names, rows], default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def collect_on_ray(job: Job, models: Models, folder: Path) -> Progress:
    """Let the workers of a cluster collect a run, and write it into `folder`.

    Args:
        job: the settings.
        models: the open models, to try them here.
        folder: where to write the run.

    """
    started = time.monotonic()
    blocks = plan_blocks(job, models)
    plan = blocks.plan
    yield from plan.notes
    _check_first(blocks)
    local = job.ray == "local"
    executor = RayExecutor(
        job.workers or (cores() if local else ALL_WORKERS),
        None if local else job.ray,
        num_gpus=1 if job.device.startswith("cuda") else 0,
        max_bad=job.max_bad,
    )
    parts = Parts((job.out / PARTS).resolve(), blocks, executor)
    with _quiet(), executor.connected():
        for _ in parts.collect():
            yield Tick("calibrating", 1, len(blocks.blocks), "blocks")
        if job.predict == "all":
            for _ in parts.predict():
                yield Tick("predicting", 1, len(blocks.blocks), "blocks")
    record = _join(parts, blocks, folder, time.monotonic() - started)
    write_job_of(plan, folder)
    probe = np.stack([plan.inputs.read(int(i)) for i in blocks.probe[:PROBED]])
    return save_run(folder, record, parts.evidence, probe)


@contextmanager
def _quiet() -> Iterator[None]:
    """A worker that dies is logged by Ray, and is not an error."""
    log = logging.getLogger("pseudocal")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


# ------------------------------------------------------------------------------ on a worker


@dataclass(frozen=True)
class CollectWork:
    """What every worker does: collect its blocks, and write each to a file.

    Attributes:
        method: the settings of the calibration.
        models: the model to calibrate, and the second models.
        source: what the blocks read from.
        batch_size: inputs per forward pass.
        out: the folder of the files, which every worker can write to.
        mixed: whether mixup samples are made and predicted.
        total: the number of inputs of all blocks; None if they have not been counted.

    """

    method: PseudoCal
    models: tuple[Any, list[Any]]
    source: Any
    batch_size: int
    out: Path
    total: int | None
    mixed: bool = True

    def start(self) -> WorkOnBlock:
        """On a worker, open the models once; then collect one block after another."""
        first, seconds = self.models
        predict = Checked(as_predictor(first), doubt=False)
        return partial(self._collect, predict, [ready(each) for each in seconds])

    def _collect(
        self, predict: Checked, seconds: list[Any], _: int, item: tuple[int, Block]
    ) -> dict[str, str]:
        """Collect a block, write its file, and return the inputs that could not be read."""
        number, block = item
        contents = contents_of(block, self.source)
        part = self._mixed(predict, seconds, contents, number)
        if not self.mixed:
            part = self._predicted(predict, seconds, contents)
        with replacing(self.out / PART.format(number)) as aside:
            np.savez(aside, **part)
        return contents.unreadable

    def _mixed(
        self, predict: Checked, seconds: list[Any], contents: Any, number: int
    ) -> dict[str, Any]:
        if not self.mixed:
            return {}
        evidence = self.method.empty_evidence(part=number)
        rows = []
        logits = []
        for step in self.method.steps(
            predict,
            contents.inputs,
            second_opinion=seconds,
            batch_size=self.batch_size,
            part=None if contents.numbered else number,
            total=self.total,
        ):
            evidence.add(step)
            if step.epoch > 0:  # which mixes the same inputs again
                continue
            rows.append(step.rows)
            if step.logits is not None:
                logits.append([step.logits, *step.second_logits])
        part = self._columns(predict, contents, rows, logits)
        return part | {PACKED + name: array for name, array in evidence.pack().items()}

    def _predicted(self, predict: Checked, seconds: list[Any], contents: Any) -> dict[str, Any]:
        models = [predict, *(each for each in seconds if not isinstance(each, Surrogate))]
        rows = []
        logits = []
        for batch in _batches_of(contents, self.batch_size):
            outputs = [each(batch.inputs) for each in models]
            rows.append(batch.rows)
            if outputs[0].ndim == 2:
                logits.append(outputs)
        return self._columns(predict, contents, rows, logits)

    def _columns(
        self, predict: Checked, contents: Any, rows: list[Any], logits: list[list[Any]]
    ) -> dict[str, Any]:
        """The logits of a block by input, or some pixels of each of its images."""
        numbers = np.concatenate(rows) if rows else np.empty(0, dtype=np.intp)
        if logits:
            first, *seconds = (np.concatenate(each) for each in zip(*logits, strict=True))
            named = {SECOND.format(i): each for i, each in enumerate(seconds)}
            return {"rows": numbers, "logits": first, **named}
        if not rows:
            return {"rows": numbers}
        if self.total is None:
            raise InputError("a segmentation model needs images, not files of rows")
        samples = []
        kept = []
        for batch in _batches_of(contents, self.batch_size):
            for i, image in zip(batch.rows.tolist(), predict(batch.inputs), strict=True):
                sample = sample_of_image(self.source, i, np.asarray(image), self.total)
                samples.append(sample)
                kept.append(i)
        return {"rows": np.array(kept), **PixelSample.concatenate(samples).arrays()}


def _batches_of(contents: Any, batch_size: int) -> Iterator[Batch]:
    if contents.numbered:
        return iter(contents.inputs)
    x = contents.inputs
    return (Batch(0, rows, x[rows]) for rows in cut(np.arange(len(x)), batch_size))


# ------------------------------------------------------------------------------ on the driver


class Parts:
    """The files that workers have written and those that are missing.

    Args:
        out: the folder of the files.
        blocks: the run and its blocks.
        executor: runs the work.

    """

    def __init__(self, out: Path, blocks: BlockPlan, executor: RayExecutor) -> None:
        plan = blocks.plan
        method = plan.job.method
        if blocks.shards and method.epochs is None:
            method = replace(method, epochs=1)
        self.out = out
        self.evidence: Evidence = plan.job.method.empty_evidence()
        self.merged = 0  # blocks whose evidence counts
        self.skipped = Skipped(len(blocks.blocks), executor.max_bad, "blocks to fail")
        self.unreadable = unreadable_in(blocks.blocks, executor.max_bad)
        self._blocks = blocks
        self._executor = executor
        self._work = CollectWork(
            method_for_blocks(method, len(blocks.blocks)),
            _sent_models(plan),
            sendable(blocks.source),
            plan.batch_size,
            out,
            None if blocks.shards else len(plan.order),
        )
        self._prepare()

    def _prepare(self) -> None:
        """Remove the parts of another run, and what a killed worker left."""
        record = own_file(self.out, PARTS_RECORD)
        known = load_json(record, "the record of a run") if record.exists() else None
        if not isinstance(known, dict) or known.get("run") != self._blocks.key:
            for path in self.out.glob(PART.format(0).replace("000000", "*")):
                path.unlink()
        sweep(self.out)
        content = {"format": "pseudocal-parts", "format_version": 1, "run": self._blocks.key}
        save_json(record, content)

    def path(self, number: int) -> Path:
        """The file of a block."""
        return self.out / PART.format(number)

    def collect(self) -> Iterator[int]:
        """Collect the blocks that are missing, and merge all in order until the fit converges."""
        tolerance = self._blocks.plan.job.method.tolerance
        for number in self._finished(self._work):
            if self.path(number).exists():  # a block that failed has no file
                self.evidence.merge(self._packed(number))
            self.merged = number + 1
            yield number
            if self.evidence.converged(tolerance):
                return

    def predict(self) -> Iterator[int]:
        """Predict the blocks that are left after an early stop."""
        yield from self._finished(replace(self._work, mixed=False), start=self.merged)

    def _finished(self, work: CollectWork, start: int = 0) -> Iterator[int]:
        """The numbers of blocks whose files are there, in order; missing ones are worked on."""
        numbers = range(start, len(self._blocks.blocks))
        missing = [number for number in numbers if not self.path(number).exists()]
        todo = [(number, self._blocks.blocks[number]) for number in missing]
        with closing(self._executor.map(work.start, todo)) as results:
            for number in numbers:
                if number in missing:
                    result = next(results)
                    if isinstance(result, Failure):
                        self.skipped.add(self._blocks.blocks[number].name, result.reason)
                    else:
                        self.unreadable.update(result)
                yield number

    def _packed(self, number: int) -> dict[str, NDArray[Any]]:
        with np.load(self.path(number), allow_pickle=False) as part:
            return {
                name.removeprefix(PACKED): part[name]
                for name in part.files
                if name.startswith(PACKED)
            }

    def columns(self, number: int) -> dict[str, NDArray[Any]]:
        """What a block consists of beside its evidence."""
        with np.load(self.path(number), allow_pickle=False) as part:
            return {name: part[name] for name in part.files if not name.startswith(PACKED)}

    @property
    def there(self) -> list[int]:
        """The numbers of the blocks that have files."""
        return [i for i in range(len(self._blocks.blocks)) if self.path(i).exists()]


def _sent_models(plan: Plan) -> tuple[Any, list[Any]]:
    """The model and the second models as the workers use them."""
    job = plan.job
    names = (job.model, *opinion_names(job.second_opinion, job.data))
    sent: list[Any] = [_sent(name, plan) for name in names]
    if plan.views is not None:
        sent = plan.views.split(*sent)
    first, *seconds = sent
    opinions = [
        as_opinion(model, each) for model, each in zip(plan.second_models, seconds, strict=True)
    ]
    return first, opinions


def _sent(name: str, plan: Plan) -> Deferred:
    """A model that each worker opens for itself."""
    path = str(Path(name).resolve()) if Path(name).exists() else name
    settings = reading_options(plan.job) | {"classes": plan.classes}
    return model_file(path, device=plan.job.device, **settings)


def _join(parts: Parts, blocks: BlockPlan, folder: Path, duration: float) -> RunRecord:
    """Write the logits of all blocks into one run, and return its record."""
    plan = blocks.plan
    counts = {number: len(parts.columns(number)["rows"]) for number in parts.there}
    if not any(counts.values()):
        raise InputError("no input could be predicted")
    if blocks.shards:
        order = sorted(counts, key=lambda number: blocks.blocks[number].name)
        starts = dict(zip(order, np.cumsum([0, *(counts[i] for i in order)]), strict=False))
        total = sum(counts.values())
    else:
        starts = dict.fromkeys(counts, 0)
        total = len(plan.inputs)
    writer = LogitWriter(folder, total)
    samples = []
    sampled = []
    second_models = 0
    for number in counts:
        columns = parts.columns(number)
        rows = columns.pop("rows") + starts[number]
        if "at" in columns:
            samples.append(PixelSample(**columns))
            sampled.append(rows)
            writer.mark(rows)
        elif len(rows):
            second_models = len(columns) - 1
            others = (columns[SECOND.format(i)] for i in range(second_models))
            writer.write(rows, columns["logits"], *others)
    rows = writer.finish()
    if samples:
        sample = PixelSample.concatenate(samples).sorted_by(np.concatenate(sampled))
        predict = as_logits_of(plan.job, plan.model)
        first = (np.asarray(predict(plan.inputs.read(int(i))[None])[0]) for i in rows[:SHOWN_MAPS])
        save_pixels(folder, sample, [small_maps(image, None) for image in first])
    kind = "files" if blocks.shards else "blocks of inputs"
    count = f"{len(blocks.blocks):,} {kind}"
    if blocks.shards:
        names = [f"{blocks.blocks[n].name}:{i}" for n in order for i in range(counts[n])]
        record = replace(record_of(plan, np.arange(0), duration), names=tuple(names))
    else:
        record = record_of(plan, rows, duration)
    about = replace(
        record.data,
        inputs=total,
        used=len(rows),
        preparation=f"{plan.data.preparation}; in {count}",
        unreadable=tuple(parts.unreadable.why.items()),
        skipped=tuple(parts.skipped.why.items()),
        blocks=count,
    )
    settings = {
        "batch_size": plan.batch_size,
        "blocks": len(blocks.blocks),
        "blocks_used": parts.merged - len(parts.skipped.why),
        **recorded_settings(plan.job),
    }
    probe = () if blocks.shards else tuple(np.searchsorted(rows, blocks.probe[:PROBED]).tolist())
    return replace(record, data=about, settings=settings, second_models=second_models, probe=probe)


# ------------------------------------------------------------------------------ the plan


def plan_blocks(job: Job, models: Models) -> BlockPlan:
    """Open the data: images, an array or a table, or files of rows."""
    if job.ground_truth is not None:
        raise InputError(
            "a cluster takes no ground truth: evaluate its logits afterwards",
            setting="ground_truth",
        )
    files = files_of_rows(job.data)
    if files:
        return _plan_shards(job, models, files)
    model, *seconds = models
    data = remote_images(job, model) if "://" in job.data else open_data(job, model)
    if data.not_mixed is not None:
        raise InputError(
            f"{job.data} cannot be mixed, so a cluster has nothing to do", setting="ray"
        )
    inputs = data.inputs
    if isinstance(inputs, ImageSet):
        paths = [path.resolve() for path in inputs.paths]
        inputs = replace(inputs, paths=paths, root=inputs.root.resolve())
        data = replace(data, inputs=inputs)
    order = input_order(job, len(inputs))
    size = batch_size_for(job, model, inputs)
    views = views_of(job, models, inputs)
    plan = Plan(job, model, tuple(seconds), data, order, size, views=views)
    rows = row_blocks(order, size)
    blocks = [InputBlock(block.batches, block.name) for block in rows]
    return BlockPlan(plan, blocks, plan.read_by_models, False, _readable(inputs, order))


def _plan_shards(job: Job, models: Models, files: list[str]) -> BlockPlan:
    if job.max_samples is not None:
        raise InputError(
            "files of rows are read in full: set a tolerance to use fewer", setting="max_samples"
        )
    if job.labels is not None:
        raise InputError("files of rows cannot be labelled", setting="labels")
    model, *seconds = models
    absolute = [file if "://" in file else str(Path(file).resolve()) for file in files]
    columns = job.features or model.expects.columns
    dtype = model.expects.dtype or "float32"
    found = shards(absolute, field=job.field, columns=columns, dtype=dtype)
    few = _first_rows(found)
    inputs = ArraySet(few, str(few.dtype))
    views_of(job, models, inputs)  # which refuses a second model that takes other rows
    data = Data(inputs, f"{len(found):,} files of rows, unchanged")
    rows = np.arange(len(few))
    size = batch_size_for(job, model, inputs)
    plan = Plan(job, model, tuple(seconds), data, rows, size)
    shuffled = [found[i] for i in block_order(job.method.seed, len(found))]
    return BlockPlan(plan, shuffled, None, True, rows)


def _first_rows(found: Sequence[Shard]) -> NDArray[Any]:
    """A few rows from the first file that can be read."""
    problem: Exception | None = None
    for shard in found[:10]:
        try:
            return shard.read()[:4]
        except (InputError, OSError) as error:
            problem = problem or error
    tried = len(found[:10])
    raise InputError(
        f"none of the first {tried} files can be read, the first: {problem}"
    ) from problem


def _readable(inputs: InputSet, order: NDArray[np.intp]) -> NDArray[np.intp]:
    """A few inputs that can be read here; the workers count those that cannot."""
    found = list[int]()
    problem: Exception | None = None
    for i in order[:100].tolist():
        if len(found) == SHOWN_MAPS:
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
            f"none of the first {tried} inputs can be read, the first: {problem}"
        ) from problem
    return np.sort(found)


def _check_first(blocks: BlockPlan) -> None:
    """Check the settings against the model's outputs for one input, before workers start."""
    plan = blocks.plan
    if not plan.job.classes and plan.job.labels is None:
        return
    first = plan.inputs.read(int(blocks.probe[0]))[None]
    logits = as_logits_of(plan.job, plan.model)(first)
    groups = None
    if logits.ndim == 4:
        logits = logits[:, :, 0, 0]
        groups = np.zeros(1, dtype=np.int64)
    plan.check(Labelled(logits, logits.argmax(axis=1), groups=groups))
