"""Labels for every pixel, for evaluation only. The files are checked before the model runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs import ImageSet, InputSet
from pseudocal.app.inputs.images import mask_size, read_mask, size_of_image
from pseudocal.app.inputs.tables import ARRAYS, read_array
from pseudocal.arrays import InputError
from pseudocal.maps import IGNORED, check_classes
from pseudocal.stored import StoredArray

MISSING_NAMED = 3  # missing masks that an error lists


@dataclass(frozen=True, eq=False)
class Masks:
    """The mask of each input: an image of the same name in a folder, or a row of an array.

    Attributes:
        path: the folder, or the file of the array.
        inputs: the inputs that the masks belong to.
        array: the masks `(n, height, width)`; None for a folder.

    """

    path: Path
    inputs: InputSet
    array: NDArray[Any] | StoredArray | None = None

    def __getitem__(self, i: int) -> NDArray[Any]:
        """Read the class of each pixel of input i."""
        mask = read_mask(self.file(i)) if self.array is None else np.asarray(self.array[i])
        return mask.astype(np.uint8) if mask.dtype == bool else mask

    def file(self, i: int) -> Path:
        """Return the mask file of input i, if the masks are in a folder."""
        return self.path / Path(self.inputs.name(i)).with_suffix(".png")

    def check(self, rows: NDArray[np.intp], classes: int) -> None:
        """Read the masks of these inputs, and refuse values that are neither a class nor the ignore label."""
        for i in sorted(rows.tolist()):
            mask = self[i]
            where = f"mask {i} of {self.path}" if self.array is not None else str(self.file(i))
            check_classes(mask, mask != IGNORED, classes, where=where)


def open_masks(path: Path, inputs: InputSet, rows: NDArray[np.intp]) -> Masks | None:
    """Open masks and check that they fit the inputs.

    Return None for a file with one label per input.
    """
    if path.is_dir():
        masks = Masks(path, inputs)
        _check_folder(masks, rows)
        return masks
    if not path.exists():
        raise InputError(
            f"expected a file of labels, or a folder of masks, got {path}: no such file"
        )
    array = read_array(path) if path.suffix.lower() in ARRAYS else np.empty(0)
    if array.ndim != 3:
        return None
    if len(array) != len(inputs):
        raise InputError(
            f"expected masks of shape ({len(inputs)}, height, width), got {array.shape} in {path}"
        )
    if array.dtype != bool and not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"expected masks that are integers, got dtype {array.dtype} in {path}")
    return Masks(path, inputs, array)


def _check_folder(masks: Masks, rows: NDArray[np.intp]) -> None:
    missing = [str(path) for path in map(masks.file, sorted(rows.tolist())) if not path.is_file()]
    if missing:
        first = ", ".join(missing[:MISSING_NAMED]) + (
            ", ..." if len(missing) > MISSING_NAMED else ""
        )
        raise InputError(
            f"expected a mask for each of {len(rows)} images, got {len(missing)} missing: {first}"
        )
    if isinstance(masks.inputs, ImageSet):
        for i in sorted(rows.tolist()):
            _check_size(masks.file(i), masks.inputs, i)


def _check_size(path: Path, image_files: ImageSet, i: int) -> None:
    """Compare the size of a mask with that of its image, from their headers."""
    across, down = mask_size(path)
    try:
        width, height = size_of_image(image_files.paths[i])
    except InputError:  # it will be counted as unreadable
        return
    if (across, down) != (width, height):
        raise InputError(
            f"expected a mask of {height} x {width} pixels, as its image has, got {down} x {across} in {path}"
        )
    if image_files.preprocessing.cuts(width, height):
        raise InputError(
            'expected resize="stretch" with masks of whole images, '
            f'got resize="crop", which crops {width} x {height} images'
        )
