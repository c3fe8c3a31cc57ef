"""Networks for segmentation: images with values 0 to 255 in, logits for every pixel out.

| name | output | weights |
|---|---|---|
| `unet` | the input's size | at random: some 100,000, for small images and a CPU |
| `segformer` | a quarter of it | a local folder or hub id for transformers, or at random |
| `deeplab` | an eighth of it | a state dict of a ResNet-101 below the head, or at random; see `load_deeplab` too |
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name

from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.lab.adapt.backbones import IMAGENET
from pseudocal.lab.segmentation.deeplab import deeplab


class Segmenter(nn.Module):
    """A network from images to logits: it normalises, computes features, and classifies.

    With `full`, the logits have the size of the input.

    >>> build_segmenter("unet", 5, width=4)(torch.zeros(1, 3, 20, 30, dtype=torch.uint8)).shape
    torch.Size([1, 5, 20, 30])

    Args:
        backbone: from normalised images to features.
        head: from features to logits.
        full: whether to resize the logits to the size of the input.

    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, head: nn.Module, *, full: bool = False) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.full = full
        self.register_buffer("mean", torch.tensor(IMAGENET[0])[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET[1])[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits `(n, classes, h, w)`.

        Args:
            images: `(n, 3, height, width)`, RGB with values 0 to 255.

        """
        x = images if images.is_floating_point() else images.float()
        logits: Tensor = self.head(self.backbone((x / 255 - self.mean) / self.std))
        if self.full:
            logits = F.interpolate(logits, images.shape[-2:], mode="bilinear", align_corners=False)
        return logits


class UNet(nn.Module):
    """A small U-Net (Ronneberger et al., MICCAI 2015): features at half the input's size out.

    >>> UNet(width=4)(torch.zeros(1, 3, 20, 30)).shape
    torch.Size([1, 4, 10, 15])
    """

    def __init__(self, width: int = 16, levels: int = 4) -> None:
        super().__init__()
        sizes = [width * 2**k for k in range(levels)]
        self.stem = convolutions(3, width, stride=2)
        self.down = nn.ModuleList(convolutions(a, b, stride=2) for a, b in pairwise(sizes))
        self.up = nn.ModuleList(convolutions(a + b, a) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """Turn normalised images into features."""
        skips = [self.stem(x)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in reversed(self.up):
            skip = skips.pop()
            x = F.interpolate(x, skip.shape[-2:], mode="bilinear", align_corners=False)
            x = up(torch.cat([skip, x], dim=1))
        return x


def convolutions(before: int, after: int, *, stride: int = 1) -> nn.Sequential:
    """Two convolutions, the first of them with the stride."""
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )


def unet(classes: int, *, width: int = 16, levels: int = 4) -> Segmenter:
    """The small U-Net; its last step up is bilinear."""
    return Segmenter(UNet(width, levels), nn.Conv2d(width, classes, 1), full=True)


class SegformerLogits(nn.Module):
    """The logits of a model of transformers."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Run the model."""
        logits: Tensor = self.net(pixel_values=x).logits
        return logits


def segformer(
    classes: int, *, weights: str | None = None, config: dict[str, Any] | None = None
) -> Segmenter:
    """SegFormer (Xie et al., NeurIPS 2021) of transformers.

    B0 at random, or what a folder or hub id holds.

    A head that was trained for another number of classes is replaced.
    """
    transformers = require("transformers", "adapt")
    segformer_type = transformers.SegformerForSemanticSegmentation
    if weights is None:
        shape = {**(config or {}), "num_labels": classes}
        net = segformer_type(transformers.SegformerConfig(**shape))
    else:
        net = segformer_type.from_pretrained(
            weights, num_labels=classes, ignore_mismatched_sizes=True, use_safetensors=True
        )
    return Segmenter(SegformerLogits(net), nn.Identity())


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "unet": unet,
    "segformer": segformer,
    "deeplab": deeplab,
}


def build_segmenter(name: str, classes: int, **settings: Any) -> nn.Module:
    """Build a network by name; random weights are drawn from torch's generator.

    Args:
        name: a name in `NETWORKS`.
        classes: the number of classes.
        settings: arguments of the network, such as `width` of the U-Net or `weights` of SegFormer.

    """
    if name not in NETWORKS:
        raise InputError(f"expected a network among {', '.join(NETWORKS)}, got {name!r}")
    if classes < 2:
        raise InputError(f"expected at least two classes, got {classes}")
    return NETWORKS[name](classes, **settings)
