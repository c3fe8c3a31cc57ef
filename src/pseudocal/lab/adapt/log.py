"""The log of a training: losses and learning rate, as JSON lines and for TensorBoard.

`log.jsonl` has a row for every `LOG_EVERY` steps and for every checkpoint:

    {"stage": "mcc", "step": 50, "lr": 0.0096, "losses": [1.83]}

`losses` are means over the steps since the last row, one for each update of a step (MCD has six).
If the package tensorboard is installed, the same numbers are in the folder `tensorboard` beside it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from pseudocal.files import replacing

LOG_EVERY = 50  # steps; losses are read from the device as seldom
LOG_FILE = "log.jsonl"
EVENTS = "tensorboard"  # a folder


class TrainingLog:
    """Keeps losses on their device until a row is due.

    Args:
        folder: the folder of the log; None to write none.
        stage: the name of the stage.
        done: the step that training resumes from; later rows of an interrupted run are removed.

    """

    def __init__(self, folder: Path | None, stage: str, done: int) -> None:
        self._stage = stage
        self._file: Any = None
        self._events: Any = None
        self._waiting: list[tuple[int, int, Tensor]] = []  # step, number of the update, loss
        self.loss = math.nan  # of the last update that was read
        if folder is not None:
            path = folder / LOG_FILE
            _keep_rows(path, done)
            self._file = path.open("a")
            self._events = _event_writer(folder / EVENTS, done)

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
        if self._events is not None:
            self._events.close()

    def add(self, step: int, update: int, loss: Tensor) -> None:
        """Keep the loss of one update.

        Args:
            step: the step.
            update: the number of the update within the step.
            loss: the loss.

        """
        self._waiting.append((step, update, loss.detach()))

    def write(self, step: int, rate: float) -> None:
        """Read the losses that wait, check them, and write a row.

        Args:
            step: the last step of the row.
            rate: the learning rate of the head.

        """
        if not self._waiting:  # a method may have converged
            return
        losses = torch.stack([loss for _, _, loss in self._waiting]).tolist()
        by_update: dict[int, list[float]] = {}
        for (number, update, _), loss in zip(self._waiting, losses, strict=True):
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"expected a finite loss, got {loss} in step {number}: a smaller learning "
                    "rate may help"
                )
            by_update.setdefault(update, []).append(loss)
        self._waiting.clear()
        self.loss = losses[-1]
        if self._file is None:
            return
        means = [math.fsum(each) / len(each) for _, each in sorted(by_update.items())]
        row = {"stage": self._stage, "step": step, "lr": rate, "losses": means}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        if self._events is not None:
            self._events.add_scalar(f"{self._stage}/lr", rate, step)
            for update, mean in enumerate(means):
                self._events.add_scalar(f"{self._stage}/loss {update + 1}", mean, step)
            self._events.flush()


def _keep_rows(path: Path, done: int) -> None:
    """Remove rows after a step, and what a kill left of a row."""
    if not path.exists():
        return
    lines = path.read_text().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    kept = [line for line in whole if json.loads(line)["step"] <= done]
    with replacing(path) as aside:
        aside.write_text("".join(kept))


def _event_writer(folder: Path, done: int) -> Any:
    """Return a writer for TensorBoard, or None if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=done + 1)
