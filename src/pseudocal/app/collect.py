"""Collect a run in this process: predict the inputs batch by batch, and write what the models say.

`plan_run` opens the data and checks the models against it before the first forward pass. `collect`
runs the method over them and writes a run (`run.py`). Collecting is the only step that runs a
model; `collect_ray.py` does it on a cluster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.blocks import SHARD_SUFFIXES, files_at, refuse_shards
from pseudocal.app.inputs.ground_truth import Masks, check_range, open_masks, read_ground_truth
from pseudocal.app.inputs.images import IMAGE_SUFFIXES
from pseudocal.app.inputs.preprocessing import (
    Preprocessing,
    preprocessing_for,
    preprocessing_of_second,
)
from pseudocal.app.inputs.preprocessing_check import check_preprocessing
from pseudocal.app.inputs.sets import (
    USUAL_COLUMN,
    ArraySet,
    FrameSet,
    ImageSet,
    ImageViews,
    InputSet,
    RemoteImageSet,
    TextSet,
    check_found,
    holds_images,
    open_frame,
    open_images,
    open_rows,
    open_texts,
    read_batches,
    refuse_texts,
)
from pseudocal.app.inputs.tables import TABLES, unused_columns
from pseudocal.app.job import Job, Note, Tick, absolute, write_job
from pseudocal.app.label_files import check_label_file
from pseudocal.app.models.encoders import COLUMNS
from pseudocal.app.models.files import check_class_names, logits_reader, open_model
from pseudocal.app.models.model import SECOND_ONLY, OpenModel
from pseudocal.app.pixels import SHOWN_MAPS, PixelSample, sample_image, small_maps
from pseudocal.app.report.page import warm_up
from pseudocal.app.run import (
    CLASSES,
    JOB,
    AboutData,
    AboutModel,
    LogitWriter,
    Run,
    RunRecord,
    Timing,
    runtime_versions,
    save_pixels,
    save_run,
)
from pseudocal.arrays import InputError, Inputs, Labelled, Logits, Maps, Predictor, cores
from pseudocal.batches import DEFAULT_BATCH_SIZE, Batch, fitting, unread_batches
from pseudocal.calibrators.evidence import Evidence, Step
from pseudocal.calibrators.pseudocal import unmixed_steps
from pseudocal.calibrators.surrogate import Surrogate
from pseudocal.calibrators.wording import ReasonCode
from pseudocal.maps import IGNORED
from pseudocal.predictors import Checked, Deferred, models_in
from pseudocal.randomness import Streams
from pseudocal.skipped import Skipped, one_line

TRIES = 10  # inputs to try before giving up on finding the batch size that fits into memory
PROBED = 2  # inputs that are kept to check an exported model
IGNORED_SHOWN = 10  # columns in a sentence

Models = tuple[OpenModel, ...]  # the one to calibrate, and any second models
Progress = Generator[Note | Tick, None, Run]


# ------------------------------------------------------------------------------ the plan


@dataclass(frozen=True)
class Data:
    """The inputs of a run, open."""

    inputs: InputSet
    preparation: str  # how they are prepared for the model, in words
    # settings of the preparation that neither the user nor the model gave
    assumed: tuple[str, ...] = ()
    not_mixed: ReasonCode | None = None  # why the inputs cannot be mixed; None if they can
    ignored: tuple[str, ...] = ()  # columns of the table that the model does not use


@dataclass(frozen=True)
class Plan:
    """A run with its models and its inputs open, ready to be collected."""

    job: Job
    models: Models
    data: Data  # the inputs, or a few of them if only workers read them all
    # the numbers of the inputs that are used, in the order of the calibration
    order: NDArray[np.intp]
    batch_size: int  # inputs per forward pass
    masks: Masks | None = None  # the true class of every pixel, for evaluation only
    # the images for all models, if a second model wants them prepared differently
    views: ImageViews | None = None
    checked: str = ""  # whether other preprocessing was tried, in words

    @property
    def model(self) -> OpenModel:
        """The model to calibrate."""
        return self.models[0]

    @property
    def inputs(self) -> InputSet:
        """The inputs, as prepared for the model."""
        return self.data.inputs

    @property
    def read_by_models(self) -> InputSet:
        """What the models read: the inputs, or the views that each model has of them."""
        return self.views or self.inputs

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names: the user's if given, else the model's."""
        return self.job.classes or self.model.classes

    @property
    def notes(self) -> Iterator[Note]:
        """What was found or assumed when the models and the data were opened."""
        yield from map(Note, self.model.notes)
        for second in self.models[1:]:
            yield from (Note(f"second opinion: {note}") for note in second.notes)
        yield Note(self.data.preparation)
        if self.data.assumed:
            yield Note(f"assumed, not given: {', '.join(self.data.assumed)}")
        if self.checked:
            yield Note(self.checked)
        if self.views is not None:
            for other in self.views.others:
                yield Note(f"for the second opinion: {other.words()}")
        if self.batch_size != (self.job.batch_size or DEFAULT_BATCH_SIZE):
            yield Note(f"{self.batch_size} inputs per forward pass: more would not fit into memory")

    @cached_property
    def ground_truth(self) -> NDArray[np.int64] | None:
        """The class of each input, for evaluation only; None if unknown or given by masks."""
        if self.job.ground_truth is None or self.masks is not None:
            return None
        names = [self.inputs.name(i) for i in range(len(self.inputs))]
        return read_ground_truth(self.job.ground_truth, names, self.classes)

    def check(self, real: Labelled) -> None:
        """Check the settings against the first outputs, so that the run does not fail at the end."""
        classes = real.logits.shape[1]
        check_class_count(self.job.classes, classes)
        if real.groups is not None:
            self._check_maps(classes)
            return
        if self.masks is not None:
            raise InputError(
                f"{self.job.ground_truth} has masks, and the model predicts one class per input"
            )
        if self.ground_truth is not None and self.job.ground_truth is not None:
            check_range(self.ground_truth[self.order], classes, self.job.ground_truth)
        if self.job.labels is not None:
            names = [self.inputs.name(i) for i in self.order]
            check_label_file(self.job.labels, names, self.classes, classes)

    def _check_maps(self, classes: int) -> None:
        if self.job.labels is not None:
            check_label_file(self.job.labels, None, self.classes, classes)
        if self.masks is not None:
            self.masks.check(self.order, classes)
        elif self.job.ground_truth is not None:
            raise InputError(
                f"{self.job.ground_truth} has no masks, and the model predicts every pixel: pass a "
                "folder with a mask per image, or an .npy of masks (n, height, width)"
            )


