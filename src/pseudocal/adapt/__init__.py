"""Train adapted classifiers: losses as functions, networks, one loop, one short file for each method."""

from __future__ import annotations

from pseudocal.adapt.backbones import BACKBONES, Backbone, Choice, build_backbone
from pseudocal.adapt.fit import Run
from pseudocal.adapt.loop import Point, Progress
from pseudocal.adapt.method import Preset
from pseudocal.adapt.methods import METHODS
from pseudocal.adapt.networks import Network
from pseudocal.adapt.runs import Trained, load_network
from pseudocal.adapt.train import dine, shot, train

__all__ = [
    "BACKBONES",
    "METHODS",
    "Backbone",
    "Choice",
    "Network",
    "Point",
    "Preset",
    "Progress",
    "Run",
    "Trained",
    "build_backbone",
    "dine",
    "load_network",
    "shot",
    "train",
]
