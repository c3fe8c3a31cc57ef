"""Train adapted classifiers: losses as functions, networks, one loop, one short file for each method."""

from __future__ import annotations

from pseudocal.lab.adapt.backbones import BACKBONES, Backbone, Choice, build_backbone
from pseudocal.lab.adapt.method import Preset
from pseudocal.lab.adapt.methods import METHODS
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.adapt.runs import Point, Trained, TrainingProgress, load_network
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
