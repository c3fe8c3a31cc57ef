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
from pseudocal.lab.adapt.tensors import Tensors
from pseudocal.lab.data import Indexable

GPU_BATCH = 64  # images that pass through the backbone together on a GPU
CPU_BATCH = 8  # on a CPU, where the output of a layer should stay in cache
Tick = Callable[[int, int], None]  # images done, images in all


def cached_features(
    backbone: Backbone, inputs: Indexable, *, cache: Path, device: str = "cpu", tick: Tick | None = None
) -> NDArray[np.float32]:
    """Features `(n, width)` of all inputs, read from `cache` if they were computed before.

    The file's name is a hash of the images and of the backbone with its weights, so a change of either is noticed.
    """
    path = cache / f"{features_key(backbone, inputs)}.npy"
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
    images, parts = Tensors(inputs, device), []
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
    """A hash of the weights, the image size and every pixel."""
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
    """A frozen backbone that computes the features of each image once, however many models on top of it ask.

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
