"""Networks: a backbone, a head on top of it, and the discriminator of the adversarial methods.

With a frozen backbone only the head is trained, on features computed once: `nn.Identity()` takes
the backbone's place during training, and the finished model gets the real one back.

A head is a bottleneck, whose output is what the methods call "the features", and a classifier.

| head | bottleneck | classifier | where from |
|---|---|---|---|
| `linear` | Linear | Linear | ATDOC, CDAN, PseudoCal |
| `direct` | none | Linear | BNM, DINE's source model |
| `batchnorm` | Linear, BN | Linear | MCC |
| `gaussian` | Linear, small weights | Linear | PADA |
| `relu` | Linear, BN, ReLU | Linear | TLlib |
| `weightnorm` | Linear, BN | weight-normalised Linear | SHOT, DINE |
| `afn` | Linear, BN, ReLU, norm-keeping dropout | Linear | SAFN |
| `afn-two` | two such blocks | Linear | SAFN on VisDA |
| `three-layer` | none | one three-layer head | MCD's checkpoints |
| `pair` | none: the backbone is the generator | two three-layer heads | MCD |
| `bottleneck-pair` | Linear, BN, ReLU: the generator above a frozen backbone | two three-layer heads | MCD |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from pseudocal.arrays import InputError


class Network(nn.Module):
    """A backbone and a head: images with values 0 to 255, uint8 or floating, in; logits out.

    >>> from pseudocal.lab.adapt.backbones import build_backbone
    >>> network = Network(build_backbone("digits"), build_head("linear", 128, 8, 10))
    >>> images = torch.zeros(2, 1, 16, 16, dtype=torch.uint8)
    >>> network.features(images).shape, network(images).shape
    (torch.Size([2, 8]), torch.Size([2, 10]))

    Args:
        backbone: from images to features; `nn.Identity()` if the inputs are features already.
        head: from features to logits.

    """

    def __init__(self, backbone: nn.Module, head: Head) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    @property
    def device(self) -> torch.device:
        """Where the weights of the classifier are."""
        return next(self.head.classifier.parameters()).device

    def features(self, x: Tensor) -> Tensor:
        """Compute the features after the bottleneck, `(n, width)`.

        Args:
            x: a batch of images, or of features of a frozen backbone.

        """
        features: Tensor = self.head.bottleneck(self.backbone(x))
        return features

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute features and logits in one pass.

        Args:
            x: a batch of images, or of features of a frozen backbone.

        """
        features = self.features(x)
        return features, self.head.classifier(features)

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits `(n, classes)`.

        Args:
            x: a batch of images, or of features of a frozen backbone.

        """
        return self.both(x)[1]

    def generator(self) -> list[nn.Parameter]:
        """The parameters below the classifier."""
        return [*self.backbone.parameters(), *self.head.bottleneck.parameters()]

    def classifiers(self) -> list[nn.Parameter]:
        """The parameters of the classifier and of the second one, if any."""
        parameters = list(self.head.classifier.parameters())
        if self.head.second_classifier is not None:
            parameters += self.head.second_classifier.parameters()
        return parameters


class Head(nn.Module):
    """A bottleneck and a classifier; MCD has a second classifier."""

    def __init__(
        self,
        bottleneck: nn.Module,
        classifier: nn.Module,
        *,
        width: int,
        second_classifier: nn.Module | None = None,
    ):
        super().__init__()
        self.bottleneck = bottleneck
        self.classifier = classifier
        self.second_classifier = second_classifier
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(n, classes)` of the first classifier, also if there are two, as in PseudoCal."""
        logits: Tensor = self.classifier(self.bottleneck(x))
        return logits


class NormKeepingDropout(nn.Dropout):
    """Dropout that keeps the expected squared norm instead of the mean.

    Its output times sqrt(1 - p).
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's own name
        """Drop and rescale; nothing happens in evaluation."""
        dropped = super().forward(input)
        return dropped * (1 - self.p) ** 0.5 if self.training else dropped


class QuickDropout(nn.Dropout):
    """Dropout whose mask comes from uniform numbers.

    On a CPU, torch draws them four times as fast as coin tosses.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's own name
        """Drop each number with probability p and scale the others up.

        Nothing happens in evaluation.
        """
        if not self.training:
            return input
        return input * torch.rand_like(input).ge_(self.p).div_(1 - self.p)


def build_head(kind: str, inputs: int, width: int, classes: int) -> Head:
    """Build a head by name.

    `width` is the bottleneck's, weights are drawn from torch's generator.
    """
    if kind not in HEADS:
        raise InputError(f"expected a head among {', '.join(HEADS)}, got {kind!r}")
    return HEADS[kind](inputs, width, classes)


def xavier(inputs: int, outputs: int) -> nn.Linear:
    """Make a linear layer, initialised as in ATDOC and CDAN."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_normal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def gaussian(inputs: int, outputs: int, std: float, *, bias: bool = False) -> nn.Linear:
    """Make a linear layer with small normal weights.

    The bias is zero or, with `bias`, drawn likewise.
    """
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=std)
    nn.init.normal_(layer.bias, std=std) if bias else nn.init.zeros_(layer.bias)
    return layer


def batch_norm(width: int, mean: float, std: float) -> nn.BatchNorm1d:
    """Make a batch norm with random scales."""
    norm = nn.BatchNorm1d(width)
    nn.init.normal_(norm.weight, mean, std)
    return norm


def linear(inputs: int, width: int, classes: int) -> Head:
    """Two linear layers with nothing between."""
    return Head(xavier(inputs, width), xavier(width, classes), width=width)


def direct(inputs: int, width: int, classes: int) -> Head:
    """No bottleneck: `width` is not used, features are the backbone's."""
    classifier = nn.Linear(inputs, classes)
    nn.init.kaiming_normal_(classifier.weight)
    nn.init.zeros_(classifier.bias)
    return Head(nn.Identity(), classifier, width=inputs)


