"""State dicts of ResNets and ViTs: weights without a network, so the user names the architecture.

Only tensors are read from a file, never code.

- torchvision, timm: `layer1.0.conv1.weight`, `fc.weight`, or `blocks.0.norm1.weight`,
  `head.weight`.
- SHOT, DINE: three files, `..._F....pt`, `..._B....pt` and `..._C....pt`; a bottleneck with batch
  norm, a classifier with weight norm.
- ATDOC, PseudoCal: `0.layer1...`, `1.bottleneck.weight`, `1.fc.weight`; two linear layers.
- TLlib: `backbone.layer1...`, `bottleneck.0.weight`, `head.weight`; a bottleneck with batch norm
  and ReLU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from pseudocal.app.models.model import Expects, OpenModel, exporting
from pseudocal.app.models.networks import ARCHITECTURES, ResNet, VisionTransformer
from pseudocal.arrays import InputError, Inputs, Predictor
from pseudocal.predictors.torch_module import TorchPredictor

# torchvision's evaluation: the shorter side is resized to the second, the centre is cropped
SIDE = 224
EDGE = 256

IMAGENET_NORMAL = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF_NORMAL = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# keys under which training scripts put a state dict
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
# from names in files to ours: the first that fits; None for what the classifier does not use
RULES = tuple(
    (re.compile(pattern), ours)
    for pattern, ours in (
        (r"(?:backbone|0|netF)\.(?:fc|head|heads)\..*", None),
        (r"(?:1|netB)\.bottleneck\.(weight|bias)", r"bottleneck.0.\1"),
        (r"netB\.bn\.(.*)", r"bottleneck.1.\1"),
        (r"bottleneck\.(\d+)\.(.*)", r"relu-bottleneck.\1.\2"),
        (
            r"(?:(?:1|netC)\.)?(?:fc|head|heads\.head|heads\.0)\.weight_g",
            r"classifier.parametrizations.weight.original0",
        ),
        (
            r"(?:(?:1|netC)\.)?(?:fc|head|heads\.head|heads\.0)\.weight_v",
            r"classifier.parametrizations.weight.original1",
        ),
        (r"(?:(?:1|netC)\.)?(?:fc|head|heads\.head|heads\.0)\.(.*)", r"classifier.\1"),
        (r"(?:backbone|0|netF)\.(.*)", r"backbone.\1"),
        (r"(.*)", r"backbone.\1"),
    )
)
TORCHVISION_VIT = tuple(
    (re.compile(pattern), ours)
    for pattern, ours in (
        (r"class_token$", "cls_token"),
        (r"encoder\.pos_embedding$", "pos_embed"),
        (r"conv_proj\.", "patch_embed.proj."),
        (r"encoder\.ln\.", "norm."),
        (r"encoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
        (r"\.ln_([12])\.", r".norm\1."),
        (r"\.self_attention\.in_proj_(weight|bias)$", r".attn.qkv.\1"),
        (r"\.self_attention\.out_proj\.", ".attn.proj."),
        (r"\.mlp\.(?:0|linear_1)\.", ".mlp.fc1."),
        (r"\.mlp\.(?:3|linear_2)\.", ".mlp.fc2."),
    )
)
# (bottleneck, batch norm, ReLU, weight norm) -> the name of such a head
HEAD_KINDS = {
    (False, False, False, False): "direct",
    (True, False, False, False): "linear",
    (True, True, False, False): "batchnorm",
    (True, True, False, True): "weightnorm",
    (True, True, True, False): "relu",
}


def open_state_dict(path: Path, architecture: str, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a file of tensors."""
    imported = import_classifier(read_state_dict(path), architecture)
    mean, std = imported.normal
    predict = TorchPredictor(imported.network.to(device))

    def write(temperature: float, _: Inputs) -> bytes:
        """The tensors under their names; SHOT's three files become one."""
        content = BytesIO()
        torch.save(with_temperature(read_state_dict(path), temperature), content)
        return content.getvalue()

    def reopen(target: Path) -> Predictor:
        return open_state_dict(target, architecture).predict

    preprocessing = {"size": (SIDE, SIDE), "edge": EDGE, "mean": mean, "std": std}
    return OpenModel(
        kind="state dict",
        predict=predict,
        expects=Expects((3, SIDE, SIDE), "float32", preprocessing=preprocessing),
        notes=(f"{architecture}: {imported.about}",),
        export=exporting("model.pth", predict, write, reopen, "state dict"),
    )


