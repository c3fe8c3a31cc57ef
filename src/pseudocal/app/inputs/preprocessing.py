"""What happens to an image before the model sees it: resize, crop, scale, normalise and lay out.

The settings come from the shape of the model's input, from what came with the model, and from the
user.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError
from pseudocal.calibrators.wording import count

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE = 10_000  # pixels
# Pillow's codes
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
NORMALISATIONS: dict[str, dict[str, tuple[float, ...]]] = {
    "imagenet": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    "minus-one-one": {"mean": (0.5,), "std": (0.5,)},
    "zero-one": {"mean": (0.0,), "std": (1.0,)},
    "zero-255": {"mean": (0.0,), "std": (1 / 255,)},
}
# settings that stand for others: see `preprocessing_for`
SHORTHANDS = ("crop_pct", "interpolation", "normalisation")

Shape = tuple[int | None, ...]  # of one input of a model; None where unknown


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
        order: the order of the colour channels, "rgb", or "bgr" as in models of Caffe and OpenCV.

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
    order: Literal["rgb", "bgr"] = "rgb"

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1 or max(self.size) > LONGEST_SIDE:
            raise InputError(
                f"expected an image size from 1 to {LONGEST_SIDE}, got {self.size}", setting="size"
            )
        if self.edge is not None and not 1 <= self.edge <= LONGEST_SIDE:
            raise InputError(
                f"expected a shorter side from 1 to {LONGEST_SIDE} before the crop, got {self.edge}"
            )
        if self.order not in ("rgb", "bgr"):
            raise InputError(f"expected the order rgb or bgr, got {self.order!r}", setting="order")
        if self.channels not in (1, 3):
            raise InputError(
                f"expected images of 1 or 3 channels, got {self.channels}", setting="layout"
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                expected = "1 number" if self.channels == 1 else f"1 or {self.channels} numbers"
                raise InputError(
                    f"expected {name} as {expected}, got {len(values)}: {values}", setting=name
                )
            if not all(math.isfinite(value) for value in values):
                raise InputError(f"expected {name} as finite numbers, got {values}", setting=name)
        if 0 in np.asarray(self.std, dtype=np.float32):  # some numbers are rounded to it
            raise InputError(
                f"pixels cannot be divided by a std of zero: {self.std}", setting="std"
            )
        if not math.isfinite(self.scale):
            raise InputError(f"expected a finite scale, got {self.scale}")
        if self.resample not in FILTERS.values():
            last = max(FILTERS.values())
            raise InputError(f"expected a Pillow filter code from 0 to {last}, got {self.resample}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one preprocessed image.

        >>> Preprocessing((32, 48)).shape, Preprocessing((32, 48), layout="nhwc").shape
        ((3, 32, 48), (32, 48, 3))
        """
        if self.layout == "nchw":
            return (self.channels, *self.size)
        return (*self.size, self.channels)

    def array_of(self, image: Image) -> NDArray[np.float32]:
        """Turn a decoded image into an array."""
        return self.normalise(self.fit(image))

    def fit(self, image: Image) -> NDArray[np.float32]:
        """Resize and crop a decoded image: height x width x channels, pixels as they were."""
        if image.mode != "F":  # mode F stays grey and keeps its fractions
            image = image.convert("L" if self.channels == 1 else "RGB")
        whole = self._whole(*image.size)
        resized = image.resize(whole, self.resample)
        if whole != (self.size[1], self.size[0]):
            resized = resized.crop(self._cut(whole))
        values = np.array(resized, dtype=np.float32)
        if values.ndim == 2:
            values = np.repeat(values[:, :, None], self.channels, axis=2)
        return values

    def normalise(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Order the channels of a fitted image, scale its pixels, and put its axes in order."""
        if self.order == "bgr":
            values = values[:, :, ::-1]
        gain = np.float32(self.scale) / np.asarray(self.std, dtype=np.float32)
        values = values * gain
        values -= np.divide(self.mean, self.std).astype(np.float32)
        if self.layout == "nchw":
            values = values.transpose(2, 0, 1)
        return np.ascontiguousarray(values)

    def cuts(self, across: int, down: int) -> bool:
        """Whether part of an image is cropped away.

        >>> Preprocessing((32, 48)).cuts(96, 64), Preprocessing((32, 48)).cuts(64, 64)
        (False, True)
        """
        height, width = self.size
        return self._whole(across, down) != (width, height)

    def covered(self, across: int, down: int) -> tuple[float, float, float, float]:
        """Return the part of an image that the model sees.

        Left, top, right and bottom, in pixels of the image.

        >>> Preprocessing((32, 32)).covered(96, 64)
        (16.0, 0.0, 80.0, 64.0)
        """
        whole = self._whole(across, down)
        left, top, right, bottom = self._cut(whole)
        x = across / whole[0]
        y = down / whole[1]
        return left * x, top * y, right * x, bottom * y

    def _cut(self, whole: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return the part of a resized image that the model sees: its centre."""
        height, width = self.size
        to_integer = round if self.centre == "even" else math.floor
        left = to_integer((whole[0] - width) / 2)
        top = to_integer((whole[1] - height) / 2)
        return left, top, left + width, top + height

    def _whole(self, across: int, down: int) -> tuple[int, int]:
        """Return the width and height of an image after resizing and before cropping.

        >>> Preprocessing((224, 224), edge=256)._whole(500, 333)  # 500 * 256 / 333 = 384.4
        (384, 256)
        """
        height, width = self.size
        if self.resize == "stretch":
            return (width, height)
        if self.edge:
            width = height = self.edge
        if width * down >= height * across:  # the width decides
            return (width, max(height, width * down // across))
        return (max(width, height * across // down), height)

    def words(self) -> str:
        """Describe the preprocessing in words.

        >>> Preprocessing((32, 48), mean=(0.5,), std=(0.5,)).words()
        'resized to cover 32 x 48, centre crop, bilinear, pixels / 255, mean 0.5, std 0.5, nchw'
        """
        height, width = self.size
        if self.resize == "stretch":
            fit = f"stretched to {height} x {width}"
        elif self.edge or height == width:
            fit = f"shorter side to {self.edge or height}, centre crop {height} x {width}"
        else:
            fit = f"resized to cover {height} x {width}, centre crop"
        name = next(name for name, code in FILTERS.items() if code == self.resample)
        scaled = f"pixels * {self.scale:.3g}"
        if math.isclose(self.scale, 1 / 255):
            scaled = "pixels / 255"
        wrap = "{}" if len(self.mean) == len(self.std) == 1 else "({})"
        mean = wrap.format(", ".join(f"{value:.4g}" for value in self.mean))
        std = wrap.format(", ".join(f"{value:.4g}" for value in self.std))
        order = ", BGR" if self.order == "bgr" else ""
        return f"{fit}, {name}, {scaled}, mean {mean}, std {std}, {self.layout}{order}"


def preprocessing_for(
    shape: Shape | None, known: dict[str, Any], given: dict[str, Any]
) -> tuple[Preprocessing, list[str]]:
    """Decide how images are preprocessed, and name the settings that had to be assumed.

    >>> preprocessing, assumed = preprocessing_for((3, 32, 32), {}, {"mean": (0.5,)})
    >>> preprocessing.size, preprocessing.layout, assumed
    ((32, 32), 'nchw', ['std', 'resize'])

    Args:
        shape: the shape of one input of the model, None where unknown. The lowest priority.
        known: settings of `Preprocessing` that came with the model. They override `shape`.
        given: settings that the user gave. They override everything else. Beside those of
            `Preprocessing` there are `interpolation`, the name of a filter, `normalisation`, the
            name of a mean and a standard deviation, and `crop_pct`, the fraction of the shorter
            side that is left by the crop, as in timm.

    """
    given = _spelled_out(given)
    fraction = given.pop("crop_pct", None)
    settings = _from_shape(shape, given.get("layout"), "the model") | known | given
    if "size" not in settings:
        raise InputError(
            "the model does not say how large its images are", setting="size", value="(224, 224)"
        )
    if fraction is not None:
        settings |= {"resize": "crop", "edge": math.floor(min(settings["size"]) / fraction)}
    made = _made(settings)
    _check_within(made, given)
    _check_shape(made, shape, known, "the model")
    if "edge" in given and given["edge"] < min(made.size):
        raise InputError(
            f"expected a shorter side of at least {min(made.size)}, the crop, got {given['edge']}"
        )
    return made, [name for name in ("layout", "mean", "std", "resize") if name not in settings]


def preprocessing_of_second(
    first: Preprocessing,
    shape: Shape | None,
    known: dict[str, Any],
    given: dict[str, Any],
) -> Preprocessing:
    """Decide how images are preprocessed for a second model.

    As for the first, but for what is known of the second.

    If it takes another size, the shorter side before the crop changes in proportion.

    >>> first = Preprocessing((224, 224), edge=256, mean=(0.5,), std=(0.5,))
    >>> preprocessing_of_second(first, (260, 260, 3), {}, {}).words()
    'shorter side to 297, centre crop 260 x 260, bilinear, pixels / 255, mean 0.5, std 0.5, nhwc'
    """
    given = _spelled_out(given)
    own: dict[str, Any] = {}
    if shape is not None and not _same_shape(first.shape, shape):
        own = _from_shape(shape, given.get("layout"), "the second opinion")
    own |= known | given
    fraction = own.pop("crop_pct", None)
    size = own.get("size", first.size)
    if fraction is not None:
        own |= {"resize": "crop", "edge": math.floor(min(size) / fraction)}
    elif first.edge is not None and "edge" not in own:
        own["edge"] = first.edge * min(size) // min(first.size)
    try:
        made = _made(asdict(first) | own)
    except InputError as error:
        if error.setting not in ("mean", "std"):
            raise
        channels = count(own.get("channels", first.channels), "channel")
        raise InputError(
            f"the second opinion takes images of {channels}: {error.message}",
            setting="second_preprocessing",
            value="MEAN/STD",
        ) from error
    _check_within(made, given)
    _check_shape(made, shape, known, "the second opinion")
    return made


def _check_shape(made: Preprocessing, shape: Shape | None, known: dict[str, Any], who: str) -> None:
    """Refuse settings for other images than a model takes, unless it came with settings."""
    if shape is not None and not known and not _same_shape(made.shape, shape):
        raise InputError(
            f"{who} takes images of shape {shape}, but the settings give {made.shape}",
            setting="size",
        )


def _check_within(made: Preprocessing, given: dict[str, Any]) -> None:
    """Refuse a mean or std for pixels from 0 to 255 if pixels are scaled to 0..1 first."""
    if not math.isclose(made.scale, 1 / 255):
        return
    for name, values in (("mean", made.mean), ("std", made.std)):
        wrong = [value for value in values if not 0 <= value <= 1]
        if name in given and wrong:
            raise InputError(
                f"expected a {name} from 0 to 1, since pixels are scaled to 0..1 first, got "
                f"{wrong[0]:g}: divide the mean and the std by 255",
                setting=name,
            )


def _made(settings: dict[str, Any]) -> Preprocessing:
    try:
        return Preprocessing(**settings)
    except TypeError:
        known = [*(field.name for field in fields(Preprocessing)), *SHORTHANDS]
        unknown = sorted(set(settings) - set(known))
        raise InputError(
            f"expected settings among {', '.join(known)}, got {', '.join(unknown)}"
        ) from None


def _same_shape(shape: tuple[int, ...], wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(
        w in (s, None) for s, w in zip(shape, wanted, strict=True)
    )


def _spelled_out(given: dict[str, Any]) -> dict[str, Any]:
    """Replace names by what they stand for.

    >>> _spelled_out({"interpolation": "bicubic", "normalisation": "minus-one-one", "std": (0.25,)})
    {'mean': (0.5,), 'std': (0.25,), 'resample': 3}
    """
    settings = dict(given)
    normalisation = settings.pop("normalisation", None)
    if normalisation is not None:
        if normalisation not in NORMALISATIONS:
            known = ", ".join(NORMALISATIONS)
            raise InputError(
                f"expected normalisation as {known}, or a mean and a std, MEAN/STD, got "
                f"{normalisation!r}"
            )
        settings = NORMALISATIONS[normalisation] | settings
    interpolation = settings.pop("interpolation", None)
    if interpolation is not None:
        if interpolation not in FILTERS:
            raise InputError(
                f"expected interpolation as {', '.join(FILTERS)}, got {interpolation!r}"
            )
        settings["resample"] = FILTERS[interpolation]
    fraction = settings.get("crop_pct")
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(
            f"expected a fraction above 0 and up to 1, got {fraction}", setting="crop_pct"
        )
    return settings


def _from_shape(shape: Shape | None, layout: str | None, whose: str) -> dict[str, Any]:
    """Read the layout, the channels and the size from the shape of one input."""
    if shape is None:
        return {}
    if len(shape) != 3:
        raise InputError(
            f"{whose} takes inputs of shape {shape}, not images: use one that takes images"
        )
    first = shape[0] in (1, 3)
    last = shape[2] in (1, 3)
    if layout is None and first == last:
        raise InputError(
            f"the model's input of shape {shape} does not show whether channels are first or last",
            setting="layout",
            value='"nchw" or "nhwc"',
        )
    if layout is None:
        layout = "nchw" if first else "nhwc"
    if layout == "nchw":
        channels, height, width = shape
    else:
        height, width, channels = shape
    settings: dict[str, Any] = {"layout": layout, "channels": channels or 3}
    if height is not None and width is not None:
        settings["size"] = (height, width)
    return settings
