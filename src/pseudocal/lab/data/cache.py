"""Arrays that take a while to build.

Kept in the user's cache folder, checked whenever they are read.
"""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, check_no_objects
from pseudocal.files import replacing

NamedArrays = dict[str, NDArray[Any]]


class RenderingWarning(UserWarning):
    """The images rendered here differ from those that the documented results were measured on."""


def cache_folder() -> Path:
    """`$PSEUDOCAL_CACHE`, else `pseudocal/` in the user's cache folder."""
    chosen = os.environ.get("PSEUDOCAL_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pseudocal"


def cached(name: str, build: Callable[[], NamedArrays], *, expected: str) -> NamedArrays:
    """Read arrays from the cache; build and keep them where they are absent or damaged.

    Args:
        name: the name of the file.
        build: makes the arrays.
        expected: the digest of the arrays that the documented results were measured on. Another
            version of a renderer may draw a pixel differently, which only gives a warning. It is
            part of the file's name: if a later release expects something else, the old file is not
            read.

    """
    path = cache_folder() / f"{name}-{expected[:12]}.npz"
    arrays = read_checked(path)
    if arrays is not None:
        return arrays
    logging.getLogger(__name__).info(
        "building %s on first use, to be kept in %s", name, path.parent
    )
    # Built arrays may have another memory order than those read from a file, and then torch rounds
    # differently.
    arrays = {name: np.array(array, order="C") for name, array in build().items()}
    if digest(arrays) != expected:
        warnings.warn(
            f"expected {name} with the digest {expected[:12]}, got {digest(arrays)[:12]}: "
            "another version of a renderer or of a package drew it, so results may differ slightly "
            "from the documented ones",
            RenderingWarning,
            stacklevel=3,
        )
    write_checked(path, arrays)
    return arrays


def read_checked(path: Path) -> NamedArrays | None:
    """The arrays of a file if it matches its checksum file, else None."""
    try:
        content = path.read_bytes()
        checksum = _checksum_file(path).read_text(encoding="ascii").strip()
        if hashlib.sha256(content).hexdigest() != checksum:
            return None
        with np.load(BytesIO(content), allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, BadZipFile):
        return None


def write_checked(path: Path, arrays: NamedArrays) -> None:
    """Write arrays and their checksum file; a reader never sees half a file."""
    check_no_objects(arrays)
    content = BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    checksum = hashlib.sha256(content.getvalue()).hexdigest()
    try:
        for file, text in ((path, content.getvalue()), (_checksum_file(path), checksum.encode())):
            with replacing(file) as aside:
                aside.write_bytes(text)
    except OSError as error:
        raise InputError(
            f"expected a cache folder that can be written, got {path.parent} ({error}); set "
            "PSEUDOCAL_CACHE to another"
        ) from error


def _checksum_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """One SHA-256 over names, types, shapes and values, whatever the file format does.

    >>> digest({"a": np.arange(2)}) == digest({"a": np.arange(2)})
    True
    >>> digest({"a": np.arange(2)}) == digest({})
    False
    """
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()
