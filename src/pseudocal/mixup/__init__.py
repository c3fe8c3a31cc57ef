"""Mixup: labelled logits from a model and unlabelled inputs.

The paper's method is `pseudocal.mixup.mixup.mixup`; `STRATEGIES` also lists the alternatives of its
ablation.
"""

from pseudocal.mixup.augmentations import moco_v2, randaug
from pseudocal.mixup.pairs import (
    AnywhereBefore,
    Pairing,
    Pairs,
    WithinBatch,
    partners,
    with_different_classes,
)
from pseudocal.mixup.table import STRATEGIES, Strategy
from pseudocal.mixup.variants import (
    cutmix,
    filtered_pl,
    manifoldmix,
    mixup_beta,
    mixup_same,
    pseudo_label,
)

__all__ = [
    "STRATEGIES",
    "AnywhereBefore",
    "Pairing",
    "Pairs",
    "Strategy",
    "WithinBatch",
    "cutmix",
    "filtered_pl",
    "manifoldmix",
    "mixup_beta",
    "mixup_same",
    "moco_v2",
    "partners",
    "pseudo_label",
    "randaug",
    "with_different_classes",
]
