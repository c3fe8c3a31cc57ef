"""Networks for segmentation: images with values 0 to 255 in, logits for every pixel out.

| name | output | weights |
|---|---|---|
| `unet` | the input's size | at random: some 100,000, for small images and a CPU |
| `segformer` | a quarter of it | a local folder or hub id for transformers, or at random |
| `deeplab` | an eighth of it | see `load_deeplab`, or at random |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name

from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError
from pseudocal.lab.adapt.backbones import IMAGENET
from pseudocal.lab.segmentation.deeplab import DeepLab
from pseudocal.lab.segmentation.unet import UNet


class Segmenter(nn.Module):
    """Normalise, features, logits; resized to the input if `full`.

    >>> build_segmenter("unet", 5, width=4)(torch.zeros(1, 3, 20, 30, dtype=torch.uint8)).shape
    torch.Size([1, 5, 20, 30])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, head: nn.Module, *, full: bool = False) -> None:
        super().__init__()
        self.backbone, self.head, self.full = backbone, head, full
        self.register_buffer("mean", torch.tensor(IMAGENET[0])[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET[1])[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Logits `(n, classes, h, w)`."""
        x = images if images.is_floating_point() else images.float()
        logits: Tensor = self.head(self.backbone((x / 255 - self.mean) / self.std))
        if self.full:
            logits = F.interpolate(logits, images.shape[-2:], mode="bilinear", align_corners=False)
        return logits


def unet(classes: int, *, width: int = 16, levels: int = 4) -> Segmenter:
    """The small U-Net; its last step up is bilinear."""
    return Segmenter(UNet(width, levels), nn.Conv2d(width, classes, 1), full=True)


class Logits(nn.Module):
    """The logits of a model of transformers."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Run the model."""
        logits: Tensor = self.net(pixel_values=x).logits
        return logits


def segformer(classes: int, *, weights: str | None = None, config: dict[str, Any] | None = None) -> Segmenter:
    """SegFormer (Xie et al., NeurIPS 2021) of transformers: B0 at random, or what a folder or hub id holds.

    A head that was trained for another number of classes is replaced.
    """
    try:
        from transformers import SegformerConfig, SegformerForSemanticSegmentation
    except ImportError as error:
        raise MissingExtraError("transformers", "adapt") from error
    if weights is None:
        shape: Any = {**(config or {}), "num_labels": classes}
        net: Any = SegformerForSemanticSegmentation(SegformerConfig(**shape))
    else:
        net = SegformerForSemanticSegmentation.from_pretrained(
            weights, num_labels=classes, ignore_mismatched_sizes=True, use_safetensors=True
        )
    return Segmenter(Logits(net), nn.Identity())


NETWORKS: dict[str, Callable[..., nn.Module]] = {"unet": unet, "segformer": segformer, "deeplab": DeepLab}


def build_segmenter(name: str, classes: int, **settings: Any) -> nn.Module:
    """Build a network by name; a random one draws from torch's generator."""
    if name not in NETWORKS:
        raise InputError(f"expected a network among {', '.join(NETWORKS)}, got {name!r}")
    if classes < 2:
        raise InputError(f"expected at least two classes, got {classes}")
    return NETWORKS[name](classes, **settings)
