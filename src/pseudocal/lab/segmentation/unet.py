"""A small U-Net (Ronneberger et al., MICCAI 2015) that trains on a CPU in a minute."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own customary name


class UNet(nn.Module):
    """Down by halves, up again, each step with what was seen at that size; features at half the input's size out.

    >>> UNet(width=4)(torch.zeros(1, 3, 20, 30)).shape
    torch.Size([1, 4, 10, 15])
    """

    def __init__(self, width: int = 16, levels: int = 4) -> None:
        super().__init__()
        sizes = [width * 2**k for k in range(levels)]
        self.stem = block(3, width, stride=2)
        self.down = nn.ModuleList(block(a, b, stride=2) for a, b in pairwise(sizes))
        self.up = nn.ModuleList(block(a + b, a) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """Turn normalised images into features."""
        seen = [self.stem(x)]
        for down in self.down:
            seen.append(down(seen[-1]))
        x = seen.pop()
        for up in reversed(self.up):
            side = seen.pop()
            x = F.interpolate(x, side.shape[-2:], mode="bilinear", align_corners=False)
            x = up(torch.cat([side, x], dim=1))
        return x


def block(before: int, after: int, *, stride: int = 1) -> nn.Sequential:
    """Two convolutions, the first of them with the stride."""
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )
