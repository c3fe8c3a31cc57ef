"""Collect a run on a Ray cluster: workers read, predict and mix blocks of the inputs.

A worker writes what it collects from a block to a file in OUT/parts, under a temporary name that is
then renamed: a file that exists is complete. The evidence is merged here in the order of the
blocks, so one worker, many workers and none give the same result. A run that was killed goes on
where it stopped. OUT/parts may come from somebody else: a part that no worker could have written is
collected again. When the run is published, the folder is removed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
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
    about_data,
    as_logits_of,
    batch_size_for,
    check_seconds,
    finish_run,
    logits_of_step,
    method_models,
    plan_run,
    reading_options,
    recorded_settings,
    with_logits,
)
from pseudocal.app.inputs.blocks import InputBlock, Shard, files_of_rows, shards
from pseudocal.app.inputs.sets import ArraySet
from pseudocal.app.job import Job, Tick
from pseudocal.app.models.files import model_file
from pseudocal.app.pixels import SHOWN_MAPS, PixelSample, sample_image, small_maps
from pseudocal.app.records import convert
from pseudocal.app.run import PARTS, PARTS_RECORD, LogitWriter, Run, save_pixels
from pseudocal.arrays import InputError, Labelled, Logits, Maps, check_rows, cores
from pseudocal.batches import Batch, cut
from pseudocal.calibrators.blocks import Block, Contents, contents_of, row_blocks, sendable
from pseudocal.calibrators.evidence import Evidence, Packed, check_packed
from pseudocal.calibrators.executors import (
    Executor,
    Failure,
    WorkOnBlock,
    block_order,
    method_for_blocks,
    unreadable_in,
)
from pseudocal.calibrators.pseudocal import PseudoCal
from pseudocal.calibrators.surrogate import ready
from pseudocal.distributed import RayExecutor
from pseudocal.extras import MissingExtraError
from pseudocal.files import (
    OutputError,
    left_aside,
    load_json,
    own_file,
    replacing,
    save_json,
    sweep,
)
from pseudocal.predictors import Checked, as_predictor, models_in
from pseudocal.skipped import Skipped

ALL_WORKERS = 100_000  # more workers than any cluster has
PART = "part-{:06d}.npz"
PACKED = "evidence."  # how the names of packed evidence begin in a part
SECOND = "second_{}"
UNREADABLE = "unreadable"  # in a part: its inputs that could not be read, and why, as JSON

# rows, and their logits by model; empty if the outputs are maps of pixels
Outputs = tuple[NDArray[np.intp], Sequence[Logits]]


@dataclass(frozen=True)
class BlockPlan:
    """A plan, and how its inputs are divided into blocks."""

    plan: Plan  # its inputs are a few that were read here, if workers read files of rows
    blocks: Sequence[Block]  # in the order of the calibration
    source: Any  # what the blocks read from; None for files of rows, whose inputs are not counted
    probe: NDArray[np.intp]  # numbers of inputs that can be read here

    @property
    def of_files(self) -> bool:
        """Whether the blocks are files of rows."""
        return self.source is None

    @property
    def key(self) -> str:
        """What identifies a run: parts with another key belong to another run."""
        job = self.plan.job
        settings = (
            asdict(job.method) | recorded_settings(job) | {"batch_size": self.plan.batch_size}
        )
        names = [block.name for block in self.blocks]
        rows = [[b.rows.tolist() for b in getattr(block, "batches", ())] for block in self.blocks]
        models = [_stamps(name) for name in (job.model, *settings["second_opinion"])]
        text = json.dumps([settings, reading_options(job), models, names, rows], default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def first_logits(self) -> Logits | Maps:
        """What the model says here of one input."""
        first = self.plan.inputs.read(int(self.probe[0]))[None]
        return as_logits_of(self.plan.job, self.plan.model)(first)


def _stamps(model: str) -> list[tuple[str, int, int]]:
    """The sizes and times of the files of a model, which tell whether it was replaced."""
    path = Path(model)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = [(file, file.stat()) for file in files if file.is_file()]
    return [(str(file), status.st_size, status.st_mtime_ns) for file, status in found]


def collect_on_ray(job: Job, models: Models, folder: Path) -> Progress:
    """Let the workers of a cluster collect a run; the models here are to try them first."""
    started = time.monotonic()
    block_plan = plan_blocks(job, models)
    yield from block_plan.plan.notes
    _check_first(block_plan)
    local = job.ray == "local"
    executor = RayExecutor(
        job.workers or (cores() if local else ALL_WORKERS),
        None if local else job.ray,
        num_gpus=1 if job.device.startswith("cuda") else 0,
        max_bad=job.max_bad,
    )
    parts = Parts((job.out / PARTS).resolve(), block_plan, executor)
    parts.prepare()
    with _quiet(), executor.connected():
        for _ in parts.collect():
            yield Tick("calibrating", 1, len(block_plan.blocks), "blocks")
        if job.predict == "all":
            for _ in parts.predict():
                yield Tick("predicting", 1, len(block_plan.blocks), "blocks")
    return _join(parts, block_plan, folder, started)


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
    """What every worker does: collect its blocks, and write each to a file."""

    method: PseudoCal  # the settings of the calibration
    models: list[Any]  # the model to calibrate, and any second models
    source: Any  # what the blocks read from
    batch_size: int  # inputs per forward pass
    out: Path  # the folder of the files, which every worker can write to
    total: int | None  # the number of inputs of all blocks; None if they have not been counted
    mixed: bool = True  # whether mixup samples are made and predicted

    def start(self) -> WorkOnBlock:
        """On a worker, open the models once; then collect one block after another."""
        first, *seconds = self.models
        predict = Checked(as_predictor(first), doubt=False)
        return partial(self._collect, predict, [ready(each) for each in seconds])

    def _collect(
        self, predict: Checked, seconds: list[Any], _: int, item: tuple[int, Block]
    ) -> None:
        """Collect a block, and write its file."""
        number, block = item
        contents = contents_of(block, self.source)
        evidence = self.method.empty_evidence(part=number)
        found = list[Outputs]()
        if self.mixed:
            for step in self.method.steps(
                predict,
                contents.inputs,
                second_opinion=seconds,
                batch_size=self.batch_size,
                part=None if contents.numbered else number,
                total=self.total,
            ):
                evidence.add(step)
                if step.epoch == 0:  # later epochs mix the same inputs again
                    found.append((step.rows, logits_of_step(step)))
        else:
            for batch in _batches_of(contents, self.batch_size):
                outputs = [each(batch.inputs) for each in with_logits([predict, *seconds])]
                found.append((batch.rows, outputs if outputs[0].ndim == 2 else []))
        part = self._columns(predict, contents, found)
        if self.mixed:
            part |= {PACKED + name: array for name, array in evidence.pack().items()}
        part[UNREADABLE] = np.array(json.dumps(contents.unreadable))
        with replacing(self.out / PART.format(number)) as aside:
            np.savez(aside, **part)

    def _columns(
        self, predict: Checked, contents: Contents, found: list[Outputs]
    ) -> dict[str, Any]:
        """The logits of a block by input, or some pixels of each of its images."""
        if not found:
            return {"rows": np.empty(0, dtype=np.intp)}
        rows, outputs = zip(*found, strict=True)
        if outputs[0]:
            first, *seconds = (np.concatenate(each) for each in zip(*outputs, strict=True))
            named = {SECOND.format(i): each for i, each in enumerate(seconds)}
            return {"rows": np.concatenate(rows), "logits": first, **named}
        if self.total is None:
            raise InputError("a segmentation model needs images, not files of rows")
        batches = list(_batches_of(contents, self.batch_size))
        samples = [
            sample_image(self.source, i, image, self.total)
            for batch in batches
            for i, image in zip(batch.rows.tolist(), predict(batch.inputs), strict=True)
        ]
        numbers = np.concatenate([batch.rows for batch in batches])
        return {"rows": numbers, **PixelSample.concatenate(samples).arrays()}


def _batches_of(contents: Contents, batch_size: int) -> Iterator[Batch]:
    if contents.numbered:
        return iter(contents.inputs)
    x = contents.inputs
    return (Batch(0, rows, x[rows]) for rows in cut(np.arange(len(x)), batch_size))


# ------------------------------------------------------------------------------ on the driver


class Parts:
    """The files that workers have written and those that are missing."""

    def __init__(self, out: Path, block_plan: BlockPlan, executor: Executor) -> None:
        plan = block_plan.plan
        method = plan.job.method
        if block_plan.of_files and method.epochs is None:
            method = replace(method, epochs=1)
        self.out = out
        self.evidence: Evidence = plan.job.method.empty_evidence()
        self.merged = 0  # blocks whose evidence counts
        self.skipped = Skipped(len(block_plan.blocks), executor.max_bad, "blocks to fail")
        self.unreadable = unreadable_in(block_plan.blocks, executor.max_bad)
        self._block_plan = block_plan
        self._executor = executor
        self._work = CollectWork(
            method_for_blocks(method, len(block_plan.blocks)),
            method_models(plan, _sent(plan)),
            sendable(block_plan.source),
            plan.batch_size,
            out,
            None if block_plan.of_files else len(plan.order),
        )

    def prepare(self) -> None:
        """Remove the parts of another run, damaged ones, and what a killed worker left."""
        record = own_file(self.out, PARTS_RECORD)
        self._check_folder(record)
        known = load_json(record, "the record of a run") if record.exists() else None
        if not isinstance(known, dict) or known.get("run") != self._block_plan.key:
            for path in self.out.glob("part-*.npz"):
                path.unlink()
        sweep(self.out)
        content = {"format": "pseudocal-parts", "format_version": 1, "run": self._block_plan.key}
        save_json(record, content)
        there = self.there
        if not there:
            return
        first = self._block_plan.first_logits()
        for number in there:
            try:
                self._check(number, first)
            except Exception:  # a damaged archive may raise anything
                self.path(number).unlink()

    def _check_folder(self, record: Path) -> None:
        """Refuse a folder of somebody else: it is removed in the end."""
        if not self.out.exists():
            return
        found = set(self.out.iterdir()) - set(left_aside(self.out))
        for path in sorted(found):
            if not path.is_file():
                raise OutputError(f"{path} is not a file, and belongs to no run: move it away")
        if found and record not in found:
            raise OutputError(f"{self.out} is not a folder of pseudocal: move it away")

    def _check(self, number: int, first: Logits | Maps) -> None:
        """Refuse a part that no worker could have written, if the model says `first` of an input."""
        classes = first.shape[1]
        self._unreadable(number)
        columns = self.columns(number)
        packed = self._packed(number)
        rows = columns["rows"]
        block = self._block_plan.blocks[number]
        expected = np.arange(rows.size)
        if isinstance(block, InputBlock):
            expected = np.concatenate([batch.rows for batch in block.batches])
        whole = rows.dtype.kind == "i" and rows.ndim == 1 and rows.size > 0
        if not whole or len(np.unique(rows)) < len(rows) or not np.isin(rows, expected).all():
            raise InputError("the rows of a part are not those of its block")
        of_pixels = first.ndim == 4
        logits = {name: column for name, column in columns.items() if name != "rows"}
        if of_pixels:
            sample = PixelSample(**logits)
            sample.check("a part", len(rows))
            logits = {"logits": sample.logits}
            rows = sample.at
        else:
            kept = len(with_logits(self._work.models))
            if set(logits) != {"logits", *(SECOND.format(i) for i in range(kept - 1))}:
                raise InputError(f"a part has the arrays {', '.join(columns)}")
        for each in logits.values():
            if each.dtype.kind != "f" or each.shape != (len(rows), classes):
                raise InputError(f"a part has logits of {each.dtype} and shape {each.shape}")
            check_rows(each)
        if packed:
            check_packed(packed, classes, of_pixels=of_pixels)

    def path(self, number: int) -> Path:
        """The file of a block."""
        return self.out / PART.format(number)

    def collect(self) -> Iterator[int]:
        """Collect the blocks that are missing, and merge all in order until the fit converges."""
        tolerance = self._block_plan.plan.job.method.tolerance
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
        blocks = self._block_plan.blocks
        numbers = range(start, len(blocks))
        todo = {n: blocks[n] for n in numbers if not self._is_there(n, work)}
        with closing(self._executor.map(work.start, list(todo.items()))) as results:
            for number in numbers:
                if number in todo:
                    result = next(results)
                    if isinstance(result, Failure):
                        self.skipped.add(todo[number].name, result.reason)
                if self.path(number).exists():
                    self.unreadable.update(self._unreadable(number))
                yield number

    def _arrays(self, number: int, wanted: Callable[[str], bool]) -> dict[str, NDArray[Any]]:
        """The arrays of a block's file that have the wanted names."""
        with self.path(number).open("rb") as file, np.load(file, allow_pickle=False) as part:
            return {name: part[name] for name in part.files if wanted(name)}

    def _unreadable(self, number: int) -> dict[str, str]:
        found = self._arrays(number, lambda name: name == UNREADABLE)
        known = json.loads(str(found[UNREADABLE]))
        return convert(known, dict[str, str], "the unreadable inputs of a part")

    def _is_there(self, number: int, work: CollectWork) -> bool:
        """Whether a block has a file, with evidence if that is needed."""
        if not self.path(number).exists():
            return False
        if not work.mixed:
            return True
        with self.path(number).open("rb") as file, np.load(file, allow_pickle=False) as part:
            return any(name.startswith(PACKED) for name in part.files)

    def _packed(self, number: int) -> Packed:
        found = self._arrays(number, lambda name: name.startswith(PACKED))
        return {name.removeprefix(PACKED): array for name, array in found.items()}

    def columns(self, number: int) -> dict[str, NDArray[Any]]:
        """The predictions of a block."""
        return self._arrays(number, lambda name: not name.startswith(PACKED) and name != UNREADABLE)

    @property
    def there(self) -> list[int]:
        """The numbers of the blocks that have files."""
        return [i for i in range(len(self._block_plan.blocks)) if self.path(i).exists()]