def plan_run(job: Job, models: Models) -> Plan:
    """Open the data of a run, and check the models against it."""
    if job.ray is None:
        refuse_shards(job.data)
    model, *seconds = models
    data = open_data(job, model)
    if data.not_mixed is not None and job.ray is not None:
        raise InputError(
            f"{job.data} cannot be mixed, so a cluster has nothing to do", setting="ray"
        )
    if data.not_mixed is not None and seconds:
        raise InputError(
            f"a second opinion needs mixup samples, and {job.data} cannot be mixed (it has texts, "
            "categories or missing values): leave it out, and label about 50 inputs",
            setting="second_opinion",
        )
    inputs = data.inputs
    if job.ray is not None and isinstance(inputs, ImageSet):  # workers have other current folders
        paths = [path.resolve() for path in inputs.paths]
        inputs = replace(inputs, paths=paths, root=inputs.root.resolve())
        data = replace(data, inputs=inputs)
    order = Streams(job.method.seed).order().permutation(len(inputs))[: job.max_samples]
    masks = None
    if job.ground_truth is not None:
        masks = open_masks(job.ground_truth, inputs, order)
    size = batch_size_for(job, model, inputs)
    check_seconds(job, models, inputs)
    views = views_of(job, models, inputs)
    checked = ""
    if job.preprocess_check and _normalisation_is_open(job, model):
        checked = _check_images(job, models, inputs, order)
    return Plan(job, models, data, order, size, masks, views, checked)


def _normalisation_is_open(job: Job, model: OpenModel) -> bool:
    """Whether the model's file alone does not settle how images are normalised."""
    chosen = {"mean", "std", "normalisation", "order", "scale"} & set(job.preprocessing)
    return bool(chosen) or "mean" not in model.expects.preprocessing


def _check_images(job: Job, models: Models, inputs: InputSet, order: NDArray[np.intp]) -> str:
    """Try a few images, and refuse a preprocessing that is clearly worse than another.

    Returns what was found, in words; empty if the inputs are no images.
    """
    if not isinstance(inputs, ImageSet | RemoteImageSet):
        return ""
    model, *others = models
    second = None
    asked = next((each for each in others if not each.encodes), None)
    if asked is not None:
        second = (as_logits_of(job, asked), partial(_prepared_for, job, asked))
    passes = len(order) * (1 + job.method.epochs_for(len(order)))
    found = check_preprocessing(as_logits_of(job, model), inputs, order.tolist(), passes, second)
    return f"preprocessing check: {found}"


