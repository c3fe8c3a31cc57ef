"""Emoji scenes, for segmentation: each pixel belongs to an emoji's group or to the background, and which is known.

A scene is a soft two-coloured background under a handful of emoji of any size, place and slope. The domain is the
vendor; every vendor has scenes of its own, so no two domains share an arrangement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.lab.data.builtin_emoji import check_vendors, render
from pseudocal.lab.data.cache import Arrays, cached
from pseudocal.lab.data.domain import Inputs, Pixels, Rows, Unlabelled, select, split_rows
from pseudocal.lab.data.icons import VENDORS, Icon, icons

SIZE = 96
COUNT = 400
DIGEST = "8449bddbcf7997798fef2239b17307a2069f56731a2038f44aca275062d8f7b3"
BACKGROUND = "background"
MARGIN = 0.2072  # a square turned by 45 degrees is wider by half the diagonal less half the side, on each side


@dataclass(frozen=True, eq=False)
class Scenes:
    """Images of one origin with the class of each pixel: arrays, or files that are decoded when rows are asked for."""

    name: str
    inputs: Inputs  # [rows] -> (k, 3, height, width)
    masks: Any  # [rows] -> (k, height, width), class numbers; 255 does not count
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.masks)

    def unlabelled(self) -> Unlabelled:
        """The same scenes without their masks."""
        return Unlabelled(self.name, self.inputs)

    def subset(self, rows: Rows) -> Scenes:
        """The named rows, in that order."""
        return replace(self, inputs=select(self.inputs, rows), masks=select(self.masks, rows))

    __getitem__ = subset

    def split(self, fraction: float = 0.75, *, seed: int = 0) -> tuple[Scenes, Scenes]:
        """Two parts by plain random choice, the first rounded down: 300 and 100 scenes by default."""
        first, second = split_rows(len(self), fraction, seed)
        return self.subset(first), self.subset(second)


def scenes(*vendors: str) -> dict[str, Scenes]:
    """400 scenes of each vendor (all four by default), built on first use in less than a minute."""
    chosen = check_vendors(vendors)
    arrays = cached("scenes", _build, expected=DIGEST)
    classes = tuple(arrays["classes"].tolist())
    return {name: Scenes(name, arrays[f"{name}_images"], arrays[f"{name}_masks"], classes) for name in chosen}


def _build() -> Arrays:
    found = icons()
    classes = scene_classes(found["noto"])
    arrays: Arrays = {"classes": np.array(classes)}
    for vendor in VENDORS:
        made = make_scenes(vendor, found[vendor], COUNT, seed=0)
        arrays |= {f"{vendor}_images": made.inputs[:], f"{vendor}_masks": made.masks}
    return arrays


def scene_classes(drawn: Iterable[Icon]) -> tuple[str, ...]:
    """The background, then the groups by name."""
    return (BACKGROUND, *sorted({icon.group for icon in drawn}))


def make_scenes(vendor: str, drawn: list[Icon], count: int, *, seed: int) -> Scenes:
    """Make scenes of a vendor's icons; another seed makes others."""
    if not drawn or count < 1:
        raise InputError(f"expected icons to draw and a count from 1, got {len(drawn)} icons and a count of {count}")
    rng = np.random.default_rng([seed, *vendor.encode()])
    classes = scene_classes(drawn)
    made = [make_scene(drawn, classes, rng) for _ in range(count)]
    return Scenes(vendor, np.stack([image for image, _ in made]), np.stack([mask for _, mask in made]), classes)


def make_scene(drawn: list[Icon], classes: tuple[str, ...], rng: Generator) -> tuple[Pixels, Pixels]:
    """One scene `(3, size, size)` and its mask `(size, size)`."""
    image, mask = background(rng), np.zeros((SIZE, SIZE), np.uint8)
    by_group = {name: [icon for icon in drawn if icon.group == name] for name in classes[1:]}
    for number in rng.integers(1, len(classes), size=rng.integers(3, 7)):
        # The group first: else a third of all emoji would be people.
        group = by_group[classes[number]]
        icon = group[int(rng.integers(len(group)))]
        side = int(rng.integers(24, 49))
        svg = icon.svg(round(side * (1 + 2 * MARGIN)), turn=int(rng.integers(-40, 41)), margin=MARGIN)
        top, left = rng.integers(-side // 4, SIZE - side, size=2).tolist()
        paste(image, mask, render(svg), int(number), top, left)
    return image, mask


def paste(image: Pixels, mask: Pixels, rgba: Pixels, label: int, top: int, left: int) -> None:
    """Lay a drawing over a scene in place; pixels that it covers by half or more are its own."""
    high = slice(max(top, 0), top + rgba.shape[1])
    wide = slice(max(left, 0), left + rgba.shape[2])
    rows, columns = mask[high, wide].shape
    seen = rgba[:, max(-top, 0) :, max(-left, 0) :][:, :rows, :columns]
    colour, alpha = seen[:3].astype(np.int32), seen[3].astype(np.int32)
    under = image[:, high, wide].astype(np.int32)
    image[:, high, wide] = (colour * alpha + under * (255 - alpha) + 127) // 255
    mask[high, wide][alpha >= 128] = label


def background(rng: Generator) -> Pixels:
    """Two colours that run into each other along a random texture."""
    first, second = rng.integers(0, 256, size=(2, 3, 1, 1))
    share = texture(rng)  # (size, size), from 0 to 256
    mixed: Pixels = ((first * share + second * (256 - share)) // 256).astype(np.uint8)
    return mixed


def texture(rng: Generator) -> NDArray[np.int64]:
    """Smooth noise from 0 to 256: coarse blocks of random grey, blurred by their own width."""
    block = int(rng.choice([8, 16, 32]))
    cells = SIZE // block + 1
    fine = rng.integers(0, 257, size=(cells, cells)).repeat(block, axis=0).repeat(block, axis=1)
    sums = np.pad(fine, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    window = sums[block:, block:] - sums[:-block, block:] - sums[block:, :-block] + sums[:-block, :-block]
    smooth: NDArray[np.int64] = window[:SIZE, :SIZE] // (block * block)
    return smooth
