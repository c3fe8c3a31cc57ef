"""The runs of batches: several as one, to be labelled, and what their rows say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import csv_cell
from pseudocal.app.labelling import JOINED, ToLabel, shown_inputs
from pseudocal.app.run import LogitWriter, Run, save_run
from pseudocal.arrays import InputError, Logits
from pseudocal.calibrators.evidence import Evidence
from pseudocal.monitor import Signals

MOST_ROWS = 10_000  # inputs that a person's labels are drawn from


@dataclass(frozen=True)
class Rows:
    """Some inputs of the run of a batch.

    Attributes:
        run: the run.
        time: the time of the batch.
        rows: the numbers of the inputs, in ascending order.

    """

    run: Run
    time: str
    rows: NDArray[np.intp]


def signals_of(run: Run) -> Signals:
    """The signals of a run; only its first second model counts."""
    second = None
    if run.record.second_models:
        second = np.asarray(run.second_logits[0])
    return Signals.of(np.asarray(run.logits), second)


def agreement_of(run: Run) -> float | None:
    """How often the first second model agrees; None without one."""
    if not run.record.second_models:
        return None
    same = run.second_logits[0].argmax(axis=1) == run.logits.argmax(axis=1)
    return float(same.mean())


def check_rows_only(run: Run) -> None:
    """Refuse a segmentation model: its pixels are not independent."""
    if run.pixels is not None:
        raise InputError(
            f"{run.folder} is of a segmentation model, which cannot be watched yet: use "
            "pseudocal.monitor with one mean signal per image"
        )


def join_runs(runs: Sequence[tuple[Run, str]], folder: Path, place: Path, *, seed: int = 0) -> None:
    """Write inputs of several runs of one model as one run, at most `MOST_ROWS` drawn at random.

    Args:
        runs: each run and the time of its batch.
        folder: an empty folder.
        place: where the folder will be moved to.
        seed: the seed of the draw.

    """
    parts = _drawn(runs, seed)
    total = sum(len(part.rows) for part in parts)
    writer = LogitWriter(folder, total)
    start = 0
    for part in parts:
        logits: list[Logits] = [part.run.logits, *part.run.second_logits]
        rows = np.arange(start, start + len(part.rows))
        writer.write(rows, *(np.asarray(each)[part.rows] for each in logits))
        start += len(part.rows)
    writer.finish()
    first = parts[0].run
    record = replace(first.record, **_described(parts, folder, place))
    about = replace(record.data, inputs=total, used=total, unreadable=(), skipped=())
    probe: Any = np.empty(0)
    if first.record.probe:
        probe = first.probe()
        record = replace(record, probe=_positions(parts[0].rows, first.record.probe))
    save_run(folder, replace(record, data=about), _joined_evidence(runs), probe)


def _drawn(runs: Sequence[tuple[Run, str]], seed: int) -> list[Rows]:
    """Draw inputs from all runs alike; those that check an exported model are always among them."""
    sizes = [len(run.logits) for run, _ in runs]
    chosen = np.arange(sum(sizes))
    if len(chosen) > MOST_ROWS:
        chosen = np.random.default_rng(seed).permutation(len(chosen))[:MOST_ROWS]
    probe = np.array(runs[0][0].record.probe, dtype=np.intp)
    chosen = np.union1d(chosen, probe)
    parts = []
    start = 0
    for (run, time), size in zip(runs, sizes, strict=True):
        rows = chosen[(chosen >= start) & (chosen < start + size)] - start
        if len(rows):
            parts.append(Rows(run, time, rows))
        start += size
    return parts


def _positions(rows: NDArray[np.intp], wanted: Sequence[int]) -> tuple[int, ...]:
    return tuple(np.searchsorted(rows, np.array(wanted)).tolist())


def _described(parts: Sequence[Rows], folder: Path, place: Path) -> dict[str, Any]:
    """The names of the inputs, and where a person can see them."""
    times = sorted({part.time for part in parts})
    data = replace(parts[0].run.record.data, name=f"{times[0]} to {times[-1]}")
    found: dict[str, Any] = {"ground_truth": None, "data": data, "probe": ()}
    names = [(part, row) for part in parts for row in part.rows.tolist()]
    if all(part.run.record.image_files is not None for part in parts):
        files = [str(part.run.image_file(row)) for part, row in names]
        titles = [f"{part.time} {part.run.record.names[row]}" for part, row in names]
        if len(set(titles)) < len(titles):
            titles = [f"{i} {title}" for i, title in enumerate(titles)]
        return found | {"names": tuple(titles), "image_files": tuple(files)}
    _write_inputs(folder / JOINED, parts)
    found |= {"names": tuple(str(i) for i in range(len(names))), "image_files": None}
    return found | {"source": str((place / JOINED).absolute()), "column": None}


def _write_inputs(path: Path, parts: Sequence[Rows]) -> None:
    """Write what is known of rows of tables, texts and arrays, with the time of their batch."""
    shown = [(part, one) for part in parts for one in _shown(part)]
    columns = list(dict.fromkeys(name for _, one in shown for name, _ in one.cells))
    with path.open("w", newline="", encoding="utf-8") as file:
        header = ["batch", "input", *columns]
        file.write(",".join(map(csv_cell, header)) + "\n")
        for part, one in shown:
            cells = dict(one.cells)
            values = [part.time, one.name, *(cells.get(name, "") for name in columns)]
            file.write(",".join(map(csv_cell, values)) + "\n")


def _shown(part: Rows) -> list[ToLabel]:
    try:
        return shown_inputs(part.run, part.rows)
    except InputError:  # the data is not there any more: the names remain
        return [ToLabel(part.run.record.names[row]) for row in part.rows.tolist()]


def _joined_evidence(runs: Sequence[tuple[Run, str]]) -> Evidence | None:
    found: Evidence | None = None
    for run, _ in runs:
        evidence = run.evidence()
        if evidence is None:
            continue
        if found is None:
            found = evidence
        else:
            found.merge(evidence.pack())
    return found
