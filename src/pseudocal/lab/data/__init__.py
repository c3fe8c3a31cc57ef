"""Images of several domains: the built-in digits, emoji and scenes, a user's files, the papers' benchmarks."""

from pseudocal.lab.data.benchmarks import load_benchmark
from pseudocal.lab.data.builtin_digits import digits
from pseudocal.lab.data.builtin_emoji import emoji, emoji_disjoint
from pseudocal.lab.data.builtin_scenes import Scenes, scenes
from pseudocal.lab.data.cache import RenderingWarning, cache_folder
from pseudocal.lab.data.classes import check_same_classes, partial, relabel
from pseudocal.lab.data.domain import Domain, Inputs, Unlabelled
from pseudocal.lab.data.files import from_arrays, image_folder, image_list, unlabelled_folder
from pseudocal.lab.data.images import Images
from pseudocal.lab.data.label_maps import label_map, street_names
from pseudocal.lab.data.layouts import PARTIAL_CLASSES
from pseudocal.lab.data.registry import DATASETS, load, partial_set
from pseudocal.lab.data.streets import streets, unlabelled_streets

__all__ = [
    "DATASETS",
    "PARTIAL_CLASSES",
    "Domain",
    "Images",
    "Inputs",
    "RenderingWarning",
    "Scenes",
    "Unlabelled",
    "cache_folder",
    "check_same_classes",
    "digits",
    "emoji",
    "emoji_disjoint",
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
