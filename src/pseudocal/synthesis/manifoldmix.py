"""ManifoldMix: mixing inside the network instead of at its input (Verma et al., ICML 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np

from pseudocal.arrays import InputError, Labelled, Predictor
from pseudocal.synthesis.pairs import Pairs, apart


def manifoldmix(
    predict: Predictor,
    pairs: Pairs,
    *,
    module: Any,
    layer: str,
    lam: float = 0.65,
    rng: np.random.Generator | None = None,
) -> Labelled:
    """Mix what a named layer of the torch `module` behind `predict` gives out for pairs that the model tells apart.

    Names are those of `module.named_modules()`. A first pass over the partners keeps what the layer gives out; a second
    over the others mixes it in, and what comes after the layer sees the mix. Nothing here is drawn from `rng`.
    """
    kept = apart(pairs)
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
        raise InputError(f"expected a layer that gives out one tensor, once in a pass, got {layer!r}, which does not")
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
        raise InputError(f"expected the name of a layer, one of {', '.join(filter(None, layers))}, got {layer!r}")
    return layers[layer]
