"""Calibrated probabilities of every input as parquet files, one for each block: in order, exactly once.

A worker writes a block's file aside and renames it, so a file that is there is whole, and doing a block twice is the
same as doing it once. A run that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, MissingExtraError, Probabilities
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.blocks import Block, received, sendable
from pseudocal.calibrators.divided import Executor, Failure, LeftOut, Work
from pseudocal.predictors import Checked, Deferred, as_predictor
from pseudocal.predictors.deferred import by_name
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

    def named(self, source: Any) -> tuple[list[str], Any]:
        """The rows with the number of each."""
        return [str(i) for i in range(self.start, self.stop)], self.read(source)


def spans(n: int, rows: int = 8192) -> list[Span]:
    """All rows of a source of n, in order.

    >>> spans(5, 3)
    [Span(start=0, stop=3), Span(start=3, stop=5)]
    """
    return [Span(start, min(start + rows, n)) for start in range(0, n, rows)]


def predict_blocks(
    calibration: Calibration,
    model: Any,
    blocks: Sequence[Block],
    out: Path | str,
    *,
    executor: Executor,
    source: Any = None,
    batch_size: int = 128,
    binary: bool = False,
    about: str = "",
    advance: Callable[[int], object] = lambda rows: None,
) -> dict[str, Any]:
    """Write the calibrated probabilities of each block to its own file in the folder `out`, and say what was done.

    `out` must be a folder that every worker can write to. Files that an earlier run of the same model, calibration and
    blocks has finished are kept; those of another are replaced. `about` is what else tells two runs apart.
    """
    out = Path(out)
    _open_folder(out, _run(calibration, model, blocks, about))
    model = by_name(model, binary)
    todo = [(i, block) for i, block in enumerate(blocks) if not (out / PART.format(i)).exists()]
    start = partial(_start, calibration, model, sendable(source), out.resolve(), batch_size, binary)
    left_out, rows = LeftOut(len(blocks), executor.max_bad), 0
    with closing(executor.map(start, todo)) as results:
        for (_, block), result in zip(todo, results, strict=True):
            if isinstance(result, Failure):
                left_out.add(block.name, result.reason)
            else:
                rows += result
                advance(result)
    return {"files": len(blocks) - len(left_out.why), "rows_written": rows, "left_out": left_out.why}


def _open_folder(out: Path, run: str) -> None:
    """Make the folder ready: what another run has left in it goes away."""
    record = out / RECORD
    if not record.exists() and out.exists() and any(out.glob("part-*.parquet")):
        raise InputError(f"expected an empty folder or one of an earlier run, got {out} with parts and no {RECORD}")
    if record.exists() and json.loads(record.read_text(encoding="utf-8")).get("run") != run:
        for part in out.glob("part-*.parquet"):
            part.unlink()
    out.mkdir(parents=True, exist_ok=True)
    aside = out / f".{RECORD}.{os.getpid()}"
    aside.write_text(json.dumps({"format": "pseudocal-predictions", "format_version": 1, "run": run}), encoding="utf-8")
    os.replace(aside, record)


def _run(calibration: Calibration, model: Any, blocks: Sequence[Block], about: str) -> str:
    """What a run is known by: the model as far as it has a name, the correction, and the blocks."""
    known = model.make if isinstance(model, Deferred) else None
    name = repr(known.args) if isinstance(known, partial) else str(model) if isinstance(model, str | Path) else None
    text = json.dumps([name, about, scaling_to_dict(calibration.scaling), [repr(block) for block in blocks]])
    return hashlib.sha256(text.encode()).hexdigest()


def _start(calibration: Calibration, model: Any, source: Any, out: Path, batch_size: int, binary: bool) -> Work:
    predict, opened = Checked(as_predictor(model), binary=binary), received(source)

    def work(number: int, item: tuple[int, Block]) -> int:
        part, block = item
        names, x = block.named(opened) if hasattr(block, "named") else (None, block.read(opened))
        batches = x if isinstance(x, list) else [x[i : i + batch_size] for i in range(0, len(x), batch_size)]
        probabilities = np.concatenate([calibration.probabilities(predict(batch)) for batch in batches])
        _write(out / PART.format(part), names or [block.name] * len(probabilities), probabilities)
        return len(probabilities)

    return work


def _write(path: Path, names: list[str], probabilities: Probabilities) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "cli") from error
    rows: NDArray[np.int64] = np.arange(len(names))
    top = probabilities.argmax(axis=1)
    flat = pa.array(np.ascontiguousarray(probabilities, dtype=np.float32).ravel())
    columns = {
        "file": pa.array(names, pa.string()),
        "row": pa.array(rows),
        "class": pa.array(top.astype(np.int32)),
        "confidence": pa.array(probabilities[rows, top].astype(np.float32)),
        "probabilities": pa.FixedSizeListArray.from_arrays(flat, probabilities.shape[1]),
    }
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(pa.table(columns), aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
