"""Unlabelled inputs from files: folders of pictures, lists of paths, arrays and tables."""

from pseudocal.app.inputs.input_sets import ArraySet, InputSet, open_inputs, read_batches
from pseudocal.app.inputs.picture_sets import PictureSet, PictureViews
from pseudocal.app.inputs.picture_settings import preprocessing_for, preprocessing_of_second
from pseudocal.app.inputs.preprocessing import Preprocessing

__all__ = [
    "ArraySet",
    "InputSet",
    "PictureSet",
    "PictureViews",
    "Preprocessing",
    "open_inputs",
    "preprocessing_for",
    "preprocessing_of_second",
    "read_batches",
]
