"""Ground truth for evaluation only: one label per input, or a mask with one label per pixel.

Nothing is fitted to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.images import mask_size, read_mask, size_of_image
from pseudocal.app.inputs.sets import ImageSet, InputSet
from pseudocal.app.inputs.tables import (
    ARRAYS,
    NUMBER,
    REAL,
    TABLES,
    check_regular,
    plain_cell,
    read_array,
    read_columns,
    read_text,
    text_array,
)
from pseudocal.arrays import InputError
from pseudocal.maps import IGNORED, check_classes
from pseudocal.stored import StoredArray

NAME_CLASSES = "calibrate with --classes FILE"  # what to do if no class names are known
MISSING_NAMED = 3  # missing masks that an error lists


def read_ground_truth(
    path: Path, names: Sequence[str], classes: Sequence[str] = (), *, hint: str = NAME_CLASSES
) -> NDArray[np.int64]:
    """Read the class number of each input.

    A table with the columns `file` and `label` is matched by name. The labels of an array, of a
    table without `file`, or of a text file with one label per line are taken in the order of the
    data. `hint` says what to do about class names if none are known.
    """
    what = "a file of labels"
    check_regular(path, what)
    suffix = path.suffix.lower()
    if suffix in TABLES:
        values = _table(path, names)
    elif suffix in ARRAYS:
        values = np.asarray(read_array(path))
    else:
        lines = [line.strip() for line in read_text(path, what).splitlines()]
        values = text_array([line for line in lines if line])
    if len(values) != len(names):
        raise InputError(f"{path} has {len(values)} labels for {len(names)} inputs")
    return as_numbers(values, classes, path, hint=hint)


def as_numbers(
    values: NDArray[Any], classes: Sequence[str], path: Path, *, hint: str = NAME_CLASSES
) -> NDArray[np.int64]:
    """Turn labels into class numbers; they may be numbers, numbers as text, or class names.

    >>> as_numbers(np.array(["dog", "cat"]), ["cat", "dog"], Path("labels.txt"))
    array([1, 0])
    >>> as_numbers(np.array(["2", "0"]), ["cat", "dog", "eel"], Path("labels.txt"))
    array([2, 0])
    >>> as_numbers(np.array(["1_0"]), [], Path("labels.txt"))
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected class numbers in labels.txt, got '1_0': no class names are
    known; calibrate with --classes FILE
    """
    if values.ndim != 1:
        raise InputError(
            f"expected one label for each input in {path}, got an array of shape {values.shape}"
        )
    if values.dtype.kind in REAL + "b":
        return _whole_numbers(values, path)
    if values.dtype.kind not in "OSUT":  # complex numbers, dates and time differences
        raise InputError(f"expected class numbers or names in {path}, got {values.dtype}")
    numbers = _numbers(classes)
    return np.array(
        [_number(value, numbers, path, hint) for value in values.tolist()], dtype=np.int64
    )


def check_range(truth: NDArray[np.int64], classes: int, path: Path) -> None:
    """Refuse class numbers that the model does not have."""
    if truth.min() < 0 or truth.max() >= classes:
        raise InputError(
            f"{path} has classes from {truth.min()} to {truth.max()}, and the model has 0 to "
            f"{classes - 1}"
        )


def _numbers(classes: Sequence[str]) -> dict[str, int]:
    """The number of each class by its name; a name of two classes needs the number too.

    >>> _numbers(["crane", "heron", "crane"])
    {'crane (class 0)': 0, 'heron': 1, 'crane (class 2)': 2}
    """
    known = Counter(classes)
    return {
        name if known[name] == 1 else f"{name} (class {i})": i for i, name in enumerate(classes)
    }


def _whole_numbers(values: NDArray[Any], path: Path) -> NDArray[np.int64]:
    if values.dtype.kind == "f":
        values = values.astype(np.float64)  # 2**63 is beyond float16
        bad = ~(np.abs(values) < 2.0**63) | (values != np.floor(values))  # NaN compares as False
    else:
        bad = values > np.iinfo(np.int64).max
    if bad.any():
        raise InputError(
            f"expected whole class numbers of at most 64 bits in {path}, got {values[bad][0]}"
        )
    return values.astype(np.int64)


def _number(value: Any, numbers: dict[str, int], path: Path, hint: str) -> int:
    """Return the number of one class; `value` is text, or any object from a table."""
    if value is None or value == "":
        raise InputError(f"{path} has an empty label: each input needs one")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    for name in (text, plain_cell(text)):
        if name in numbers:
            return numbers[name]
    if isinstance(value, str | bytes | int) and NUMBER.fullmatch(text):
        return int(text)
    several = [name for name in numbers if name.startswith(f"{text} (class ")]
    if several:
        raise InputError(
            f"{path} has the label {text!r}, which is the name of several classes: write "
            f"{several[0]!r} or {several[1]!r}"
        )
    short = repr(text if len(text) <= 50 else text[:50] + "...")
    if not numbers:
        raise InputError(
            f"expected class numbers in {path}, got {short}: no class names are known; {hint}"
        )
    raise InputError(
        f"expected class numbers or names of the model's classes in {path}, got {short}"
    )


def _table(path: Path, names: Sequence[str]) -> NDArray[Any]:
    table = read_columns(path)
    if "label" not in table:
        raise InputError(f"{path} has no column 'label', only {', '.join(table)}")
    if "file" not in table:
        return table["label"]
    by_name: dict[str, Any] = {}
    for name, label in zip(map(str, table["file"]), table["label"], strict=True):
        if by_name.setdefault(name, label) != label:
            raise InputError(f"{path} has two labels for {name}: {by_name[name]} and {label}")
    plain = {plain_cell(name): label for name, label in by_name.items()}
    if len(plain) == len(by_name) and all(name in plain for name in names):  # a table that we wrote
        by_name = plain
    missing = [name for name in names if name not in by_name]
    if missing:
        raise InputError(f"{path} has no label for {missing[0]}")
    return np.array([by_name[name] for name in names], dtype=table["label"].dtype)


@dataclass(frozen=True, eq=False)
class Masks:
    """The mask of each input: an image of the same name in a folder, or a row of an array."""

    path: Path
    inputs: InputSet
    array: NDArray[Any] | StoredArray | None = None  # (n, height, width); None for a folder

    def __getitem__(self, i: int) -> NDArray[Any]:
        """Read the class of each pixel of input i."""
        mask = read_mask(self.file(i)) if self.array is None else np.asarray(self.array[i])
        if mask.dtype == bool:
            return mask.astype(np.uint8)
        return mask

    def file(self, i: int) -> Path:
        """Return the mask file of input i, if the masks are in a folder."""
        return self.path / Path(self.inputs.name(i)).with_suffix(".png")

    def check(self, rows: NDArray[np.intp], classes: int) -> None:
        """Refuse masks with values that are neither a class nor the ignore label."""
        for i in sorted(rows.tolist()):
            mask = self[i]
            where = f"mask {i} of {self.path}" if self.array is not None else str(self.file(i))
            check_classes(mask, mask != IGNORED, classes, where=where)


def open_masks(path: Path, inputs: InputSet, rows: NDArray[np.intp]) -> Masks | None:
    """Open masks and check that they fit the inputs; None for a file with one label per input."""
    if path.is_dir():
        masks = Masks(path, inputs)
        _check_folder(masks, rows)
        return masks
    if not path.exists():
        raise InputError(
            f"expected a file of labels, or a folder of masks, got {path}: no such file"
        )
    if path.suffix.lower() not in ARRAYS:
        return None
    array = read_array(path)
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
    numbers = sorted(rows.tolist())
    missing = [str(masks.file(i)) for i in numbers if not masks.file(i).is_file()]
    if missing:
        first = ", ".join(missing[:MISSING_NAMED])
        if len(missing) > MISSING_NAMED:
            first += ", ..."
        raise InputError(f"{len(missing)} of {len(rows)} images have no mask: {first}")
    if isinstance(masks.inputs, ImageSet):
        for i in numbers:
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
            f"the mask {path} has {down} x {across} pixels, its image {height} x {width}"
        )
    if image_files.preprocessing.cuts(width, height):
        raise InputError(
            f"masks cover whole images, but images of {height} x {width} are cropped",
            setting="resize",
            value='"stretch"',
        )
