"""Pseudo-ensemble: PseudoCal applied to an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pseudocal.batches import DEFAULT_BATCH_SIZE
from pseudocal.calibrators.baselines.ensemble import Ensemble, Mean
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.pseudocal import PseudoCal
from pseudocal.predictors import as_predictor


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

    >>> import numpy as np
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
    calibration = PseudoCal(**settings).fit(model, target_inputs, batch_size=batch_size)
    return replace(
        calibration, method="pseudo-ensemble", settings=calibration.settings | {"mean": mean}
    )
