"""How images are prepared for a model.

By the shape of its input, what came with it, and what the user gave.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from pseudocal.app.inputs.preprocessing import FILTERS, Preprocessing
from pseudocal.arrays import InputError

NORMALISATIONS: dict[str, dict[str, tuple[float, ...]]] = {
    "imagenet": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    "minus-one-one": {"mean": (0.5,), "std": (0.5,)},
    "zero-one": {"mean": (0.0,), "std": (1.0,)},
}


def preprocessing_for(
    shape: tuple[int | None, ...] | None, known: dict[str, Any], given: dict[str, Any]
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
    if shape is not None and len(shape) != 3:
        raise InputError(
            f"expected a model that takes images, got one that takes inputs of shape {shape}"
        )
    converged = _from_shape(shape, given.get("layout")) | known | given
    if "size" not in converged:
        raise InputError(
            "expected the size of the images, since the model does not give it, got none: give size=(height, width)"
        )
    if fraction is not None:
        converged |= {"resize": "crop", "edge": math.floor(min(converged["size"]) / fraction)}
    made = _made(converged)
    _check_shape(made, shape, known, "the model")
    if "edge" in given and given["edge"] < min(made.size):
        raise InputError(
            f"expected a shorter side of at least {min(made.size)}, the crop, got {given['edge']}"
        )
    return made, [name for name in ("layout", "mean", "std", "resize") if name not in converged]


def preprocessing_of_second(
    first: Preprocessing,
    shape: tuple[int | None, ...] | None,
    known: dict[str, Any],
    given: dict[str, Any],
) -> Preprocessing:
    """Decide how images are preprocessed for a second model.

    As for the first, but for what is known of the second.

    If it takes another size, the shorter side before the crop changes in proportion.

    >>> first = Preprocessing((224, 224), edge=256, mean=(0.5,), std=(0.5,))
    >>> preprocessing_of_second(first, (260, 260, 3), {}, {}).words()
    'shorter side to 297, centre crop 260 x 260, bilinear, pixels / 255, mean 0.5, std 0.5, nhwc'

    Args:
        first: how they are preprocessed for the first model.
        shape: the shape of one input of the second model, None where unknown.
        known: settings that came with the second model.
        given: settings that the user gave for the second model.

    """
    given = _spelled_out(given)
    if shape is not None and len(shape) != 3:
        raise InputError(
            f"expected a second opinion that takes images, got one that takes inputs of shape {shape}"
        )
    own = (
        {}
        if shape is None or _same_shape(first.shape, shape)
        else _from_shape(shape, given.get("layout"))
    )
    own |= known | given
    fraction = own.pop("crop_pct", None)
    size = own.get("size", first.size)
    if fraction is not None:
        own["edge"] = math.floor(min(size) / fraction)
    elif first.edge is not None and "edge" not in own:
        own["edge"] = first.edge * min(size) // min(first.size)
    made = _made({field.name: getattr(first, field.name) for field in fields(first)} | own)
    _check_shape(made, shape, known, "the second opinion")
    return made


def _check_shape(
    made: Preprocessing, shape: tuple[int | None, ...] | None, known: dict[str, Any], who: str
) -> None:
    """Refuse settings for images that a model does not take, unless it came with settings of its own."""
    if shape is not None and not known and not _same_shape(made.shape, shape):
        raise InputError(
            f"expected images of shape {shape}, as {who} takes, got settings for {made.shape}"
        )


def _made(settings: dict[str, Any]) -> Preprocessing:
    try:
        return Preprocessing(**settings)
    except TypeError:
        known = [field.name for field in fields(Preprocessing)] + [
            "crop_pct",
            "interpolation",
            "normalisation",
        ]
        unknown = sorted(set(settings) - set(known))
        raise InputError(
            f"expected settings among {', '.join(known)}, got {', '.join(unknown)}"
        ) from None


def _same_shape(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        w in (s, None) for s, w in zip(shape, wanted, strict=True)
    )


def _spelled_out(given: dict[str, Any]) -> dict[str, Any]:
    """Replace names by what they stand for.

    >>> _spelled_out({"interpolation": "bicubic", "normalisation": "minus-one-one", "std": (0.25,)})
    {'std': (0.25,), 'mean': (0.5,), 'resample': 3}
    """
    rest = dict(given)
    normal = rest.pop("normalisation", None)
    filtered = rest.pop("interpolation", None)
    for name, value, known in (
        ("normalisation", normal, NORMALISATIONS),
        ("interpolation", filtered, FILTERS),
    ):
        if value is not None and value not in known:
            also = ", or a mean and a std, MEAN/STD" if name == "normalisation" else ""
            raise InputError(f"expected {name} as {', '.join(known)}{also}, got {value!r}")
    if normal is not None:
        rest |= {key: values for key, values in NORMALISATIONS[normal].items() if key not in given}
    fraction = rest.get("crop_pct")
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(f"expected crop_pct above 0 and up to 1, got {fraction}")
    return rest | ({} if filtered is None else {"resample": FILTERS[filtered]})


def _from_shape(shape: tuple[int | None, ...] | None, layout: str | None) -> dict[str, Any]:
    """Read the layout, the channels and the size from the shape of one input."""
    if shape is None:
        return {}
    first = shape[0] in (1, 3)
    last = shape[2] in (1, 3)
    if layout is None and first == last:
        raise InputError(
            f"expected an input shape with 1 or 3 channels either first or last, got {shape}: "
            'give layout="nchw" or layout="nhwc"'
        )
    layout = layout or ("nchw" if first else "nhwc")
    channels, *size = shape if layout == "nchw" else (shape[2], shape[0], shape[1])
    settings: dict[str, Any] = {"layout": layout, "channels": channels or 3}
    return settings | ({"size": tuple(size)} if None not in size else {})
