"""From a picture file to the numbers a model eats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError

MOST_PIXELS = 100_000_000  # a header can declare any size; beyond this nothing is decoded
BILINEAR = 2  # Pillow's number for it


@dataclass(frozen=True)
class Pixels:
    """How pictures are prepared: resized, cut, scaled, normalised and laid out.

    `resize` "crop" brings the shorter side to `edge`, or a picture to the least that covers the size if that is None,
    and cuts out the middle; "stretch" brings both sides to the size. Then each value v becomes
    (v * scale - mean) / std.
    """

    size: tuple[int, int] = (224, 224)
    channels: int = 3
    layout: Literal["nchw", "nhwc"] = "nchw"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = 1 / 255
    resize: Literal["crop", "stretch"] = "crop"
    edge: int | None = None
    resample: int = BILINEAR

    def __post_init__(self) -> None:
        if min(self.size) < 1 or max(self.size) > 10_000:
            raise InputError(f"expected a picture size from 1 to 10000, got {self.size}")
        if self.channels not in (1, 3):
            raise InputError(f"expected pictures of 1 or 3 channels, got {self.channels}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise InputError(f"expected {name} as 1 or {self.channels} numbers, got {len(values)}")
        if 0 in self.std:
            raise InputError(f"expected a std without zero, got {self.std}")

    def read(self, path: Path | BinaryIO) -> NDArray[np.float32]:
        """One picture as an array (channels, height, width), or channels last."""
        image = self._fitted(open_picture(path).convert("L" if self.channels == 1 else "RGB"))
        values = np.array(image, dtype=np.float32)
        values = values.reshape(*self.size, self.channels)
        gain = np.float32(self.scale) / np.asarray(self.std, dtype=np.float32)
        values *= gain
        values -= np.divide(self.mean, self.std).astype(np.float32)
        return np.ascontiguousarray(values.transpose(2, 0, 1) if self.layout == "nchw" else values)

    def cuts(self, across: int, down: int) -> bool:
        """Whether a part of a picture so wide and so high is left out.

        >>> Pixels((32, 48)).cuts(96, 64), Pixels((32, 48)).cuts(64, 64)
        (False, True)
        """
        height, width = self.size
        return self._whole(across, down) != (width, height)

    def _fitted(self, image: Any) -> Any:
        whole = self._whole(*image.size)
        resized = image.resize(whole, self.resample)
        if not self.cuts(*image.size):
            return resized
        height, width = self.size
        left, top = ((whole[0] - width) // 2, (whole[1] - height) // 2)
        return resized.crop((left, top, left + width, top + height))

    def _whole(self, across: int, down: int) -> tuple[int, int]:
        """The width and the height of a picture before it is cut."""
        height, width = self.size
        if self.resize == "stretch":
            return (width, height)
        least = (self.edge, self.edge) if self.edge else (width, height)
        share = max(least[0] / across, least[1] / down)
        return (max(least[0], int(across * share)), max(least[1], int(down * share)))

    def words(self) -> str:
        """What is done to a picture, in words.

        >>> Pixels((32, 48), mean=(0.5,), std=(0.5,)).words()
        'resized to cover 32 x 48, its middle, (v * 0.00392 - 0.5) / 0.5, nchw'
        """
        height, width = self.size
        fit = f"stretched to {height} x {width}"
        if self.resize == "crop":
            fit = f"resized to cover {height} x {width}, its middle"
            if self.edge or height == width:
                fit = f"shorter side to {self.edge or height}, middle {height} x {width}"
        mean, std = (", ".join(f"{v:.4g}" for v in values) for values in (self.mean, self.std))
        wrap = "{}" if len(self.mean) == len(self.std) == 1 else "({})"
        return f"{fit}, (v * {self.scale:.3g} - {wrap.format(mean)}) / {wrap.format(std)}, {self.layout}"


def open_picture(path: Path | BinaryIO) -> Any:
    """Open a picture without decoding it yet; refuse one whose header declares more than could be meant."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "cli") from error
    image = Image.open(path)
    if image.width * image.height > MOST_PIXELS:
        raise InputError(f"expected at most {MOST_PIXELS:,} pixels, got {image.width} x {image.height}")
    return image


def pixels_for(
    shape: tuple[int | None, ...] | None, known: dict[str, Any], given: dict[str, Any]
) -> tuple[Pixels, list[str]]:
    """Settle how pictures are prepared, and say which settings nobody gave.

    What the user gives comes first, then what came with the model (`known`), then the shape of the model's input.

    >>> pixels, assumed = pixels_for((3, 32, 32), {}, {"mean": (0.5,)})
    >>> pixels.size, pixels.layout, assumed
    ((32, 32), 'nchw', ['std', 'resize'])
    """
    if shape is not None and len(shape) != 3:
        raise InputError(f"expected a model of pictures for a folder of them, got one that takes rows of shape {shape}")
    read = _from_shape(shape, given.get("layout"))
    settled = read | known | given
    if "size" not in settled:
        raise InputError(
            "expected --size HEIGHTxWIDTH, since the model does not say the size of its pictures, got none"
        )
    wanted = ("layout", "mean", "std", "resize")
    return replace(Pixels(), **settled), [name for name in wanted if name not in settled]


def _from_shape(shape: tuple[int | None, ...] | None, layout: str | None) -> dict[str, Any]:
    """What the shape of one row says: the layout, the channels and the size."""
    if shape is None:
        return {}
    first, last = shape[0] in (1, 3), shape[2] in (1, 3)
    if layout is None and first == last:
        raise InputError(
            f"expected --layout nchw or nhwc, since the model's input {shape} does not say which, got none"
        )
    layout = layout or ("nchw" if first else "nhwc")
    channels, *size = shape if layout == "nchw" else (shape[2], shape[0], shape[1])
    said: dict[str, Any] = {"layout": layout, "channels": channels or 3}
    return said | ({"size": tuple(size)} if None not in size else {})
