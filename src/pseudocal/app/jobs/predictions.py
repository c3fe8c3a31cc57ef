"""Calibrated probabilities of every input as parquet files, one for each block: in order, exactly once.

A worker writes a block's file aside and renames it, so a file that is there is whole, and doing a block twice is the
same as doing it once. A run that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.jobs.parts import part_columns, write_part
from pseudocal.arrays import InputError, Logits, Maps, Probabilities
from pseudocal.batches import count, is_array
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.blocks import Block, Contents, as_blocks, contents_of, received, sendable
from pseudocal.calibrators.executors import Executor, Failure, LeftOut, WorkOnBlock, unreadable_in
from pseudocal.metrics.image_rows import ImageRow, image_row
from pseudocal.predictors import Checked, Deferred, as_predictor
from pseudocal.scaling import scaling_to_dict

RECORD = "predictions.json"
PART = "part-{:06d}.parquet"


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
    about: str = "",
    classes: Sequence[str] = (),
    advance: Callable[[int], object] = lambda rows: None,
) -> dict[str, Any]:
    """Write the calibrated probabilities of each block to its own file in the folder `out`, and say what was done.

    The blocks are those of `PseudoCal.fit`, with a `source` if they read from one, or an array of inputs.
    `out` must be a folder that every worker can write to. Files that an earlier run of the same model, calibration and
    blocks has finished are kept; those of another are replaced. `about` is what else tells two runs apart. A model that
    labels every pixel has one row for each image, and `classes` are their names there.
    """
    out = Path(out)
    if is_array(blocks):
        blocks, source = spans(count(blocks)), blocks
    blocks = as_blocks(blocks)
    start = partial(_start, calibration, model, sendable(source), out.resolve(), batch_size, binary, classes)
    with _folder(out, _run(calibration, model, blocks, about)):
        return _work_on(blocks, start, out, executor, advance)


def _work_on(
    blocks: Sequence[Block],
    start: Callable[[], WorkOnBlock],
    out: Path,
    executor: Executor,
    advance: Callable[[int], object],
) -> dict[str, Any]:
    todo = [(i, block) for i, block in enumerate(blocks) if not (out / PART.format(i)).exists()]
    left_out, unreadable = LeftOut(len(blocks), executor.max_bad), unreadable_in(blocks, executor.max_bad)
    rows = 0
    with closing(executor.map(start, todo)) as results:
        for (_, block), result in zip(todo, results, strict=True):
            if isinstance(result, Failure):
                left_out.add(block.name, result.reason)
                continue
            unreadable.update(result[1])
            rows += result[0]
            advance(result[0])
    done = {"files": len(blocks) - len(left_out.why), "rows_written": rows, "left_out": left_out.why}
    return done | ({"unreadable": unreadable.why} if unreadable.why else {})


@contextmanager
def _folder(out: Path, run: str) -> Iterator[None]:
    """Make the folder ready: what another run has left in it goes away. A failure before the first part leaves none."""
    record = out / RECORD
    if not record.exists() and out.exists() and any(out.glob("part-*.parquet")):
        raise InputError(f"expected an empty folder or one of an earlier run, got {out} with parts and no {RECORD}")
    if record.exists() and json.loads(record.read_text(encoding="utf-8")).get("run") != run:
        for part in out.glob("part-*.parquet"):
            part.unlink()
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    aside = out / f".{RECORD}.{os.getpid()}"
    aside.write_text(json.dumps({"format": "pseudocal-predictions", "format_version": 1, "run": run}), encoding="utf-8")
    os.replace(aside, record)
    try:
        yield
    except BaseException:
        if not any(out.glob("part-*.parquet")):
            record.unlink(missing_ok=True)
            for folder in made:
                with suppress(OSError):  # something else lies there by now
                    folder.rmdir()
        raise


def _run(calibration: Calibration, model: Any, blocks: Sequence[Block], about: str) -> str:
    """What a run is known by: the model as far as it has a name, the correction, and the blocks."""
    known = model.make if isinstance(model, Deferred) else None
    name = repr(known.args) if isinstance(known, partial) else str(model) if isinstance(model, str | Path) else None
    text = json.dumps([name, about, scaling_to_dict(calibration.scaling), [repr(block) for block in blocks]])
    return hashlib.sha256(text.encode()).hexdigest()


def _start(
    calibration: Calibration, model: Any, source: Any, out: Path, batch_size: int, binary: bool, classes: Sequence[str]
) -> WorkOnBlock:
    predict, whole = Checked(as_predictor(model), binary=binary), received(source)

    def work(number: int, item: tuple[int, Block]) -> tuple[int, dict[str, str]]:
        part, block = item
        read = contents_of(block, whole)
        x = read.inputs
        batches = (
            [batch.inputs for batch in x]
            if read.numbered
            else [x[i : i + batch_size] for i in range(0, len(x), batch_size)]
        )
        said: list[Any] = [_said(calibration, predict(batch)) for batch in batches]
        rows = sum(map(len, said))
        if said:
            names = read.names or [block.name] * rows
            whole_block: Any = np.concatenate(said) if isinstance(said[0], np.ndarray) else list(chain(*said))
            write_part(out / PART.format(part), part_columns(names, whole_block, classes))
        return rows, read.unreadable

    return work


def _said(calibration: Calibration, logits: Logits | Maps) -> Probabilities | list[ImageRow]:
    """A row of probabilities for each input, or a few numbers for each image whose every pixel has a class."""
    if logits.ndim == 2:
        return calibration.probabilities(logits)
    return [image_row(image, calibration.temperature) for image in logits]
