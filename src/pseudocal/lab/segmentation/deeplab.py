"""DeepLab-v2 on ResNet-101 (Chen et al., TPAMI 2018), with the names that public checkpoints have.

AdaptSegNet, ADVENT and their successors share one network: output at an eighth of the input, batch
norm with a frozen scale, and a head that adds up convolutions of four dilations. Its input is BGR
minus the mean of ImageNet, without a division. One thing differs: AdaptSegNet's head returns inside
its loop, so only the first two dilations take part. `branches=2` runs such a checkpoint as it was
trained, `branches=4` those of ADVENT and others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from pseudocal.arrays import InputError

DEPTHS = (3, 4, 23, 3)
DILATIONS = (6, 12, 18, 24)
MEAN_BGR = (104.00698793, 116.66876762, 122.67891434)
# Inputs of torchvision's networks are divided by this, for values from 0 to 1.
STD_RGB = (0.229, 0.224, 0.225)
# Prefixes of several devices, and of the ImageNet checkpoint everyone starts from.
PREFIXES = ("module.", "Scale.")


class Bottleneck(nn.Module):
    """1 x 1, dilated 3 x 3, 1 x 1; the stride is on the first, as in Caffe."""

    def __init__(
        self, before: int, width: int, *, stride: int = 1, dilation: int = 1, project: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 1, stride, bias=False)
        self.bn1 = frozen_norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation, bias=False)
        self.bn2 = frozen_norm(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = frozen_norm(4 * width)
        shortcut = (nn.Conv2d(before, 4 * width, 1, stride, bias=False), frozen_norm(4 * width))
        self.downsample = nn.Sequential(*shortcut) if project else None

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of the three convolutions to x."""
        side = x if self.downsample is None else self.downsample(x)
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn2(self.conv2(x)).relu()
        total: Tensor = self.bn3(self.conv3(x)) + side
        return total.relu()


