"""Unlabelled inputs from files: folders of images, lists of paths, arrays and tables."""

from pseudocal.app.inputs.image_sets import ImageSet, ImageViews
from pseudocal.app.inputs.image_settings import preprocessing_for, preprocessing_of_second
from pseudocal.app.inputs.input_sets import ArraySet, InputSet, open_inputs, read_batches
from pseudocal.app.inputs.preprocessing import Preprocessing

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
