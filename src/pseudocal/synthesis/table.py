"""Every synthesis of the paper's ablation by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pseudocal.arrays import Labelled, Predictor
from pseudocal.synthesis.augment import moco_v2, randaug
from pseudocal.synthesis.cutmix import cutmix
from pseudocal.synthesis.manifoldmix import manifoldmix
from pseudocal.synthesis.mixup import mixup
from pseudocal.synthesis.mixup_beta import mixup_beta
from pseudocal.synthesis.mixup_same import mixup_same
from pseudocal.synthesis.pairs import Pairs
from pseudocal.synthesis.pseudo_label import filtered_pl, pseudo_label


class Strategy(Protocol):
    """One batch of pairs in, labelled logits out; settings beyond `rng` are bound with `functools.partial`."""

    def __call__(self, predict: Predictor, pairs: Pairs, /, *, rng: np.random.Generator) -> Labelled:
        """Synthesise from one batch of pairs."""
        ...


def _mixup(predict: Predictor, pairs: Pairs, *, rng: np.random.Generator, **settings: Any) -> Labelled:
    return mixup(predict, pairs, **settings)  # draws nothing: the pairs are drawn already


# `manifoldmix` needs its module and layer bound, `moco_v2` and `randaug` the mean and the standard deviation of the
# normalisation, if there was one.
STRATEGIES: dict[str, Callable[..., Labelled]] = {
    "MocoV2Aug": moco_v2,
    "RandAug": randaug,
    "CutMix": cutmix,
    "ManifoldMix": manifoldmix,
    "Mixup-Beta": mixup_beta,
    "Pseudo-Label": pseudo_label,
    "Filtered-PL": filtered_pl,
    "PseudoCal-same": mixup_same,
    "PseudoCal": _mixup,
}