def _sent(plan: Plan) -> list[Any]:
    """The models, each to be opened by the workers themselves."""
    job = plan.job
    settings = reading_options(job) | {"classes": plan.classes, "device": job.device}
    names = (job.model, *models_in(job.second_opinion))
    paths = [str(Path(name).resolve()) if Path(name).exists() else name for name in names]
    return [model_file(path, **settings) for path in paths]


def _join(parts: Parts, block_plan: BlockPlan, folder: Path, started: float) -> Run:
    """Write the logits of all blocks into one run."""
    plan = block_plan.plan
    there = parts.there
    starts = dict.fromkeys(there, 0)
    total = len(plan.inputs)
    names = None
    if block_plan.of_files:
        starts, names = _rows_of_files(parts, block_plan.blocks)
        total = len(names)
    writer = LogitWriter(folder, total)
    samples = []
    sampled = []
    for number in there:
        columns = parts.columns(number)
        rows = columns.pop("rows") + starts[number]
        if "at" in columns:
            samples.append(PixelSample(**columns))
            sampled.append(rows)
            writer.write(rows)
        elif len(rows):
            others = (columns[SECOND.format(i)] for i in range(len(columns) - 1))
            writer.write(rows, columns["logits"], *others)
    rows = writer.finish()
    if samples:
        sample = PixelSample.concatenate(samples).sorted_by(np.concatenate(sampled))
        save_pixels(folder, sample, list(_shown_maps(plan, rows)))
    blocks = len(block_plan.blocks)
    count = f"{blocks:,} {'files' if block_plan.of_files else 'blocks of inputs'}"
    data = replace(
        about_data(plan, len(rows)),
        inputs=total,
        preparation=f"{plan.data.preparation}; in {count}",
        unreadable=tuple(parts.unreadable.why.items()),
        skipped=tuple(parts.skipped.why.items()),
        blocks=count,
    )
    probe = block_plan.probe[:PROBED]
    return finish_run(
        plan,
        folder,
        parts.evidence,
        rows,
        data,
        started=started,
        probe_rows=[] if block_plan.of_files else probe.tolist(),
        probe_inputs=np.stack([plan.inputs.read(int(i)) for i in probe]),
        names=names,
        settings={"blocks": blocks, "blocks_used": parts.merged - len(parts.skipped.why)},
    )


