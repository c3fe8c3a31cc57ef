"""The whole network, and what the adversarial methods put beside it.

A network is a backbone and a head. With a frozen backbone only the head is trained, on features computed once: then
`nn.Identity()` takes the backbone's place during training, and the finished model gets the real one back.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pseudocal.lab.adapt.heads import Head, gaussian, xavier


class Network(nn.Module):
    """Backbone and head: images with values 0 to 255, uint8 or floating, in; logits out.

    >>> from pseudocal.lab.adapt.backbones import build_backbone
    >>> from pseudocal.lab.adapt.heads import build_head
    >>> network = Network(build_backbone("digits"), build_head("linear", 128, 8, 10))
    >>> images = torch.zeros(2, 1, 16, 16, dtype=torch.uint8)
    >>> network.features(images).shape, network(images).shape
    (torch.Size([2, 8]), torch.Size([2, 10]))
    """

    def __init__(self, backbone: nn.Module, head: Head) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def features(self, x: Tensor) -> Tensor:
        """What the bottleneck gives, `(n, width)`."""
        features: Tensor = self.head.bottleneck(self.backbone(x))
        return features

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of one pass."""
        features = self.features(x)
        return features, self.head.classifier(features)

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(n, classes)`."""
        return self.both(x)[1]

    def generator(self) -> list[nn.Parameter]:
        """The parameters below the classifier."""
        return [*self.backbone.parameters(), *self.head.bottleneck.parameters()]

    def classifiers(self) -> list[nn.Parameter]:
        """The parameters of the classifier and of its rival, if any."""
        rival = [] if self.head.rival is None else list(self.head.rival.parameters())
        return [*self.head.classifier.parameters(), *rival]


class Discriminator(nn.Module):
    """Source or target? One hidden layer (ATDOC's code), or two with dropout (CDAN's, PADA's); logits `(n,)` out."""

    def __init__(self, inputs: int, *, width: int = 1024, deep: bool = False, stds: Sequence[float] = ()) -> None:
        super().__init__()
        shapes = [(inputs, width), (width, width), (width, 1)] if deep else [(inputs, width), (width, 1)]
        layers = (
            [gaussian(*s, std) for s, std in zip(shapes, stds, strict=True)] if stds else [xavier(*s) for s in shapes]
        )
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(0.5 if deep else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """How much each row looks like source."""
        for layer in list(self.layers)[:-1]:
            x = self.dropout(layer(x).relu())
        logit: Tensor = self.layers[-1](x)
        return logit[:, 0]


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        return -ctx.scale * grads[0], None  # type: ignore[attr-defined]


def reverse_gradient(x: Tensor, scale: float) -> Tensor:
    """Pass x on; its gradient comes back times -scale (Ganin & Lempitsky, ICML 2015).

    >>> x = torch.ones(1, requires_grad=True)
    >>> reverse_gradient(3 * x, 0.5).sum().backward()
    >>> x.grad
    tensor([-1.5000])
    """
    reversed_: Tensor = _Reverse.apply(x, scale)  # type: ignore[no-untyped-call]
    return reversed_
