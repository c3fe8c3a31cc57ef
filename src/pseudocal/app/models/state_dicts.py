"""State dicts of ResNets and ViTs: weights without a network, so the user names the architecture.

Only tensors are read from a file, never code. The networks (`ARCHITECTURES`) turn normalised images
into features:

| name | features | names as in |
|---|---|---|
| `resnet34`, `resnet50`, `resnet101` | 512, 2048, 2048 | torchvision and timm |
| `vit-b16` | 768: the class token after the last norm | timm |

Other names are translated to these:

- torchvision, timm: `layer1.0.conv1.weight`, `fc.weight`, or `blocks.0.norm1.weight`,
  `head.weight`.
- SHOT, DINE: three files, `..._F....pt`, `..._B....pt` and `..._C....pt`; a bottleneck with batch
  norm, a classifier with weight norm. On ImageNet-Sketch SHOT has no bottleneck, so no second file.
- ATDOC, PseudoCal: `0.layer1...`, `1.bottleneck.weight`, `1.fc.weight`; two linear layers.
- PseudoCal's SAFN and MCD: `1.bottleneck.0.0.fc.weight`, `1.fc.weight`, and `1.fc.1.weight`.
- TLlib: `backbone.layer1...`, `bottleneck.0.weight`, `head.weight`; a bottleneck with batch norm
  and ReLU. AFN has `bottleneck.0.0.fc.weight`. MCD saves three state dicts, `G`, `F1` and `F2`;
  the second classifier, `F2`, is not used, as in PseudoCal.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name
from torch.nn.utils.parametrizations import weight_norm

from pseudocal.app.models.model import Expects, OpenModel, check_exported
from pseudocal.arrays import InputError, Inputs
from pseudocal.extras import require
from pseudocal.predictors.torch_module import TorchPredictor

STAGE_WIDTHS = (64, 128, 256, 512)  # of a ResNet
# torchvision's evaluation: the shorter side is resized to the second, the centre is cropped
SIDE = 224
EDGE = 256

IMAGENET_NORMAL = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF_NORMAL = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# keys under which training scripts put a state dict
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
LAST = r"(?:fc|head|heads\.head|heads\.0)"  # the classifier
# from names in files to ours: the first that fits; None for what the classifier does not use
RULES = tuple(
    (re.compile(pattern), ours)
    for pattern, ours in (
        (r"(?:backbone|0|netF|G)\.(?:fc|head|heads)\..*", None),
        (r"F2\..*", None),
        (r"(?:1|netB)\.bottleneck\.(weight|bias)", r"bottleneck.0.\1"),
        (r"(?:1\.)?bottleneck\.0\.0\.fc\.(.*)", r"afn-bottleneck.0.\1"),
        (r"(?:1\.)?bottleneck\.0\.0\.bn\.(.*)", r"afn-bottleneck.1.\1"),
        (r"(?:1\.)?bottleneck\.1\.fc\.(.*)", r"afn-bottleneck.4.\1"),
        (r"(?:1\.)?bottleneck\.1\.bn\.(.*)", r"afn-bottleneck.5.\1"),
        (r"netB\.bn\.(.*)", r"bottleneck.1.\1"),
        (r"bottleneck\.(\d+)\.(.*)", r"relu-bottleneck.\1.\2"),
        (rf"(?:(?:1|netC)\.)?{LAST}\.weight_g", "classifier.parametrizations.weight.original0"),
        (rf"(?:(?:1|netC)\.)?{LAST}\.weight_v", "classifier.parametrizations.weight.original1"),
        (rf"(?:(?:1|netC|F1)\.)?{LAST}\.(.*)", r"classifier.\1"),
        (r"(?:(?:backbone|0|netF|G)\.)?(.*)", r"backbone.\1"),
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
# (names of the bottleneck, batch norm, weight norm) -> the name of such a head
HEAD_KINDS = {
    ("", False, False): "direct",
    ("bottleneck", False, False): "linear",
    ("bottleneck", True, False): "batchnorm",
    ("bottleneck", True, True): "weightnorm",
    ("relu-bottleneck", True, False): "relu",
    ("afn-bottleneck", True, False): "afn",
}
BLOCK = (nn.Linear, nn.BatchNorm1d, nn.ReLU)
# the layers of each head below the last one
HIDDEN: dict[str, Sequence[type[nn.Module]]] = {
    "direct": (),
    "linear": BLOCK[:1],
    "batchnorm": BLOCK[:2],
    "weightnorm": BLOCK[:2],
    "relu": BLOCK,
    "afn": (*BLOCK, nn.Dropout),
    "afn-two": (*BLOCK, nn.Dropout) * 2,
    "three-layer": (nn.Dropout, *BLOCK) * 2,
}
Named = dict[str, tuple[str, Tensor]]  # our name -> the name in the file, the tensor
Head = tuple[str, nn.Module, nn.Module]  # its kind, the bottleneck and the classifier


def open_state_dict(path: Path, architecture: str, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Open a file of tensors."""
    imported = import_classifier(read_state_dict(path), architecture)
    mean, std = imported.normal
    predict = TorchPredictor(imported.network.to(device))

    def export(temperature: float, folder: Path, probe: Inputs) -> list[str]:
        """Write the tensors under their names; SHOT's three files become one."""
        expected = predict(probe) / temperature
        content = BytesIO()  # on a full disk torch would abort the process
        torch.save(with_temperature(read_state_dict(path), temperature), content)
        target = folder / "model.pth"
        target.write_bytes(content.getvalue())
        again = open_state_dict(target, architecture)
        check_exported(again.predict(probe), expected, "state dict")
        return [target.name]

    preprocessing = {"size": (SIDE, SIDE), "edge": EDGE, "mean": mean, "std": std}
    return OpenModel(
        kind="state dict",
        predict=predict,
        expects=Expects((3, SIDE, SIDE), "float32", preprocessing=preprocessing),
        notes=(f"{architecture}: {imported.about}",),
        export=export,
    )


@dataclass(frozen=True, eq=False)
class Imported:
    """A network with the weights of a state dict: normalised images in, logits out.

    Attributes:
        network: modules `backbone`, `bottleneck` and `classifier`, one after the other; in
            evaluation mode.
        head: the kind of what is above the backbone: "direct", "linear", "batchnorm",
            "weightnorm", "relu", "afn", "afn-two" or "three-layer" (MCD).
        width: the width of the bottleneck, or of the hidden layers of a three-layer classifier;
            without either, the number of features.
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
    """Read tensors by name. The file `..._F...` of SHOT and DINE stands for all two or three."""
    path = Path(path)
    marked = re.compile(r"_F(?=[_.])")
    parts = {part: path.with_name(marked.sub(f"_{part}", path.name, count=1)) for part in "FBC"}
    if not marked.search(path.name) or not parts["C"].exists():
        return _tensors(path)
    if not parts["B"].exists():  # SHOT on ImageNet-Sketch has no bottleneck
        del parts["B"]
    return {
        f"net{part}.{name}": tensor
        for part, file in parts.items()
        for name, tensor in _tensors(file).items()
    }


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise InputError(f"expected a state dict, got {path}: no such file")
    safetensors = require("safetensors.torch", "hf") if path.suffix == ".safetensors" else None
    try:
        if safetensors is None:
            content = torch.load(path, map_location="cpu", weights_only=True)
        else:
            content = safetensors.load_file(path)
    except Exception as error:  # of many kinds, for files that cannot or will not be read
        raise InputError(
            f"the state dict {path} is damaged or holds more than tensors: save model.state_dict() "
            "rather than the model"
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if isinstance(content, dict) and isinstance(content.get("F1"), dict):  # TLlib's MCD
        content = {
            f"{part}.{name.removeprefix('module.')}": tensor
            for part in ("G", "F1", "F2")
            for name, tensor in content.get(part, {}).items()
        }
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
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError(f"expected {known}, got {architecture!r}", setting="architecture")
    backbone = ARCHITECTURES[architecture]()
    _load(backbone, _part(named, "backbone."), architecture)
    return backbone, _normal(named, architecture)


def import_classifier(tensors: Mapping[str, Tensor], architecture: str) -> Imported:
    """Return a whole classifier; what is above the backbone is recognised by its tensors."""
    named = _named(tensors)
    backbone, normal = import_backbone(tensors, architecture)
    kind, bottleneck, classifier = _head(named, architecture)
    modules = [*bottleneck.modules(), *classifier.modules()]
    layers = [each for each in modules if isinstance(each, nn.Linear)]
    inputs = layers[0].in_features
    if inputs != backbone.width:
        raise InputError(
            f"the head takes {inputs} features, but {architecture} has {backbone.width}: is the "
            "bottleneck missing?"
        )
    parts = {"backbone": backbone, "bottleneck": bottleneck, "classifier": classifier}
    network = nn.Sequential(OrderedDict(parts))
    used = {original for original, _ in named.values()}
    return Imported(
        network=network.eval(),
        head=kind,
        width=layers[-1].in_features,
        classes=layers[-1].out_features,
        normal=normal,
        mapped=len(used),
        left=tuple(name for name in tensors if name not in used),
    )


def _head(named: Named, architecture: str) -> Head:
    """Everything above the backbone, with its weights."""
    above = _part(named, "classifier.")
    if "8.weight" in above:  # MCD, whose classifier has all layers
        layers, width = _hidden_layers("three-layer", above, "the classifier")
        classes, _ = _shape(above, "8.weight", "the classifier")
        three = nn.Sequential(*layers, nn.Linear(width, classes))
        _load(three, above, "the classifier")
        return "three-layer", nn.Sequential(), three
    _, weight = above.get("weight", above.get("parametrizations.weight.original1", ("", None)))
    if weight is None or weight.ndim != 2:
        raise InputError(
            f"the state dict has no weights of a classifier (fc, head, netC) beside {architecture}"
        )
    classes, width = weight.shape
    names, below = _bottleneck(named)
    kind = HEAD_KINDS.get((names, "1.running_mean" in below, "weight" not in above))
    if kind is None:
        raise InputError(
            f"expected a head among {', '.join(HEAD_KINDS.values())}, got one of {sorted(above)}"
        )
    if kind == "afn" and "4.weight" in below:
        kind = "afn-two"
    layers = []
    if below:
        layers, width = _hidden_layers(kind, below, "the bottleneck")
    bottleneck = nn.Sequential(*layers)
    _load(bottleneck, below, "the bottleneck")
    linear: nn.Module = nn.Linear(width, classes)
    if kind == "weightnorm":
        linear = weight_norm(linear)
    _load(linear, above, "the classifier")
    return kind, bottleneck, linear


def _hidden_layers(kind: str, part: Named, what: str) -> tuple[list[nn.Module], int]:
    """The layers of a head below the last one, and their width, that of the first matrix."""
    first = HIDDEN[kind].index(nn.Linear)
    width, inputs = _shape(part, f"{first}.weight", what)
    layers = list[nn.Module]()
    for layer in HIDDEN[kind]:
        if layer is nn.Linear:
            layers.append(nn.Linear(inputs, width))
            inputs = width
        elif layer is nn.BatchNorm1d:
            layers.append(nn.BatchNorm1d(width))
        else:
            layers.append(layer())
    return layers, width


def _shape(part: Named, name: str, what: str) -> tuple[int, int]:
    """Return the shape of a matrix of weights."""
    _, weight = part.get(name, ("", None))
    if weight is None or weight.ndim != 2:
        raise InputError(f"the state dict has no matrix {name} of {what}")
    outputs, inputs = weight.shape
    return outputs, inputs


def with_temperature(tensors: Mapping[str, Tensor], temperature: float) -> dict[str, Tensor]:
    """Return a state dict of the same names whose classifier divides the logits by a temperature.

    >>> kept = with_temperature({"fc.weight": torch.ones(2, 3), "conv1.weight": torch.ones(1)}, 2.0)
    >>> kept["fc.weight"][0], kept["conv1.weight"]
    (tensor([0.5000, 0.5000, 0.5000]), tensor([1.]))
    """
    named = _named(tensors)
    last = "classifier."
    if "classifier.8.weight" in named:  # of MCD's three layers the last gives the logits
        last = "classifier.8."
    divided = dict(tensors)
    for own, (name, tensor) in named.items():
        # of a classifier with weight norm the lengths are divided, not the directions
        if own.startswith(last) and not own.endswith(".original1"):
            divided[name] = tensor / temperature
    return divided


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


def _bottleneck(named: Named) -> tuple[str, Named]:
    """How the tensors of the bottleneck are named, "" without one, and the tensors."""
    for names in ("afn-bottleneck", "relu-bottleneck", "bottleneck"):
        if below := _part(named, f"{names}."):
            break
    else:
        return "", {}
    if names == "relu-bottleneck":  # TLlib numbers its layers from 0, older versions from 2
        order = sorted({int(name.partition(".")[0]) for name in below})
        below = {
            re.sub(r"\d+", lambda number: str(order.index(int(number[0]))), name, count=1): value
            for name, value in below.items()
        }
    return names, below


def _load(module: nn.Module, given: Named, what: str) -> None:
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


def _normal(named: Named, architecture: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation as for ImageNet; timm's ViTs take images from -1 to 1."""
    timm = any(
        name.startswith("blocks.") or name.endswith(".attn.qkv.weight")
        for name, _ in named.values()
    )
    if timm and architecture.startswith("vit"):
        return HALF_NORMAL
    return IMAGENET_NORMAL


