"""Open the models and the data of a job, and check them against each other before the first forward pass."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs import (
    ArraySet,
    ImageSet,
    ImageViews,
    InputSet,
    Preprocessing,
    open_inputs,
    preprocessing_for,
    preprocessing_of_second,
)
from pseudocal.app.inputs.blocks import SHARD_SUFFIXES, files_at, refuse_shards
from pseudocal.app.inputs.ground_truth import Masks, open_masks, read_ground_truth
from pseudocal.app.inputs.images import IMAGE_SUFFIXES
from pseudocal.app.inputs.sets import RemoteImageSet, check_found, holds_images, opinion_names
from pseudocal.app.inputs.texts import USUAL_COLUMN, TextSet, open_texts, refuse_texts
from pseudocal.app.jobs.answer_file import answer_lines, read_answers, shown_classes
from pseudocal.app.jobs.job import Job
from pseudocal.app.models.files import check_class_names, logits_reader, open_model
from pseudocal.app.models.model import SECOND_ONLY, OpenModel
from pseudocal.app.report.predictions import Target
from pseudocal.arrays import InputError, Labelled, Predictor
from pseudocal.batches import DEFAULT_BATCH_SIZE, fitting
from pseudocal.calibrators import Reason, ReasonCode
from pseudocal.randomness import Streams

NO_MIXED_IDS = Reason(ReasonCode.TOKEN_IDS_NOT_MIXED)
NO_MIXED_TEXTS = Reason(ReasonCode.TEXTS_NOT_MIXED)
TRIES = 10  # inputs to try before giving up on finding the batch size that fits into memory

Models = tuple[OpenModel, ...]  # the one to calibrate, and any second opinions


class OpenData(NamedTuple):
    """The data of a job, open.

    Attributes:
        inputs: the inputs.
        preparation: a description of how they are prepared for the model.
        assumed: settings of the preparation that neither the user nor the model gave.
        unmixed: why the inputs cannot be mixed; None if they can.

    """

    inputs: InputSet
    preparation: str
    assumed: tuple[str, ...] = ()
    unmixed: Reason | None = None


@dataclass(frozen=True)
class Setup:
    """A job with its models and its inputs open.

    Attributes:
        job: what to do.
        model: the model to calibrate.
        seconds: the second opinions, if there are any.
        inputs: the inputs, or a few of them if only workers read them all.
        preparation: a description of how inputs are prepared for the model.
        order: the numbers of the inputs that are used, in the order of the calibration.
        batch_size: inputs per forward pass.
        masks: labels for every pixel, for evaluation only.
        views: the images for all models, if a second opinion wants them prepared differently.
        assumed: settings that neither the user nor the model gave.
        unmixed: why the inputs cannot be mixed; None if they can.

    """

    job: Job
    model: OpenModel
    seconds: tuple[OpenModel, ...]
    inputs: InputSet
    preparation: str
    order: NDArray[np.intp]
    batch_size: int
    masks: Masks | None = None
    views: ImageViews | None = None
    assumed: tuple[str, ...] = ()
    unmixed: Reason | None = None

    @property
    def read_by_models(self) -> InputSet:
        """What the models read: the inputs, or the views that each model has of them."""
        return self.views or self.inputs

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names: the user's if given, else the model's."""
        return self.job.classes or self.model.classes

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found or assumed when the model and the data were opened."""
        usual = self.batch_size == (self.job.batch_size or DEFAULT_BATCH_SIZE)
        fewer = (
            ()
            if usual
            else (
                f"{self.batch_size} inputs per forward pass, so that their pixels fit into memory",
            )
        )
        second = (f"second opinion: {note}" for model in self.seconds for note in model.notes)
        others = () if self.views is None else self.views.others
        theirs = tuple(f"for the second opinion: {other.words()}" for other in others)
        assumed = (f"assumed, not given: {', '.join(self.assumed)}",) if self.assumed else ()
        return (*self.model.notes, *second, self.preparation, *assumed, *theirs, *fewer)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The class of each input, for evaluation only."""
        assert self.job.labels is not None
        names = [self.inputs.name(i) for i in range(len(self.inputs))]
        return read_ground_truth(self.job.labels, names, self.classes)

    def check(self, real: Labelled) -> None:
        """Check the job against the first outputs of the model, so that it does not fail at the end."""
        job = self.job
        classes = real.logits.shape[1]
        maps = real.groups is not None
        check_count(job.classes, classes)
        if maps:
            self._check_maps(classes)
        elif self.masks is not None:
            raise InputError(
                f"expected one label per input for a classifier, got masks in {job.labels}"
            )
        elif job.labels is not None:
            labels = self.labels[self.order]
            if labels.min() < 0 or labels.max() >= classes:
                found = f"{labels.min()} to {labels.max()}"
                raise InputError(
                    f"expected labels from 0 to {classes - 1}, got {found} in {job.labels}"
                )
        if not maps and job.answers is not None:
            names = [self.inputs.name(i) for i in self.order]
            read_answers(job.answers, names, shown_classes(self.classes, classes))

    def target_of(self, rows: NDArray[np.intp]) -> Target:
        """What is kept of the inputs that were predicted, beside their logits."""
        job = self.job
        inputs = self.inputs
        numbers = rows.tolist()
        image_files = [path for i in numbers if (path := inputs.image_file(i)) is not None]
        labelled = job.labels is not None and self.masks is None
        return Target(
            names=tuple(inputs.name(i) for i in numbers),
            image_files=tuple(str(path.absolute()) for path in image_files)
            if image_files
            else None,
            data=None if image_files else str(Path(job.data).absolute()),
            field=inputs.column or USUAL_COLUMN if isinstance(inputs, TextSet) else job.field,
            classes=self.classes,
            labels=tuple(self.labels[rows].tolist()) if labelled else None,
            model=str(Path(job.model).absolute()) if Path(job.model).exists() else job.model,
            output=job.output,
            outputs=job.outputs,
            binary=job.binary,
        )

    def _check_maps(self, classes: int) -> None:
        if self.job.answers is not None:
            answer_lines(self.job.answers, pixels=True)
        if self.masks is not None:
            self.masks.check(self.order, classes)
        elif self.job.labels is not None:
            raise InputError(
                "expected a folder with a mask per image, or an .npy of masks (n, height, width), as labels for "
                f"a segmentation model, got {self.job.labels}"
            )


