"""The label maps of street scenes: which number in a mask file is which class.

Cityscapes and GTA5 share their numbers, SYNTHIA has its own. Models of 19 classes are trained on GTA5, of 16 on
SYNTHIA; the 13-class score of SYNTHIA leaves out wall, fence and pole. Whatever is not mapped is ignored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError

IGNORED = 255

# name, number in Cityscapes and GTA5, number in SYNTHIA; in the order of the 19 train ids
STREET_CLASSES = (
    ("road", 7, 3),
    ("sidewalk", 8, 4),
    ("building", 11, 2),
    ("wall", 12, 21),
    ("fence", 13, 5),
    ("pole", 17, 7),
    ("traffic light", 19, 15),
    ("traffic sign", 20, 9),
    ("vegetation", 21, 6),
    ("terrain", 22, 16),
    ("sky", 23, 1),
    ("person", 24, 10),
    ("rider", 25, 17),
    ("car", 26, 8),
    ("truck", 27, 18),
    ("bus", 28, 19),
    ("train", 31, 20),
    ("motorcycle", 32, 12),
    ("bicycle", 33, 11),
)
LEFT_OUT: dict[int, tuple[str, ...]] = {
    19: (),
    16: ("terrain", "truck", "train"),
    13: ("terrain", "truck", "train", "wall", "fence", "pole"),
}
COLUMN = {"cityscapes": 1, "gta5": 1, "synthia": 2}


def street_names(classes: int = 19) -> tuple[str, ...]:
    """The names of 19, 16 or 13 classes in their order.

    >>> street_names(16)[9], len(street_names(13))
    ('sky', 13)
    """
    if classes not in LEFT_OUT:
        raise InputError(f"expected 19, 16 or 13 classes of street scenes, got {classes}")
    return tuple(name for name, *_ in STREET_CLASSES if name not in LEFT_OUT[classes])


def label_map(dataset: str, classes: int = 19) -> dict[int, int]:
    """Numbers in the mask files of a data set to class numbers.

    >>> label_map("cityscapes")[24], label_map("synthia", 16)[10]     # person
    (11, 10)
    """
    if dataset not in COLUMN:
        raise InputError(f"expected a data set among {', '.join(COLUMN)}, got {dataset!r}")
    numbers = {row[0]: int(row[COLUMN[dataset]]) for row in STREET_CLASSES}
    return {numbers[name]: k for k, name in enumerate(street_names(classes))}


def lookup(mapping: dict[int, int]) -> NDArray[np.uint8]:
    """A table `(65536,)` that turns a mask file's numbers into classes, and all others into 255.

    >>> lookup({7: 0, 8: 1})[np.array([[7, 8, 0]])]
    array([[  0,   1, 255]], dtype=uint8)
    """
    table = np.full(65536, IGNORED, dtype=np.uint8)
    table[list(mapping)] = list(mapping.values())
    return table
