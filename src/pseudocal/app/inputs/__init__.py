"""Unlabelled inputs as they lie about: folders of pictures, lists of paths, arrays and tables."""

from pseudocal.app.inputs.ahead import Unreadable, read_batches
from pseudocal.app.inputs.opening import open_inputs
from pseudocal.app.inputs.pixels import Pixels, pixels_for
from pseudocal.app.inputs.source import Arrays, Inputs, Pictures

__all__ = ["Arrays", "Inputs", "Pictures", "Pixels", "Unreadable", "open_inputs", "pixels_for", "read_batches"]