def _prepared_for(job: Job, second: OpenModel, first: Preprocessing) -> Preprocessing:
    """How images are prepared for a second model, where it differs from the first."""
    expects = second.expects
    given = dict(job.second_preprocessing)
    return preprocessing_of_second(first, expects.shape, expects.preprocessing, given)


def open_models(job: Job) -> Models:
    """Open the model, and any second models, which get its class names.

    With a cluster they are only tried here, which needs no GPU.
    """
    if job.model.startswith(SECOND_ONLY):
        raise InputError(f"{job.model} can only be a second opinion, not the model to calibrate")
    settings = reading_options(job) | {"device": job.device if job.ray is None else "cpu"}
    model = open_model(job.model, **settings)
    settings["classes"] = job.classes or model.classes
    return (model, *(open_model(name, **settings) for name in models_in(job.second_opinion)))


def reading_options(job: Job) -> dict[str, Any]:
    """The settings for opening the models and reading their outputs."""
    settings: dict[str, Any] = {
        "logits_tensor": job.logits_tensor,
        "output_type": job.output_type,
        "binary": job.binary,
        "trust": job.trust,
        "typed": job.job_file is None,
    }
    if job.architecture is not None:
        settings["architecture"] = job.architecture
    return settings


def opinion_names(given: Any, data: str) -> tuple[str, ...]:
    """The names of second opinions, as runs record them.

    A surrogate gets the features that suit the data, and its files an absolute path.

    >>> opinion_names("surrogate", "features.parquet"), opinion_names(["other.onnx"], "images/")
    (('surrogate:columns',), ('other.onnx',))
    """
    names = list[str]()
    for name in models_in(given):
        if name == "surrogate":
            images = "://" in data or holds_images(data)
            name = "surrogate:efficientnet-lite2" if images else "surrogate:columns"
        kind, _, file = name.partition(":")
        if kind in ("surrogate", "zero-shot") and file and Path(file).exists():
            name = f"{kind}:{Path(file).resolve()}"
        names.append(name)
    return tuple(names)


def opinion_files(names: list[str]) -> tuple[str, ...]:
    """The files and hub names among the names of second opinions, files with absolute paths."""
    found = []
    for name in names:
        file = name.partition(":")[2] if name.startswith(SECOND_ONLY) else name
        if file.startswith("hf:"):
            found.append(file)
        elif file and Path(file).exists():
            found.append(os.path.abspath(file))
    return tuple(found)


def as_logits_of(job: Job, model: OpenModel) -> Predictor:
    """An open model that returns logits, unless it returns features."""
    return logits_reader(model, job.output_type, job.binary)


def check_class_count(names: tuple[str, ...], classes: int) -> None:
    """Refuse class names whose number is not that of the model's classes."""
    if names and len(names) != classes:
        raise InputError(
            f"there are {len(names)} class names, and the model has {classes} classes",
            setting="classes",
        )


def batch_size_for(job: Job, model: OpenModel, inputs: InputSet) -> int:
    """Inputs per forward pass: of a segmentation model, as many as fit into memory."""
    if job.batch_size is not None:
        return job.batch_size
    for i in range(min(TRIES, len(inputs))):
        with suppress(Exception):  # inputs that cannot be read are counted later
            return fitting(
                model.predict, inputs.read(i)[None], DEFAULT_BATCH_SIZE, job.method.memory
            )
    return DEFAULT_BATCH_SIZE


