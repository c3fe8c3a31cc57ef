"""The data of a job: opened as the model takes it, and as each second opinion does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pseudocal.app.inputs import (
    ArraySet,
    InputSet,
    PictureSet,
    PictureViews,
    Preprocessing,
    open_inputs,
    preprocessing_for,
    preprocessing_of_second,
)
from pseudocal.app.inputs.addresses import files_at
from pseudocal.app.inputs.blocks import SHARD_SUFFIXES
from pseudocal.app.inputs.input_sets import holds_pictures
from pseudocal.app.inputs.picture_sets import RemotePictureSet
from pseudocal.app.inputs.pictures import PICTURE_SUFFIXES
from pseudocal.app.inputs.tables import ARRAYS
from pseudocal.app.inputs.texts import open_texts, read_lines
from pseudocal.app.jobs.job import Job
from pseudocal.app.models.model import OpenModel
from pseudocal.arrays import InputError

SHARDS = ARRAYS | {".parquet"}  # files of rows that a folder may hold
NO_MIXED_IDS = "Token ids are not mixed: they are numbers of words, and what lies between two of them is another word."
NO_MIXED_TEXTS = "Texts are not mixed: a mix of two texts is no text."

Models = tuple[OpenModel, ...]  # the one to calibrate, and any second opinions


class OpenData(NamedTuple):
    """The data of a job, open.

    Attributes:
        inputs: the inputs.
        preparation: a description of how they are prepared for the model.
        assumed: settings of the preparation that neither the user nor the model gave.
        unmixed: why the inputs cannot be mixed, as a sentence; None if they can.

    """

    inputs: InputSet
    preparation: str
    assumed: tuple[str, ...] = ()
    unmixed: str | None = None


def open_data(job: Job, model: OpenModel) -> OpenData:
    """Open the data as the model takes it."""
    if model.expects.text or job.text is not None:
        texts = open_texts(Path(job.data), job.text)
        return OpenData(texts, f"{len(texts):,} texts, as they are", unmixed=NO_MIXED_TEXTS)
    if not holds_pictures(job.data):
        columns = job.features or model.expects.columns
        inputs = open_inputs(job.data, dtype=model.expects.dtype, columns=columns, field=job.field)
        preparation = f"{len(inputs):,} rows, passed to the model as they are"
        if isinstance(inputs, ArraySet) and _are_token_ids(inputs, model):
            return OpenData(replace(inputs, mixed=False), preparation, unmixed=NO_MIXED_IDS)
        return OpenData(inputs, preparation)
    _refuse_texts(job.data)
    preprocessing, assumed = prepared_pictures(job, model)
    pictures = open_inputs(job.data, preprocessing=preprocessing)
    return OpenData(pictures, f"{len(pictures):,} pictures: {preprocessing.words()}", assumed)


def remote_pictures(job: Job, model: OpenModel) -> OpenData:
    """Open the pictures at an address."""
    urls = files_at(job.data, tuple(PICTURE_SUFFIXES))
    if not urls:
        raise InputError(f"expected pictures or files that end in {', '.join(SHARD_SUFFIXES)}, got none at {job.data}")
    preprocessing, assumed = prepared_pictures(job, model)
    pictures = RemotePictureSet(urls, preprocessing)
    return OpenData(pictures, f"{len(urls):,} pictures: {preprocessing.words()}", assumed)


def _are_token_ids(inputs: ArraySet, model: OpenModel) -> bool:
    """Whether rows of integers go into a model of integers; those of 8 bits are pixels."""
    wanted = np.dtype(model.expects.dtype or "float32")
    return inputs.array.dtype.kind in "iu" and wanted.kind in "iu" and wanted.itemsize > 1 and inputs.array.ndim == 2


def _refuse_texts(data: str) -> None:
    """Refuse a text file whose first line is no path: it may hold texts, for which no size of pictures is missing."""
    path = Path(data)
    if data == "-" or not path.is_file() or path.suffix.lower() in PICTURE_SUFFIXES:
        return
    first = read_lines(path, "a text file of paths")[0]
    if not (path.parent / first).exists() and Path(first).suffix.lower() not in PICTURE_SUFFIXES:
        raise InputError(
            f"expected a list of pictures, one path per line, got {path}, which begins with {first[:60]!r}: "
            "if it holds texts, give text=text"
        )


def prepared_pictures(job: Job, model: OpenModel) -> tuple[Preprocessing, tuple[str, ...]]:
    """Return the preprocessing of pictures, and the settings of it that were assumed."""
    preprocessing, assumed = preprocessing_for(model.expects.shape, model.expects.preprocessing, job.preprocessing)
    return preprocessing, tuple(assumed)


def refuse_shards(data: str) -> None:
    """Refuse data that only workers can read: an address, a pattern, or a folder of files of rows."""
    path = Path(data)
    if "://" in data or ("*" in data and not path.exists()):
        raise InputError(
            f'expected ray="local", or the address of a cluster, to read an address or a pattern, got {data} without it'
        )
    found = {p.suffix.lower() for p in path.iterdir()} & SHARDS if path.is_dir() else set()
    if found and not any(p.suffix.lower() in PICTURE_SUFFIXES for p in path.rglob("*")):
        what = ", ".join(sorted(found))
        raise InputError(f'expected ray="local" to read a folder of files of rows ({what}), got {data} without it')


def views_of(job: Job, models: Models, inputs: InputSet) -> PictureViews | None:
    """Return the pictures for all models if they want them prepared differently; refuse models that do not fit.

    Args:
        job: what to do.
        models: the model to calibrate, and any second opinions.
        inputs: the inputs, as prepared for the first model.

    """
    model, *seconds = models
    for second in seconds:
        _check_same_classes(model.classes, second.classes)
    if isinstance(inputs, PictureSet | RemotePictureSet):
        own, given = inputs.preprocessing, job.second_preprocessing
        wanted = [(second.expects.shape, second.expects.preprocessing) for second in seconds]
        others = tuple(preprocessing_of_second(own, shape, known, given) for shape, known in wanted)
        return None if all(other == own for other in others) else PictureViews(inputs, others)
    for second in seconds:
        if isinstance(inputs, ArraySet) and not fits(inputs.array.shape[1:], second.expects.shape):
            shape, wanted_shape = inputs.array.shape[1:], second.expects.shape or ()
            named = tuple("?" if d is None else d for d in wanted_shape)
            raise InputError(
                f"expected a second opinion that takes inputs of shape {shape}, as the model does, got shape {named}"
            )
    return None


def _check_same_classes(ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    if not ours or not theirs or ours == theirs:
        return
    longest = max(len(ours), len(theirs))
    padded = [(*names, *[""] * (longest - len(names))) for names in (ours, theirs)]
    own, other = next(pair for pair in zip(*padded, strict=True) if pair[0] != pair[1])
    raise InputError(f"expected a second opinion with the classes of the model, got {other!r} instead of {own!r}")


def fits(shape: tuple[int, ...], wanted: tuple[int | None, ...] | None) -> bool:
    """Whether inputs of a shape fit a model, as far as its input shape is known.

    >>> fits((3, 32, 32), (3, None, None)), fits((3, 32, 32), None), fits((5,), (4,))
    (True, True, False)
    """
    if wanted is None:
        return True
    return len(shape) == len(wanted) and all(w is None or s == w for s, w in zip(shape, wanted, strict=True))
