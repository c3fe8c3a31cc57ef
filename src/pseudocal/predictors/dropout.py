"""A torch module whose dropout layers stay active."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from pseudocal.arrays import InputError, Inputs, Logits
from pseudocal.predictors.torch_module import TorchPredictor


def dropout_passes(
    module: nn.Module, batches: Iterable[Inputs], *, passes: int, seed: int
) -> Iterator[list[Logits]]:
    """For each batch, the logits of several passes with active dropout.

    All other layers are in eval mode.

    The dropout is seeded by `seed`, and torch's random state is restored after each batch.
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            f"expected a torch module with dropout layers, got {type(module).__name__}"
        )
    _check_dropout(module)
    rng = np.random.default_rng(seed)
    for x in batches:
        with torch.random.fork_rng(devices=_devices(module)):
            torch.manual_seed(int(rng.integers(2**63)))
            logits = [_dropping(module, x) for _ in range(passes)]
        yield logits


def _dropping(module: nn.Module, x: Inputs) -> Logits:
    """One pass of `TorchPredictor` with dropout: hooks switch the layers back to training mode."""
    layers = [m for m in module.modules() if isinstance(m, _DropoutNd)]
    hooks = [layer.register_forward_pre_hook(_switch_on) for layer in layers]
    try:
        return TorchPredictor(module)(x)
    finally:
        for hook in hooks:
            hook.remove()


def _switch_on(layer: nn.Module, _: Any) -> None:
    layer.train()


def _check_dropout(module: nn.Module) -> None:
    layers = [m for m in module.modules() if isinstance(m, _DropoutNd)]
    if not any(layer.p > 0 for layer in layers):
        found = "none" if not layers else f"{len(layers)} of probability 0"
        raise InputError(
            f"expected a module with dropout layers (torch.nn.Dropout and the like), got {found}: "
            "MC-Dropout needs them; add one before the last layer, or use an ensemble"
        )


def _devices(module: nn.Module) -> list[int]:
    """The GPUs whose random state must be restored."""
    return sorted({p.device.index for p in module.parameters() if p.device.type == "cuda"})
