"""Unlabelled inputs from files, and ground truth to evaluate with."""

from pseudocal.app.inputs.preprocessing import (
    Preprocessing,
    preprocessing_for,
    preprocessing_of_second,
)
from pseudocal.app.inputs.sets import (
    ArraySet,
    ImageSet,
    ImageViews,
    InputSet,
    open_inputs,
    read_batches,
)

__all__ = [
    "ArraySet",
    "ImageSet",
    "ImageViews",
    "InputSet",
    "Preprocessing",
    "open_inputs",
    "preprocessing_for",
    "preprocessing_of_second",
    "read_batches",
]
