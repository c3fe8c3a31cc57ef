"""Train adapted classifiers: losses, networks, one training loop, and one short file per method."""

from __future__ import annotations

from pseudocal.lab.adapt.backbones import BACKBONES, Backbone, build_backbone
from pseudocal.lab.adapt.choices import Choice
from pseudocal.lab.adapt.method import Point, Preset, TrainingProgress
from pseudocal.lab.adapt.methods import METHODS
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.runs import Trained, load_network
from pseudocal.lab.adapt.stages import TrainingRun
from pseudocal.lab.adapt.training import dine, shot, train

__all__ = [
    "BACKBONES",
    "METHODS",
    "Backbone",
    "Choice",
    "Network",
    "Point",
    "Preset",
    "Trained",
    "TrainingProgress",
    "TrainingRun",
    "build_backbone",
    "dine",
    "load_network",
    "shot",
    "train",
]