@dataclass(frozen=True, eq=False)
class Imported:
    """A network with the weights of a state dict: normalised images in, logits out.

    Attributes:
        network: modules `backbone`, `bottleneck` and `classifier`, one after the other; in
            evaluation mode.
        head: the kind of what is above the backbone: "direct", "linear", "batchnorm", "weightnorm"
            or "relu".
        width: the number of features that the classifier sees.
        classes: the number of classes.
        normal: the mean and the standard deviation of the channels, for images from 0 to 1.
        mapped: how many tensors of the file are used.
        left: the names of those that are not.

    """

    network: nn.Sequential
    head: str
    width: int
    classes: int
    normal: tuple[tuple[float, ...], tuple[float, ...]]
    mapped: int
    left: tuple[str, ...]

    @property
    def about(self) -> str:
        """What was read, in one line."""
        unused = "none left over"
        if self.left:
            unused = f"{len(self.left)} left over ({', '.join(self.left[:3])})"
        return (
            f"{self.mapped} tensors mapped, none missing, {unused}; {self.classes} classes, "
            f"{self.head} head"
        )


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read tensors by name. The file `..._F...` of SHOT and DINE stands for all three."""
    path = Path(path)
    marked = re.compile(r"_F(?=[_.])")
    parts = {part: path.with_name(marked.sub(f"_{part}", path.name, count=1)) for part in "FBC"}
    if not marked.search(path.name) or not all(file.exists() for file in parts.values()):
        return _tensors(path)
    return {
        f"net{part}.{name}": tensor
        for part, file in parts.items()
        for name, tensor in _tensors(file).items()
    }


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise InputError(f"expected a state dict, got {path}: no such file")
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return {name.removeprefix("module."): tensor for name, tensor in load_file(path).items()}
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds, for files that torch cannot or will not read
        raise InputError(
            f"the state dict {path} is damaged or holds more than tensors: save model.state_dict() "
            "rather than the model"
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content:
        raise InputError(
            f"{path} holds a {type(content).__name__} instead of tensors by their names: save "
            "model.state_dict()"
        )
    return {name.removeprefix("module."): x for name, x in content.items() if isinstance(x, Tensor)}


def import_backbone(
    tensors: Mapping[str, Tensor], architecture: str
) -> tuple[ResNet | VisionTransformer, tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return a backbone without a head, and the mean and standard deviation of its images."""
    named = _named(tensors)
    backbone = _loaded(_build(architecture), _part(named, "backbone."), architecture)
    return backbone, _normal(named, architecture)  # type: ignore[return-value]


def import_classifier(tensors: Mapping[str, Tensor], architecture: str) -> Imported:
    """Return a whole classifier; what is above the backbone is recognised by its tensors."""
    named = _named(tensors)
    backbone = _build(architecture)
    _loaded(backbone, _part(named, "backbone."), architecture)
    below = _bottleneck(named)
    above = _part(named, "classifier.")
    _, weight = above.get("weight", above.get("parametrizations.weight.original1", ("", None)))
    if weight is None or weight.ndim != 2:
        raise InputError(
            f"the state dict has no weights of a classifier (fc, head, netC) beside {architecture}"
        )
    batch_norm = "1.running_mean" in below
    relu = any(name.startswith("relu-bottleneck.") for name in named)
    normalised = "weight" not in above
    head = HEAD_KINDS.get((bool(below), batch_norm, relu, normalised))
    if head is None:
        raise InputError(
            f"expected a head among {', '.join(HEAD_KINDS.values())}, got one of {sorted(above)}"
        )
    bottleneck = nn.Sequential()
    if below:
        width, inputs = below["0.weight"][1].shape
        bottleneck.append(nn.Linear(inputs, width))
        if batch_norm:
            bottleneck.append(nn.BatchNorm1d(width))
        if relu:
            bottleneck.append(nn.ReLU())
    classes, width = weight.shape
    linear: nn.Module = nn.Linear(width, classes)
    if normalised:
        linear = weight_norm(linear)
    network = nn.Sequential()
    network.add_module("backbone", backbone)
    network.add_module("bottleneck", _loaded(bottleneck, below, "the bottleneck"))
    network.add_module("classifier", _loaded(linear, above, "the classifier"))
    used = {original for original, _ in named.values()}
    return Imported(
        network=network.eval(),
        head=head,
        width=width,
        classes=classes,
        normal=_normal(named, architecture),
        mapped=len(used),
        left=tuple(name for name in tensors if name not in used),
    )


