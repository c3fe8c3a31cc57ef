"""Calibrated probabilities of every input as parquet files, one for each block: in order, exactly once.

A worker writes a block's file aside and renames it, so a file that is there is whole, and doing a block twice is the
same as doing it once. A run that was killed goes on where it was.
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

from pseudocal.app.report import image_table
from pseudocal.arrays import InputError, Logits, Maps, Probabilities
from pseudocal.batches import Batch, count, cut, is_array
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.blocks import Block, Contents, as_blocks, contents_of, received, sendable
from pseudocal.calibrators.calibration import scaling_to_dict
from pseudocal.calibrators.executors import Executor, Failure, WorkOnBlock, unreadable_in
from pseudocal.extras import require
from pseudocal.files import replacing, save_json
from pseudocal.metrics.images import ImageRow, image_row
from pseudocal.omissions import Omissions
from pseudocal.predictors import Checked, Deferred, as_predictor

PARTS_RECORD = "predictions.json"  # what a folder of parts is known by
PART_NAME = "part-{:06d}.parquet"


@dataclass(frozen=True)
class Span:
    """Consecutive rows of one source.

    >>> Span(1, 3).read(np.array([10, 20, 30]))
    array([20, 30])
    """

    start: int
    stop: int

    @property
    def name(self) -> str:
        """Which rows they are."""
        return f"rows {self.start} to {self.stop - 1}"

    def read(self, source: Any) -> Any:
        """The rows."""
        return source[self.start : self.stop]

    def open(self, source: Any) -> Contents:
        """The rows with the number of each."""
        return Contents(self.read(source), [str(i) for i in range(self.start, self.stop)])


def spans(n: int, rows: int = 8192) -> list[Span]:
    """All rows of a source of n, in order.

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
    batch_size: int = 128,
    binary: bool = False,
) -> dict[str, Any]:
    """Write the calibrated probabilities of each block to its own file in the folder `out`, and say what was done.

    Files that an earlier run of the same model, calibration and blocks has finished are kept; those of another are
    replaced. A model that labels every pixel has one row for each image.

    Args:
        calibration: what to apply.
        model: as in `PseudoCal.fit`.
        blocks: those of `PseudoCal.fit`, or an array of inputs.
        out: a folder that every worker can write to.
        executor: where the blocks are worked on.
        source: what the blocks read from, if they read from one.
        batch_size: inputs that are predicted together.
        binary: the model gives one logit per row, which stands for the two columns (0, z).

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
    """What every worker does with its blocks: predict them and write each to its own file.

    Attributes:
        calibration: what to apply.
        model: made on each worker.
        out: the folder of the files.
        source: what the blocks read from.
        batch_size: inputs that are predicted together.
        binary: the model gives one logit per row.
        classes: the names of the classes, for rows of images.

    """

    calibration: Calibration
    model: Any
    out: Path
    source: Any = None
    batch_size: int = 128
    binary: bool = False
    classes: Sequence[str] = ()

    def start(self) -> WorkOnBlock:
        """On a worker: make the model once; then predict one block after another."""
        return partial(self._predict, Checked(as_predictor(self.model), binary=self.binary), received(self.source))

    def _predict(self, predict: Checked, whole: Any, _: int, item: tuple[int, Block]) -> tuple[int, dict[str, str]]:
        part, block = item
        read = contents_of(block, whole)
        x = read.inputs
        batches = x if read.numbered else [Batch(0, rows, x[rows]) for rows in cut(np.arange(len(x)), self.batch_size)]
        said: list[Any] = [_said(self.calibration, predict(batch.inputs)) for batch in batches]
        rows = sum(map(len, said))
        if said:
            names = read.names or [block.name] * rows
            whole_block: Any = np.concatenate(said) if isinstance(said[0], np.ndarray) else list(chain(*said))
            write_part(self.out / PART_NAME.format(part), part_columns(names, whole_block, self.classes))
        return rows, read.unreadable

    def key(self, blocks: Sequence[Block], about: str) -> str:
        """What a run is known by: the model as far as it has a name, the correction, and the blocks."""
        made = self.model.make if isinstance(self.model, Deferred) else None
        name = repr(made.args) if isinstance(made, partial) else None
        text = json.dumps([name, about, scaling_to_dict(self.calibration.scaling), [_known_by(b) for b in blocks]])
        return hashlib.sha256(text.encode()).hexdigest()


class Parts:
    """Let workers write the parts that are not there yet; `steps` does it, a block at a time.

    Args:
        work: what each worker does.
        blocks: the blocks in the order of the data.
        executor: where they are worked on.
        about: what else tells two runs apart.

    """

    def __init__(self, work: PartWork, blocks: Sequence[Block], executor: Executor, about: str = "") -> None:
        self._work, self._blocks, self._executor = work, blocks, executor
        self._key = work.key(blocks, about)
        self._left_out = Omissions(len(blocks), executor.max_bad, "blocks to fail")
        self._unreadable = unreadable_in(blocks, executor.max_bad)
        self._rows = 0

    def steps(self) -> Iterator[int]:
        """Work on the blocks and yield how many are done, those of an earlier run among them."""
        out = self._work.out
        with _folder(out, self._key):
            todo = [(i, block) for i, block in enumerate(self._blocks) if not (out / PART_NAME.format(i)).exists()]
            there = len(self._blocks) - len(todo)
            with closing(self._executor.map(self._work.start, todo)) as results:
                for done, ((_, block), result) in enumerate(zip(todo, results, strict=True), start=there + 1):
                    if isinstance(result, Failure):
                        self._left_out.add(block.name, result.reason)
                    else:
                        self._rows += result[0]
                        self._unreadable.update(result[1])
                    yield done

    @property
    def record(self) -> dict[str, Any]:
        """What was done."""
        files = len(self._blocks) - len(self._left_out.why)
        record = {"files": files, "rows_written": self._rows, "left_out": self._left_out.why}
        return record | ({"unreadable": self._unreadable.why} if self._unreadable.why else {})


@contextmanager
def _folder(out: Path, key: str) -> Iterator[None]:
    """Make the folder ready: what another run has left in it goes away. A failure before the first part leaves none."""
    record = out / PARTS_RECORD
    if not record.exists() and out.exists() and any(out.glob("part-*.parquet")):
        raise InputError(
            f"expected an empty folder or one of an earlier run, got {out} with parts and no {PARTS_RECORD}"
        )
    if record.exists() and json.loads(record.read_text(encoding="utf-8")).get("run") != key:
        for part in out.glob("part-*.parquet"):
            part.unlink()
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    save_json(record, {"format": "pseudocal-predictions", "format_version": 1, "run": key})
    try:
        yield
    except BaseException:
        if not any(out.glob("part-*.parquet")):
            record.unlink(missing_ok=True)
            for folder in made:
                with suppress(OSError):  # something else lies there by now
                    folder.rmdir()
        raise


def _known_by(block: Block) -> str:
    """What a block is known by: its name, and which rows it holds."""
    rows = [batch.rows.tolist() for batch in getattr(block, "batches", ())]
    return f"{block!r}" if not rows else f"{block.name} {rows}"


def _said(calibration: Calibration, logits: Logits | Maps) -> Probabilities | list[ImageRow]:
    """A row of probabilities for each input, or a few numbers for each image whose every pixel has a class."""
    if logits.ndim == 2:
        return calibration.probabilities(logits)
    return [image_row(image, calibration.temperature) for image in logits]


def part_columns(names: list[str], said: Probabilities | list[ImageRow], classes: Sequence[str]) -> dict[str, Any]:
    """The columns of a part; those of images are the columns that predictions of images have anywhere."""
    pa = _pyarrow()
    if isinstance(said, list):
        columns = image_table(names, said, classes)
        kinds = {"file": pa.string(), "class": pa.int32(), "class_name": pa.string(), "shares": pa.list_(pa.float32())}
        return {name: pa.array(list(column), kinds.get(name, pa.float32())) for name, column in columns.items()}
    rows: NDArray[np.int64] = np.arange(len(names))
    top = said.argmax(axis=1)
    flat = pa.array(np.ascontiguousarray(said, dtype=np.float32).ravel())
    return {
        "file": pa.array(names, pa.string()),
        "row": pa.array(rows),
        "class": pa.array(top.astype(np.int32)),
        "confidence": pa.array(said[rows, top].astype(np.float32)),
        "probabilities": pa.FixedSizeListArray.from_arrays(flat, said.shape[1]),
    }


def write_part(path: Path, columns: dict[str, Any]) -> None:
    """Write a part aside and rename it, so that one that is there is whole."""
    pa = _pyarrow()
    with replacing(path) as aside:
        pa.parquet.write_table(pa.table(columns), aside)


def read_images(out: Path) -> Iterator[tuple[str, ImageRow]]:
    """The name of each image and what was written of it, part by part."""
    wanted = ["file", "shares", "confidence_before", "confidence_after"]
    for path in sorted(out.glob("part-*.parquet")):
        columns = _pyarrow().parquet.read_table(path, columns=wanted).to_pydict()
        for name, shares, before, after in zip(*(columns[key] for key in wanted), strict=True):
            yield name, ImageRow(np.array(shares), before, after)


def _pyarrow() -> Any:
    require("pyarrow.parquet", "cli")
    return require("pyarrow", "cli")