def batchnorm(inputs: int, width: int, classes: int) -> Head:
    """MCC's head: the batch norm starts with scales near zero, so the logits do too."""
    return Head(
        nn.Sequential(xavier(inputs, width), batch_norm(width, 0, 0.005)),
        xavier(width, classes),
        width=width,
    )


def relu(inputs: int, width: int, classes: int) -> Head:
    """TLlib's head, initialised by torch."""
    bottleneck = nn.Sequential(nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU())
    return Head(bottleneck, nn.Linear(width, classes), width=width)


def gaussian_head(inputs: int, width: int, classes: int) -> Head:
    """PADA's head."""
    return Head(gaussian(inputs, width, 0.005), gaussian(width, classes, 0.01), width=width)


def weightnorm(inputs: int, width: int, classes: int) -> Head:
    """SHOT's head: the classifier learns directions and lengths separately.

    Initialised by torch, as in its code.
    """
    classifier = nn.Linear(width, classes)
    nn.init.zeros_(classifier.bias)
    return Head(
        nn.Sequential(xavier(inputs, width), nn.BatchNorm1d(width)),
        weight_norm(classifier),
        width=width,
    )


def afn(inputs: int, width: int, classes: int, *, blocks: int = 1) -> Head:
    """AFN's head; the features are those after the last block."""
    layers: list[nn.Module] = []
    for number in range(blocks):
        layers.append(gaussian(width if number else inputs, width, 0.01, bias=True))
        layers.append(batch_norm(width, 1, 0.01))
        layers.append(nn.ReLU())
        layers.append(NormKeepingDropout(0.5))
    return Head(nn.Sequential(*layers), gaussian(width, classes, 0.01, bias=True), width=width)


def afn_two(inputs: int, width: int, classes: int) -> Head:
    """AFN's head for VisDA, with two blocks."""
    return afn(inputs, width, classes, blocks=2)


def three_layers(inputs: int, width: int, classes: int) -> nn.Sequential:
    """One of MCD's two classifiers."""

    def layers(before: int) -> list[nn.Module]:
        return [
            QuickDropout(0.5),
            gaussian(before, width, 0.01, bias=True),
            batch_norm(width, 1, 0.01),
            nn.ReLU(),
        ]

    return nn.Sequential(*layers(inputs), *layers(width), gaussian(width, classes, 0.01, bias=True))


def three_layer(inputs: int, width: int, classes: int) -> Head:
    """The first of MCD's classifiers, which PseudoCal keeps of a finished training."""
    return Head(nn.Identity(), three_layers(inputs, width, classes), width=inputs)


def pair(inputs: int, width: int, classes: int) -> Head:
    """MCD's head."""
    first = three_layers(inputs, width, classes)
    second = three_layers(inputs, width, classes)
    return Head(nn.Identity(), first, width=inputs, second_classifier=second)


def bottleneck_pair(inputs: int, width: int, classes: int) -> Head:
    """MCD above a frozen backbone: a generator must be left to train."""
    generator = nn.Sequential(xavier(inputs, width), nn.BatchNorm1d(width), nn.ReLU())
    first = three_layers(width, width, classes)
    second = three_layers(width, width, classes)
    return Head(generator, first, width=width, second_classifier=second)


HEADS: dict[str, Callable[[int, int, int], Head]] = {
    "linear": linear,
    "direct": direct,
    "batchnorm": batchnorm,
    "gaussian": gaussian_head,
    "relu": relu,
    "weightnorm": weightnorm,
    "afn": afn,
    "afn-two": afn_two,
    "three-layer": three_layer,
    "pair": pair,
    "bottleneck-pair": bottleneck_pair,
}


class Discriminator(nn.Module):
    """Source or target? One hidden layer (ATDOC's code), or two with dropout (CDAN's, PADA's).

    Logits `(n,)` out.
    """

    def __init__(
        self, inputs: int, *, width: int = 1024, deep: bool = False, stds: Sequence[float] = ()
    ) -> None:
        super().__init__()
        shapes = [(inputs, width), (width, 1)]
        if deep:
            shapes.insert(1, (width, width))
        if stds:
            layers = [gaussian(*shape, std) for shape, std in zip(shapes, stds, strict=True)]
        else:
            layers = [xavier(*shape) for shape in shapes]
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(0.5 if deep else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """A logit for each row: positive for source."""
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
    """Return x; its gradient is multiplied by -scale (Ganin & Lempitsky, ICML 2015).

    >>> x = torch.ones(1, requires_grad=True)
    >>> reverse_gradient(3 * x, 0.5).sum().backward()
    >>> x.grad
    tensor([-1.5000])
    """
    reversed_: Tensor = _Reverse.apply(x, scale)  # type: ignore[no-untyped-call]
    return reversed_
