"""The paper's alternatives to mixup, for its ablation.

Those that need an image library are in `augmentations`.

CutMix (Yun et al., ICCV 2019), ManifoldMix (Verma et al., ICML 2019), Mixup-Beta (Zhang et al.,
ICLR 2018), PseudoCal-same, Pseudo-Label (Lee 2013) and Filtered-PL (Sohn et al., NeurIPS 2020).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats, InputError, Inputs, Labelled, Predictor, softmax
from pseudocal.batches import blend
from pseudocal.mixup.mixup import check_lam
from pseudocal.mixup.pairs import Pairs, with_different_classes


def cutmix(
    predict: Predictor, pairs: Pairs, *, rng: np.random.Generator, lam: float = 0.65
) -> Labelled:
    """Paste a box of the partner, of area `1 - lam`, into each image that has another predicted class.

    Each pair has its own box. It lies inside the image, so that its area is exact (in training,
    CutMix lets it stick out).

    >>> x = np.stack([np.zeros((1, 4, 4)), np.ones((1, 4, 4))])
    >>> logits = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> area = lambda x: np.stack([1 - x.mean(axis=(1, 2, 3)), x.mean(axis=(1, 2, 3))], axis=1)
    >>> mix = cutmix(area, Pairs(x, logits, np.array([0, 1]), np.array([1, 0])), rng=np.random.default_rng(0), lam=0.75)
    >>> mix.logits, mix.labels  # a box of 2 by 2 is a quarter
    (array([[0.75, 0.25],
           [0.25, 0.75]]), array([0, 1]))

    Args:
        predict: The model.
        pairs: The pairs of images; their last two axes are height and width.
        rng: Draws the positions of the boxes.
        lam: The weight of the larger input, between 0.5 and 1.

    """
    if len(pairs.inputs.shape) < 3:
        raise InputError(
            "expected images with height and width as their last two axes, got shape "
            f"{pairs.inputs.shape}"
        )
    kept = with_different_classes(pairs)
    if len(kept) == 0:
        return Labelled(kept.logits, np.empty(0, dtype=np.intp), kept.weights)
    mixed, partner = kept.x, kept.partner
    height, width = mixed.shape[-2:]
    check_lam(lam)
    tall, wide = (max(1, round(side * math.sqrt(1 - lam))) for side in (height, width))
    tops, lefts = (
        rng.integers(side - box + 1, size=len(kept))
        for side, box in ((height, tall), (width, wide))
    )
    for i, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        box = (i, ..., slice(top, top + tall), slice(left, left + wide))
        mixed[box] = partner[box]
    return Labelled(predict(mixed), kept.logits.argmax(axis=1), kept.weights)


def manifoldmix(
    predict: Predictor,
    pairs: Pairs,
    *,
    module: Any,
    layer: str,
    lam: float = 0.65,
    rng: np.random.Generator | None = None,
) -> Labelled:
    """Mix the outputs of a layer of a torch module, for pairs with different predicted classes.

    A first pass over the partners records the layer's output; a second pass over the other inputs
    mixes it in, and the layers above receive the mix.

    Args:
        predict: The model.
        pairs: The pairs of inputs.
        module: The torch module that `predict` calls.
        layer: The name of the layer, as in `module.named_modules()`.
        lam: The weight of the larger input.
        rng: Not used: nothing is random here.

    """
    kept = with_different_classes(pairs)
    if len(kept) == 0:
        return Labelled(kept.logits, np.empty(0, dtype=np.intp), kept.weights)
    spot = _named(module, layer)
    seen: list[Any] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        seen.append(output)

    def mix(_module: Any, _inputs: Any, output: Any) -> Any:
        return lam * output + (1 - lam) * seen[0]

    _hooked(predict, kept.partner, spot, keep)
    if len(seen) != 1 or not hasattr(seen[0], "shape"):
        raise InputError(
            f"expected a layer that returns one tensor, once per pass, got {layer!r}, which does "
            "not"
        )
    return Labelled(_hooked(predict, kept.x, spot, mix), kept.logits.argmax(axis=1), kept.weights)


def _hooked(predict: Predictor, x: Any, spot: Any, hook: Any) -> Any:
    handle = spot.register_forward_hook(hook)
    try:
        return predict(x)
    finally:
        handle.remove()


def _named(module: Any, layer: str) -> Any:
    layers = dict(module.named_modules())
    if layer not in layers:
        raise InputError(
            f"expected the name of a layer, one of {', '.join(filter(None, layers))}, got {layer!r}"
        )
    return layers[layer]


def mixup_beta(
    predict: Predictor, pairs: Pairs, *, rng: np.random.Generator, alpha: float = 0.3
) -> Labelled:
    """Mix pairs with different predicted classes, with shares drawn from Beta(alpha, alpha).

    Each mixup sample has the class of the input with the larger weight. Most weights drawn from Beta(0.3,
    0.3) are near 0 or 1, so most mixup samples are close to one of the two inputs.

    >>> x = np.array([[4.0, 0.0]] * 1000)
    >>> mix = mixup_beta(lambda x: x, Pairs.of(x, x[:, ::-1], x, x[:, ::-1]), rng=np.random.default_rng(0))
    >>> fractions = mix.logits[:, 0] / 4
    >>> bool(fractions.min() >= 0.5), round(float((fractions > 0.9).mean()), 1), mix.labels.max()
    (True, 0.6, np.int64(0))

    Args:
        predict: The model.
        pairs: The pairs of inputs.
        rng: Draws the fractions.
        alpha: The parameter of the beta distribution.

    """
    kept = with_different_classes(pairs)
    fractions = rng.beta(alpha, alpha, len(kept))
    fractions = np.maximum(fractions, 1 - fractions)  # the order within a pair is random already
    if len(kept) == 0:
        return Labelled(kept.logits, np.empty(0, dtype=np.intp), kept.weights)
    x, partner = kept.x, kept.partner
    mixed = predict(_column(fractions, x) * x + _column(1 - fractions, x) * partner)
    return Labelled(mixed, kept.logits.argmax(axis=1), kept.weights)


def _column(values: Floats, x: Inputs) -> Any:
    """One number per row, as an array of the same type as the inputs."""
    shaped = values.reshape(-1, *[1] * (len(x.shape) - 1))
    if hasattr(x, "tocsr"):
        raise InputError(
            f"expected dense inputs, since each pair has its own weight, got a {type(x).__name__}"
        )
    if hasattr(x, "new_tensor"):  # a torch tensor: shares in its dtype, or in float32 for integers
        return x.new_tensor(
            shaped, dtype=x.dtype if x.is_floating_point() else x.new_empty(0).float().dtype
        )
    return (
        shaped.astype(np.result_type(x.dtype, np.float32)) if isinstance(x, np.ndarray) else shaped
    )


def mixup_same(
    predict: Predictor, pairs: Pairs, *, rng: np.random.Generator, lam: float = 0.65
) -> Labelled:
    """Mix inputs of the same predicted class; the mix is labelled with that class.

    With many classes few pairs share a class, so each input gets a new partner from its own class.

    >>> x = np.array([[4.0, 0.0], [0.0, 4.0], [2.0, 0.0]])
    >>> mix = mixup_same(lambda x: x, Pairs.of(x, x, x, x), rng=np.random.default_rng(0), lam=0.75)
    >>> mix.logits, mix.labels  # the second row is the only one of its class
    (array([[3.5, 0. ],
           [2.5, 0. ]]), array([0, 0]))

    Args:
        predict: The model.
        pairs: The pairs of inputs; the first of each pair gets a new partner.
        rng: Draws the partners.
        lam: The weight of the larger input.

    """
    pseudo = pairs.logits.argmax(axis=1)
    partner = _within_class(pseudo, rng)
    rows = np.flatnonzero(partner != np.arange(len(pairs)))
    kept = pairs[rows]
    if len(rows) == 0:
        return Labelled(kept.logits, pseudo[rows], kept.weights)
    mixed = predict(blend(pairs.inputs, kept.first, pairs.first[partner[rows]], lam))
    return Labelled(mixed, pseudo[rows], kept.weights)


def _within_class(pseudo: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """A random partner of the same class for each row.

    A row that is alone in its class is its own partner.
    """
    partner = np.arange(len(pseudo))
    for c in np.unique(pseudo):
        members = rng.permutation(np.flatnonzero(pseudo == c))
        partner[members] = np.roll(members, 1)
    return partner


def pseudo_label(
    predict: Predictor, pairs: Pairs, *, rng: np.random.Generator | None = None
) -> Labelled:
    """Real inputs, labelled with their predicted classes.

    Every prediction is right, so none is overconfident.

    >>> x = np.array([[4.0, 0.0], [0.0, 4.0]])
    >>> pseudo_label(lambda x: x, Pairs.of(x, x, x, x)).labels
    array([0, 1])

    The fitted temperature is the lower bound of the search, and the ECE is then the error rate, as
    in the paper's ablation.

    Args:
        predict: Not used: the logits are known already.
        pairs: The pairs of inputs; the first of each pair counts.
        rng: Not used: nothing is random here.

    """
    return Labelled(pairs.logits, pairs.logits.argmax(axis=1), pairs.weights)


def filtered_pl(
    predict: Predictor,
    pairs: Pairs,
    *,
    rng: np.random.Generator | None = None,
    threshold: float = 0.95,
) -> Labelled:
    """Real inputs with a confident prediction, labelled with their predicted classes.

    >>> x = np.array([[4.0, 0.0], [0.0, 1.0]])
    >>> len(filtered_pl(lambda x: x, Pairs.of(x, x, x, x)))
    1

    Args:
        predict: Not used: the logits are known already.
        pairs: The pairs of inputs; the first of each pair counts.
        rng: Not used: nothing is random here.
        threshold: The least confidence that counts; 0.95 is the threshold of FixMatch.

    """
    return pseudo_label(
        predict, pairs[np.flatnonzero(softmax(pairs.logits).max(axis=1) >= threshold)]
    )
