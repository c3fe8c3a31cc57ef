from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pseudocal import PseudoCal
from pseudocal.arrays import InputError
from pseudocal.lab.data import Domain, Unlabelled, check_same_classes, from_arrays, partial, relabel
from pseudocal.lab.data.domains import ImageArray, Selection, Selector


class Lazy:
    """Inputs that count what is decoded: row i is an image full of i."""

    def __init__(self, n: int) -> None:
        self.n, self.decoded = n, 0

    def __len__(self) -> int:
        return self.n

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), 3, 8, 8)

    def __getitem__(self, rows: Selector, /) -> ImageArray:
        numbers = np.arange(self.n)[rows]
        self.decoded += len(numbers)
        return np.broadcast_to(numbers[:, None, None, None], (len(numbers), 3, 2, 2)).astype(
            np.uint8
        )


def lazy_domain(n: int = 20) -> Domain:
    return Domain("lazy", Lazy(n), np.arange(n) % 4, ("a", "b", "c", "d"))


def test_a_calibrator_asks_for_the_inputs_of_a_domain() -> None:
    art = Domain("art", np.zeros((4, 3, 8, 8), np.uint8), np.arange(4) % 2, ("bed", "bike"))
    for domain in (art, art.unlabelled()):
        with pytest.raises(InputError, match=f"got {type(domain).__name__}: pass its .inputs"):
            PseudoCal().fit(lambda x: x.mean(axis=(2, 3)), domain)


def test_unlabelled_has_no_labels() -> None:
    target = lazy_domain().unlabelled()
    assert [field.name for field in fields(Unlabelled)] == ["name", "inputs"]
    assert not hasattr(target, "labels")
    assert not any("label" in name for name in dir(target))
    assert not hasattr(target[:3], "labels")
    assert len(target[:3]) == 3


@pytest.mark.parametrize(
    ("n", "sizes"), [(2427, (1941, 486)), (4365, (3492, 873)), (4439, (3551, 888))]
)
def test_split_sizes_are_the_papers(n: int, sizes: tuple[int, int]) -> None:
    train, validation = lazy_domain(n).split()
    assert (len(train), len(validation)) == sizes


@given(n=st.integers(0, 60), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 5))
def test_split_parts_are_all_rows_once(n: int, fraction: float, seed: int) -> None:
    domain = Domain("d", np.arange(n, dtype=np.uint8).reshape(n, 1, 1, 1), np.zeros(n, int), ("a",))
    first, second = domain.split(fraction, seed=seed)
    rows = np.concatenate([np.ravel(part.inputs[:]) for part in (first, second)])
    assert sorted(rows) == list(range(n))


def test_split_is_the_same_for_the_same_seed() -> None:
    one, same, other = (lazy_domain().split(seed=seed)[0].labels.tolist() for seed in (1, 1, 2))
    assert one == same != other


def test_subset_of_lazy_inputs_decodes_nothing() -> None:
    domain = lazy_domain()
    part = domain.split()[0].subset(np.array([3, 1])).unlabelled()
    assert isinstance(domain.inputs, Lazy)
    assert isinstance(part.inputs, Selection)
    assert part.inputs.inputs is domain.inputs  # a view of a view is one view
    assert domain.inputs.decoded == 0
    assert part.inputs[:1].shape == (1, 3, 2, 2)
    assert domain.inputs.decoded == 1


def test_subset_keeps_images_and_labels_together() -> None:
    domain = lazy_domain()
    for rows in (np.array([5, 2, 9]), slice(3, 8), domain.labels == 2):
        part = domain[rows]
        assert (part.inputs[:][:, 0, 0, 0] % 4 == part.labels).all()


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5])
def test_split_refuses_a_fraction_outside(fraction: float) -> None:
    with pytest.raises(InputError, match=f"expected a fraction between 0 and 1, got {fraction}"):
        lazy_domain().split(fraction)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"shape \(3,\), one for each input, got shape \(2,\)"),
        ([0.0, 1.0, 1.0], "integers, got dtype float64"),
        ([0, 1, 2], "from 0 to 1, got 2 in row 2"),
        ([0, -1, 1], "from 0 to 1, got -1 in row 1"),
    ],
)
def test_domain_refuses_labels_that_do_not_fit(labels: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Domain("d", np.zeros((3, 1, 2, 2), np.uint8), np.array(labels), ("a", "b"))


def test_labels_become_int64() -> None:
    assert (
        from_arrays(np.zeros((2, 1, 2, 2), np.uint8), np.array([0, 1], np.uint8)).labels.dtype
        == np.int64
    )


def test_from_arrays_says_how_to_put_channels_first() -> None:
    with pytest.raises(InputError, match=r"got shape \(2, 8, 8, 3\).*moveaxis"):
        from_arrays(np.zeros((2, 8, 8, 3)), [0, 1])
    with pytest.raises(InputError, match=r"dtype uint8, got shape .* dtype float64"):
        from_arrays(np.zeros((2, 3, 8, 8)), [0, 1])


def test_partial_keeps_the_label_space() -> None:
    part = partial(lazy_domain(), ["b", "d"])
    assert set(part.labels) == {1, 3}
    assert part.classes == ("a", "b", "c", "d")
    assert len(part) == 10
    with pytest.raises(InputError, match=r"expected a class of lazy .*, got 'z'"):
        partial(lazy_domain(), ["z"])
    with pytest.raises(InputError, match="expected images of the classes d in lazy, got none"):
        partial(lazy_domain(3), ["d"])


def test_relabel_matches_by_name() -> None:
    domain = lazy_domain()
    other = relabel(domain, ["d", "c", "b", "a"])
    assert [other.classes[label] for label in other.labels] == [
        domain.classes[label] for label in domain.labels
    ]
    with pytest.raises(InputError, match=r"got a difference in \['d', 'e'\]"):
        relabel(domain, ["a", "b", "c", "e"])


def test_domains_that_number_classes_differently_are_not_mixed() -> None:
    domain = lazy_domain()
    assert check_same_classes(domain, domain) == domain.classes
    with pytest.raises(InputError, match="got label 0 for 'd' instead of 'a'; match them by name"):
        check_same_classes(domain, relabel(domain, ["d", "c", "b", "a"]))