def open_data(job: Job, model: OpenModel) -> Data:
    """Open the data as the model takes it."""
    if "://" in job.data:
        return _open_images(job, model)
    if model.expects.text or job.text is not None:
        texts = open_texts(Path(job.data), job.text)
        where = "" if texts.column is None else f" of the column {texts.column!r}"
        return Data(texts, f"{len(texts):,} texts{where}", not_mixed=ReasonCode.TEXTS_NOT_MIXED)
    if holds_images(job.data):
        return _open_images(job, model)
    columns = job.features or model.expects.columns
    if model.expects.frames and Path(job.data).suffix.lower() in TABLES:
        frame = open_frame(Path(job.data), columns)
        if frame is not None and _takes_frame(model, frame, job.data):
            ignored = unused_columns(Path(job.data), columns)
            words = f"{len(frame):,} rows of a data frame, unchanged{_ignored_words(ignored)}"
            return Data(frame, words, not_mixed=ReasonCode.TABLES_NOT_MIXED, ignored=ignored)
    dtype = model.expects.dtype
    inputs = open_rows(job.data, dtype=dtype, columns=columns, field=job.field)
    if not model.expects.preprocessing:  # of images: their shape is only what is usual
        model.expects.check(inputs.array.shape[1:], f"the model, got {job.data} with")
    ignored = unused_columns(Path(job.data), columns)
    preparation = f"{len(inputs):,} rows, unchanged{inputs.cast()}{_ignored_words(ignored)}"
    wanted = np.dtype(dtype or "float32")
    rows_of_integers = inputs.array.dtype.kind in "iu" and inputs.array.ndim == 2
    # integers for a model of integers are token ids, but those of 8 bits are pixels
    if rows_of_integers and wanted.kind in "iu" and wanted.itemsize > 1:
        unmixed = replace(inputs, mixed=False)
        return Data(unmixed, preparation, not_mixed=ReasonCode.TOKEN_IDS_NOT_MIXED)
    return Data(inputs, preparation, ignored=ignored)


def _ignored_words(columns: Sequence[str]) -> str:
    """Which columns of a table are ignored, for the end of a sentence.

    >>> _ignored_words(["id", "label"]), _ignored_words([])
    ('; ignored columns: id, label', '')
    >>> _ignored_words(["", "label"])                     # the first is an index
    '; ignored columns: (no name), label'
    """
    if not columns:
        return ""
    more = "" if len(columns) <= IGNORED_SHOWN else f" and {len(columns) - IGNORED_SHOWN} more"
    shown = ", ".join(name or "(no name)" for name in columns[:IGNORED_SHOWN])
    return f"; ignored columns: {shown}{more}"


def _takes_frame(model: OpenModel, inputs: FrameSet, data: str) -> bool:
    """Whether the model takes missing values; raise an error if it does not take the columns."""
    model.expects.check(inputs.frame.shape[1:], f"the model, got {data} with")
    missing = inputs.frame.isna().any(axis=1).to_numpy()
    rows = np.array([0, int(missing.argmax())], dtype=np.intp)
    try:
        model.predict(inputs.rows(rows))
    except Exception as error:  # a model may raise anything about inputs that it does not take
        if inputs.numeric:
            return False
        raise InputError(
            f"the model does not take the columns of {data}: {one_line(error.__cause__ or error)}; "
            "name those that it takes",
            setting="features",
            value="NAMES",
        ) from error
    return True


def _open_images(job: Job, model: OpenModel) -> Data:
    """Open a folder or a list of images, or the images at an address."""
    urls = list[str]()
    if "://" in job.data:
        urls = files_at(job.data, tuple(IMAGE_SUFFIXES))
        if not urls:
            raise InputError(
                f"{job.data} has neither images nor files that end in {', '.join(SHARD_SUFFIXES)}"
            )
    else:
        check_found(job.data)
        refuse_texts(job.data)
    expects = model.expects
    given = dict(job.preprocessing)
    preprocessing, assumed = preprocessing_for(expects.shape, expects.preprocessing, given)
    images: InputSet
    if urls:
        images = RemoteImageSet(urls, preprocessing)
    else:
        images = open_images(job.data, preprocessing)
        if "resize" in assumed and images.have_model_size:
            assumed.remove("resize")
    words = f"{len(images):,} images: {preprocessing.words()}"
    return Data(images, words, job.assumed or tuple(assumed))


def check_seconds(job: Job, models: Models, inputs: InputSet) -> None:
    """Refuse second models with other classes, or that take other rows."""
    model, *seconds = models
    for second in seconds:
        check_class_names(model.classes, second.classes)
        if isinstance(inputs, ArraySet):
            shape = inputs.array.shape[1:]
            second.expects.check(shape, f"the second opinion, got {job.data} with")


def views_of(job: Job, models: Models, inputs: InputSet) -> ImageViews | None:
    """The images for all models, if second models want them prepared differently."""
    if not isinstance(inputs, ImageSet | RemoteImageSet):
        return None
    own = inputs.preprocessing
    others = tuple(_prepared_for(job, second, own) for second in models[1:])
    return None if all(other == own for other in others) else ImageViews(inputs, others)


