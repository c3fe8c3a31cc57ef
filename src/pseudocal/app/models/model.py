"""An open model: how to run it, what it expects, and how to write it with a temperature inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Inputs, Predictor

SECOND_ONLY = (
    "surrogate:",
    "zero-shot:",
)  # how names begin of what can be a second opinion but not the model
LARGEST_BATCH = 2**16  # the largest fixed batch size that a model may have

# From a temperature, a folder and a few real inputs to check with, to the names of the files
# written to the folder.
Ship = Callable[[float, Path, Inputs], list[str]]
SIGMOID_EPS = float(
    np.finfo(np.float32).eps
)  # a sigmoid of exactly 0 or 1 means a logit beyond float32


class UntrustedError(InputError):
    """A model file can run code and is not trusted; the message ends in `trust=True`."""


@dataclass(frozen=True)
class Expects:
    """What a model expects as input; None where the file does not say.

    Attributes:
        shape: the shape of one input: (3, 224, 224) for an image, (30,) for a row of a table.
        dtype: the name of the NumPy dtype.
        columns: the feature columns of a table, in order.
        preprocessing: settings of `inputs.Preprocessing` by name, from a preprocessor that came
            with the model.
        text: whether an input is a text.

    """

    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None
    columns: tuple[str, ...] | None = None
    preprocessing: dict[str, Any] = field(default_factory=dict)
    text: bool = False

    def check(self, shape: tuple[int, ...], whose: str) -> None:
        """Refuse inputs of another shape, as far as it is known.

        >>> Expects((3, None)).check((3, 32), "the model, got")
        >>> Expects((3, None)).check((4, 32), "the model, got")
        Traceback (most recent call last):
        pseudocal.arrays.InputError: expected inputs of shape (3, ?) for the model, got (4, 32)

        Args:
            shape: the shape of one input.
            whose: which model it is, and the words that lead to the shape.

        """
        wanted = shape if self.shape is None else self.shape
        if len(shape) != len(wanted) or any(
            w not in (None, s) for s, w in zip(shape, wanted, strict=True)
        ):
            raise InputError(
                f"expected inputs of shape {str(wanted).replace('None', '?')} for {whose} {shape}"
            )


@dataclass(frozen=True)
class OpenModel:
    """A model from a file.

    Attributes:
        kind: the format, such as "onnx".
        predict: maps inputs to the raw outputs of the model.
        expects: what the model expects as input.
        classes: the class names; empty if the file does not give them.
        notes: what is worth printing about the file.
        output: the name of the output that holds the logits, if a caller can ask for it by name.
        ship: writes the model with a temperature inside; None if the format cannot hold one.
        encodes: whether it returns features for a surrogate, not logits.

    """

    kind: str
    predict: Predictor
    expects: Expects = Expects()
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    output: str | None = None
    ship: Ship | None = None
    encodes: bool = False


@dataclass(frozen=True)
class Chunked:
    """Run a model with a fixed batch size; the last batch is padded with copies of its last input.

    >>> sizes = []
    >>> predict = Chunked(lambda x: sizes.append(len(x)) or x, 2)
    >>> predict(np.arange(3)), sizes
    (array([0, 1, 2]), [2, 2])

    Attributes:
        predict: the model.
        size: the batch size.

    """

    predict: Predictor
    size: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= LARGEST_BATCH:
            raise InputError(
                f"expected a model with a batch size from 1 to {LARGEST_BATCH}, got {self.size}"
            )

    def __call__(self, x: Inputs, /) -> Any:
        """Predict one batch."""
        n = len(x)
        rows = np.minimum(np.arange(-(-n // self.size) * self.size), n - 1)
        parts = [self.predict(x[rows[i : i + self.size]]) for i in range(0, n, self.size)]
        return np.concatenate(parts)[:n]


def check_shipped(found: Any, expected: Any, what: str) -> None:
    """Refuse a calibrated file whose outputs for a few inputs are not as expected."""
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise InputError(
            f"expected the calibrated {what} to give {expected[0]} for the first input, got {found[0]}"
        )
