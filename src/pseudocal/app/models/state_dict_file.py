"""State dicts of ResNets and ViTs.

Weights without a network, so the user names the architecture.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from pseudocal.app.models.model import Expects, OpenModel, check_shipped
from pseudocal.arrays import Inputs
from pseudocal.extras import require

TENSOR_FILES = (".bin", ".pt", ".pth", ".safetensors", ".tar")
# torchvision's evaluation: the shorter side is resized to the second, the centre is cropped
SIDE = 224
EDGE = 256


def open_state_dict(path: Path, *, architecture: str, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a file of tensors; no code in it is run."""
    require("torch", "torch")
    from pseudocal.app.models.architectures import import_classifier, read_state_dict
    from pseudocal.predictors.torch_module import TorchPredictor

    imported = import_classifier(read_state_dict(path), architecture)
    mean, std = imported.normal
    predict = TorchPredictor(imported.network.to(device))

    def ship(temperature: float, folder: Path, probe: Inputs) -> list[str]:
        target = _write_divided(path, temperature, folder)
        again = open_state_dict(target, architecture=architecture)
        check_shipped(again.predict(probe), predict(probe) / temperature, "state dict")
        return [target.name]

    return OpenModel(
        kind="state dict",
        predict=predict,
        expects=Expects(
            (3, SIDE, SIDE),
            "float32",
            preprocessing={"size": (SIDE, SIDE), "edge": EDGE, "mean": mean, "std": std},
        ),
        notes=(f"{architecture}: {imported.about}",),
        ship=ship,
    )


def _write_divided(path: Path, temperature: float, folder: Path) -> Path:
    """Write the tensors under their names, the classifier's divided by T.

    SHOT's three files become one.
    """
    torch = require("torch", "torch")
    from pseudocal.app.models.architectures import read_state_dict, with_temperature

    content = BytesIO()  # on a full disk torch would abort the process
    torch.save(with_temperature(read_state_dict(path), temperature), content)
    target = folder / "model.pth"
    target.write_bytes(content.getbuffer())
    return target
