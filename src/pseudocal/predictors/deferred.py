"""A model that is made where it will run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.arrays import Predictor


@dataclass(frozen=True)
class Deferred:
    """A model that each worker makes for itself, rather than one that is sent to it.

    >>> from pseudocal.predictors import as_predictor
    >>> as_predictor(Deferred(lambda: lambda x: 2 * x))(21)
    42

    `Deferred.file("model.onnx")` is what the command line would open, on a path that every worker can read.
    `Deferred.file("model.pt2", trust=True)` is a file that can run code, and may.
    """

    make: Callable[[], Any]

    @classmethod
    def file(
        cls, name: str, *, outputs: Any = None, binary: bool = False, trust: bool = False, **options: Any
    ) -> Deferred:
        """A model file, a Hugging Face folder or id, or `module:function`; its outputs become logits.

        Args:
            name: The path, the id or `module:function`, as the workers know it.
            outputs: "logits" or "probabilities"; None for logits that do not look like probabilities.
            binary: Whether the one number of a row stands for the second of two classes.
            trust: Whether the file may run code, as `.pt2` and TorchScript can. They are refused without it.
            **options: What the opener of that kind takes besides: `device`, `output`.

        """
        return cls(partial(_open, name, outputs=outputs, binary=binary, trust=trust, **options))


def by_name(model: Any, binary: bool) -> Any:
    """See the name of a model file as that model, opened where it will run; anything else is a model already.

    A model of one logit a row has one here as well. A mere name trusts nothing: see `Deferred.file`.
    """
    if not isinstance(model, str | Path):
        return model
    file = Deferred.file(str(model), binary=binary)
    return Deferred(partial(_one_logit, file)) if binary else file


def _one_logit(file: Deferred) -> Predictor:
    predict = file.make()
    return lambda x, /: np.diff(predict(x))  # of the two columns (0, z)


def _open(name: str, **options: Any) -> Predictor:
    from pseudocal.predictors.files import open_model
    from pseudocal.predictors.outputs import AsLogits

    return AsLogits(open_model(name, **options).predict, options["outputs"], options["binary"])
