"""Labelled logits made from a model and unlabelled inputs."""

from pseudocal.synthesis.augment import moco_v2, randaug
from pseudocal.synthesis.cutmix import cutmix
from pseudocal.synthesis.manifoldmix import manifoldmix
from pseudocal.synthesis.mixup import mixup
from pseudocal.synthesis.mixup_beta import mixup_beta
from pseudocal.synthesis.mixup_same import mixup_same
from pseudocal.synthesis.pairs import Pairs, apart, pairs_anywhere, pairs_within
from pseudocal.synthesis.pseudo_label import filtered_pl, pseudo_label
from pseudocal.synthesis.table import STRATEGIES, Strategy

__all__ = [
    "STRATEGIES",
    "Pairs",
    "Strategy",
    "apart",
    "cutmix",
    "filtered_pl",
    "manifoldmix",
    "mixup",
    "mixup_beta",
    "mixup_same",
    "moco_v2",
    "pairs_anywhere",
    "pairs_within",
    "pseudo_label",
    "randaug",
]