# ------------------------------------------------------------------------------ collecting


def collect(plan: Plan, folder: Path) -> Progress:
    """Predict all inputs and their mixup samples, and write a run into `folder`."""
    started = time.monotonic()
    job = plan.job
    unreadable = Skipped(len(plan.inputs), job.max_bad)
    first, *seconds = method_models(plan, [as_logits_of(job, each) for each in plan.models])
    writer = LogitWriter(folder, len(plan.inputs))
    evidence = job.method.empty_evidence()
    is_segmentation = False
    with (
        closing(_batches(plan, plan.order, unreadable)) as batches,
        ThreadPoolExecutor(1) as background,
    ):
        head = next(batches, None)
        if head is None:
            raise InputError("no input could be predicted")
        probe_rows = head.rows[:PROBED].tolist()
        probe = head.inputs[:PROBED].copy()
        all_batches = chain([head], batches)
        del head  # it may be large
        if plan.data.not_mixed is not None:
            steps = unmixed_steps(first, all_batches)
        else:
            steps = job.method.steps(
                first, all_batches, second_opinion=seconds, total=len(plan.order)
            )
        for step in steps:
            if evidence.inputs == 0:
                plan.check(step.real)
                is_segmentation = step.real.groups is not None
                background.submit(warm_up)  # while the model predicts
            evidence.add(step)
            if step.epoch == 0:  # later epochs mix the same inputs again
                writer.write(step.rows, *logits_of_step(step))
                yield Tick("calibrating", len(step.rows), len(plan.order))
            if evidence.converged(job.method.tolerance):
                break
        if job.predict == "all":
            predictors = [] if is_segmentation else with_logits([first, *seconds])
            for batch in batches:  # those left after an early stop
                writer.write(batch.rows, *(each(batch.inputs) for each in predictors))
                yield Tick("predicting", len(batch.rows), len(plan.order))
    rows = writer.finish()
    if is_segmentation:
        yield from _sample_pixels(plan, rows, first, folder, unreadable)
    return finish_run(
        plan,
        folder,
        evidence,
        rows,
        replace(about_data(plan, len(rows)), unreadable=tuple(unreadable.why.items())),
        started=started,
        probe_rows=probe_rows,
        probe_inputs=probe if plan.views is None else plan.views.of_first(probe),
    )


def method_models(plan: Plan, predictors: list[Any]) -> list[Any]:
    """The models as the method takes them, the one to calibrate first.

    Args:
        plan: the run.
        predictors: the predictor of each model, or what a worker makes it of.

    """
    if plan.views is not None:
        predictors = plan.views.split(*predictors)
    found = list[Any]()
    for model, predict in zip(plan.models, predictors, strict=True):
        if model.encodes:
            found.append(Surrogate(None if model.kind == COLUMNS else predict))
        elif isinstance(predict, Deferred):
            found.append(predict)
        else:
            found.append(Checked(predict, doubt=False))
    return found


def with_logits(models: list[Any]) -> list[Any]:
    """The models whose logits a run keeps: a surrogate has none."""
    return [each for each in models if not isinstance(each, Surrogate)]


def logits_of_step(step: Step) -> Sequence[Logits]:
    """The logits of a step, of the model and then of each second model; none of maps of pixels."""
    return [] if step.logits is None else [step.logits, *step.second_logits]


def _batches(
    plan: Plan, rows: NDArray[np.intp], unreadable: Skipped
) -> Generator[Batch, None, None]:
    unread = unread_batches(rows, plan.batch_size)
    workers = plan.job.workers or cores()
    return read_batches(plan.read_by_models, unread, workers=workers, unreadable=unreadable)


def _sample_pixels(
    plan: Plan, rows: NDArray[np.intp], predict: Predictor, folder: Path, unreadable: Skipped
) -> Generator[Tick, None, None]:
    """Predict the images again, and write some pixels of each: all logits are too large to store."""
    samples = list[PixelSample]()
    shown = list[tuple[Maps, NDArray[Any] | None]]()
    with closing(_batches(plan, rows, unreadable)) as batches:
        for batch in batches:
            for i, image in zip(batch.rows.tolist(), predict(batch.inputs), strict=True):
                mask = None if plan.masks is None else plan.masks[i]
                samples.append(sample_image(plan.inputs, i, image, len(plan.order), mask))
                if len(shown) < SHOWN_MAPS:
                    shown.append(small_maps(image, mask))
            yield Tick("predicting", len(batch.rows), len(rows))
    sample = PixelSample.concatenate(samples)
    if plan.masks is not None and (sample.ground_truth == IGNORED).all():
        raise InputError(
            f"all pixels of {len(samples)} masks are ignored ({IGNORED})", setting="ground_truth"
        )
    save_pixels(folder, sample, shown)


