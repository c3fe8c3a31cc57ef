"""Several predictions for each input.

- Ensemble: the mean prediction of several models (Lakshminarayanan et al., NeurIPS 2017).
- Pseudo-ensemble: PseudoCal on top of an ensemble.
- MC-Dropout: the mean of several forward passes with active dropout (Gal and Ghahramani, ICML
  2016).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import (
    InputError,
    Inputs,
    Logits,
    Maps,
    Predictor,
    as_logits,
    as_numpy,
    check_rows,
)
from pseudocal.batches import DEFAULT_BATCH_SIZE, as_inputs, count, is_array, streamed, take
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.pseudocal import PseudoCal
from pseudocal.maps import bands
from pseudocal.predictors import as_predictor

Mean = Literal["probabilities", "logits"]


def ensemble(member_logits: Sequence[ArrayLike], *, mean: Mean = "probabilities") -> Logits:
    """The logits of the members' mean probabilities, or of their mean logits.

    One member gives the first class probability 1, the other 1/2, so the mean is 3/4:

    >>> logits = ensemble([[[0.0, -np.inf]], [[0.0, 0.0]]])
    >>> np.exp(logits)
    array([[0.75, 0.25]])

    The predicted classes may change, usually for the better.

    Args:
        member_logits: The logits of each member, all of one shape `(n, classes)` or `(n, classes,
            height, width)`.
        mean: Whether to average "probabilities" or "logits".

    """
    arrays = [as_numpy(logits, "logits") for logits in member_logits]
    shapes = list(dict.fromkeys(array.shape for array in arrays))
    if len(arrays) < 2 or len(shapes) > 1:
        got = " and ".join(map(str, shapes)) if len(shapes) > 1 else f"{len(arrays)}"
        raise InputError(f"expected logits of two members or more, all of one shape, got {got}")
    if len(shapes[0]) == 4:
        return _ensemble_of_maps(arrays, mean)
    members = [as_logits(logits) for logits in arrays]
    if mean not in ("probabilities", "logits"):
        raise InputError(f"expected mean 'probabilities' or 'logits', got {mean!r}")
    for logits in members:
        check_rows(logits)
    if mean == "logits":
        return np.asarray(np.mean(members, axis=0, dtype=np.float64))
    total = np.logaddexp.reduce([_log_softmax(logits) for logits in members])
    return np.asarray(total - math.log(len(members)))


def _ensemble_of_maps(members: list[Maps], mean: Mean) -> Maps:
    """The same for maps, a band of pixels at a time."""
    result = np.empty(members[0].shape, dtype=np.float32)
    for band in bands(members[0]):
        # (n, height, width, classes)
        rows = [np.moveaxis(member[:, :, band], 1, -1) for member in members]
        together = ensemble([part.reshape(-1, part.shape[-1]) for part in rows], mean=mean)
        result[:, :, band] = np.moveaxis(together.reshape(rows[0].shape), -1, 1)
    return result


@dataclass(frozen=True)
class Ensemble:
    """Several models as one predictor, which PseudoCal can calibrate.

    Attributes:
        members: The models.
        mean: Whether to average "probabilities" or "logits".

    """

    members: tuple[Predictor, ...]
    mean: Mean = "probabilities"

    def __post_init__(self) -> None:
        if len(self.members) < 2:
            raise InputError(f"expected two members or more, got {len(self.members)}")

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch with every member."""
        return ensemble([predict(x) for predict in self.members], mean=self.mean)


def _log_softmax(logits: Logits) -> Logits:
    shifted = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=np.float64)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def pseudo_ensemble(
    members: Sequence[Any],
    target_inputs: Any,
    *,
    mean: Mean = "probabilities",
    batch_size: int = DEFAULT_BATCH_SIZE,
    **settings: Any,
) -> Calibration:
    """The temperature that PseudoCal finds for the mean of several models.

    Apply it to `ensemble(member_logits)`.

    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> pseudo_ensemble([lambda x: 9 * x, lambda x: 9 * x[:, ::-1] @ np.array([[0, 1], [1, 0]])], x)
    Calibration(pseudo-ensemble: T = ... in [...], from ... rows, verdict: caution)

    Args:
        members: The models.
        target_inputs: Inputs of the target, or batches of them.
        mean: Whether to average "probabilities" or "logits".
        batch_size: The number of inputs that are predicted together.
        **settings: Settings of `PseudoCal`.

    """
    model = Ensemble(tuple(as_predictor(member) for member in members), mean)
    method = PseudoCal(**{"estimator": "mixup"} | settings)
    calibration = method.fit(model, target_inputs, batch_size=batch_size)
    return replace(
        calibration, method="pseudo-ensemble", settings=calibration.settings | {"mean": mean}
    )


def mc_dropout(
    model: Any,
    target_inputs: Any,
    *,
    passes: int = 10,
    batch_size: int = DEFAULT_BATCH_SIZE,
    seed: int = 0,
) -> Logits:
    """The logits of the mean probability over several forward passes with active dropout layers.

    All other layers, such as batch normalisation, stay in eval mode; the module and torch's random
    state are restored. The predicted classes may change. A module without a dropout layer is an
    error: all passes would be the same.

    Args:
        model: A torch module with dropout layers.
        target_inputs: Inputs of the target, or batches of them.
        passes: The number of forward passes. The paper does not state it; ten are common.
        batch_size: The number of inputs that are predicted together.
        seed: The seed of the dropout.

    """
    if passes < 2:
        raise InputError(f"expected at least two passes, got {passes}")
    from pseudocal.predictors.dropout import dropout_passes

    batches: Iterator[Inputs]
    if is_array(target_inputs):
        batches = _in_order(as_inputs(target_inputs), batch_size)
    else:
        batches = (batch.inputs for batch in streamed(target_inputs))
    means = [
        ensemble(logits) for logits in dropout_passes(model, batches, passes=passes, seed=seed)
    ]
    if not means:
        raise InputError("expected at least one batch of target inputs, got none")
    return np.concatenate(means)


def _in_order(data: Inputs, batch_size: int) -> Iterator[Inputs]:
    for start in range(0, count(data), batch_size):
        yield take(data, np.arange(start, min(start + batch_size, count(data))))
