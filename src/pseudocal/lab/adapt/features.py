"""Features of a frozen backbone, computed once for each data set and kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pseudocal.files import replacing
from pseudocal.lab.adapt.backbones import Backbone
from pseudocal.lab.adapt.rows import Rows
from pseudocal.lab.data import Indexable

BATCH = 64  # images that pass through the backbone together on an accelerator
CPU_BATCH = 8  # on a CPU, where what a layer gives out should stay in cache
Tick = Callable[[int, int], None]  # rows done, rows in all


def cached_features(
    backbone: Backbone, inputs: Indexable, *, cache: Path, device: str = "cpu", tick: Tick | None = None
) -> NDArray[np.float32]:
    """Features `(n, width)` of all inputs: read from `cache` if these inputs met these weights before.

    The file's name is a hash of the images and of the backbone with its weights, so a change of either is noticed.
    """
    path = cache / f"{fingerprint(backbone, inputs)}.npy"
    if not path.exists():
        features = compute_features(backbone, inputs, device=device, tick=tick)
        with replacing(path) as aside:
            np.save(aside, features, allow_pickle=False)
    loaded: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return loaded


def compute_features(
    backbone: Backbone, inputs: Indexable, *, device: str = "cpu", tick: Tick | None = None
) -> NDArray[np.float32]:
    """Features `(n, width)` in evaluation mode."""
    backbone = backbone.to(device).eval()
    rows, parts = Rows(inputs, device), []
    step = CPU_BATCH if torch.device(device).type == "cpu" else BATCH
    for start in range(0, len(rows), step):
        stop = min(start + step, len(rows))
        with torch.no_grad():
            parts.append(backbone(rows[np.arange(start, stop)]).cpu().numpy())
        if tick is not None:
            tick(stop, len(rows))
    features: NDArray[np.float32] = np.concatenate(parts)
    return features


def fingerprint(backbone: Backbone, inputs: Indexable) -> str:
    """A hash of the weights, the image size and every pixel."""
    total = hashlib.sha256(f"{backbone.choice.name} {backbone.size}".encode())
    for name, tensor in backbone.state_dict().items():
        total.update(name.encode())
        total.update(_bytes(tensor.cpu().numpy()))
    for start in range(0, len(inputs), BATCH):
        block = inputs[np.arange(start, min(start + BATCH, len(inputs)))]
        total.update(f"{block.dtype.str} {block.shape}".encode())
        total.update(_bytes(block))
    return total.hexdigest()[:32]


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Remembered:
    """A frozen backbone that looks at each image once, however many models on top of it ask for its features.

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
        """Features `(n, width)`, computed where these very pixels were not seen before."""
        keys = [hashlib.blake2b(_bytes(image), digest_size=16).digest() for image in images]
        new = list({key: row for row, key in enumerate(keys) if key not in self._known}.values())
        if new:
            features = compute_features(self._backbone, images[new])
            self._known |= {keys[row]: feature for row, feature in zip(new, features, strict=True)}
        return np.stack([self._known[key] for key in keys])
