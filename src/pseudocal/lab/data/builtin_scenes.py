"""Emoji scenes for segmentation.

The class of each pixel is known, the group of an emoji or the background.

A scene is a smooth background of two colours with a few emoji of random size, position and
rotation. The domain is the vendor. Every vendor has scenes of its own: no two domains share an
arrangement.
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
from pseudocal.lab.data.cache import NamedArrays, cached
from pseudocal.lab.data.domains import (
    ImageArray,
    Indexable,
    Selector,
    Unlabelled,
    select,
    split_numbers,
)
from pseudocal.lab.data.icons import VENDORS, Icon, icons

SCENE_SIZE = 96
SCENE_COUNT = 400
SCENES_DIGEST = "8449bddbcf7997798fef2239b17307a2069f56731a2038f44aca275062d8f7b3"
BACKGROUND = "background"
# a square turned by 45 degrees is wider by half the diagonal less half the side, on each side
MARGIN = 0.2072


@dataclass(frozen=True, eq=False)
class Scenes:
    """Images of one origin with the class of each pixel.

    Arrays, or files that are decoded when asked for.

    Attributes:
        name: the name of the domain.
        inputs: the images; indexing gives `(k, 3, height, width)` uint8.
        masks: the class number of each pixel; indexing gives `(k, height, width)`. Pixels of 255
            are ignored.
        classes: the class names in the order of their numbers.

    """

    name: str
    inputs: Indexable
    masks: Any
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.masks)

    def unlabelled(self) -> Unlabelled:
        """The same scenes without their masks."""
        return Unlabelled(self.name, self.inputs)

    def subset(self, chosen: Selector) -> Scenes:
        """Return the chosen scenes, in that order.

        Args:
            chosen: a slice, an array of numbers, or one number.

        """
        return replace(self, inputs=select(self.inputs, chosen), masks=select(self.masks, chosen))

    __getitem__ = subset

    def split(self, fraction: float = 0.75, *, seed: int = 0) -> tuple[Scenes, Scenes]:
        """Split into two random parts, the first rounded down: 300 and 100 scenes by default.

        Args:
            fraction: the fraction of the first part.
            seed: the seed of the split.

        """
        first, second = split_numbers(len(self), fraction, seed)
        return self.subset(first), self.subset(second)


def scenes(*vendors: str) -> dict[str, Scenes]:
    """400 scenes of each vendor, built on first use in less than a minute.

    Args:
        vendors: some of `noto`, `twemoji`, `openmoji`, `fluent`; all four by default.

    """
    chosen = check_vendors(vendors)
    arrays = cached("scenes", _build_scenes, expected=SCENES_DIGEST)
    classes = tuple(arrays["classes"].tolist())
    return {
        name: Scenes(name, arrays[f"{name}_images"], arrays[f"{name}_masks"], classes)
        for name in chosen
    }


def _build_scenes() -> NamedArrays:
    found = icons()
    classes = scene_classes(found["noto"])
    arrays: NamedArrays = {"classes": np.array(classes)}
    for vendor in VENDORS:
        made = make_scenes(vendor, found[vendor], SCENE_COUNT, seed=0)
        arrays |= {f"{vendor}_images": made.inputs[:], f"{vendor}_masks": made.masks}
    return arrays


def scene_classes(drawn: Iterable[Icon]) -> tuple[str, ...]:
    """The background, then the groups by name."""
    return (BACKGROUND, *sorted({icon.group for icon in drawn}))


def make_scenes(vendor: str, drawn: list[Icon], count: int, *, seed: int) -> Scenes:
    """Make scenes of a vendor's icons; another seed makes others."""
    if not drawn or count < 1:
        raise InputError(
            f"expected icons to draw and a count from 1, got {len(drawn)} icons and a count of "
            f"{count}"
        )
    rng = np.random.default_rng([seed, *vendor.encode()])
    classes = scene_classes(drawn)
    made = [make_scene(drawn, classes, rng) for _ in range(count)]
    return Scenes(
        vendor,
        np.stack([image for image, _ in made]),
        np.stack([mask for _, mask in made]),
        classes,
    )


def make_scene(
    drawn: list[Icon], classes: tuple[str, ...], rng: Generator
) -> tuple[ImageArray, ImageArray]:
    """One scene `(3, size, size)` and its mask `(size, size)`."""
    image = background(rng)
    mask = np.zeros((SCENE_SIZE, SCENE_SIZE), np.uint8)
    by_group = {name: [icon for icon in drawn if icon.group == name] for name in classes[1:]}
    for number in rng.integers(1, len(classes), size=rng.integers(3, 7)):
        # The group first: else a third of all emoji would be people.
        group = by_group[classes[number]]
        icon = group[int(rng.integers(len(group)))]
        side = int(rng.integers(24, 49))
        svg = icon.svg(
            round(side * (1 + 2 * MARGIN)), turn=int(rng.integers(-40, 41)), margin=MARGIN
        )
        top, left = rng.integers(-side // 4, SCENE_SIZE - side, size=2).tolist()
        paste(image, mask, render(svg), int(number), top, left)
    return image, mask


def paste(
    image: ImageArray, mask: ImageArray, rgba: ImageArray, label: int, top: int, left: int
) -> None:
    """Draw on a scene in place; pixels that the drawing covers by half or more get its label."""
    high = slice(max(top, 0), top + rgba.shape[1])
    wide = slice(max(left, 0), left + rgba.shape[2])
    rows, columns = mask[high, wide].shape
    seen = rgba[:, max(-top, 0) :, max(-left, 0) :][:, :rows, :columns]
    colour = seen[:3].astype(np.int32)
    alpha = seen[3].astype(np.int32)
    under = image[:, high, wide].astype(np.int32)
    image[:, high, wide] = (colour * alpha + under * (255 - alpha) + 127) // 255
    mask[high, wide][alpha >= 128] = label


def background(rng: Generator) -> ImageArray:
    """Two colours that run into each other along a random texture."""
    first, second = rng.integers(0, 256, size=(2, 3, 1, 1))
    weight = texture(rng)  # (size, size), from 0 to 256
    mixed: ImageArray = ((first * weight + second * (256 - weight)) // 256).astype(np.uint8)
    return mixed


def texture(rng: Generator) -> NDArray[np.int64]:
    """Smooth noise from 0 to 256: coarse squares of random grey, blurred by their own width."""
    side = int(rng.choice([8, 16, 32]))
    squares = SCENE_SIZE // side + 1
    fine = rng.integers(0, 257, size=(squares, squares)).repeat(side, axis=0).repeat(side, axis=1)
    sums = np.pad(fine, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    window = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    smooth: NDArray[np.int64] = window[:SCENE_SIZE, :SCENE_SIZE] // (side * side)
    return smooth
