"""Labelled logits in, a frozen callable map out."""

from pseudocal.scaling.temperature import TemperatureScaling, fit_temperature

__all__ = ["TemperatureScaling", "fit_temperature"]
