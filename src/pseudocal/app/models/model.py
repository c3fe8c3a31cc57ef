"""What a model file turns into once it is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Inputs, Predictor

LARGEST_BATCH = 2**16  # inputs that a model may insist on at a time

# A temperature, a folder and a few real inputs to check with go in; the names of the files written there come out.
Ship = Callable[[float, Path, Inputs], list[str]]
SIGMOID_EPS = float(np.finfo(np.float32).eps)  # a sigmoid of exactly 0 or 1 stands for a logit beyond float32


class UntrustedError(InputError):
    """A model file that can run code, and nobody has said that it may; the message ends in `trust=True`."""


@dataclass(frozen=True)
class Expects:
    """What a model says of its input, None where it does not say.

    Attributes:
        shape: of one input: (3, 224, 224) for a picture, (30,) for a row of a table.
        dtype: the name of the NumPy type.
        columns: the names of the features of a table, in order.
        preprocessing: settings of `inputs.Preprocessing` by name, from a preprocessor that came with the model.

    """

    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None
    columns: tuple[str, ...] | None = None
    preprocessing: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenModel:
    """A model from a file: how to run it, what it takes, and how to write it again with a temperature inside.

    Attributes:
        kind: the format, such as "onnx".
        predict: from inputs to what the file gives for them.
        expects: what the model says of its input.
        classes: the names of the classes, empty where the file does not say.
        notes: what is worth printing about the file.
        output: the name of what holds the logits, if it has one that a caller can ask for.
        ship: writes the model with a temperature inside, None where the format cannot hold one.

    """

    kind: str
    predict: Predictor
    expects: Expects = Expects()
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    output: str | None = None
    ship: Ship | None = None


@dataclass(frozen=True)
class Chunked:
    """Run a model that takes batches of one fixed size only; the last one is filled up with copies of its last input.

    >>> sizes = []
    >>> predict = Chunked(lambda x: sizes.append(len(x)) or x, 2)
    >>> predict(np.arange(3)), sizes
    (array([0, 1, 2]), [2, 2])

    Attributes:
        predict: the model.
        size: inputs in a batch.

    """

    predict: Predictor
    size: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= LARGEST_BATCH:
            raise InputError(f"expected a model for batches of 1 to {LARGEST_BATCH} inputs, got one for {self.size}")

    def __call__(self, x: Inputs, /) -> Any:
        """Predict one batch."""
        n = len(x)
        rows = np.minimum(np.arange(-(-n // self.size) * self.size), n - 1)
        parts = [self.predict(x[rows[i : i + self.size]]) for i in range(0, n, self.size)]
        return np.concatenate(parts)[:n]


def check_shipped(found: Any, expected: Any, what: str) -> None:
    """Refuse a calibrated file that does not say of a few inputs what it should."""
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise InputError(f"expected the calibrated {what} to say {expected[0]} of the first input, got {found[0]}")
