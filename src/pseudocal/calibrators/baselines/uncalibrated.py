"""No calibration: the baseline of all methods."""

from __future__ import annotations

from pseudocal.calibrators.calibration import Calibration
from pseudocal.scaling import TemperatureScaling


def uncalibrated() -> Calibration:
    """Leave the logits as they are.

    >>> uncalibrated()([[2.0, 0.0]])
    array([[2., 0.]])
    """
    return Calibration("none", TemperatureScaling(1.0))
