"""Labelled logits made from a model and unlabelled inputs."""

from pseudocal.synthesis.mixup import mixup
from pseudocal.synthesis.pairs import Pairs, pairs_anywhere, pairs_within

__all__ = ["Pairs", "mixup", "pairs_anywhere", "pairs_within"]
