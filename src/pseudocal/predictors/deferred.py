"""A model that is made where it will run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pseudocal.arrays import Predictor


@dataclass(frozen=True)
class Deferred:
    """A model that each worker makes for itself, rather than one that is sent to it.

    >>> from pseudocal.predictors import as_predictor
    >>> as_predictor(Deferred(lambda: lambda x: 2 * x))(21)
    42

    `Deferred.file("model.onnx")` is what the command line would open, on a path that every worker can read.
    """

    make: Callable[[], Any]

    @classmethod
    def file(cls, name: str, *, outputs: Any = None, binary: bool = False, **options: Any) -> Deferred:
        """A model file, a Hugging Face folder or id, or `module:function`; its outputs become logits."""
        return cls(partial(_open, name, outputs=outputs, binary=binary, **options))


def _open(name: str, **options: Any) -> Predictor:
    from pseudocal.predictors.files import open_model
    from pseudocal.predictors.outputs import AsLogits

    return AsLogits(open_model(name, **options).predict, options["outputs"], options["binary"])