class Aspp(nn.Module):
    """The sum of the first `branches` of four dilated convolutions."""

    def __init__(self, width: int, classes: int, branches: int) -> None:
        super().__init__()
        self.branches = branches
        self.conv2d_list = nn.ModuleList(
            nn.Conv2d(width, classes, 3, padding=d, dilation=d) for d in DILATIONS
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add up."""
        first, *others = list(self.conv2d_list)[: self.branches]
        total: Tensor = first(x)
        for conv in others:
            total = total + conv(x)
        return total


class DeepLab(nn.Module):
    """Images with values 0 to 255 in RGB in, logits at an eighth of their size out.

    >>> small = DeepLab(3, depths=(1, 1, 1, 1))
    >>> small(torch.zeros(1, 3, 65, 65)).shape
    torch.Size([1, 3, 9, 9])

    Args:
        classes: the number of classes.
        branches: the number of dilated convolutions of the head: 2 for AdaptSegNet, 4 for others.
        depths: the number of residual units in each stage.

    """

    mean: Tensor

    def __init__(
        self, classes: int, *, branches: int = 4, depths: tuple[int, ...] = DEPTHS
    ) -> None:
        super().__init__()
        if branches not in (2, 4):
            raise InputError(f"expected 4 branches, or the 2 that AdaptSegNet uses, got {branches}")
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = frozen_norm(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)
        self.layer1 = residual_stage(64, 64, depths[0])
        self.layer2 = residual_stage(256, 128, depths[1], stride=2)
        self.layer3 = residual_stage(512, 256, depths[2], dilation=2)
        self.layer4 = residual_stage(1024, 512, depths[3], dilation=4)
        self.layer6 = Aspp(2048, classes, branches)
        self.register_buffer("mean", torch.tensor(MEAN_BGR)[:, None, None], persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)

    @property
    def backbone(self) -> nn.Module:
        """Everything below the head."""
        return nn.ModuleList(
            [self.conv1, self.bn1, self.layer1, self.layer2, self.layer3, self.layer4]
        )

    @property
    def head(self) -> nn.Module:
        """The head, which is trained at ten times the learning rate."""
        return self.layer6

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits `(n, classes, h, w)`.

        Args:
            images: `(n, 3, height, width)`, RGB with values 0 to 255.

        """
        x = images.flip(1) - self.mean  # integers become floats here
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.layer6(x)
        return logits


def residual_stage(
    before: int, width: int, depth: int, *, stride: int = 1, dilation: int = 1
) -> nn.Sequential:
    """Make a stage of residual units; the first one changes the width."""
    first = Bottleneck(before, width, stride=stride, dilation=dilation, project=True)
    return nn.Sequential(
        first, *(Bottleneck(4 * width, width, dilation=dilation) for _ in range(depth - 1))
    )


def frozen_norm(width: int) -> nn.BatchNorm2d:
    """Make a batch norm with frozen scale and shift.

    Its running moments are still updated in training.
    """
    norm = nn.BatchNorm2d(width)
    norm.weight.requires_grad_(False)
    norm.bias.requires_grad_(False)
    return norm


def deeplab(
    classes: int, *, weights: str | None = None, branches: int = 4, depths: tuple[int, ...] = DEPTHS
) -> DeepLab:
    """Build a network with a new head.

    The trunk has random weights, or those of a state dict of a ResNet-101.

    Public state dicts of ResNet-101 have the same names and shapes, whichever convolution of a unit
    has the stride. Those of DeepLab itself (with a `layer5`) are for BGR images, all others for
    normalised RGB, as torchvision's are.
    """
    network = DeepLab(classes, branches=branches, depths=depths)
    if weights is not None:
        given = {
            _plain_name(name): tensor for name, tensor in _read_checkpoint(Path(weights)).items()
        }
        if "conv1.weight" in given and not any(
            name.startswith(("layer5.", "layer6.")) for name in given
        ):
            given["conv1.weight"] = _for_bgr(given["conv1.weight"])
        own = {
            name: x for name, x in network.state_dict().items() if not name.startswith("layer6.")
        }
        _check_shapes(own, given)
        lacking = [
            name for name in own if name not in given and not name.endswith("num_batches_tracked")
        ]
        if lacking:
            raise InputError(
                f"expected the tensors of a ResNet-101 in {weights}, got {len(lacking)} missing: "
                f"{lacking[0]}"
            )
        network.load_state_dict({name: given[name] for name in own if name in given}, strict=False)
    return network


def _for_bgr(weight: Tensor) -> Tensor:
    """Convert a first convolution from normalised RGB to BGR images with values up to 255."""
    if weight.ndim != 4 or weight.shape[1] != 3:  # its shape is refused next
        return weight
    return (weight / (255 * torch.tensor(STD_RGB)[:, None, None])).flip(1)


def _check_shapes(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    for name, tensor in own.items():
        if name in given and given[name].shape != tensor.shape:
            shapes = tuple(tensor.shape), tuple(given[name].shape)
            raise InputError(
                f"expected {name} of shape {shapes[0]}, as DeepLab-v2 has it, got {shapes[1]}"
            )


def load_deeplab(
    checkpoint: str | Path | Mapping[str, Tensor],
    *,
    branches: int = 4,
    depths: tuple[int, ...] = DEPTHS,
) -> DeepLab:
    """Load a network from a public checkpoint; only tensors are read from the file.

    The head is `layer6`, or `layer5` in checkpoints that have one head; the side head of those with
    two is not used.

    Args:
        checkpoint: a file, or its tensors by name.
        branches: 2 for checkpoints of AdaptSegNet, 4 for others; the file does not say which code
            trained it.
        depths: the number of residual units in each stage; by default those of ResNet-101.

    """
    tensors = checkpoint if isinstance(checkpoint, Mapping) else _read_checkpoint(Path(checkpoint))
    tensors = {_plain_name(name): tensor for name, tensor in tensors.items()}
    if not any(name.startswith("layer6.") for name in tensors):
        tensors = {
            name.replace("layer5.", "layer6.", 1): tensor for name, tensor in tensors.items()
        }
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("layer5.")}
    head = tensors.get("layer6.conv2d_list.0.weight")
    if head is None or head.ndim != 4:
        raise InputError(
            "expected a DeepLab-v2 checkpoint with layer5 or layer6.conv2d_list, got one without"
        )
    network = DeepLab(len(head), branches=branches, depths=depths)
    _check_shapes(network.state_dict(), tensors)
    lacking, unknown = network.load_state_dict(tensors, strict=False)
    # older torch did not count batches
    lacking = [name for name in lacking if not name.endswith("num_batches_tracked")]
    if lacking or unknown:
        raise InputError(
            f"expected the tensors of DeepLab-v2 on ResNet-101, got {len(lacking)} missing and "
            f"{len(unknown)} unknown: " + ", ".join([*lacking, *unknown][:3])
        )
    return network.eval()


def _read_checkpoint(path: Path) -> Mapping[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(f"expected a checkpoint, got {path}: no such file") from error
    except Exception as error:  # torch raises many kinds for files that it does not read
        raise InputError(
            f"expected a checkpoint of tensors only, got {path}, which is damaged or holds "
            "something else"
        ) from error
    inner = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(inner, dict) or not all(
        isinstance(value, Tensor) for value in inner.values()
    ):
        raise InputError(
            f"expected a checkpoint of tensors only, by their names, got {path} with something else"
        )
    return inner


def _plain_name(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name
