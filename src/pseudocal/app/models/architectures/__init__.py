"""ResNets and ViTs as others save them: their networks, and state dicts read into these."""

from __future__ import annotations

from pseudocal.app.models.architectures.networks import ARCHITECTURES, ResNet, VisionTransformer
from pseudocal.app.models.architectures.state_dicts import (
    Imported,
    import_backbone,
    import_classifier,
    read_state_dict,
    with_temperature,
)

__all__ = [
    "ARCHITECTURES",
    "Imported",
    "ResNet",
    "VisionTransformer",
    "import_backbone",
    "import_classifier",
    "read_state_dict",
    "with_temperature",
]