def with_temperature(tensors: Mapping[str, Tensor], temperature: float) -> dict[str, Tensor]:
    """Return a state dict of the same names whose classifier divides the logits by a temperature.

    >>> kept = with_temperature({"fc.weight": torch.ones(2, 3), "conv1.weight": torch.ones(1)}, 2.0)
    >>> kept["fc.weight"][0], kept["conv1.weight"]
    (tensor([0.5000, 0.5000, 0.5000]), tensor([1.]))
    """
    ours = {original: name for name, (original, _) in _named(tensors).items()}
    divided = dict(tensors)
    for name, own in ours.items():
        # of a classifier with weight norm the lengths are divided, not the directions
        if own.startswith("classifier.") and not own.endswith(".original1"):
            divided[name] = tensors[name] / temperature
    return divided


Named = dict[str, tuple[str, Tensor]]  # our name -> the name in the file, the tensor


def _named(tensors: Mapping[str, Tensor]) -> Named:
    named: Named = {}
    for name, tensor in tensors.items():
        ours = next(
            match.expand(ours) if ours else None
            for rule, ours in RULES
            if (match := rule.fullmatch(name))
        )
        if ours is None:
            continue
        if ours.startswith("backbone."):
            for rule, replacement in TORCHVISION_VIT:
                ours = rule.sub(replacement, ours)
        named[ours] = (name, tensor)
    return named


def _part(named: Named, prefix: str) -> Named:
    return {
        name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)
    }


def _bottleneck(named: Named) -> Named:
    """The tensors of the bottleneck. TLlib numbers its layers from 0, older versions from 2."""
    numbered = _part(named, "relu-bottleneck.")
    order = sorted({int(name.partition(".")[0]) for name in numbered})
    renamed = {
        f"{order.index(int(name.partition('.')[0]))}.{name.partition('.')[2]}": value
        for name, value in numbered.items()
    }
    return renamed or _part(named, "bottleneck.")


def _build(architecture: str) -> ResNet | VisionTransformer:
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError(f"expected {known}, got {architecture!r}", setting="architecture")
    return ARCHITECTURES[architecture]()


def _loaded(module: nn.Module, given: Named, what: str) -> nn.Module:
    """Load tensors into a module; refuse other shapes, missing tensors and further layers."""
    wanted = module.state_dict()
    for name, own in wanted.items():
        if name in given and given[name][1].shape != own.shape:
            original, tensor = given[name]
            raise InputError(
                f"{original} has shape {tuple(tensor.shape)}, but {tuple(own.shape)} in {what}"
            )
    missing = [
        name for name in wanted if name not in given and not name.endswith("num_batches_tracked")
    ]
    if missing:
        raise InputError(
            f"{len(missing)} tensors of {what} are missing in the state dict, first {missing[0]}"
        )
    more = [original for name, (original, _) in given.items() if name not in wanted]
    if more:
        raise InputError(
            f"{len(more)} tensors of the state dict are not part of {what}, the first {more[0]}"
        )
    module.load_state_dict({name: tensor for name, (_, tensor) in given.items()}, strict=False)
    return module


def _normal(named: Named, architecture: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation as for ImageNet; timm's ViTs take images from -1 to 1."""
    timm = any(
        name.startswith("blocks.") or name.endswith(".attn.qkv.weight")
        for name, _ in named.values()
    )
    if timm and architecture.startswith("vit"):
        return HALF_NORMAL
    return IMAGENET_NORMAL
