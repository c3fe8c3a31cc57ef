"""A torch module as a predictor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pseudocal.arrays import InputError, Inputs, Logits, as_numpy


@dataclass(frozen=True)
class TorchPredictor:
    """Run a module in eval and inference mode on its device, and restore its mode afterwards.

    Attributes:
        module: The torch module.

    """

    module: nn.Module

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch of arrays or tensors."""
        with evaluating(self.module), torch.inference_mode():
            output = self.module(self._placed(x))
            return as_numpy(logits_of(output))

    def _placed(self, x: Inputs) -> Tensor:
        """The batch on the device of the module; floats in its dtype."""
        tensor = torch.as_tensor(x)
        weight = next((p for p in self.module.parameters() if p.is_floating_point()), None)
        if weight is None:
            return tensor
        return tensor.to(weight.device, weight.dtype if tensor.is_floating_point() else None)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch to eval mode, and restore the mode of each submodule afterwards."""
    modes = [(m, m.training) for m in module.modules()]
    if any(training for _, training in modes):
        module.eval()
    try:
        yield
    finally:
        for m, training in modes:
            if m.training != training:
                m.training = training


def logits_of(output: Any) -> Tensor:
    """The logits in a model's output.

    The tensor itself, `.logits`, the first of a tuple, or the key "logits" or "out".

    >>> logits_of({"out": torch.zeros(2, 19, 4, 4), "aux": torch.zeros(2, 19, 4, 4)}).shape  # torchvision
    torch.Size([2, 19, 4, 4])
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(getattr(output, "logits", None), Tensor):
        logits: Tensor = output.logits
        return logits
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0]
    named = output if isinstance(output, Mapping) else {}
    for name in ("logits", "out"):
        if isinstance(named.get(name), Tensor):
            return logits_of(named[name])
    names = f" of {', '.join(map(str, named))}" if named else ""
    raise InputError(
        "expected a tensor, a tuple, an object with .logits, or a mapping with 'logits' or 'out' "
        f"from the module, got {type(output).__name__}{names}"
    )
