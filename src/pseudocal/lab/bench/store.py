"""The files of the benchmark; every file is written under a temporary name and renamed.

    OUT/suites/NAME.json          the tasks and calibrators of a suite as it was last run
    OUT/tasks/DATA/SCENARIO/SOURCE-TARGET/METHOD/SEED-HASH/
        settings.json             the task, versions, hashes of the code of plugins
        training/                 during training: checkpoints, and outputs of the model
        train.json                the curve of target error and NLL
        train.jsonl               losses and learning rate during training
        tensorboard/              the same for TensorBoard, if that is installed
        model.safetensors         the network, or only its head above a frozen backbone;
                                  written last by `train`
        source_val.npz            logits, features, labels of held-out source rows
                                  (not for source-free tasks)
        source_train.npz          features of the source rows that were trained on (likewise)
        target_labels.npy         read by `score` only
        target.npz                logits, features; no labels; written last by `predict`
        mixup/NAME.npz            one for each mixup variant: logits of the mixup samples, their
                                  labels and, for mixup itself, the row numbers first (the larger
                                  part) and second
        mixup/estimates.json      what a second model and a surrogate say of the accuracy
        calibrations/NAME.json    a `Calibration`, for calibrators that scale logits
        calibrations/NAME.npy     corrected target logits, for calibrators that return logits
        calibrations/NAME.code    the hash of the code of a plugin's calibrator
        calibrations/NAME.error.json    why a calibrator failed, with its traceback
        scores.json               metrics by calibrator
        reliability.npz           edges of the bins; by calibrator the count, the sum of confidence
                                  and the number correct
        times.json                seconds of each stage, wall and CPU, and CPU seconds of each
                                  calibrator: apart, since times differ from run to run
        error.json                the stage that failed and its error, if any

All targets of a source and seed share one segmenter, in the folder of a task with the target "any".
Segmentation has no files from `predict` and `mixup`: the logits of every pixel are too large
to store.

Features of a frozen backbone are in the cache folder (`pseudocal.lab.bench.views`), shared by all
tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.files import left_aside, replacing, save_json, sweep
from pseudocal.lab.adapt.runs import training_versions
from pseudocal.lab.bench.task import Suite, Task
from pseudocal.lab.data.cache import NamedArrays
from pseudocal.lab.plugins import model_hashes

try:
    import fcntl
except ImportError:  # not on Windows, where two runs must not share a folder
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Store:
    """An output folder, and the local settings of a run.

    Attributes:
        out: the folder.
        root: the folder of the images of a data set that is not built in, or one that has a folder
            for each data set, named as a task names it.
        threads: the threads of torch and BLAS in each process; another number may change the last
            digits.
        device: the device of torch: "cpu", "cuda" (with several workers, one GPU for each),
            "cuda:1", ...
        lists: the folder of the list files of a data set that is not built in, or one that has a
            folder for each data set; `root` by default.
        prefix: `(old, new)` replaces the beginning of paths in lists that were written on another
            machine.
        plugins: Python files and modules that register calibrators, methods and data sets; every
            worker imports them.
        datasets: names and folders of a user's data sets.

    """

    out: Path
    root: Path | None = None
    threads: int = 1
    device: str = "cpu"
    lists: Path | None = None
    prefix: tuple[str, str] | None = None
    plugins: tuple[str, ...] = ()
    datasets: tuple[tuple[str, Path], ...] = ()

    def own_folder(self, data: str) -> Path | None:
        """Return the folder of a user's data set; None for any other.

        Args:
            data: the name of the data set.

        """
        return dict(self.datasets).get(data)

    def place(self, data: str) -> Path | None:
        """Return the folder of a data set: the one of its name in `root`, or else `root` itself.

        Args:
            data: the name of the data set.

        """
        return _named_folder(self.root, data)

    def lists_of(self, data: str) -> Path | None:
        """Return the folder of the list files of a data set; None for that of its images.

        Args:
            data: the name of the data set.

        """
        return _named_folder(self.lists, data)

    def folder(self, task: Task) -> Path:
        """Return the folder of a task.

        Args:
            task: the task.

        """
        return self.out / "tasks" / task.folder

    def start(self, task: Task) -> Path:
        """Return the folder of a task after writing its settings, or checking those in it.

        Args:
            task: the task.

        """
        folder = self.folder(task)
        path = folder / "settings.json"
        settings = json.loads(json.dumps(task.identity()))
        if path.exists():
            before = json.loads(path.read_text())["task"]
            if before != settings:
                raise InputError(
                    f"expected the settings of {task.pair} in {path}, got those of another task: "
                    f"{before}"
                )
        else:
            content = {"task": settings, "versions": training_versions()}
            code = model_hashes(task.method, task.data)
            save_json(path, content | ({"code": code} if code else {}))
        return folder

    def is_outdated(self, task: Task) -> bool:
        """Whether the plugin of a task's method or data set was edited after its model was trained.

        Args:
            task: the task.

        """
        code = model_hashes(task.method, task.data)
        path = self.folder(task) / "settings.json"
        if not code or not path.exists():
            return False
        return bool(json.loads(path.read_text()).get("code", code) != code)

    def save_suite(self, suite: Suite) -> None:
        """Write a suite, to be read by `load_suite`.

        Args:
            suite: the suite.

        """
        with alone(self.out / "suites"):
            save_json(self.out / "suites" / f"{suite.name}.json", suite.to_dict())

    def load_suite(self, name: str) -> Suite:
        """Read a suite as it was last run.

        Args:
            name: the name of the suite.

        """
        path = self.out / "suites" / f"{name}.json"
        if not path.exists():
            known = sorted(p.stem for p in path.parent.glob("*.json"))
            hint = f": did you mean {name}-quick?" if f"{name}-quick" in known else ""
            raise InputError(
                f"expected a suite that was run into {self.out} ({', '.join(known) or 'none'}), "
                f"got {name!r}{hint}"
            )
        return Suite.from_dict(json.loads(path.read_text()))

    def scores(self, task: Task) -> dict[str, dict[str, float | None]]:
        """Read the metrics by calibrator; empty if the task is not scored.

        Args:
            task: the task.

        """
        path = self.folder(task) / "scores.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def error(self, task: Task) -> dict[str, str] | None:
        """Read the error of a task or of its training; None if there is none.

        Args:
            task: the task.

        """
        for path in (self.folder(each) / "error.json" for each in (task.training, task)):
            if path.exists():
                return dict(json.loads(path.read_text()))
        return None

    def refusal(self, task: Task, calibrator: str) -> str | None:
        """Read why a calibrator failed; None if nothing was noted.

        Args:
            task: the task.
            calibrator: the name of the calibrator.

        """
        path = self.folder(task) / "calibrations" / f"{calibrator}.error.json"
        return str(json.loads(path.read_text())["error"]) if path.exists() else None

    def has_model(self, task: Task) -> bool:
        """Whether the task's model is trained, its outputs written, and the training cleaned up.

        Args:
            task: the task.

        """
        folder = self.folder(task.training)
        trained = (folder / "model.safetensors").exists() and not (folder / "training").exists()
        return trained and (task.segments or (folder / "target.npz").exists())

    def sweep(self, task: Task) -> None:
        """Remove what a killed run left aside in the folder of a task, which may be done otherwise.

        Args:
            task: the task.

        """
        folder = self.folder(task)
        if left_aside(folder):
            with alone(folder):
                pass

    def members(self, task: Task) -> list[Task]:
        """Return the members of the task's ensemble; all of their models or outputs must exist.

        Args:
            task: the task.

        """
        for member in task.members():
            outputs = self.folder(member) / "target.npz"  # all that a bank has of a member
            if not self.has_model(member) and not outputs.exists():
                raise InputError(
                    f"expected all members of the ensemble, got no model of seed {member.seed}"
                )
        return task.members()


def _named_folder(folder: Path | None, name: str) -> Path | None:
    return folder / name if folder is not None and (folder / name).is_dir() else folder


def read_times(folder: Path) -> dict[str, Any]:
    """Read the times of a task's stages and calibrators; empty if none was recorded."""
    path = folder / "times.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def load_arrays(path: Path) -> NamedArrays:
    """Read all arrays of an .npz file."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an .npy file."""
    with replacing(path) as aside:
        np.save(aside, array, allow_pickle=False)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other run works in a folder.

    The lock is released when its process ends, however it ends.

    What a run that was killed left aside is removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        sweep(folder)
        yield
