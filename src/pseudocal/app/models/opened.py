"""What a model file turns into once it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.arrays import Inputs, Predictor

# A temperature, a folder and a few real inputs to check with go in; the names of the files written there come out.
Ship = Callable[[float, Path, Inputs], list[str]]


@dataclass(frozen=True)
class Expects:
    """What the model says of its input, None where it is silent.

    `shape` is that of one row: (3, 224, 224) for a picture, (30,) for a row of a table. `pixels` are the settings of
    a preprocessor that came with the model: names of `inputs.Pixels` to values.
    """

    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None
    columns: tuple[str, ...] | None = None
    pixels: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenModel:
    """A model from a file: how to run it, what it eats, and how to write it down again with a temperature inside."""

    kind: str
    predict: Predictor
    expects: Expects = Expects()
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    output: str | None = None  # what holds the logits, if it has a name and a caller can ask for it
    ship: Ship | None = None


@dataclass(frozen=True)
class Chunked:
    """Run a model that takes batches of one fixed size only; the last one is filled up with copies of its last row.

    >>> sizes = []
    >>> predict = Chunked(lambda x: sizes.append(len(x)) or x, 2)
    >>> predict(np.arange(3)), sizes
    (array([0, 1, 2]), [2, 2])
    """

    predict: Predictor
    size: int

    def __call__(self, x: Inputs, /) -> Any:
        """Predict one batch."""
        n = len(x)
        rows = np.minimum(np.arange(-(-n // self.size) * self.size), n - 1)
        parts = [self.predict(x[rows[i : i + self.size]]) for i in range(0, n, self.size)]
        return np.concatenate(parts)[:n]
