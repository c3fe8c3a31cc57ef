"""Whether a second opinion can be asked about the inputs of the model: same classes, prepared in the same way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pseudocal.app.inputs import ArraySet, InputSet, Preprocessing
from pseudocal.app.models.opened import OpenModel
from pseudocal.arrays import InputError


def check_second(model: OpenModel, second: OpenModel, inputs: InputSet, given: dict[str, Any]) -> None:
    """Refuse a second model that says that it wants other classes, or inputs that are prepared in another way.

    `given` is what the user says of pictures, which holds for both.
    """
    if model.classes and second.classes and model.classes != second.classes:
        ours, theirs = next(pair for pair in _pairs(model.classes, second.classes) if pair[0] != pair[1])
        raise InputError(
            f"expected a second opinion on the classes of the model, got {theirs!r} in the place of {ours!r}"
        )
    preprocessing = getattr(inputs, "preprocessing", None)
    shape = inputs.array.shape[1:] if isinstance(inputs, ArraySet) else getattr(preprocessing, "shape", None)
    if shape is not None and not fits(shape, second.expects.shape):
        wanted = tuple("?" if d is None else d for d in second.expects.shape or ())
        raise InputError(
            f"expected a second opinion that takes inputs of shape {shape}, as the model does, got one of {wanted}"
        )
    if preprocessing is None:
        return
    own = replace(preprocessing, **(second.expects.preprocessing | given))
    if not alike(preprocessing, own):
        raise InputError(
            f"expected a second opinion on pictures as the model sees them ({preprocessing.words()}), "
            f"got one that wants {own.words()}"
        )


def fits(shape: tuple[int, ...], wanted: tuple[int | None, ...] | None) -> bool:
    """Whether rows of a shape can go into a model, as far as it says.

    >>> fits((3, 32, 32), (3, None, None)), fits((3, 32, 32), None), fits((5,), (4,))
    (True, True, False)
    """
    if wanted is None:
        return True
    return len(shape) == len(wanted) and all(w is None or s == w for s, w in zip(shape, wanted, strict=True))


def alike(one: Preprocessing, other: Preprocessing) -> bool:
    """Whether two ways of preparing pictures give the same numbers, but for how they are resized.

    >>> alike(Preprocessing(mean=(0.5,)), Preprocessing(mean=(0.5, 0.5, 0.5)))
    True
    >>> alike(Preprocessing(), Preprocessing(scale=1.0))
    False
    """
    same = (one.size, one.layout, one.channels) == (other.size, other.layout, other.channels)
    return same and all(np.allclose(_line(one, v), _line(other, v)) for v in (0, 255))


def _line(preprocessing: Preprocessing, value: int) -> Any:
    """What becomes of one value in each channel."""
    return (value * preprocessing.scale - np.broadcast_to(preprocessing.mean, preprocessing.channels)) / np.asarray(
        preprocessing.std
    )


def _pairs(ours: tuple[str, ...], theirs: tuple[str, ...]) -> list[tuple[str, str]]:
    """Class by class; one that the other lacks is against nothing."""
    longest = max(len(ours), len(theirs))
    pad = [(*names, *[""] * (longest - len(names))) for names in (ours, theirs)]
    return list(zip(*pad, strict=True))
