"""Labelled mixup samples of target inputs: Algorithm 1 of the PseudoCal paper."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Labelled, Maps, Predictor, softmax
from pseudocal.batches import blend
from pseudocal.maps import ClassMaps, draw, joined, predicted, rows_at
from pseudocal.mixup.pairs import Pairs, with_different_classes


def check_lam(lam: float) -> None:
    """Reject a larger weight that is not between 0.5 and 1."""
    if not 0.5 < lam < 1:
        raise InputError(f"expected lam, the larger weight, between 0.5 and 1, got {lam}")


def mixup(
    predict: Predictor,
    pairs: Pairs,
    *,
    lam: float = 0.65,
    labels: Literal["hard", "soft"] = "hard",
    pixels_per_image: int | None = 20_000,
    rng: np.random.Generator | None = None,
) -> Labelled:
    """Mix pairs with different predicted classes.

    Each mixup sample is labelled with the predicted class of the input with the larger weight.

    Pairs with the same predicted class are dropped: only mixup samples across a decision boundary
    are predicted both rightly and wrongly, as real target inputs are.

    >>> identity = lambda x: x
    >>> x = np.array([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    >>> mix = mixup(identity, Pairs(x, x, np.array([0, 1, 2]), np.array([1, 0, 0])), lam=0.75)
    >>> mix.logits, mix.labels  # both inputs of the third pair have the same class
    (array([[3., 1.],
           [1., 3.]]), array([0, 1]))

    For a segmentation model, see `mixup_pixels`.

    Args:
        predict: The model.
        pairs: The pairs to mix, with their logits.
        lam: The weight of the larger input, between 0.5 and 1.
        labels: "hard" labels a mixup sample with the predicted class of the input with the larger
            weight, "soft" with the class of the largest mixed probability. They differ if the model
            is less confident about the input with the larger weight.
        pixels_per_image: For segmentation: how many pixels of each pair of images to sample; None
            for all.
        rng: Samples these pixels; nothing else is random here.

    """
    check_lam(lam)
    if pairs.outputs.ndim > 2:
        rng = rng or np.random.default_rng(0)
        return mixup_pixels(
            predict, pairs, lam=lam, labels=labels, pixels_per_image=pixels_per_image, rng=rng
        )
    kept = with_different_classes(pairs)
    if len(kept) == 0:
        return Labelled(kept.logits, np.empty(0, dtype=np.intp), kept.weights)
    mixed = predict(blend(kept.inputs, kept.first, kept.second, lam))
    if labels == "hard":
        return Labelled(mixed, kept.logits.argmax(axis=1), kept.weights)
    fractions = lam * softmax(kept.logits) + (1 - lam) * softmax(kept.partner_logits)
    return Labelled(mixed, fractions.argmax(axis=1), kept.weights)


def mixup_pixels(
    predict: Predictor,
    pairs: Pairs,
    *,
    lam: float,
    labels: Literal["hard", "soft"],
    pixels_per_image: int | None,
    rng: np.random.Generator,
) -> Labelled:
    """Mix pairs of images and keep the pixels whose predicted classes differ: the larger weight labels them.

    At most `pixels_per_image` pixels of each pair are sampled, and weighted by the number of pixels
    they represent.

    >>> x = np.array([[[[4.0, 4.0]], [[0.0, 0.0]]], [[[4.0, 0.0]], [[0.0, 4.0]]]])    # (n, classes, 1, 2)
    >>> pairs = Pairs(x, predicted(x), np.array([0, 1]), np.array([1, 0]))
    >>> rng = np.random.default_rng(0)
    >>> mix = mixup_pixels(lambda x: x, pairs, lam=0.75, labels="hard", pixels_per_image=None, rng=rng)
    >>> mix.logits, mix.labels                                    # the two images agree on their first pixel
    (array([[3., 1.],
           [1., 3.]]), array([0, 1]))
    """
    classes = _classes(pairs.outputs)
    none = np.iinfo(classes.dtype).max
    differing = [
        np.flatnonzero(_differ(classes[i], classes[j], none))
        for i, j in zip(pairs.first, pairs.second, strict=True)
    ]
    kept = np.flatnonzero([len(at) > 0 for at in differing])
    if len(kept) == 0:
        return Labelled(np.empty((0, 2)), np.empty(0, dtype=np.int64))
    mixup_samples = pairs[kept]
    parts: list[Labelled] = []
    mixed = predict(blend(mixup_samples.inputs, mixup_samples.first, mixup_samples.second, lam))
    for image, i, j, k in zip(mixed, mixup_samples.first, mixup_samples.second, kept, strict=True):
        at = draw(differing[k], pixels_per_image, rng)
        target = (
            classes[i].reshape(-1)[at]
            if labels == "hard"
            else _soft_label(pairs.outputs, i, j, at, lam)
        )
        weight = (
            (1.0 if pairs.weights is None else float(pairs.weights[k]))
            * len(differing[k])
            / len(at)
        )
        ids = (k, k) if pairs.ids is None else (pairs.ids[i], pairs.ids[j])
        parts.append(
            Labelled(
                rows_at(image, at),
                target.astype(np.int64),
                np.full(len(at), weight),
                np.tile(ids, (len(at), 1)),
            )
        )
    return joined(parts)


def _differ(first: ClassMaps, second: ClassMaps, none: int) -> NDArray[np.bool_]:
    differ: NDArray[np.bool_] = (first != second) & (first != none) & (second != none)
    return differ


def _classes(maps: Maps | ClassMaps) -> ClassMaps:
    """The predicted class of each pixel; `maps` holds logits, or only the classes."""
    return predicted(maps) if maps.ndim == 4 else maps  # type: ignore[arg-type, return-value]


def _soft_label(maps: Maps, i: int, j: int, at: NDArray[np.intp], lam: float) -> NDArray[np.intp]:
    """The class of the largest mixed probability at some pixels of two images."""
    mixed = lam * softmax(rows_at(maps[i], at)) + (1 - lam) * softmax(rows_at(maps[j], at))
    label: NDArray[np.intp] = mixed.argmax(axis=1)
    return label
