"""A model that is made where it will run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Deferred:
    """A model that each worker makes for itself, rather than one that is sent to it.

    >>> from pseudocal.predictors import as_predictor
    >>> as_predictor(Deferred(lambda: lambda x: 2 * x))(21)
    42

    `pseudocal.app.model_file("model.onnx")` is one that each worker opens from a path that it can read.
    """

    make: Callable[[], Any]
