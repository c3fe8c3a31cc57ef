"""Networks that label every pixel, and training them on a source domain."""

from __future__ import annotations

from pseudocal.lab.segmentation.deeplab import DeepLab, load_deeplab
from pseudocal.lab.segmentation.networks import NETWORKS, Segmenter, build_segmenter
from pseudocal.lab.segmentation.training import SegmenterRun, TrainedSegmenter, load_segmenter, train_segmenter

__all__ = [
    "NETWORKS",
    "DeepLab",
    "Segmenter",
    "SegmenterRun",
    "TrainedSegmenter",
    "build_segmenter",
    "load_deeplab",
    "load_segmenter",
    "train_segmenter",
]