# ------------------------------------------------------------------------------ networks


class ResNet(nn.Module):
    """A residual network (He et al., CVPR 2016) up to its pooled features.

    Strides are on the 3 x 3 convolutions.

    >>> ResNet((1, 1, 1, 1), deep=False).eval()(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 512])

    Args:
        depths: the number of residual units in each stage.
        deep: whether a unit has three convolutions, as from ResNet-50 on, or two.

    """

    def __init__(self, depths: tuple[int, int, int, int], *, deep: bool) -> None:
        super().__init__()
        self.width = STAGE_WIDTHS[-1] * (4 if deep else 1)
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        before = 64
        for number, (width, depth) in enumerate(zip(STAGE_WIDTHS, depths, strict=True)):
            after = width * (4 if deep else 1)
            units = [ResidualUnit(before, width, after, stride=1 if number == 0 else 2)]
            units += [ResidualUnit(after, width, after) for _ in range(depth - 1)]
            self.add_module(f"layer{number + 1}", nn.Sequential(*units))
            before = after

    def forward(self, images: Tensor) -> Tensor:
        """Compute features `(n, width)`."""
        x = F.max_pool2d(self.bn1(self.conv1(images)).relu(), 3, 2, padding=1)
        for number in range(1, 5):
            x = self.get_submodule(f"layer{number}")(x)
        return x.mean(dim=(2, 3))


