"""Packed evidence may come from a file of somebody else: what no pass could collect is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pseudocal import InputError, PseudoCal
from pseudocal.calibrators.evidence import check_packed
from pseudocal.calibrators.surrogate import Surrogate

CLASSES = 3


def of_rows(**settings: Any) -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(400, CLASSES))
    method = PseudoCal(**settings)
    seconds = [lambda x: 2 * x[:, ::-1], lambda x: x**3, Surrogate()]
    evidence = method.collect(lambda x: 3 * x, x, second_opinion=seconds)
    return evidence.pack()


def of_maps() -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(12, CLASSES, 4, 4))
    return PseudoCal().collect(lambda x: 3 * x, x).pack()


@pytest.mark.parametrize(
    "settings", [{}, {"epochs": 1}, {"epochs": 4}, {"memory": 2**17}, {"pairing": "batch"}], ids=str
)
def test_evidence_of_rows_is_accepted(settings):
    packed = of_rows(**settings)
    assert len(packed) == 8 or settings
    check_packed(packed, CLASSES)
    merged = PseudoCal(**settings).empty_evidence()
    merged.merge(packed)
    merged.merge(of_rows(**settings, seed=1))
    check_packed(merged.pack(), CLASSES)


def test_evidence_of_maps_is_accepted_as_such():
    packed = of_maps()
    check_packed(packed, CLASSES, of_pixels=True)
    with pytest.raises(InputError, match="not rows of"):
        check_packed(packed, CLASSES)
    with pytest.raises(InputError, match="not rows of"):
        check_packed(of_rows(), CLASSES, of_pixels=True)


def test_evidence_of_other_classes_is_refused():
    for classes in (2, 4):
        with pytest.raises(InputError):
            check_packed(of_rows(), classes)


def changed(array: Any, value: Any, *at: Any) -> Any:
    """The array with one of its values changed."""
    array = array.copy()
    target = array if len(at) == 1 else array[at[0]]
    target[at[-1]] = value
    return array


CHANGES = [
    ("counts", -1, 0),
    ("counts", 2**60, 1),
    ("counts", 0, 3),
    ("counts", 2**50, 3),
    ("counts", 1, 4),
    ("counts", 2**40, 5),
    ("ceilings", np.nan, 0),
    ("ceilings", 0.0, 1),
    ("opinions", 1.0, 0),
    ("opinions", 2.5, 0),
    ("opinions", np.nan, 1),
    ("opinions", -1.0, 2),
    ("opinions", 1e300, 3),
    ("opinions", 1e9, 4),
    ("surrogate_samples", 1e300, 0),
    ("surrogate_samples", 0.5, 1),
    ("surrogate_samples", np.nan, 2),
    ("surrogate_samples", 1.0, 4),
    *(
        (name, value, column, 0)
        for name in ("mixup", "real", "surrogate_rows", "surrogate_mixup")
        for column, value in (
            ("logits", np.nan),
            ("logits", np.inf),
            ("label", -1),
            ("label", CLASSES),
            ("weight", np.nan),
            ("weight", -1.0),
            ("key", np.nan),
            ("key", 2.0),
        )
    ),
    ("surrogate_rows", -1, "group", 0),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_one_wrong_number_is_refused(change):
    name, value, *at = change
    packed = of_rows(epochs=1)
    with pytest.raises(InputError):
        check_packed(packed | {name: changed(packed[name], value, *at)}, CLASSES)


@pytest.mark.parametrize("dtype", ["f4", "i8", "U3", "m8[s]", "c16"])
def test_other_types_and_shapes_are_refused(dtype):
    packed = of_rows(epochs=1)
    for name, array in packed.items():
        other = np.zeros(array.shape, dtype=dtype)
        for wrong in (other, array[None], array[:-1], array[:0]):
            if wrong.dtype == array.dtype and wrong.shape == array.shape:
                continue
            with pytest.raises(InputError):
                check_packed(packed | {name: wrong}, CLASSES)


def test_arrays_that_are_missing_or_unknown_are_refused():
    packed = of_rows(epochs=1)
    for name in set(packed) - {"opinions"}:
        with pytest.raises(InputError):
            check_packed({key: array for key, array in packed.items() if key != name}, CLASSES)
    with pytest.raises(InputError, match="unknown array 'more'"):
        check_packed(packed | {"more": np.zeros(3)}, CLASSES)
