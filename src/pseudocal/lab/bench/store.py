"""Where the benchmark keeps what it computes; every file is written aside and renamed.

    OUT/suites/NAME.json          the tasks and calibrators of a suite as it was last run: what `table` reads
    OUT/tasks/DATA/SCENARIO/SOURCE-TARGET/METHOD/SEED-HASH/
        settings.json             the task, versions
        train.json                the training's curve of target error and NLL; written last of what training writes
        model.safetensors         the network; above a frozen backbone its head alone
        target.npz                logits, features, flipped (logits of the mirrored images); no labels
        target_labels.npy         read by `score` alone
        source_val.npz            logits, features, labels of held-out source rows (not for source-free tasks)
        source_train.npz          features of the source rows that were trained on (likewise)
        mixes/NAME.npz            one for each synthesis: logits of the mixes, labels (pseudo-labels), and for mixup the
                                  row numbers first (larger share) and second, in the order PseudoCal drew them
        calibrations/NAME.json    a `Calibration`, for the calibrators that correct logits
        calibrations/NAME.npy     corrected target logits, for those that answer with other predictions
        scores.json               metrics by calibrator
        times.json                seconds of each stage: wall, CPU
        error.json                what went wrong in which stage, if something did

Features of a frozen backbone lie in the cache folder (`pseudocal.lab.bench.views`), shared by all tasks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.files import replacing, save_json
from pseudocal.lab.adapt.runs import training_versions
from pseudocal.lab.bench.task import Suite, Task

try:
    import fcntl
except ImportError:  # not on Windows, where two runs had better not share a folder
    fcntl = None  # type: ignore[assignment]

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Store:
    """An output folder, and what a run may know beside it."""

    out: Path
    root: Path | None = None  # of a benchmark's images, for data that are not built in
    threads: int = 1  # of torch, in each process; another number may change the last digits

    def folder(self, task: Task) -> Path:
        """The task's folder."""
        return self.out / "tasks" / task.folder

    def start(self, task: Task) -> Path:
        """The task's folder with its settings written down, or checked against those that are there."""
        folder = self.folder(task)
        path, settings = folder / "settings.json", json.loads(json.dumps(asdict(task)))
        if path.exists():
            before = json.loads(path.read_text())["task"]
            if before != settings:
                raise InputError(f"expected the settings of {task.pair} in {path}, got those of another task")
        else:
            save_json(path, {"task": settings, "versions": training_versions()})
        return folder

    def save_suite(self, suite: Suite) -> None:
        """Write down what was run last under this name."""
        save_json(self.out / "suites" / f"{suite.name}.json", suite.to_dict())

    def load_suite(self, name: str) -> Suite:
        """The suite as it was last run."""
        path = self.out / "suites" / f"{name}.json"
        if not path.exists():
            there = sorted(p.stem for p in path.parent.glob("*.json"))
            hint = ": it was run with --quick, say so here too" if f"{name}-quick" in there else ""
            raise InputError(
                f"expected a suite that was run into {self.out} ({', '.join(there) or 'none'}), got {name!r}{hint}"
            )
        return Suite.from_dict(json.loads(path.read_text()))

    def scores(self, task: Task) -> dict[str, dict[str, float | None]]:
        """Metrics by calibrator; empty if the task is not scored."""
        path = self.folder(task) / "scores.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def error(self, task: Task) -> dict[str, str] | None:
        """What went wrong, if something did."""
        path = self.folder(task) / "error.json"
        return dict(json.loads(path.read_text())) if path.exists() else None


def read_arrays(path: Path) -> Arrays:
    """All arrays of an .npz."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an .npy."""
    with replacing(path) as aside:
        np.save(aside, array, allow_pickle=False)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other run is at work in a folder; the lock goes with its process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def timed(folder: Path, stage: str) -> Iterator[None]:
    """Note how long a stage took, apart from what it found: times differ from run to run."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    path = folder / "times.json"
    times = json.loads(path.read_text()) if path.exists() else {}
    times[stage] = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    save_json(path, times)
