"""Add a calibration to a torch model."""

from __future__ import annotations

from typing import Any

from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

from pseudocal.calibrators import Calibration
from pseudocal.predictors.torch_module import logits_of
from pseudocal.scaling import Scaling, TemperatureScaling

__all__ = ["Calibrated", "calibrated"]


class Calibrated(nn.Module):
    """A model and its scaling as one module: same inputs, calibrated logits.

    Args:
        model: The model.
        scaling: The scaling to apply to its logits.

    """

    def __init__(self, model: nn.Module, scaling: Scaling) -> None:
        super().__init__()
        self.model = model
        weight, bias = _as_tensors(scaling)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Calibrated logits of the model's inputs."""
        logits = logits_of(self.model(*args, **kwargs))
        weight = self.get_buffer("weight").to(logits.dtype)
        bias = self.get_buffer("bias").to(logits.dtype)
        return logits @ weight + bias if weight.ndim == 2 else logits * weight + bias


def calibrated(model: nn.Module, calibration: Calibration) -> nn.Module:
    """A module that contains the model and its calibration and returns calibrated logits.

    >>> from pseudocal import Calibration, TemperatureScaling
    >>> half = calibrated(nn.Identity(), Calibration("pseudocal", TemperatureScaling(2.0)))
    >>> half(torch.tensor([[2.0, 4.0]]))
    tensor([[1., 2.]])

    Args:
        model: The model.
        calibration: Its calibration, as `PseudoCal.fit` returns it.

    """
    if not isinstance(calibration, Calibration):
        raise InputError(f"expected a Calibration, got {type(calibration).__name__}")
    return Calibrated(model, calibration.scaling)


def _as_tensors(scaling: Scaling) -> tuple[Tensor, Tensor]:
    if isinstance(scaling, TemperatureScaling):
        return torch.tensor(1 / scaling.temperature), torch.tensor(0.0)
    return torch.as_tensor(scaling.weight, dtype=torch.float32), torch.as_tensor(
        scaling.bias, dtype=torch.float32
    )
