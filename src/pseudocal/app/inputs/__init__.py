"""Unlabelled inputs from files: folders of pictures, lists of paths, arrays and tables."""

from pseudocal.app.inputs.input_sets import ArraySet, InputSet, PictureSet, open_inputs, read_batches
from pseudocal.app.inputs.preprocessing import Preprocessing, preprocessing_for

__all__ = [
    "ArraySet",
    "InputSet",
    "PictureSet",
    "Preprocessing",
    "open_inputs",
    "preprocessing_for",
    "read_batches",
]
