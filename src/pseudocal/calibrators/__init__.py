"""One file per method; each gives back a `Calibration`."""

from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.pseudocal import PseudoCal

__all__ = ["Calibration", "PseudoCal"]
