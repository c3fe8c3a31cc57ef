"""What a model's numbers mean: logits, probabilities, or one number for two classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pseudocal.arrays import Floats, InputError, Inputs, Logits, Predictor, binary_logits, looks_like_probabilities
from pseudocal.predictors.classifier import floored

Meaning = Literal["logits", "probabilities"]
SIGMOID_EPS = float(
    np.finfo(np.float32).eps
)  # a sigmoid of exactly 0 or 1 stands for a logit beyond what float32 can tell


@dataclass(frozen=True)
class AsLogits:
    """See a model's outputs as logits `(n, classes)`, or maps of them, as its user says they are meant.

    `outputs` None means logits, unless they look like probabilities: then the user is asked. `binary` says that there
    is one number a row, the logit or the probability of the second class.

    >>> AsLogits(lambda x: x, outputs="probabilities")(np.array([[0.5, 0.5]])).round(3)
    array([[-0.693, -0.693]])
    >>> AsLogits(lambda x: x, outputs="probabilities", binary=True)(np.array([[0.5], [0.75]])).round(3)
    array([[0.   , 0.   ],
           [0.   , 1.099]])
    """

    predict: Predictor
    outputs: Meaning | None = None
    binary: bool = False

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch."""
        values = np.asarray(self.predict(x))
        _check_shape(values, self.binary)
        if self.outputs == "probabilities":
            return _logit(values) if self.binary else _log(values)
        if self.outputs is None and _suspicious(values, self.binary):
            raise InputError(
                f"expected logits, got numbers from 0 to 1{'' if self.binary else ' that sum to one'}, which look like "
                'probabilities: give outputs="probabilities", or outputs="logits" if they are logits after all'
            )
        return binary_logits(values) if self.binary else values


def _check_shape(values: Floats, binary: bool) -> None:
    if values.ndim > 2 and (values.ndim != 4 or binary):
        what = "of every pixel (n, classes, height, width)" + (" for two classes or more" if binary else "")
        raise InputError(f"expected logits of shape (n, classes) or {what}, got shape {values.shape}")
    if not binary and (values.ndim == 1 or values.shape[1] < 2):
        raise InputError(
            f"expected logits for at least two classes, got shape {values.shape}: "
            "give binary=True if the one number of a row stands for the second of two classes"
        )


def _suspicious(values: Floats, binary: bool) -> bool:
    if binary:
        return bool(((values >= 0) & (values <= 1)).all())
    return looks_like_probabilities(values)


def _log(p: Floats) -> Logits:
    if not looks_like_probabilities(p):
        raise InputError(f"expected probabilities that sum to one in each row, got {p[0]} in the first of a batch")
    with np.errstate(divide="ignore"):
        return floored(np.log(p))


def _logit(p: Floats) -> Logits:
    if not _suspicious(p, True):
        raise InputError(f"expected probabilities from 0 to 1, got {p.min()} to {p.max()}")
    p = np.clip(p, SIGMOID_EPS, 1 - SIGMOID_EPS)
    return binary_logits(np.log(p) - np.log1p(-p))