def reading(job: Job) -> dict[str, Any]:
    """Return the settings for opening the models and reading their outputs."""
    named = {} if job.architecture is None else {"architecture": job.architecture}
    consent = {"trust": job.trust, "typed": job.job_file is None}
    outputs = {
        "logits_tensor": job.output,
        "output_type": job.outputs,
        "binary": job.binary,
    }
    return outputs | consent | named


def as_logits_of(job: Job, model: OpenModel) -> Predictor:
    """Wrap an open model so that it returns logits, unless it returns features."""
    return logits_reader(model, job.outputs, job.binary)


def check_count(names: tuple[str, ...], classes: int) -> None:
    """Refuse class names whose number is not that of the model's classes."""
    if names and len(names) != classes:
        raise InputError(f"expected names of {classes} classes, got {len(names)}")


def open_models(job: Job, *, device: str | None = None) -> Models:
    """Open the model, and any second opinions, which get its class names."""
    if job.model.startswith(SECOND_ONLY):
        raise InputError(
            f"expected a model to calibrate, got {job.model}, which can only be a second opinion"
        )
    settings = reading(job) | {"device": device or job.device}
    model = open_model(job.model, **settings)
    settings["classes"] = job.classes or model.classes
    return (
        model,
        *(open_model(name, **settings) for name in opinion_names(job.second_opinion, job.data)),
    )


def open_setup(job: Job, models: Models) -> Setup:
    """Open the data of a job that runs in this process."""
    refuse_shards(job.data)
    model, *seconds = models
    data = open_data(job, model)
    inputs = data.inputs
    order = input_order(job, len(data.inputs))
    if data.unmixed is not None and seconds:
        raise InputError(
            f"expected no second opinion on inputs that cannot be mixed, got one: {data.unmixed}"
        )
    return Setup(
        job,
        model,
        tuple(seconds),
        inputs,
        data.preparation,
        order,
        batch_size_for(job, model, inputs),
        masks=None if job.labels is None else open_masks(job.labels, inputs, order),
        views=views_of(job, models, inputs),
        assumed=data.assumed,
        unmixed=data.unmixed,
    )


def input_order(job: Job, n: int) -> NDArray[np.intp]:
    """Return the numbers of the inputs to use, in random order."""
    return Streams(job.method.seed).order().permutation(n)[: job.max_samples]


