"""What a calibrator may ask for, as one record of optional parts."""

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
    "members": "several trained models",
    "member_logits": "target logits of several trained models",
}


@dataclass(frozen=True, eq=False)
class Material:
    """All that is at hand for calibrating one model; whatever is absent is None.

    Attributes:
        source: labelled source validation logits.
        source_train_features: features of source training data, `(n, features)`.
        source_features: features of the source validation data.
        target_features: features of target data.
        target_logits: logits of target data, `(n, classes)`.
        target_labels: labels of target data, for the oracle alone.
        target_inputs: inputs of target data.
        model: the model itself.
        members: several trained models.
        member_logits: target logits of each of them.

    """

    source: Labelled | None = None
    source_train_features: ArrayLike | None = None
    source_features: ArrayLike | None = None
    target_features: ArrayLike | None = None
    target_logits: ArrayLike | None = None
    target_labels: ArrayLike | None = None
    target_inputs: Any = None
    model: Any = None
    members: Sequence[Any] | None = None
    member_logits: Sequence[ArrayLike] | None = None

    def pick(self, parts: Sequence[Part], who: str) -> dict[str, Any]:
        """These parts and no others; says which of them are missing.

        >>> Material(target_labels=[0, 1]).pick(["target_labels"], "the oracle")
        {'target_labels': [0, 1]}
        >>> Material().pick(["source", "target_features"], "cpcs")
        Traceback (most recent call last):
        pseudocal.arrays.InputError: expected labelled source validation logits (source) and
        features of target data (target_features) for cpcs, got none

        Args:
            parts: names of parts.
            who: who asks, for the error.

        """
        missing = [f"{PARTS[part]} ({part})" for part in parts if getattr(self, part) is None]
        if missing:
            raise InputError(f"expected {' and '.join(missing)} for {who}, got none")
        return {part: getattr(self, part) for part in parts}
