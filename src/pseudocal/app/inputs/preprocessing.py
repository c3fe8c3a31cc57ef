"""What happens to an image before the model sees it: resize, crop, scale, normalise and lay out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.images import decode_image
from pseudocal.arrays import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE = 10_000  # pixels
FILTERS = {
    "nearest": 0,
    "lanczos": 1,
    "bilinear": 2,
    "bicubic": 3,
    "box": 4,
    "hamming": 5,
}  # Pillow's codes


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes an array: each value v from 0 to 255 becomes (v * scale - mean) / std.

    Attributes:
        size: the height and width that the model takes.
        channels: 3 for colour, 1 for grey.
        layout: "nchw" for channels first, "nhwc" for channels last.
        mean: one number for each channel, or one for all.
        std: one number for each channel, or one for all.
        scale: the factor that values from 0 to 255 are multiplied by.
        resize: "crop" keeps the aspect ratio and takes the centre, "stretch" resizes both sides to
            `size`.
        edge: with "crop", the length of the shorter side before the crop; None for the smallest
            that covers `size`.
        resample: the resizing filter, as Pillow's code.
        centre: how the half of an odd number of pixels is rounded by the crop: to "even" as
            torchvision and timm do, or "down" as transformers does.

    """

    size: tuple[int, int] = (224, 224)
    channels: int = 3
    layout: Literal["nchw", "nhwc"] = "nchw"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = 1 / 255
    resize: Literal["crop", "stretch"] = "crop"
    edge: int | None = None
    resample: int = FILTERS["bilinear"]
    centre: Literal["even", "down"] = "even"

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1 or max(self.size) > LONGEST_SIDE:
            raise InputError(f"expected an image size from 1 to {LONGEST_SIDE}, got {self.size}")
        if self.edge is not None and not 1 <= self.edge <= LONGEST_SIDE:
            raise InputError(
                f"expected a shorter side from 1 to {LONGEST_SIDE} before the crop, got {self.edge}"
            )
        if self.channels not in (1, 3):
            raise InputError(f"expected images of 1 or 3 channels, got {self.channels}")
        for name, values in (("mean", self.mean), ("std", self.std), ("scale", (self.scale,))):
            if len(values) not in (1, self.channels):
                raise InputError(
                    f"expected {name} as 1 or {self.channels} numbers, got {len(values)}: {values}"
                )
            if not all(math.isfinite(v) for v in values):
                raise InputError(f"expected {name} as finite numbers, got {values}")
        if 0 in self.std:
            raise InputError(f"expected a std without zero, got {self.std}")
        if self.resample not in FILTERS.values():
            raise InputError(
                f"expected a Pillow filter code from 0 to {max(FILTERS.values())}, got {self.resample}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one preprocessed image.

        >>> Preprocessing((32, 48)).shape, Preprocessing((32, 48), layout="nhwc").shape
        ((3, 32, 48), (32, 48, 3))
        """
        return (self.channels, *self.size) if self.layout == "nchw" else (*self.size, self.channels)

    def read(self, image_file: Path | BinaryIO) -> NDArray[np.float32]:
        """Read one image as an array (channels, height, width), or (height, width, channels) for "nhwc".

        Args:
            image_file: the file, or its content.

        """
        return self.array_of(decode_image(image_file))

    def array_of(self, image: Image) -> NDArray[np.float32]:
        """Turn a decoded image into an array.

        Args:
            image: what `decode_image` returned.

        """
        if image.mode != "F":  # mode F stays grey and keeps its fractions
            image = image.convert("L" if self.channels == 1 else "RGB")
        values = np.array(self._fitted(image), dtype=np.float32)
        if values.ndim == 2:
            values = np.repeat(values[:, :, None], self.channels, axis=2)
        gain = np.float32(self.scale) / np.asarray(self.std, dtype=np.float32)
        values *= gain
        values -= np.divide(self.mean, self.std).astype(np.float32)
        return np.ascontiguousarray(values.transpose(2, 0, 1) if self.layout == "nchw" else values)

    def cuts(self, across: int, down: int) -> bool:
        """Whether part of an image is cropped away.

        >>> Preprocessing((32, 48)).cuts(96, 64), Preprocessing((32, 48)).cuts(64, 64)
        (False, True)

        Args:
            across: the width of the image.
            down: the height of the image.

        """
        height, width = self.size
        return self._whole(across, down) != (width, height)

    def covered(self, across: int, down: int) -> tuple[float, float, float, float]:
        """Return the part of an image that the model sees.

        Left, top, right and bottom, in pixels of the image.

        >>> Preprocessing((32, 32)).covered(96, 64)
        (16.0, 0.0, 80.0, 64.0)

        Args:
            across: the width of the image.
            down: the height of the image.

        """
        whole = self._whole(across, down)
        left, top, right, bottom = self._cut(whole)
        x = across / whole[0]
        y = down / whole[1]
        return left * x, top * y, right * x, bottom * y

    def _fitted(self, image: Any) -> Any:
        whole = self._whole(*image.size)
        resized = image.resize(whole, self.resample)
        return resized.crop(self._cut(whole)) if self.cuts(*image.size) else resized

    def _cut(self, whole: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return the part of a resized image that the model sees: its centre."""
        height, width = self.size
        halves = ((whole[0] - width) / 2, (whole[1] - height) / 2)
        left, top = (round(half) if self.centre == "even" else math.floor(half) for half in halves)
        return left, top, left + width, top + height

    def _whole(self, across: int, down: int) -> tuple[int, int]:
        """Return the width and height of an image after resizing and before cropping.

        >>> Preprocessing((224, 224), edge=256)._whole(500, 333)  # 500 * 256 / 333 = 384.4
        (384, 256)
        """
        height, width = self.size
        if self.resize == "stretch":
            return (width, height)
        least = (self.edge, self.edge) if self.edge else (width, height)
        if least[0] * down >= least[1] * across:  # the width decides
            return (least[0], max(least[1], least[0] * down // across))
        return (max(least[0], least[1] * across // down), least[1])

    def words(self) -> str:
        """Describe the preprocessing in words.

        >>> Preprocessing((32, 48), mean=(0.5,), std=(0.5,)).words()
        'resized to cover 32 x 48, centre crop, bilinear, pixels / 255, mean 0.5, std 0.5, nchw'
        """
        height, width = self.size
        fit = f"stretched to {height} x {width}"
        if self.resize == "crop":
            fit = f"resized to cover {height} x {width}, centre crop"
            if self.edge or height == width:
                fit = f"shorter side to {self.edge or height}, centre crop {height} x {width}"
        mean, std = (", ".join(f"{v:.4g}" for v in values) for values in (self.mean, self.std))
        wrap = "{}" if len(self.mean) == len(self.std) == 1 else "({})"
        name = next(name for name, code in FILTERS.items() if code == self.resample)
        scaled = (
            "pixels / 255" if math.isclose(self.scale, 1 / 255) else f"pixels * {self.scale:.3g}"
        )
        return f"{fit}, {name}, {scaled}, mean {wrap.format(mean)}, std {wrap.format(std)}, {self.layout}"
