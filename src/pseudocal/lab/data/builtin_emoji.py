"""The emoji data set: 52 classes, four vendors, 96 x 96 on white."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError
from pseudocal.lab.data.cache import Arrays, cached
from pseudocal.lab.data.domain import Domain, Pixels
from pseudocal.lab.data.icons import VENDORS, icons

SIZE = 96
DIGEST = "1bec4f16d178f782020bff78c21e591987a9b064a9e7b7386193ff782d4db808"
# Man, woman -> person; the signs for female and male, and what joins them, go.
PERSONS = {"1f468": "1f9d1", "1f469": "1f9d1"}
GENDERS = frozenset({"200d", "2640", "2642"})


def emoji(*vendors: str) -> dict[str, Domain]:
    """The vendors' emoji as domains (all four by default), built on first use in less than a minute.

    The same concepts appear in each, drawn differently; see `emoji_disjoint` for a pair that shares none.
    """
    chosen = check_vendors(vendors)
    arrays = cached("emoji", _build, expected=DIGEST)
    return {vendor: _domain(arrays, vendor) for vendor in chosen}


def emoji_disjoint(source: str, target: str, *, seed: int = 0) -> tuple[Domain, Domain]:
    """Two vendors without a concept in common: half of each class for the source, the other half for the target.

    A model can then not succeed by knowing the drawing of the very same thing. The sexes of a person are one concept.
    """
    check_vendors([source, target])
    arrays = cached("emoji", _build, expected=DIGEST)
    ours, theirs = (_in_first_half(arrays, vendor, seed) for vendor in (source, target))
    return _domain(arrays, source).subset(ours), _domain(arrays, target).subset(~theirs)


def _in_first_half(arrays: Arrays, vendor: str, seed: int) -> NDArray[np.bool_]:
    """Which rows belong to the source's half; the halves depend on the seed alone, so they fit any two vendors."""
    known = {(label, concept(code)) for name in VENDORS for label, code in _coded(arrays, name)}
    shuffled = [sorted(known)[i] for i in np.random.default_rng(seed).permutation(len(known))]
    half = set[tuple[int, str]]()
    for label in range(len(arrays["classes"])):
        mine = [pair for pair in shuffled if pair[0] == label]
        half.update(mine[: len(mine) // 2])
    return np.array([(label, concept(code)) in half for label, code in _coded(arrays, vendor)])


def _coded(arrays: Arrays, vendor: str) -> Iterable[tuple[int, str]]:
    return zip(arrays[f"{vendor}_labels"].tolist(), arrays[f"{vendor}_codes"].tolist(), strict=True)


def concept(code: str) -> str:
    """What an emoji shows, whichever sex shows it.

    >>> concept("1f3c3-200d-2640"), concept("1f469-200d-1f52c") == concept("1f9d1-200d-1f52c")
    ('1f3c3', True)
    """
    points = [PERSONS.get(point, point) for point in code.split("-")]
    return "-".join(point for point in points if point not in GENDERS)


def _domain(arrays: Arrays, vendor: str) -> Domain:
    classes = tuple(arrays["classes"].tolist())
    return Domain(vendor, arrays[f"{vendor}_images"], arrays[f"{vendor}_labels"], classes)


def check_vendors(vendors: Iterable[str]) -> tuple[str, ...]:
    """The vendors asked for, or all."""
    odd = [vendor for vendor in vendors if vendor not in VENDORS]
    if odd:
        raise InputError(f"expected vendors among {', '.join(VENDORS)}, got {odd[0]!r}")
    return tuple(vendors) or tuple(VENDORS)


def _build() -> Arrays:
    found = icons()
    classes = sorted({icon.subcategory for icon in found["noto"]})
    arrays: Arrays = {"classes": np.array(classes)}
    for vendor, each in found.items():
        arrays[f"{vendor}_images"] = np.stack([on_white(render(icon.svg(SIZE))) for icon in each])
        arrays[f"{vendor}_labels"] = np.array([classes.index(icon.subcategory) for icon in each], np.int64)
        arrays[f"{vendor}_codes"] = np.array([icon.code for icon in each])
    return arrays


def render(svg: str) -> Pixels:
    """Draw an SVG as `(4, height, width)`: red, green, blue, alpha."""
    try:
        import resvg_py
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(error.name or "resvg_py", "data") from error
    png = resvg_py.svg_to_bytes(svg_string=svg, skip_system_fonts=True)
    return np.asarray(Image.open(BytesIO(png)).convert("RGBA")).transpose(2, 0, 1)


def on_white(rgba: Pixels) -> Pixels:
    """Lay a drawing on white, in whole numbers so that every machine rounds alike.

    >>> on_white(np.array([[[200]], [[0]], [[0]], [[51]]], np.uint8)).ravel()
    array([244, 204, 204], dtype=uint8)
    """
    colour, alpha = rgba[:3].astype(np.int32), rgba[3].astype(np.int32)
    mixed: Pixels = ((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    return mixed
