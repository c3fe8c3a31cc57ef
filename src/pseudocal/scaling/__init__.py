"""Temperature, vector and matrix scaling.

Each fit takes labelled logits and returns a frozen callable.
"""

from pseudocal.scaling.linear import (
    MatrixScaling,
    Scaling,
    UnfinishedFitWarning,
    VectorScaling,
    fit_matrix,
    fit_vector,
)
from pseudocal.scaling.temperature import TemperatureScaling, fit_temperature

__all__ = [
    "MatrixScaling",
    "Scaling",
    "TemperatureScaling",
    "UnfinishedFitWarning",
    "VectorScaling",
    "fit_matrix",
    "fit_temperature",
    "fit_vector",
]