# ------------------------------------------------------------------------------ the record


def recorded_settings(job: Job) -> dict[str, Any]:
    """The settings of a job that belong in the record of a calibration."""
    return {
        "model": job.model,
        "second_opinion": models_in(job.second_opinion),
        "data": _data_name(job),
        "max_samples": job.max_samples,
    }


def _data_name(job: Job) -> str:
    return "standard input" if job.data == "-" else job.data


def about_data(plan: Plan, used: int) -> AboutData:
    """What a plan knows of the data, of which some inputs were used."""
    return AboutData(
        name=_data_name(plan.job),
        inputs=len(plan.inputs),
        used=used,
        preparation=plan.data.preparation,
        assumed=plan.data.assumed,
    )


def finish_run(
    plan: Plan,
    folder: Path,
    evidence: Evidence,
    rows: NDArray[np.intp],
    data: AboutData,
    *,
    started: float,
    probe_rows: list[int],
    probe_inputs: Inputs,
    names: Sequence[str] | None = None,
    settings: dict[str, Any] | None = None,
) -> Run:
    """Write what belongs to a run beside its logits: the record, the evidence, the job.

    Args:
        plan: the run.
        folder: where the logits have been written.
        evidence: what was collected.
        rows: the numbers of the inputs, in the order of the logits.
        data: what is known of the data.
        started: when collecting began, by `time.monotonic`.
        probe_rows: the numbers of the inputs that an exported model is checked with.
        probe_inputs: these inputs.
        names: the names of the inputs; None for those of the plan.
        settings: further settings for the record of the calibration.

    """
    job = plan.job
    inputs = plan.inputs
    numbers = rows.tolist()
    files = [path for i in numbers if (path := inputs.image_file(i)) is not None]
    column = job.field
    if isinstance(inputs, TextSet):
        column = inputs.column or USUAL_COLUMN
    known = plan.ground_truth
    record = RunRecord(
        model=_about_model(job, plan.model),
        data=data,
        names=tuple(names or (inputs.name(i) for i in numbers)),
        image_files=tuple(str(path.absolute()) for path in files) if files else None,
        source=None if files else os.path.abspath(job.data),
        column=column,
        ignored=plan.data.ignored,
        classes=plan.classes,
        ground_truth=None if known is None else tuple(known[rows].tolist()),
        logits_tensor=job.logits_tensor,
        output_type=job.output_type,
        binary=job.binary,
        architecture=job.architecture,
        timing=Timing(time.monotonic() - started, datetime.now(UTC).isoformat(timespec="seconds")),
        table=job.table,
        second_models=sum(not each.encodes for each in plan.models[1:]),
        probe=tuple(np.searchsorted(rows, probe_rows).tolist()),
        not_mixed=plan.data.not_mixed,
        second_files=opinion_files(models_in(job.second_opinion)),
        method=job.method,
        settings={"batch_size": plan.batch_size, **(settings or {}), **recorded_settings(job)},
        versions=runtime_versions([each.kind for each in plan.models]),
    )
    _write_job(plan, folder)
    return save_run(folder, record, evidence, probe_inputs)


def _about_model(job: Job, model: OpenModel) -> AboutModel:
    """Describe the model for the record and the report."""
    recipe = model.kind
    if model.kind == "onnx" and model.logits_tensor is None:
        recipe = "onnx-inside"
    elif model.kind == "huggingface" and model.expects.text:
        recipe = "huggingface-text"
    return AboutModel(
        name=absolute(job.model),
        title=Path(job.model).name,
        kind=model.kind,
        recipe=recipe,
        output=model.logits_tensor,
        notes=model.notes,
    )


def _write_job(plan: Plan, folder: Path) -> None:
    """Write `job.toml`: the job with all that was found out."""
    resolved = replace(plan.job, batch_size=plan.batch_size, assumed=plan.data.assumed)
    used = getattr(plan.inputs, "preprocessing", None)
    if used is not None:
        found: Any = {name: value for name, value in asdict(used).items() if value is not None}
        resolved = replace(resolved, preprocessing=found)
    write_job(resolved, folder / JOB, classes=CLASSES)
