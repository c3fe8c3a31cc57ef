"""Images of several domains.

Built-in digits, emoji and scenes, a user's files, and the papers' benchmarks.
"""

from pseudocal.lab.data.benchmarks import load_benchmark
from pseudocal.lab.data.builtin_digits import digits
from pseudocal.lab.data.builtin_emoji import emoji, emoji_disjoint, emoji_groups
from pseudocal.lab.data.builtin_scenes import Scenes, scenes
from pseudocal.lab.data.cache import RenderingWarning, cache_folder
from pseudocal.lab.data.crops import Crops, crops_of
from pseudocal.lab.data.domains import (
    Domain,
    Indexable,
    Unlabelled,
    check_same_classes,
    from_arrays,
    partial,
    relabel,
)
from pseudocal.lab.data.images import ImageFiles
from pseudocal.lab.data.layouts import PARTIAL_CLASSES
from pseudocal.lab.data.listings import image_folder, image_list, unlabelled_folder
from pseudocal.lab.data.registry import DATASETS, load, partial_set
from pseudocal.lab.data.street_scenes import label_map, street_names, streets, unlabelled_streets

__all__ = [
    "DATASETS",
    "PARTIAL_CLASSES",
    "Crops",
    "Domain",
    "ImageFiles",
    "Indexable",
    "RenderingWarning",
    "Scenes",
    "Unlabelled",
    "cache_folder",
    "check_same_classes",
    "crops_of",
    "digits",
    "emoji",
    "emoji_disjoint",
    "emoji_groups",
    "from_arrays",
    "image_folder",
    "image_list",
    "label_map",
    "load",
    "load_benchmark",
    "partial",
    "partial_set",
    "relabel",
    "scenes",
    "street_names",
    "streets",
    "unlabelled_folder",
    "unlabelled_streets",
]
