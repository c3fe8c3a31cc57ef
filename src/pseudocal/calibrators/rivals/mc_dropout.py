"""MC-Dropout: the mean of several passes with dropout switched on (Gal and Ghahramani, ICML 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Inputs, Logits
from pseudocal.batches import count, is_array, streamed, take
from pseudocal.calibrators.rivals.ensemble import ensemble


def mc_dropout(model: Any, target_inputs: Any, *, passes: int = 10, batch_size: int = 128, seed: int = 0) -> Logits:
    """The logits of the mean probability over `passes` of a torch module whose dropout layers are active.

    All else, batch normalisation above all, stays in eval mode; the module is left as it was found, and so is torch's
    random state. Predictions may change. A module without a dropout layer is an error: all passes would be the same.

    The paper does not say how many passes it takes, nor how much it drops; ten are common.

    Args:
        model: a torch module with dropout layers.
        target_inputs: inputs of target data.
        passes: how many passes are averaged.
        batch_size: inputs that are predicted together.
        seed: the seed of the dropout.

    """
    if passes < 2:
        raise InputError(f"expected at least two passes, got {passes}")
    from pseudocal.predictors.dropout import dropout_passes

    array = is_array(target_inputs)
    batches = _in_order(target_inputs, batch_size) if array else (b.inputs for b in streamed(target_inputs))
    means = [ensemble(logits) for logits in dropout_passes(model, batches, passes=passes, seed=seed)]
    if not means:
        raise InputError("expected at least one batch of target inputs, got none")
    return np.concatenate(means)


def _in_order(data: Inputs, batch_size: int) -> Iterator[Inputs]:
    for start in range(0, count(data), batch_size):
        yield take(data, np.arange(start, min(start + batch_size, count(data))))
