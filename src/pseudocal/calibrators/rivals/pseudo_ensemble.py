"""Pseudo-ensemble: PseudoCal on top of an ensemble, two label-free remedies that help in different places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.pseudocal import PseudoCal
from pseudocal.calibrators.rivals.ensemble import Ensemble, Mean
from pseudocal.predictors import as_predictor


def pseudo_ensemble(
    members: Sequence[Any], target_inputs: Any, *, mean: Mean = "probabilities", batch_size: int = 128, **settings: Any
) -> Calibration:
    """The temperature that PseudoCal finds for the mean of several models; it applies to `ensemble(member_logits)`.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> pseudo_ensemble([lambda x: 9 * x, lambda x: 9 * x[:, ::-1] @ np.array([[0, 1], [1, 0]])], x)
    Calibration(pseudo-ensemble: T = ... in [...], from ... rows)

    Args:
        members: the models.
        target_inputs: inputs of target data.
        mean: "probabilities" or "logits": what is averaged.
        batch_size: inputs that are predicted together.
        **settings: settings of `PseudoCal`.

    """
    together = Ensemble(tuple(as_predictor(model) for model in members), mean)
    calibration = PseudoCal(**settings).fit(together, target_inputs, batch_size=batch_size)
    return replace(calibration, method="pseudo-ensemble", settings=calibration.settings | {"mean": mean})
