"""The same emoji as four vendors draw them: which concepts there are, and their drawings as SVG.

The classes are Unicode's subcategories (animal-mammal, food-fruit, ...) with at least `LEAST` emoji from every vendor;
flags and the parts that other emoji are made of (skin tones, hair) are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pseudocal.lab.data.cache import Arrays, cached
from pseudocal.lab.data.npm import fetch

# The versions are pinned: the data set is part of the results.
CONCEPTS = "emoji-datasource@16.0.0"
VENDORS = {
    "noto": "@iconify-json/noto@1.2.9",
    "twemoji": "@iconify-json/twemoji@1.2.5",
    "openmoji": "@iconify-json/openmoji@1.2.29",
    "fluent": "@iconify-json/fluent-emoji-flat@1.2.6",
}
LEFT_OUT = frozenset({"Flags", "Component"})
LEAST = 12
DIGEST = "804df0181286823478edf9739ae5b64095c5ab581f4d03475fc35cc017e76783"


@dataclass(frozen=True)
class Icon:
    """One drawing of one concept."""

    code: str  # code points in hexadecimal: "1f436"
    subcategory: str  # "animal-mammal"
    group: str  # "Animals & Nature"
    body: str  # SVG elements
    box: tuple[float, float]  # width, height of the drawing

    def svg(self, size: int, *, turn: float = 0.0, margin: float = 0.0) -> str:
        """The drawing as a square document, turned by degrees, with a margin in parts of its width."""
        w, h = self.box
        x, y = -margin * w, -margin * h
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'width="{size}" height="{size}" viewBox="{x} {y} {w - 2 * x} {h - 2 * y}">'
            f'<g transform="rotate({turn} {w / 2} {h / 2})">{self.body}</g></svg>'
        )


def icons() -> dict[str, list[Icon]]:
    """Every vendor's icons, in the order of their code points; fetched once."""
    table = json.loads(cached("icons", _fetch_icons, expected=DIGEST)["json"].tobytes())
    return {vendor: [Icon(**row | {"box": tuple(row["box"])}) for row in rows] for vendor, rows in table.items()}


def _fetch_icons() -> Arrays:
    wanted = {CONCEPTS: ["emoji.json"]} | {package: ["icons.json", "chars.json"] for package in VENDORS.values()}
    files = {
        package: {name: json.loads(text) for name, text in each.items()} for package, each in fetch(wanted).items()
    }
    found = {vendor: vendor_icons(files[package], files[CONCEPTS]["emoji.json"]) for vendor, package in VENDORS.items()}
    rows = {vendor: [vars(icon) for icon in each] for vendor, each in shared_classes(found).items()}
    return {"json": np.frombuffer(json.dumps(rows, separators=(",", ":")).encode(), np.uint8)}


def vendor_icons(package: Mapping[str, Any], concepts: list[Mapping[str, Any]]) -> list[Icon]:
    """Match a vendor's drawings with Unicode's names by code point."""
    names = {plain(code): name for code, name in package["chars.json"].items()}
    known = {plain(concept["unified"]): concept for concept in concepts if concept["category"] not in LEFT_OUT}
    return [
        Icon(code, known[code]["subcategory"], known[code]["category"], *_drawing(package["icons.json"], names[code]))
        for code in sorted(names.keys() & known.keys())
    ]


def _drawing(sheet: Mapping[str, Any], name: str) -> tuple[str, tuple[float, float]]:
    """The body and size of an icon; an alias is another icon, mirrored perhaps."""
    alias = sheet.get("aliases", {}).get(name, {})
    icon = sheet["icons"][alias.get("parent", name)]
    box = icon.get("width", sheet["width"]), icon.get("height", sheet["height"])
    mirrored = f'<g transform="translate({box[0]} 0) scale(-1 1)">{icon["body"]}</g>'
    return (mirrored if alias.get("hFlip") else icon["body"]), box


def shared_classes(found: Mapping[str, list[Icon]]) -> dict[str, list[Icon]]:
    """Keep the subcategories that every vendor has enough of."""
    counts = [Counter(icon.subcategory for icon in each) for each in found.values()]
    kept = {name for name in counts[0] if min(count[name] for count in counts) >= LEAST}
    return {vendor: [icon for icon in each if icon.subcategory in kept] for vendor, each in found.items()}


def plain(code: str) -> str:
    """A code without the mark that asks for colour, which vendors write or leave out.

    >>> plain("23-FE0F-20E3"), plain("1f436")
    ('0023-20e3', '1f436')
    """
    points = [int(point, 16) for point in code.split("-")]
    return "-".join(f"{point:04x}" for point in points if point != 0xFE0F)
