"""Labelled logits in, a frozen callable map out."""

from pseudocal.scaling.linear import MatrixScaling, VectorScaling, fit_matrix, fit_vector
from pseudocal.scaling.serial import Scaling, scaling_from_dict, scaling_to_dict
from pseudocal.scaling.temperature import TemperatureScaling, fit_temperature

__all__ = [
    "MatrixScaling",
    "Scaling",
    "TemperatureScaling",
    "VectorScaling",
    "fit_matrix",
    "fit_temperature",
    "fit_vector",
    "scaling_from_dict",
    "scaling_to_dict",
]
