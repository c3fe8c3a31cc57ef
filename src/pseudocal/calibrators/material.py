"""The data that a calibrator may need, as one record of optional parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, Labelled

Part = Literal[
    "source",
    "source_train_features",
    "source_features",
    "target_features",
    "target_logits",
    "target_labels",
    "target_inputs",
    "model",
    "head",
    "members",
    "member_logits",
]

PARTS: dict[Part, str] = {
    "source": "labelled source validation logits",
    "source_train_features": "features of source training data",
    "source_features": "features of the source validation data",
    "target_features": "features of target data",
    "target_logits": "target logits",
    "target_labels": "target labels",
    "target_inputs": "target inputs",
    "model": "the model itself",
    "head": "the classifier above the features",
    "members": "several trained models",
    "member_logits": "target logits of several trained models",
}


@dataclass(frozen=True, eq=False)
class Material:
    """The data that is available for calibrating one model; None for what is not.

    Attributes:
        source: Labelled logits of the source validation set.
        source_train_features: Features of the source training set, of shape `(n, features)`.
        source_features: Features of the source validation set, in the order of `source`.
        target_features: Features of the target, of shape `(n, features)`.
        target_logits: Logits of the target, of shape `(n, classes)`.
        target_labels: Labels of the target, for the oracle only.
        target_inputs: Inputs of the target, or batches of them.
        model: The whole model, from `target_inputs` to `target_logits`.
        head: The part of the model above its features, from `target_features` to `target_logits`.
        members: Several trained models.
        member_logits: The target logits of several trained models.

    """

    source: Labelled | None = None
    source_train_features: ArrayLike | None = None
    source_features: ArrayLike | None = None
    target_features: ArrayLike | None = None
    target_logits: ArrayLike | None = None
    target_labels: ArrayLike | None = None
    target_inputs: Any = None
    model: Any = None
    head: Any = None
    members: Sequence[Any] | None = None
    member_logits: Sequence[ArrayLike] | None = None

    def pick(self, parts: Sequence[Part], who: str) -> dict[str, Any]:
        """The requested parts; raises if any of them is missing.

        >>> Material(target_labels=[0, 1]).pick(["target_labels"], "the oracle")
        {'target_labels': [0, 1]}
        >>> Material().pick(["source", "target_features"], "cpcs")
        Traceback (most recent call last):
        pseudocal.arrays.InputError: expected labelled source validation logits (source) and
        features of target data (target_features) for cpcs, got none

        Args:
            parts: The names of the parts.
            who: The name of the calibrator that needs them, for the error.

        """
        missing = [f"{PARTS[part]} ({part})" for part in parts if getattr(self, part) is None]
        if missing:
            raise InputError(f"expected {' and '.join(missing)} for {who}, got none")
        return {part: getattr(self, part) for part in parts}
