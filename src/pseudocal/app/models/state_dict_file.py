"""State dicts of ResNets and ViTs: weights without a network, so the user names the architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.extras import require

TENSOR_FILES = (".bin", ".pt", ".pth", ".safetensors", ".tar")
SIDE, EDGE = 224, 256  # torchvision's evaluation: the shorter side is resized to the second, the centre is cropped


def open_state_dict(path: Path, *, architecture: str, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a file of tensors; no code in it is run."""
    require("torch", "torch")
    from pseudocal.app.models.architectures import import_classifier, read_state_dict
    from pseudocal.predictors.torch_module import TorchPredictor

    imported = import_classifier(read_state_dict(path), architecture)
    mean, std = imported.normal
    return OpenModel(
        kind="state dict",
        predict=TorchPredictor(imported.network.to(device)),
        expects=Expects(
            (3, SIDE, SIDE), "float32", preprocessing={"size": (SIDE, SIDE), "edge": EDGE, "mean": mean, "std": std}
        ),
        notes=(f"{architecture}: {imported.about}",),
    )
