"""Answers: labels that a person gave, and the rows they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, Logits, as_numpy, is_integer
from pseudocal.calibrators.survey import ask

CANNOT_TELL = -1  # the person does not know: left out, but counted
NONE_OF_THESE = -2  # the input belongs to none of the classes: the prediction is wrong


@dataclass(frozen=True, eq=False)
class Answers:
    """The rows that a person was asked about, the answers, and how the rows were drawn.

    >>> answers = Answers([4, 0, 2], [1, CANNOT_TELL, NONE_OF_THESE])
    >>> len(answers), answers.rows
    (3, array([4, 0, 2]))

    Attributes:
        rows: Distinct row numbers of the target, of shape `(n,)`.
        labels: The class of each row, `CANNOT_TELL` or `NONE_OF_THESE`, of shape `(n,)`.
        drawn_by: "ask" if `ask` chose the rows, or "random" if they were drawn at random in another
            way. Rows chosen in any other way, such as those that are easy to label or look wrong,
            do not represent the target.
        seed: The seed that `ask` was called with.

    """

    rows: Any
    labels: Any
    drawn_by: Literal["ask", "random"] = "ask"
    seed: int = 0

    def __post_init__(self) -> None:
        rows = as_numpy(self.rows, "rows")
        labels = as_numpy(self.labels, "labels")
        if rows.ndim != 1 or len(rows) == 0 or rows.shape != labels.shape:
            raise InputError(
                f"expected a label for each row, got shapes {rows.shape} and {labels.shape}"
            )
        for name, array in (("rows", rows), ("labels", labels)):
            if not is_integer(array):
                raise InputError(f"expected {name} that are integers, got dtype {array.dtype}")
        if len(np.unique(rows)) < len(rows):
            repeated = int(np.sort(rows)[:-1][np.diff(np.sort(rows)) == 0][0])
            raise InputError(f"expected one answer for each row, got several for row {repeated}")
        if self.drawn_by not in ("ask", "random"):
            raise InputError(f"expected drawn_by 'ask' or 'random', got {self.drawn_by!r}")
        object.__setattr__(self, "rows", rows.astype(np.intp))
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.rows)


def check_answers(answers: Answers, logits: Logits, groups: ArrayLike | None = None) -> None:
    """Reject labels that are not classes, rows that do not exist, and rows that are not a random sample."""
    n, classes = logits.shape
    rows, labels = answers.rows, answers.labels
    if rows.min() < 0 or rows.max() >= n:
        bad = int(rows[(rows < 0) | (rows >= n)][0])
        raise InputError(f"expected row numbers from 0 to {n - 1}, got {bad}")
    invalid = (labels >= classes) | (labels < NONE_OF_THESE)
    if invalid.any():
        raise InputError(
            f"expected answers from 0 to {classes - 1}, CANNOT_TELL ({CANNOT_TELL}) or NONE_OF_THESE "
            f"({NONE_OF_THESE}), got {labels[invalid][0]} for row {rows[invalid][0]}"
        )
    if answers.drawn_by == "random":
        return
    other = np.setdiff1d(rows, ask(logits, len(rows), seed=answers.seed, groups=groups))
    if len(other):
        raise InputError(
            f"expected answers to the first {len(rows)} questions of ask with seed {answers.seed}, got row {other[0]}, "
            "which is not one of them: rows chosen in another way are not a random sample of the target. If they were "
            "drawn at random, pass drawn_by='random'. Questions that the person could not answer are CANNOT_TELL; do "
            "not leave them out"
        )
