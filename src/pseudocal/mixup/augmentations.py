"""RandAug and MocoV2Aug: random augmentations of single images (Cubuk et al., NeurIPS 2020.

Chen et al., 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Labelled, Predictor
from pseudocal.extras import require
from pseudocal.mixup.pairs import Pairs

Values = float | tuple[float, ...]  # one for all channels, or one for each


def randaug(
    predict: Predictor,
    pairs: Pairs,
    *,
    rng: np.random.Generator,
    operations: int = 2,
    magnitude: int = 10,
    mean: Values = 0.0,
    std: Values = 1.0,
) -> Labelled:
    """Apply RandAugment to images; each keeps the class predicted for the original image.

    Needs torch and kornia. Once `mean` and `std` are undone, the images must lie between 0 and 1.

    Args:
        predict: The model.
        pairs: The pairs of images `(n, channels, height, width)`; the first of each pair counts.
        rng: Seeds the augmentation.
        operations: The number of operations per image.
        magnitude: The strength of each operation.
        mean: The mean that the images were normalised with.
        std: The standard deviation that the images were normalised with.

    """
    kornia = _kornia()
    augment = kornia.auto.RandAugment(n=operations, m=magnitude)
    return _augmented(predict, pairs, augment, rng, mean, std)


def moco_v2(
    predict: Predictor,
    pairs: Pairs,
    *,
    rng: np.random.Generator,
    mean: Values = 0.0,
    std: Values = 1.0,
) -> Labelled:
    """Apply the augmentation of MoCo v2 to images.

    Each keeps the class predicted for the original image.

    It crops at least a fifth of the area, then applies colour jitter, greyscale, blur and a flip,
    each with its own probability.

    Args:
        predict: The model.
        pairs: The pairs of images, as for `randaug`.
        rng: Seeds the augmentation.
        mean: The mean that the images were normalised with.
        std: The standard deviation that the images were normalised with.

    """
    kornia = _kornia()
    height, width = pairs.inputs.shape[-2:]
    augment = kornia.AugmentationSequential(
        kornia.RandomResizedCrop((height, width), scale=(0.2, 1.0)),
        kornia.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        kornia.RandomGrayscale(p=0.2),
        kornia.RandomGaussianBlur((3, 3), (0.1, 2.0), p=0.5),
        kornia.RandomHorizontalFlip(p=0.5),
    )
    return _augmented(predict, pairs, augment, rng, mean, std)


def _augmented(
    predict: Predictor,
    pairs: Pairs,
    augment: Callable[[Any], Any],
    rng: np.random.Generator,
    mean: Values,
    std: Values,
) -> Labelled:
    import torch

    x = torch.as_tensor(pairs.x)
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        raise InputError(
            f"expected images of shape (n, 1 or 3, height, width), got shape {tuple(x.shape)}"
        )
    shift, scale = (torch.tensor(v, dtype=torch.float32).reshape(-1, 1, 1) for v in (mean, std))
    pixels = x.float().cpu() * scale + shift
    if pixels.min() < -0.01 or pixels.max() > 1.01:
        raise InputError(
            "expected images that lie between 0 and 1 after `mean` and `std` are undone, "
            f"got values from {pixels.min():.4g} to {pixels.max():.4g}"
        )
    pixels = pixels.clamp(0, 1).expand(
        -1, 3, -1, -1
    )  # kornia's colour operations need three channels
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))  # kornia draws from torch's global generator
        augmented = (augment(pixels).clamp(0, 1) - shift) / scale
    augmented = augmented.mean(dim=1, keepdim=True) if x.shape[1] == 1 else augmented
    inputs = (
        np.asarray(augmented)
        if isinstance(pairs.inputs, np.ndarray)
        else augmented.to(x.device, x.dtype)
    )
    return Labelled(predict(inputs), pairs.logits.argmax(axis=1), pairs.weights)


def _kornia() -> Any:
    return require("kornia.augmentation", "augment")
