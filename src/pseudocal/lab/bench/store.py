"""Where the benchmark keeps what it computes; every file is written aside and renamed.

    OUT/suites/NAME.json          the tasks and calibrators of a suite as it was last run: what `table` reads
    OUT/tasks/DATA/SCENARIO/SOURCE-TARGET/METHOD/SEED-HASH/
        settings.json             the task, versions
        training/                 while the model is trained: what that goes on from after a kill, and its outputs
        train.json                the training's curve of target error and NLL
        model.safetensors         the network; above a frozen backbone its head alone; written last by the training
        source_val.npz            logits, features, labels of held-out source rows (not for source-free tasks)
        source_train.npz          features of the source rows that were trained on (likewise)
        target_labels.npy         read by `score` alone
        target.npz                logits, features; no labels; written last by `predict`
        mixes/NAME.npz            one for each synthesis: logits of the mixes, labels (pseudo-labels), and for mixup the
                                  row numbers first (larger share) and second
        calibrations/NAME.json    a `Calibration`, for the calibrators that correct logits
        calibrations/NAME.npy     corrected target logits, for those that answer with other predictions
        scores.json               metrics by calibrator
        reliability.npz           edges of the bins, and by calibrator count, sum of confidence, number of right rows
        times.json                seconds of each stage: wall, CPU
        error.json                what went wrong in which stage, if something did

All targets of a source and seed share one segmenter, in the folder of a task with the target "any". Segmentation has no
files of `predict` and `synthesise`: the logits of every pixel are too much to keep.

Features of a frozen backbone lie in the cache folder (`pseudocal.lab.bench.views`), shared by all tasks.
"""

from __future__ import annotations

import json
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
from pseudocal.lab.data.cache import NamedArrays

try:
    import fcntl
except ImportError:  # not on Windows, where two runs had better not share a folder
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Store:
    """An output folder, and what a run may know beside it.

    Attributes:
        out: the folder.
        root: where the images of a data set lie that is not built in.
        threads: of torch and BLAS, in each process; another number may change the last digits.

    """

    out: Path
    root: Path | None = None
    threads: int = 1

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
            hint = f": is {name}-quick meant?" if f"{name}-quick" in there else ""
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
        for path in (self.folder(each) / "error.json" for each in (task.training, task)):
            if path.exists():
                return dict(json.loads(path.read_text()))
        return None

    def has_model(self, task: Task) -> bool:
        """Whether the task's model is trained, its outputs are written, and nothing is left over of the training."""
        folder = self.folder(task.training)
        trained = (folder / "model.safetensors").exists() and not (folder / "training").exists()
        return trained and (task.segments or (folder / "target.npz").exists())

    def members(self, task: Task) -> list[Task]:
        """The task's ensemble, whose models are all there."""
        for member in task.members():
            if not self.has_model(member):
                raise InputError(f"expected all members of the ensemble, got none of seed {member.seed}")
        return task.members()


def load_arrays(path: Path) -> NamedArrays:
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
