"""Networks that label every pixel, and training them on a source domain.

Torch is loaded when one is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pseudocal.extras import on_demand

if TYPE_CHECKING:
    from pseudocal.lab.segmentation.deeplab import DeepLab, load_deeplab
    from pseudocal.lab.segmentation.networks import NETWORKS, Segmenter, build_segmenter
    from pseudocal.lab.segmentation.training import (
        SegmenterRun,
        TrainedSegmenter,
        load_segmenter,
        train_segmenter,
    )
else:
    __getattr__ = on_demand(
        __name__,
        {
            **dict.fromkeys(("DeepLab", "load_deeplab"), "deeplab"),
            **dict.fromkeys(("NETWORKS", "Segmenter", "build_segmenter"), "networks"),
            **dict.fromkeys(
                ("SegmenterRun", "TrainedSegmenter", "load_segmenter", "train_segmenter"),
                "training",
            ),
        },
    )

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
