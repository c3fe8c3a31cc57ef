"""Networks from normalised images to features, with the names that public state dicts have.

| name | features | names as in |
|---|---|---|
| `resnet34`, `resnet50`, `resnet101` | 512, 2048, 2048 | torchvision and timm |
| `vit-b16` | 768: the class token after the last norm | timm |
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name

STAGE_WIDTHS = (64, 128, 256, 512)


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
