"""Where the weights of ResNets and ViTs come from.

Files of state dicts, or folders and hub ids of transformers.

The paper's are torchvision's ImageNet V1 weights. Those behind the names on the hub are others.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from torch import nn

from pseudocal.app.models.state_dicts import (
    ARCHITECTURES,
    import_backbone,
    import_classifier,
    read_state_dict,
)
from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.lab.adapt.choices import Choice, Normal

PAPER_FILES = {  # torchvision's ImageNet V1
    "resnet34": "resnet34-b627a593.pth",
    "resnet50": "resnet50-0676ba61.pth",
    "resnet101": "resnet101-63fe2227.pth",
    "vit-b16": "vit_b_16-c867db91.pth",
}
STATE_DICTS = (".pt", ".pth", ".safetensors")
HUB = {
    "microsoft/resnet": "timm's ImageNet weights in transformers, trained by a later recipe",
    "google/vit": "trained on ImageNet-21k before ImageNet",
}
SECONDS = 3  # to wait for a connection to the hub


def about_weights(name: str, weights: str) -> str:
    """Say in one line what a backbone starts from.

    >>> about_weights("resnet50", "random")
    'resnet50: random weights'

    Args:
        name: the name of the backbone.
        weights: the weights that were chosen for it.

    """
    weights = paper_file(name, weights)
    if weights == "random" or (weights == "default" and name == "digits"):
        return f"{name}: random weights"
    if weights == "default":
        return f"{name}: its published ImageNet weights"
    if is_state_dict(weights):
        if Path(weights).name == PAPER_FILES.get(name):
            return f"{name}: the state dict {weights} (torchvision's V1, the paper's)"
        return f"{name}: the state dict {weights}"
    what = next(
        (text for start, text in HUB.items() if weights.startswith(start)),
        "a model of transformers",
    )
    paper = (
        f"; the paper's are torchvision's V1: {PAPER_FILES[name]}" if name in PAPER_FILES else ""
    )
    return f"{name}: {weights}, {what}{paper}"


def is_state_dict(weights: str) -> bool:
    """Whether weights are a file of tensors (`a.pth`, `a.pth.tar`), not a folder or a hub id."""
    return Path(weights).suffix in STATE_DICTS or Path(weights).is_file()


def paper_file(name: str, weights: str) -> str:
    """Return the file of the paper's weights in the folder `weights`, or else `weights` itself.

    >>> paper_file("resnet50", "random")
    'random'
    """
    file = Path(weights) / PAPER_FILES.get(name, "")
    return str(file) if name in PAPER_FILES and file.is_file() else weights


def own_trunk(choice: Choice) -> tuple[nn.Module, Normal, Choice] | None:
    """Return a network with the weights of a state dict, or one to load them into.

    None for those of transformers.
    """
    if choice.config is not None and "normal" in choice.config:
        return ARCHITECTURES[choice.name](), choice.config["normal"], choice
    choice = replace(choice, weights=paper_file(choice.name, choice.weights))
    if not is_state_dict(choice.weights):
        return None
    trunk, normal = import_backbone(read_state_dict(choice.weights), choice.name)
    return trunk, normal, replace(choice, config={"normal": normal})


def pretrained_classifier(choice: Choice) -> nn.Linear:
    """Return the classification layer that pretrained weights come with, above their backbone."""
    if is_state_dict(choice.weights):
        imported = import_classifier(read_state_dict(choice.weights), choice.name)
        found = imported.network.get_submodule("classifier") if imported.head == "direct" else None
    elif choice.weights in ("random", "default"):
        found = None
    else:
        model_type = getattr(
            require("transformers", "adapt"), f"{_family(choice)}ForImageClassification"
        )
        found = _pretrained(model_type, choice, {}).classifier
        found = found[-1] if isinstance(found, nn.Sequential) else found
    if not isinstance(found, nn.Linear):
        raise InputError(
            f"expected weights with a linear classifier for {choice.name}, got {choice.weights}"
        )
    return found


def _family(choice: Choice) -> str:
    return "ViT" if choice.name.startswith("vit") else "ResNet"


def from_transformers(family: str, choice: Choice, **shape: Any) -> tuple[Any, Choice]:
    """Build the model, and return the choice with the configuration that rebuilds it."""
    transformers = require("transformers", "adapt")
    config_type = getattr(transformers, family + "Config")
    model_type = getattr(transformers, family + "Model")
    # the pooling layer of a ViT is untrained, and not used here
    options = {"add_pooling_layer": False} if family == "ViT" else {}
    if choice.weights == "random":
        net = model_type(config_type(**(choice.config or shape)), **options)
    elif choice.weights == "default":
        raise InputError(
            f"expected weights for {choice.name}, got none: {_advice(choice)}, or random"
        )
    else:
        net = _pretrained(model_type, choice, options)
    return net, replace(choice, config=net.config.to_diff_dict())


def _pretrained(model_type: Any, choice: Choice, options: dict[str, Any]) -> Any:
    """Load a folder, what the hub's cache holds, or what the hub has if it can be reached."""
    try:
        return _loaded(model_type, choice, local_files_only=True, **options)
    except OSError as error:
        if Path(choice.weights).exists():
            raise InputError(
                f"expected weights for {choice.name}, got {choice.weights}, which has none: "
                f"{_advice(choice)}"
            ) from error
        if not _hub_is_reachable():
            raise InputError(
                f"expected weights that are on this machine, got {choice.weights}, which is not: "
                f"{_advice(choice)}"
            ) from error
    try:
        return _loaded(model_type, choice, **options)
    except OSError as error:
        raise InputError(
            f"expected weights on the hub, got {choice.weights}: {_advice(choice)}"
        ) from error


def _loaded(model_type: Any, choice: Choice, **options: Any) -> Any:
    """Load a model, quietly, and refuse tensors that the weights lack.

    Transformers would make random ones.
    """
    logs = require("transformers.utils.logging", "adapt")
    logs.disable_progress_bar()
    verbosity = logs.get_verbosity()
    logs.set_verbosity_error()
    try:
        net, found = model_type.from_pretrained(choice.weights, output_loading_info=True, **options)
    finally:
        logs.set_verbosity(verbosity)
    missing = sorted(
        name for name in found["missing_keys"] if not name.endswith("num_batches_tracked")
    )
    if missing:
        raise InputError(
            f"expected the tensors of {choice.name} in {choice.weights}, got {len(missing)} "
            "missing, "
            f"the first {missing[0]}"
        )
    return net


def _advice(choice: Choice) -> str:
    file = PAPER_FILES[choice.name]
    return f"pass a state dict, such as torchvision's {file}, or a folder of transformers"


def _hub_is_reachable() -> bool:
    """Whether the hub can be reached; waiting for its own library to give up takes minutes."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", ""):
        return False
    if getproxies():
        return True
    host = urlsplit(require("huggingface_hub.constants", "adapt").ENDPOINT).hostname
    try:
        socket.create_connection((host, 443), timeout=SECONDS).close()
    except OSError:
        return False
    return True
