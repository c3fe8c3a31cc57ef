"""An open model: how to run it, what it expects, and how to write it with a temperature inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Inputs, Predictor
from pseudocal.extras import MissingExtraError
from pseudocal.skipped import one_line

# how names begin of what can be a second opinion but not the model
SECOND_ONLY = ("surrogate:", "zero-shot:")
LARGEST_BATCH = 2**16  # the largest fixed batch size that a model may have
# a sigmoid of exactly 0 or 1 means a logit beyond float32
SIGMOID_EPS = float(np.finfo(np.float32).eps)

# From a temperature, a folder and a few real inputs, to the names of the files written to the
# folder. It opens them again and compares their outputs with those expected (`check_exported`).
Export = Callable[[float, Path, Inputs], list[str]]


class UntrustedError(InputError):
    """A model file or a name can run code, and is not trusted."""

    def __init__(self, message: str, *, setting: str = "trust", value: str = "True") -> None:
        super().__init__(message, setting=setting, value=value)


@dataclass(frozen=True)
class Expects:
    """What a model expects as input; None where the file does not say."""

    # the shape of one input: (3, 224, 224) for an image, (30,) for a row of a table
    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None  # the name of the NumPy dtype
    columns: tuple[str, ...] | None = None  # the feature columns of a table, in order
    # settings of `inputs.Preprocessing` by name, from a preprocessor that came with the model
    preprocessing: dict[str, Any] = field(default_factory=dict)
    text: bool = False  # whether an input is a text
    frames: bool = False  # whether the model takes data frames, with text, dates and missing values

    def check(self, shape: tuple[int, ...], whose: str) -> None:
        """Refuse inputs of another shape, as far as it is known.

        >>> Expects((3, None)).check((3, 32), "the model, got")
        >>> Expects((3, None)).check((4, 32), "the model, got")
        Traceback (most recent call last):
        pseudocal.arrays.InputError: expected inputs of shape (3, ?) for the model, got (4, 32)
        """
        if self.shape is None:
            return
        same = len(shape) == len(self.shape) and all(
            wanted in (None, size) for size, wanted in zip(shape, self.shape, strict=True)
        )
        if not same:
            known = str(self.shape).replace("None", "?")
            raise InputError(f"expected inputs of shape {known} for {whose} {shape}")


@dataclass(frozen=True)
class OpenModel:
    """A model from a file."""

    kind: str  # the format, such as "onnx"
    predict: Predictor  # maps inputs to the raw outputs of the model
    expects: Expects = Expects()  # what the model expects as input
    classes: tuple[str, ...] = ()  # the class names; empty if the file does not give them
    notes: tuple[str, ...] = ()  # what is worth printing about the file
    # the name of the output that holds the logits, if a caller can ask for it by name
    logits_tensor: str | None = None
    # writes the model with a temperature inside; None if the format cannot hold one
    export: Export | None = None
    encodes: bool = False  # whether it returns features for a surrogate, not logits


@dataclass(frozen=True)
class Chunked:
    """Run a model with a fixed batch size; the last batch is padded with copies of its last input.

    >>> sizes = []
    >>> predict = Chunked(lambda x: sizes.append(len(x)) or x, 2)
    >>> predict(np.arange(3)), sizes
    (array([0, 1, 2]), [2, 2])
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


def check_exported(found: Any, expected: Any, what: str) -> None:
    """Refuse a calibrated file whose outputs for a few inputs are not as expected."""
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise InputError(
            f"the calibrated {what} gives {found[0]} for the first input instead of {expected[0]}"
        )


def require_sound(condition: Any) -> None:
    """Refuse the trees of a file if they do not fulfil a condition."""
    if not condition:
        raise ValueError("its trees are damaged")


@contextmanager
def or_input_error(message: str) -> Iterator[None]:
    """Raise an `InputError` instead of what a library raises about a damaged file: anything.

    >>> with or_input_error("model.onnx is damaged"):
    ...     raise KeyError("weights")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: model.onnx is damaged: 'weights'
    """
    try:
        yield
    except (InputError, MissingExtraError):
        raise
    except Exception as error:
        raise InputError(f"{message}: {one_line(error)}") from error
