"""Calibrated probabilities of every input as parquet files, one per block.

In order, each input exactly once.

A worker writes a block's file under a temporary name and renames it, so a file that exists is
complete, and processing a block twice does no harm. A run that was killed resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.jobs.kept_parts import KEPT_NAME, Outputs, kept_of, write_kept
from pseudocal.app.report import image_table
from pseudocal.arrays import InputError, Logits, Maps, Probabilities
from pseudocal.batches import DEFAULT_BATCH_SIZE, Batch, count, cut, is_array
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.blocks import Block, Contents, as_blocks, contents_of, sendable
from pseudocal.calibrators.calibration import scaling_to_dict
from pseudocal.calibrators.executors import Executor, Failure, WorkOnBlock, unreadable_in
from pseudocal.extras import require
from pseudocal.files import load_json, own_file, replacing, save_json, sweep
from pseudocal.metrics.images import ImageRow, image_row
from pseudocal.predictors import Checked, Deferred, as_predictor
from pseudocal.skipped import Skipped

PARTS_RECORD = "predictions.json"  # identifies the run that a folder of parts belongs to
PART_NAME = "part-{:06d}.parquet"


@dataclass(frozen=True)
class Span:
    """Consecutive rows of one source.

    >>> Span(1, 3).read(np.array([10, 20, 30]))
    array([20, 30])

    Attributes:
        start: the first row.
        stop: one past the last row.

    """

    start: int
    stop: int

    @property
    def name(self) -> str:
        """The range of rows, in words."""
        return f"rows {self.start} to {self.stop - 1}"

    def read(self, source: Any) -> Any:
        """Read the rows."""
        return source[self.start : self.stop]

    def open(self, source: Any) -> Contents:
        """Read the rows, named by their numbers."""
        return Contents(self.read(source), [str(i) for i in range(self.start, self.stop)])


def spans(n: int, rows: int = 8192) -> list[Span]:
    """Divide n rows into consecutive spans of `rows` rows.

    >>> spans(5, 3)
    [Span(start=0, stop=3), Span(start=3, stop=5)]
    """
    return [Span(start, min(start + rows, n)) for start in range(0, n, rows)]


def predict_blocks(
    calibration: Calibration,
    model: Any,
    blocks: Any,
    out: Path | str,
    *,
    executor: Executor,
    source: Any = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    binary: bool = False,
) -> dict[str, Any]:
    """Write the calibrated probabilities of each block to its own file in the folder `out`, and return a record.

    Files from an earlier run with the same model, calibration and blocks are kept; those of other
    runs are replaced. A segmenter gets one row per image.

    Args:
        calibration: the calibration to apply.
        model: the model, as in `PseudoCal.fit`.
        blocks: the blocks, as in `PseudoCal.fit`, or an array of inputs.
        out: a folder that every worker can write to.
        executor: runs the work on the blocks.
        source: what the blocks read from, if they share one source.
        batch_size: inputs per forward pass.
        binary: whether the model returns one logit z per row, which stands for the two columns (0,
            z).

    """
    if is_array(blocks):
        blocks, source = spans(count(blocks)), blocks
    work = PartWork(calibration, model, Path(out).resolve(), sendable(source), batch_size, binary)
    parts = Parts(work, as_blocks(blocks), executor)
    for _ in parts.steps():
        pass
    return parts.record


@dataclass(frozen=True)
class PartWork:
    """What every worker does: predict its blocks and write each to its own file.

    Attributes:
        calibration: the calibration to apply.
        model: the model, opened by each worker.
        out: the folder of the files.
        source: what the blocks read from.
        batch_size: inputs per forward pass.
        binary: whether the model returns one logit per row.
        classes: the class names, for tables of images.
        keep: how many inputs the target has, if what questions and answers need is kept of it; else
            0.

    """

    calibration: Calibration
    model: Any
    out: Path
    source: Any = None
    batch_size: int = DEFAULT_BATCH_SIZE
    binary: bool = False
    classes: Sequence[str] = ()
    keep: int = 0

    def start(self) -> WorkOnBlock:
        """On a worker, open the model once, then predict one block after another."""
        return partial(
            self._predict, Checked(as_predictor(self.model), binary=self.binary), self.source
        )

    def _predict(
        self, predict: Checked, whole: Any, _: int, item: tuple[int, Block]
    ) -> tuple[int, dict[str, str]]:
        part, block = item
        read = contents_of(block, whole)
        x = read.inputs
        batches = (
            x
            if read.numbered
            else [Batch(0, rows, x[rows]) for rows in cut(np.arange(len(x)), self.batch_size)]
        )
        outputs: list[Any] = []
        kept: Outputs = []
        for batch in batches:
            logits = predict(batch.inputs)
            outputs.append(_calibrated(self.calibration, logits))
            if self.keep:
                kept.append(
                    (batch.rows, kept_of(whole, batch.rows, logits, outputs[-1], self.keep))
                )
        rows = sum(map(len, outputs))
        if kept:
            write_kept(self.out / KEPT_NAME.format(part), kept)
        if outputs:
            names = read.names or [block.name] * rows
            predicted: Any = (
                np.concatenate(outputs)
                if isinstance(outputs[0], np.ndarray)
                else list(chain(*outputs))
            )
            write_part(
                self.out / PART_NAME.format(part), part_columns(names, predicted, self.classes)
            )
        return rows, read.unreadable

    def key(self, blocks: Sequence[Block], about: str) -> str:
        """Identify a run by its model (if it has a name), its calibration and its blocks."""
        made = self.model.make if isinstance(self.model, Deferred) else None
        name = repr(made.args) if isinstance(made, partial) else None
        text = json.dumps(
            [name, about, scaling_to_dict(self.calibration.scaling), [_known_by(b) for b in blocks]]
        )
        return hashlib.sha256(text.encode()).hexdigest()


class Parts:
    """Let workers write the parts that do not exist yet; `steps` does it, one block at a time.

    Args:
        work: what each worker does.
        blocks: the blocks in the order of the data.
        executor: runs the work on the blocks.
        about: a key of the data, which also identifies the run.

    """

    def __init__(
        self, work: PartWork, blocks: Sequence[Block], executor: Executor, about: str = ""
    ) -> None:
        self._work, self._blocks, self._executor = work, blocks, executor
        self._key = work.key(blocks, about)
        self._skipped = Skipped(len(blocks), executor.max_bad, "blocks to fail")
        self._unreadable = unreadable_in(blocks, executor.max_bad)
        self._rows = 0

    def steps(self) -> Iterator[int]:
        """Process the blocks and yield how many are done, including those of an earlier run."""
        out = self._work.out
        with _folder(out, self._key):
            wanted = (PART_NAME, KEPT_NAME) if self._work.keep else (PART_NAME,)
            missing = [
                not all((out / name.format(i)).exists() for name in wanted)
                for i in range(len(self._blocks))
            ]
            todo = [(i, block) for i, block in enumerate(self._blocks) if missing[i]]
            existing = len(self._blocks) - len(todo)
            with closing(self._executor.map(self._work.start, todo)) as results:
                for done, ((_, block), result) in enumerate(
                    zip(todo, results, strict=True), start=existing + 1
                ):
                    if isinstance(result, Failure):
                        self._skipped.add(block.name, result.reason)
                    else:
                        self._rows += result[0]
                        self._unreadable.update(result[1])
                    yield done

    @property
    def record(self) -> dict[str, Any]:
        """The numbers of files and rows written, and what was left out."""
        files = len(self._blocks) - len(self._skipped.why)
        record = {"files": files, "rows_written": self._rows, "skipped": self._skipped.why}
        return record | ({"unreadable": self._unreadable.why} if self._unreadable.why else {})


@contextmanager
def _folder(out: Path, key: str) -> Iterator[None]:
    """Prepare the folder: remove the parts of another run.

    A failure before the first part removes the folder again.
    """
    record = own_file(out, PARTS_RECORD)
    if not record.exists() and out.exists() and any(out.glob("part-*.parquet")):
        raise InputError(
            f"expected an empty folder or one of an earlier run, got {out} with parts and no {PARTS_RECORD}"
        )
    known = load_json(record, "the record of a run") if record.exists() else None
    if known is not None and not (isinstance(known, dict) and known.get("run") == key):
        _remove_parts(out)
    sweep(out)
    created = [folder for folder in (out, *out.parents) if not folder.exists()]
    save_json(record, {"format": "pseudocal-predictions", "format_version": 1, "run": key})
    try:
        yield
    except BaseException:
        sweep(out)
        if not any(out.glob("part-*.parquet")):
            _remove_parts(out)
            record.unlink(missing_ok=True)
            for folder in created:
                with suppress(OSError):  # not empty any more
                    folder.rmdir()
        raise
    sweep(out)  # a worker that died may have left something


def _remove_parts(out: Path) -> None:
    for part in (*out.glob("part-*.parquet"), *out.glob("kept-*.npz")):
        part.unlink()


def _known_by(block: Block) -> str:
    """Identify a block by its name and its rows."""
    rows = [batch.rows.tolist() for batch in getattr(block, "batches", ())]
    return f"{block!r}" if not rows else f"{block.name} {rows}"


def _calibrated(calibration: Calibration, logits: Logits | Maps) -> Probabilities | list[ImageRow]:
    """Return calibrated probabilities for each input or, from a segmenter, a few numbers for each image."""
    if logits.ndim == 2:
        return calibration.probabilities(logits)
    return [image_row(image, calibration.temperature) for image in logits]


def part_columns(
    names: list[str], predicted: Probabilities | list[ImageRow], classes: Sequence[str]
) -> dict[str, Any]:
    """Return the columns of a part.

    Images have the same columns as in every other table of images.
    """
    pa = _pyarrow()
    if isinstance(predicted, list):
        columns = image_table(names, predicted, classes)
        kinds = {
            "file": pa.string(),
            "class": pa.int32(),
            "class_name": pa.string(),
            "fractions": pa.list_(pa.float32()),
        }
        return {
            name: pa.array(list(column), kinds.get(name, pa.float32()))
            for name, column in columns.items()
        }
    rows: NDArray[np.int64] = np.arange(len(names))
    top = predicted.argmax(axis=1)
    flat = pa.array(np.ascontiguousarray(predicted, dtype=np.float32).ravel())
    return {
        "file": pa.array(names, pa.string()),
        "row": pa.array(rows),
        "class": pa.array(top.astype(np.int32)),
        "confidence": pa.array(predicted[rows, top].astype(np.float32)),
        "probabilities": pa.FixedSizeListArray.from_arrays(flat, predicted.shape[1]),
    }


def write_part(path: Path, columns: dict[str, Any]) -> None:
    """Write a part under a temporary name and rename it, so that a part that exists is complete."""
    pa = _pyarrow()
    with replacing(path) as aside:
        pa.parquet.write_table(pa.table(columns), aside)


def read_images(out: Path) -> Iterator[tuple[str, ImageRow]]:
    """Yield the name of each image and what was written about it, part by part."""
    wanted = ["file", "fractions", "confidence_before", "confidence_after"]
    for path in sorted(out.glob("part-*.parquet")):
        columns = _pyarrow().parquet.read_table(path, columns=wanted).to_pydict()
        for name, fractions, before, after in zip(*(columns[key] for key in wanted), strict=True):
            yield name, ImageRow(np.array(fractions), before, after)


def _pyarrow() -> Any:
    require("pyarrow.parquet", "parquet")
    return require("pyarrow", "parquet")
