"""The paper's mixup and the variants of its ablation, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from pseudocal.arrays import Labelled, Predictor
from pseudocal.mixup.augmentations import moco_v2, randaug
from pseudocal.mixup.mixup import mixup
from pseudocal.mixup.pairs import Pairs
from pseudocal.mixup.variants import (
    cutmix,
    filtered_pl,
    manifoldmix,
    mixup_beta,
    mixup_same,
    pseudo_label,
)


class Strategy(Protocol):
    """A function from a batch of pairs to labelled logits.

    Further settings are bound with `functools.partial`.
    """

    def __call__(
        self, predict: Predictor, pairs: Pairs, /, *, rng: np.random.Generator
    ) -> Labelled:
        """Make labelled logits from one batch of pairs."""
        ...


# Bind `module` and `layer` of `manifoldmix`, and `mean` and `std` of `moco_v2` and `randaug` if
# inputs are normalised.
STRATEGIES: dict[str, Callable[..., Labelled]] = {
    "MocoV2Aug": moco_v2,
    "RandAug": randaug,
    "CutMix": cutmix,
    "ManifoldMix": manifoldmix,
    "Mixup-Beta": mixup_beta,
    "Pseudo-Label": pseudo_label,
    "Filtered-PL": filtered_pl,
    "PseudoCal-same": mixup_same,
    "PseudoCal": mixup,
}
