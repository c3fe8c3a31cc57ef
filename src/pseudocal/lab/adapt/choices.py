"""The choice of a backbone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The mean and the standard deviation of each channel.
Normal = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Choice:
    """Which backbone, with which weights, at which image size.

    Attributes:
        name: a name in `BACKBONES`.
        weights: "default" for the published weights of an EfficientNet, "random", the file of a
            state dict, or a folder or hub id of transformers.
        size: the height and width that images are resized to; None for that of the backbone.
        config: how the network is rebuilt without its weights: the configuration of transformers,
            or for a state dict how images are normalised. Filled in by `build_backbone`.

    """

    name: str
    weights: str = "default"
    size: int | None = None
    config: dict[str, Any] | None = None