def _shown_maps(plan: Plan, rows: NDArray[np.intp]) -> Iterator[tuple[Maps, NDArray[Any] | None]]:
    """The maps that the report shows: the first images, predicted here."""
    predict = as_logits_of(plan.job, plan.model)
    for i in rows[:SHOWN_MAPS].tolist():
        yield small_maps(np.asarray(predict(plan.inputs.read(i)[None])[0]), None)


def _rows_of_files(parts: Parts, blocks: Sequence[Block]) -> tuple[dict[int, int], list[str]]:
    """The first row of each file in the run, and the names of all rows, in the order of names."""
    starts = {}
    names = list[str]()
    for number in sorted(parts.there, key=lambda number: blocks[number].name):
        starts[number] = len(names)
        count = len(parts.columns(number)["rows"])
        names += (f"{blocks[number].name}:{i}" for i in range(count))
    return starts, names


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
    plan = plan_run(job, models)
    rows = row_blocks(plan.order, plan.batch_size)
    blocks = [InputBlock(block.batches, block.name) for block in rows]
    readable = _readable(plan.inputs.read, plan.order[:100].tolist(), SHOWN_MAPS, "inputs")
    return BlockPlan(plan, blocks, plan.read_by_models, np.sort(list(readable)))


def _plan_shards(job: Job, models: Models, files: list[str]) -> BlockPlan:
    if job.max_samples is not None:
        raise InputError(
            "files of rows are read in full: set a tolerance to use fewer", setting="max_samples"
        )
    if job.labels is not None:
        raise InputError("files of rows cannot be labelled", setting="labels")
    model = models[0]
    absolute = [file if "://" in file else str(Path(file).resolve()) for file in files]
    columns = job.features or model.expects.columns
    dtype = model.expects.dtype or "float32"
    found = shards(absolute, field=job.field, columns=columns, dtype=dtype)
    few = next(iter(_readable(Shard.read, found[:10], 1, "files").values()))[:4]
    inputs = ArraySet(few, str(few.dtype))
    check_seconds(job, models, inputs)
    data = Data(inputs, f"{len(found):,} files of rows, unchanged")
    rows = np.arange(len(few))
    size = batch_size_for(job, model, inputs)
    plan = Plan(job, models, data, rows, size)
    shuffled = [found[i] for i in block_order(job.method.seed, len(found))]
    return BlockPlan(plan, shuffled, None, rows)


def _readable(
    read: Callable[[Any], NDArray[Any]], tried: Sequence[Any], enough: int, what: str
) -> dict[Any, NDArray[Any]]:
    """A few things that can be read here; the workers count those that cannot."""
    found = dict[Any, NDArray[Any]]()
    problem: Exception | None = None
    for each in tried:
        if len(found) == enough:
            break
        try:
            found[each] = read(each)
        except MissingExtraError:
            raise
        except Exception as error:  # decoders may raise anything on a broken file
            problem = problem or error
    if not found:
        raise InputError(
            f"none of the first {len(tried)} {what} can be read, the first: {problem}"
        ) from problem
    return found


def _check_first(block_plan: BlockPlan) -> None:
    """Check the settings against the model's outputs for one input, before workers start."""
    job = block_plan.plan.job
    if not job.classes and job.labels is None:
        return
    logits = block_plan.first_logits()
    groups = None
    if logits.ndim == 4:
        logits = logits[:, :, 0, 0]
        groups = np.zeros(1, dtype=np.int64)
    block_plan.plan.check(Labelled(logits, logits.argmax(axis=1), groups=groups))
