"""Trustworthy confidence for classifiers on shifted data, without labels and without source data.

>>> import numpy as np
>>> from pseudocal import PseudoCal
>>> model = lambda x: 8 * x                                      # logits of a model that is badly overconfident
>>> target = np.random.default_rng(0).normal(size=(2000, 3))     # unlabelled
>>> calibration = PseudoCal().fit(model, target)
>>> calibration.probabilities(model(target)).max(axis=1).mean() < 0.9
np.True_
"""

from typing import Any

from pseudocal.arrays import InputError, Labelled, binary_logits, softmax
from pseudocal.calibrators import Calibration, LabelSample, PseudoCal, rows_to_label
from pseudocal.calibrators.surrogate import Surrogate
from pseudocal.calibrators.trust import (
    AccuracyEstimate,
    Trust,
    UnreliableCalibrationWarning,
)
from pseudocal.metrics import Outcomes, Reliability
from pseudocal.scaling import (
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
    fit_matrix,
    fit_temperature,
    fit_vector,
)

__all__ = [
    "AccuracyEstimate",
    "Calibration",
    "InputError",
    "LabelSample",
    "Labelled",
    "MatrixScaling",
    "Outcomes",
    "PseudoCal",
    "Reliability",
    "Surrogate",
    "TemperatureScaling",
    "Trust",
    "UnreliableCalibrationWarning",
    "VectorScaling",
    "binary_logits",
    "fit_matrix",
    "fit_temperature",
    "fit_vector",
    "rows_to_label",
    "softmax",
]


def __getattr__(name: str) -> Any:
    """`__version__`, looked up when it is first asked for."""
    if name == "__version__":
        from pseudocal.calibrators.calibration import versions

        return versions()["pseudocal"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