def batch_size_for(job: Job, model: OpenModel, inputs: InputSet) -> int:
    """Return the number of inputs per forward pass: for a segmenter, as many as fit into memory."""
    if job.batch_size is not None:
        return job.batch_size
    for i in range(min(TRIES, len(inputs))):
        with suppress(Exception):  # inputs that cannot be read are counted later
            return fitting(
                model.predict, inputs.read(i)[None], DEFAULT_BATCH_SIZE, job.method.memory
            )
    return DEFAULT_BATCH_SIZE


def open_data(job: Job, model: OpenModel) -> OpenData:
    """Open the data as the model takes it."""
    if model.expects.text or job.text is not None:
        texts = open_texts(Path(job.data), job.text)
        where = "" if texts.column is None else f" of the column {texts.column!r}"
        return OpenData(texts, f"{len(texts):,} texts{where}, as they are", unmixed=NO_MIXED_TEXTS)
    if not holds_images(job.data):
        columns = job.features or model.expects.columns
        inputs = open_inputs(job.data, dtype=model.expects.dtype, columns=columns, field=job.field)
        if (
            isinstance(inputs, ArraySet) and not model.expects.preprocessing
        ):  # which would say only what is usual
            model.expects.check(inputs.array.shape[1:], f"the model, got {job.data} with")
        cast = inputs.cast() if isinstance(inputs, ArraySet) else ""
        preparation = f"{len(inputs):,} rows, passed to the model as they are{cast}"
        if isinstance(inputs, ArraySet) and _are_token_ids(inputs, model):
            return OpenData(replace(inputs, mixed=False), preparation, unmixed=NO_MIXED_IDS)
        return OpenData(inputs, preparation)
    check_found(job.data)
    refuse_texts(job.data)
    preprocessing, assumed = prepared_images(job, model)
    image_files = open_inputs(job.data, preprocessing=preprocessing)
    return OpenData(image_files, f"{len(image_files):,} images: {preprocessing.words()}", assumed)


def remote_images(job: Job, model: OpenModel) -> OpenData:
    """Open the images at an address."""
    urls = files_at(job.data, tuple(IMAGE_SUFFIXES))
    if not urls:
        raise InputError(
            f"expected images or files that end in {', '.join(SHARD_SUFFIXES)}, got none at {job.data}"
        )
    preprocessing, assumed = prepared_images(job, model)
    image_files = RemoteImageSet(urls, preprocessing)
    return OpenData(image_files, f"{len(urls):,} images: {preprocessing.words()}", assumed)


def _are_token_ids(inputs: ArraySet, model: OpenModel) -> bool:
    """Whether rows of integers go into a model of integers; those of 8 bits are pixels."""
    wanted = np.dtype(model.expects.dtype or "float32")
    return (
        inputs.array.dtype.kind in "iu"
        and wanted.kind in "iu"
        and wanted.itemsize > 1
        and inputs.array.ndim == 2
    )


def prepared_images(job: Job, model: OpenModel) -> tuple[Preprocessing, tuple[str, ...]]:
    """Return the preprocessing of images, and the settings of it that were assumed."""
    preprocessing, assumed = preprocessing_for(
        model.expects.shape, model.expects.preprocessing, job.preprocessing
    )
    return preprocessing, tuple(assumed)


def views_of(job: Job, models: Models, inputs: InputSet) -> ImageViews | None:
    """Return the images for all models if they want them prepared differently.

    Refuse models that do not fit.

    Args:
        job: what to do.
        models: the model to calibrate, and any second opinions.
        inputs: the inputs, as prepared for the first model.

    """
    model, *seconds = models
    for second in seconds:
        check_class_names(model.classes, second.classes)
    if isinstance(inputs, ImageSet | RemoteImageSet):
        own, given = inputs.preprocessing, job.second_preprocessing
        wanted = [(second.expects.shape, second.expects.preprocessing) for second in seconds]
        others = tuple(preprocessing_of_second(own, shape, known, given) for shape, known in wanted)
        return None if all(other == own for other in others) else ImageViews(inputs, others)
    for second in seconds:
        if isinstance(inputs, ArraySet):
            second.expects.check(inputs.array.shape[1:], f"the second opinion, got {job.data} with")
    return None
