"""MC-Dropout.

The mean of several forward passes with active dropout (Gal and Ghahramani, ICML 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Inputs, Logits
from pseudocal.batches import DEFAULT_BATCH_SIZE, count, is_array, streamed, take
from pseudocal.calibrators.baselines.ensemble import ensemble


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

    array = is_array(target_inputs)
    batches = (
        _in_order(target_inputs, batch_size)
        if array
        else (b.inputs for b in streamed(target_inputs))
    )
    means = [
        ensemble(logits) for logits in dropout_passes(model, batches, passes=passes, seed=seed)
    ]
    if not means:
        raise InputError("expected at least one batch of target inputs, got none")
    return np.concatenate(means)


def _in_order(data: Inputs, batch_size: int) -> Iterator[Inputs]:
    for start in range(0, count(data), batch_size):
        yield take(data, np.arange(start, min(start + batch_size, count(data))))
