"""The emoji data set: 52 classes or their 8 groups, four vendors, 96 x 96 on white."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.lab.data.cache import NamedArrays, cached
from pseudocal.lab.data.domains import Domain, ImageArray
from pseudocal.lab.data.icons import VENDORS, icons

EMOJI_SIZE = 96
EMOJI_DIGEST = "1bec4f16d178f782020bff78c21e591987a9b064a9e7b7386193ff782d4db808"
# Man, woman -> person; the signs for female and male, and what joins them, go.
PERSONS = {"1f468": "1f9d1", "1f469": "1f9d1"}
GENDERS = frozenset({"200d", "2640", "2642"})


def emoji(*vendors: str) -> dict[str, Domain]:
    """The vendors' emoji as domains, built on first use in less than a minute.

    The same concepts appear in each, drawn differently; see `emoji_disjoint` for two domains that
    share none.

    Args:
        vendors: some of `noto`, `twemoji`, `openmoji`, `fluent`; all four by default.

    """
    chosen = check_vendors(vendors)
    arrays = cached("emoji", _build_emoji, expected=EMOJI_DIGEST)
    return {vendor: _vendor_domain(arrays, vendor) for vendor in chosen}


def emoji_groups(*vendors: str) -> dict[str, Domain]:
    """The vendors' emoji with Unicode's 8 groups as classes: the 52 subcategories, merged.

    The images and their order are those of `emoji`.

    Args:
        vendors: some of `noto`, `twemoji`, `openmoji`, `fluent`; all four by default.

    """
    group_of = {icon.subcategory: icon.group for icon in icons()["noto"]}
    groups = tuple(sorted(set(group_of.values())))
    found = {}
    for vendor, domain in emoji(*vendors).items():
        merged = np.array([groups.index(group_of[name]) for name in domain.classes], np.int64)
        found[vendor] = Domain(vendor, domain.inputs, merged[domain.labels], groups)
    return found


def emoji_disjoint(source: str, target: str, *, seed: int = 0) -> tuple[Domain, Domain]:
    """Two vendors that share no concept.

    Half of the concepts of each class for the source, the others for the target.

    So a model cannot succeed by recognising the same concept in another drawing. A man and a woman
    doing the same thing are one concept.

    Args:
        source: the vendor of the source.
        target: the vendor of the target.
        seed: the seed of the split.

    """
    check_vendors([source, target])
    arrays = cached("emoji", _build_emoji, expected=EMOJI_DIGEST)
    ours, theirs = (_in_first_half(arrays, vendor, seed) for vendor in (source, target))
    return _vendor_domain(arrays, source).subset(ours), _vendor_domain(arrays, target).subset(
        ~theirs
    )


def _in_first_half(arrays: NamedArrays, vendor: str, seed: int) -> NDArray[np.bool_]:
    """Which images belong to the source's half.

    The halves depend on the seed alone, not on the vendors.
    """
    known = {(label, concept(code)) for name in VENDORS for label, code in _coded(arrays, name)}
    shuffled = [sorted(known)[i] for i in np.random.default_rng(seed).permutation(len(known))]
    half = set[tuple[int, str]]()
    for label in range(len(arrays["classes"])):
        concepts = [pair for pair in shuffled if pair[0] == label]
        half.update(concepts[: len(concepts) // 2])
    return np.array([(label, concept(code)) in half for label, code in _coded(arrays, vendor)])


def _coded(arrays: NamedArrays, vendor: str) -> Iterable[tuple[int, str]]:
    return zip(arrays[f"{vendor}_labels"].tolist(), arrays[f"{vendor}_codes"].tolist(), strict=True)


def concept(code: str) -> str:
    """What an emoji shows, without the sex of the person.

    >>> concept("1f3c3-200d-2640"), concept("1f469-200d-1f52c") == concept("1f9d1-200d-1f52c")
    ('1f3c3', True)
    """
    points = [PERSONS.get(point, point) for point in code.split("-")]
    return "-".join(point for point in points if point not in GENDERS)


def _vendor_domain(arrays: NamedArrays, vendor: str) -> Domain:
    classes = tuple(arrays["classes"].tolist())
    return Domain(vendor, arrays[f"{vendor}_images"], arrays[f"{vendor}_labels"], classes)


def check_vendors(vendors: Iterable[str]) -> tuple[str, ...]:
    """The vendors asked for, or all."""
    odd = [vendor for vendor in vendors if vendor not in VENDORS]
    if odd:
        raise InputError(f"expected vendors among {', '.join(VENDORS)}, got {odd[0]!r}")
    return tuple(vendors) or tuple(VENDORS)


def _build_emoji() -> NamedArrays:
    found = icons()
    classes = sorted({icon.subcategory for icon in found["noto"]})
    arrays: NamedArrays = {"classes": np.array(classes)}
    for vendor, each in found.items():
        arrays[f"{vendor}_images"] = np.stack(
            [on_white(render(icon.svg(EMOJI_SIZE))) for icon in each]
        )
        arrays[f"{vendor}_labels"] = np.array(
            [classes.index(icon.subcategory) for icon in each], np.int64
        )
        arrays[f"{vendor}_codes"] = np.array([icon.code for icon in each])
    return arrays


def render(svg: str) -> ImageArray:
    """Draw an SVG as `(4, height, width)`: red, green, blue, alpha."""
    png = require("resvg_py", "data").svg_to_bytes(svg_string=svg, skip_system_fonts=True)
    return np.asarray(require("PIL.Image", "data").open(BytesIO(png)).convert("RGBA")).transpose(
        2, 0, 1
    )


def on_white(rgba: ImageArray) -> ImageArray:
    """Lay a drawing on white, in integers so that every machine rounds alike.

    >>> on_white(np.array([[[200]], [[0]], [[0]], [[51]]], np.uint8)).ravel()
    array([244, 204, 204], dtype=uint8)
    """
    colour = rgba[:3].astype(np.int32)
    alpha = rgba[3].astype(np.int32)
    mixed: ImageArray = ((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    return mixed
