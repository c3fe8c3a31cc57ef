"""A user's own data: image folders, list files, arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError
from pseudocal.lab.data.domain import Domain, Unlabelled
from pseudocal.lab.data.images import Images
from pseudocal.lab.data.listing import Listing, Prefix, found_in, images_below, read_folder, read_list

MOST_CLASSES = 1_000_000


def image_folder(
    folder: str | Path, *, name: str | None = None, ignore_case: bool = False, resize: int = 256, crop: int = 224
) -> Domain:
    """Images as `folder/<class>/<image>`, classes numbered by sorted name."""
    listing = read_folder(Path(folder), ignore_case=ignore_case)
    classes = tuple(listing.names.values())
    return listed(listing, name or Path(folder).name, classes, resize=resize, crop=crop)


def image_list(
    path: str | Path,
    *,
    root: str | Path | None = None,
    prefix: Prefix | None = None,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    resize: int = 256,
    crop: int = 224,
) -> Domain:
    """Images as `<path> <label>` lines of a list file; the label comes from the line, never from the folder.

    Relative paths are looked up below `root`, or below the list's own folder. A class is called like the folder of its
    images where folders and labels are one to one, and like its number otherwise.
    """
    listing = read_list(Path(path), roots=[Path(root)] if root else [], prefix=prefix)
    labels = range(_count(max(listing.labels), str(path)))
    names = tuple(classes) if classes else tuple(listing.names.get(label, str(label)) for label in labels)
    return listed(listing, name or Path(path).stem, names, resize=resize, crop=crop)


def listed(listing: Listing, name: str, classes: tuple[str, ...], *, resize: int = 256, crop: int = 224) -> Domain:
    """A domain whose images stay on disk until they are asked for."""
    return Domain(name, Images(listing.paths, resize, crop), np.array(listing.labels), classes)


def unlabelled_folder(folder: str | Path, *, name: str | None = None, resize: int = 256, crop: int = 224) -> Unlabelled:
    """All images below a folder, in the order of their paths, however they are filed."""
    root = Path(folder)
    paths = tuple(images_below(root))
    if not paths:
        raise InputError(f"expected images below {root}, got {found_in(root) if root.is_dir() else 'no such folder'}")
    return Unlabelled(name or root.name, Images(paths, resize, crop))


def from_arrays(
    inputs: ArrayLike, labels: ArrayLike, classes: Sequence[str] | None = None, *, name: str = "arrays"
) -> Domain:
    """Images and labels that are in memory already.

    >>> from_arrays(np.zeros((2, 1, 8, 8), np.uint8), [0, 1]).classes
    ('0', '1')
    """
    pixels, ids = np.asarray(inputs), np.asarray(labels)
    if pixels.dtype != np.uint8 or pixels.ndim != 4:
        raise InputError(
            "expected inputs of shape (n, channels, height, width) and dtype uint8, "
            f"got shape {pixels.shape} and dtype {pixels.dtype}{_hint(pixels.shape)}"
        )
    if _hint(pixels.shape):
        raise InputError(f"expected inputs with 1 or 3 channels, got shape {pixels.shape}{_hint(pixels.shape)}")
    count = _count(int(ids.max()), name) if ids.size else 0
    return Domain(name, pixels, ids, tuple(map(str, range(count)) if classes is None else classes))


def _count(largest: int, where: str) -> int:
    """How many classes there are if labels go up to `largest`; a slip of the pen would name billions of them."""
    if largest >= MOST_CLASSES:
        raise InputError(f"expected labels below {MOST_CLASSES:,}, got {largest} in {where}")
    return largest + 1


def _hint(shape: tuple[int, ...]) -> str:
    last = len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)
    return "; put the channels first with np.moveaxis(inputs, 3, 1)" if last else ""