class ResidualUnit(nn.Module):
    """Two convolutions of 3 x 3, or one between two of 1 x 1 where the output is wider."""

    def __init__(self, before: int, width: int, after: int, *, stride: int = 1) -> None:
        super().__init__()
        kernels = ((3, stride), (3, 1)) if width == after else ((1, 1), (3, stride), (1, 1))
        self.convolutions = len(kernels)
        inputs = before
        for number, (kernel, step) in enumerate(kernels, start=1):
            outputs = after if number == len(kernels) else width
            self.add_module(
                f"conv{number}",
                nn.Conv2d(inputs, outputs, kernel, step, padding=kernel // 2, bias=False),
            )
            self.add_module(f"bn{number}", nn.BatchNorm2d(outputs))
            inputs = outputs
        self.downsample: nn.Module | None = None
        if before != after or stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Add the convolutions to x."""
        side = x if self.downsample is None else self.downsample(x)
        for number in range(1, self.convolutions + 1):
            x = self.get_submodule(f"bn{number}")(self.get_submodule(f"conv{number}")(x))
            x = x.relu() if number < self.convolutions else x
        return (x + side).relu()


class VisionTransformer(nn.Module):
    """ViT (Dosovitskiy et al., ICLR 2021) for images of 224 x 224, up to the class token.

    >>> VisionTransformer(width=24, depth=1, heads=2)(torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 24])
    """

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.width = width
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 197, width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, 16, 16)})
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, images: Tensor) -> Tensor:
        """Compute features `(n, width)`."""
        patches = self.patch_embed["proj"](images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], dim=1) + self.pos_embed
        features: Tensor = self.norm(self.blocks(x))[:, 0]
        return features


class TransformerBlock(nn.Module):
    """Attention and a perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.ModuleDict(
            {"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)}
        )
        self.mlp = nn.ModuleDict(
            {"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)}
        )

    def forward(self, x: Tensor) -> Tensor:
        """Transform tokens `(n, tokens, width)`."""
        n, tokens, width = x.shape
        qkv = self.attn["qkv"](self.norm1(x)).reshape(n, tokens, 3, self.heads, width // self.heads)
        seen = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.attn["proj"](seen.transpose(1, 2).reshape(n, tokens, width))
        y: Tensor = x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))
        return y


ARCHITECTURES: dict[str, Callable[[], ResNet | VisionTransformer]] = {
    "resnet34": lambda: ResNet((3, 4, 6, 3), deep=False),
    "resnet50": lambda: ResNet((3, 4, 6, 3), deep=True),
    "resnet101": lambda: ResNet((3, 4, 23, 3), deep=True),
    "vit-b16": VisionTransformer,
}
