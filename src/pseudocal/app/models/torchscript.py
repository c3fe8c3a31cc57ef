"""A TorchScript file: run it, and write it again with the division by T inside.

`torch.jit.load` reads the archive with torch's own restricted reader and runs no Python from it.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.models.opened import OpenModel
from pseudocal.arrays import Floats, InputError, Inputs
from pseudocal.extras import MissingExtraError


def open_torchscript(path: Path, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a file that `torch.jit.save` wrote."""
    try:
        from pseudocal.predictors.torch_module import TorchPredictor
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    predict = TorchPredictor(_load(path, device))
    return OpenModel(
        kind="torchscript",
        predict=predict,
        notes=("TorchScript says nothing of its input",),
        ship=lambda temperature, folder, probe: _ship(path, temperature, folder, predict(probe), probe),
    )


def _load(path: Path, device: str) -> Any:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is; the files are still about
            return torch.jit.load(path, map_location=device)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise InputError(f"expected a TorchScript file, got {path}, which cannot be read: {first}") from error


def _ship(path: Path, temperature: float, folder: Path, before: Floats, probe: Inputs) -> list[str]:
    """Write the calibrated module, load it again, run it on a few inputs."""
    import torch

    from pseudocal.predictors.torch_module import TorchPredictor, logits_of

    class Divided(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model
            self.register_buffer("temperature", torch.tensor(float(temperature)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return logits_of(self.model(x)) / self.get_buffer("temperature")

    target = folder / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # traced, not scripted: scripting would need this file's source at hand wherever the library is installed
        traced: Any = torch.jit.trace(Divided(_load(path, "cpu")).eval(), torch.as_tensor(probe))  # type: ignore[no-untyped-call]
        traced.save(target)
    after = TorchPredictor(_load(target, "cpu"))(probe)
    if not np.allclose(after, before / temperature, rtol=1e-3, atol=1e-4):
        raise InputError(f"expected the calibrated module to say {before[0] / temperature}, got {after[0]}")
    return [target.name]
