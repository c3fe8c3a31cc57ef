"""Synthesis of labelled logits from a model and unlabelled inputs.

The paper's method is `pseudocal.synthesis.mixup.mixup`; `STRATEGIES` also lists the alternatives of its ablation.
"""

from pseudocal.synthesis.alternatives import cutmix, filtered_pl, manifoldmix, mixup_beta, mixup_same, pseudo_label
from pseudocal.synthesis.augmentations import moco_v2, randaug
from pseudocal.synthesis.pairs import AnywhereBefore, Pairing, Pairs, WithinBatch, apart, partners
from pseudocal.synthesis.table import STRATEGIES, Strategy

__all__ = [
    "STRATEGIES",
    "AnywhereBefore",
    "Pairing",
    "Pairs",
    "Strategy",
    "WithinBatch",
    "apart",
    "cutmix",
    "filtered_pl",
    "manifoldmix",
    "mixup_beta",
    "mixup_same",
    "moco_v2",
    "partners",
    "pseudo_label",
    "randaug",
]
