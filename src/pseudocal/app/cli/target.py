"""DATA for a cluster: cut into blocks that a worker can read by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.cli.job import Job, open_data, trimmed
from pseudocal.app.inputs import Arrays, Inputs, Pictures, pixels_for
from pseudocal.app.inputs.numbered import FarPictures, Numbered, Sent
from pseudocal.app.inputs.opening import PICTURES
from pseudocal.app.inputs.shards import SUFFIXES, Shard, listed, shards
from pseudocal.app.models.opened import OpenModel
from pseudocal.arrays import InputError
from pseudocal.calibrators.blocks import Block, row_blocks
from pseudocal.calibrators.executors import block_order
from pseudocal.extras import MissingExtraError
from pseudocal.randomness import Streams

ROWS = 2048  # inputs in a block of predictions
FEW = 6  # inputs that are also read here, to try a calibrated model and to show what it says


@dataclass(frozen=True)
class Target:
    """Blocks in the order of the calibration, blocks in the order of the data, and what they are read from."""

    blocks: Sequence[Block]
    in_order: Sequence[Block]
    source: Any
    rows: int | None  # None as long as nobody has counted them
    preparation: str
    about: str  # what the data is known by
    inputs: Inputs  # some of them, to try a model on
    probe: NDArray[np.intp]
    batch_size: int

    def picture(self, name: str) -> Path | None:
        """The file of an input, to show it."""
        if isinstance(self.inputs, Pictures) and (path := self.inputs.root / name).is_file():
            return path
        return None


def open_target(job: Job, model: OpenModel) -> Target:
    """Recognise what DATA is: pictures, an array or a table, or a folder of files of rows."""
    if files := _files(job.data):
        return _shards(job, model, files)
    inputs, preparation = _far(job, model) if "://" in job.data else open_data(job, model)
    if isinstance(inputs, Pictures):
        inputs = replace(inputs, paths=[path.resolve() for path in inputs.paths], root=inputs.root.resolve())
    return _numbered(trimmed(job, model, inputs), inputs, preparation)


def _files(data: str) -> list[str]:
    """The files of rows that DATA stands for, if it is a folder, a pattern or an address of such."""
    if "://" not in data and "*" not in data and not Path(data).is_dir():
        return []
    files = listed(data, SUFFIXES)
    mixed = files and Path(data).is_dir() and any(p.suffix.lower() in PICTURES for p in Path(data).rglob("*"))
    return [] if mixed else files


def _shards(job: Job, model: OpenModel, files: list[str]) -> Target:
    if job.max_samples is not None:
        raise InputError("expected no --max-samples with files of rows, which are read whole, got it: use --tolerance")
    columns = job.features or model.expects.columns
    near = [file if "://" in file else str(Path(file).resolve()) for file in files]
    blocks = shards(near, field=job.field, columns=columns, dtype=model.expects.dtype or "float32")
    order = block_order(job.method.seed, len(blocks))
    some = _first_readable(blocks)
    inputs = Arrays(some, str(some.dtype))
    return Target(
        blocks=[blocks[i] for i in order],
        in_order=blocks,
        source=None,
        rows=None,
        preparation=f"{len(blocks):,} files of rows, passed to the model as they are",
        about=job.data,
        inputs=inputs,
        probe=np.arange(len(some)),
        batch_size=trimmed(job, model, inputs).batch_size,
    )


def _first_readable(blocks: Sequence[Shard]) -> NDArray[Any]:
    """A few rows; a broken file is no reason to give up on the others."""
    problem: Exception | None = None
    for block in blocks[:10]:
        try:
            return block.read()[:4]
        except (InputError, OSError) as error:
            problem = problem or error
    raise InputError(f"expected files of rows, got ten that cannot be read: {problem}") from problem


def _far(job: Job, model: OpenModel) -> tuple[Inputs, str]:
    """Pictures at an address."""
    urls = listed(job.data, tuple(PICTURES))
    if not urls:
        raise InputError(f"expected pictures or files that end in {', '.join(SUFFIXES)}, got none at {job.data}")
    pixels, assumed = pixels_for(model.expects.shape, model.expects.pixels, job.pixels)
    doubt = f" (assumed, since nobody says: {', '.join(assumed)})" if assumed else ""
    return FarPictures(urls, pixels), f"{len(urls):,} pictures: {pixels.words()}{doubt}"


def _numbered(job: Job, inputs: Inputs, preparation: str) -> Target:
    """Inputs in the very batches that the command makes without a cluster."""
    order = Streams(job.method.seed).order().permutation(len(inputs))[: job.max_samples]
    mixed, plain = row_blocks(order, job.batch_size), row_blocks(np.sort(order), job.batch_size, ROWS)
    blocks, in_order = ([Numbered(b.batches, b.name) for b in rows] for rows in (mixed, plain))
    return Target(
        blocks=blocks,
        in_order=in_order,
        source=Sent(inputs),
        rows=len(inputs),
        preparation=preparation,
        about=_digest(inputs, order),
        inputs=inputs,
        probe=_readable(inputs, order),
        batch_size=job.batch_size,
    )


def _readable(inputs: Inputs, order: NDArray[np.intp]) -> NDArray[np.intp]:
    """A few inputs that can be read; the workers count the others."""
    found: list[int] = []
    for i in order[:100].tolist():
        if len(found) == FEW:
            break
        try:
            inputs.read(i)
        except MissingExtraError:
            raise
        except Exception as error:  # decoders raise whatever they like on a broken file
            problem = error
        else:
            found.append(i)
    if not found:
        raise InputError(f"expected inputs that can be read, got the first that cannot: {problem}") from problem
    return np.array(found)


def _digest(inputs: Inputs, order: NDArray[np.intp]) -> str:
    """What inputs are known by: their names, and which of them are used."""
    digest = hashlib.sha256(order.tobytes())
    for i in range(len(inputs)):
        digest.update(inputs.name(i).encode() + b"\0")
    return digest.hexdigest()
