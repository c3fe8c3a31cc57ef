"""A domain.

Images from one origin, with their labels or without, and what can be done with its label space.

The label-free side of adaptation and calibration takes an `Unlabelled`. It has no labels, so target
labels cannot reach training by mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError

ImageArray = NDArray[np.uint8]  # (n, channels, height, width)
Ids = NDArray[np.int64]  # (n,)
# A slice, an array of numbers, or one number, which gives one image without the first axis.
Selector = Any

MOST_CLASSES = 1_000_000


class Indexable(Protocol):
    """Images or features by number: an array, or something that decodes files when asked."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that an array of all of them would have."""
        ...

    def __len__(self) -> int: ...
    def __getitem__(self, chosen: Selector, /) -> NDArray[Any]: ...


@dataclass(frozen=True, eq=False)
class Selection:
    """Some of many inputs: nothing is copied or decoded until they are asked for.

    Attributes:
        inputs: all inputs.
        chosen: `(n,)`, the numbers of those selected, in order.

    """

    inputs: Indexable
    chosen: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that an array of the selected inputs would have."""
        return (len(self), *self.inputs.shape[1:])

    def __getitem__(self, chosen: Selector, /) -> NDArray[Any]:
        return self.inputs[self.chosen[chosen]]


def select(inputs: Indexable, chosen: Selector) -> Indexable:
    """Index an array now, and anything else lazily."""
    if isinstance(inputs, np.ndarray):
        return inputs[chosen]
    if isinstance(inputs, Selection):
        return Selection(inputs.inputs, inputs.chosen[chosen])
    return Selection(inputs, np.arange(len(inputs))[chosen])


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Images of a domain without their labels.

    All that training and calibration may see of a target.

    >>> hasattr(Unlabelled("clipart", np.zeros((4, 3, 8, 8), np.uint8)), "labels")
    False

    Attributes:
        name: the name of the domain.
        inputs: the images; indexing gives `(k, channels, height, width)` uint8.

    """

    name: str
    inputs: Indexable

    def __len__(self) -> int:
        return len(self.inputs)

    def subset(self, chosen: Selector) -> Unlabelled:
        """Return the chosen images, in that order.

        Args:
            chosen: a slice, an array of numbers, or one number.

        """
        return replace(self, inputs=select(self.inputs, chosen))

    __getitem__ = subset


@dataclass(frozen=True, eq=False)
class Domain:
    """Images of a domain with their labels.

    >>> art = Domain("art", np.zeros((10, 3, 8, 8), np.uint8), np.arange(10) % 2, ("bed", "bike"))
    >>> len(art), len(art[:3]), [len(part) for part in art.split(0.8)]
    (10, 3, [8, 2])

    Attributes:
        name: the name of the domain.
        inputs: the images; indexing gives `(k, channels, height, width)` uint8.
        labels: `(n,)`, the class number of each image.
        classes: the class names in the order of their numbers.

    """

    name: str
    inputs: Indexable
    labels: Ids
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "labels", check_labels(self.labels, len(self.inputs), self.classes)
        )

    def __len__(self) -> int:
        return len(self.labels)

    def unlabelled(self) -> Unlabelled:
        """The same images without their labels."""
        return Unlabelled(self.name, self.inputs)

    def subset(self, chosen: Selector) -> Domain:
        """Return the chosen images with their labels, in that order.

        Args:
            chosen: a slice, an array of numbers, or one number.

        """
        return replace(self, inputs=select(self.inputs, chosen), labels=self.labels[chosen])

    __getitem__ = subset

    def split(self, fraction: float = 0.8, *, seed: int = 0) -> tuple[Domain, Domain]:
        """Split into two random parts.

        `int(fraction * n)` images to train on, the others as a validation set.

        The split is not stratified, as in the paper's experiments: a rare class may be missing from
        the smaller part.

        Args:
            fraction: the fraction of the first part.
            seed: the seed of the split.

        """
        first, second = split_numbers(len(self), fraction, seed)
        return self.subset(first), self.subset(second)


def from_arrays(
    inputs: ArrayLike,
    labels: ArrayLike,
    classes: Sequence[str] | None = None,
    *,
    name: str = "arrays",
) -> Domain:
    """Make a domain from images and labels in memory.

    >>> from_arrays(np.zeros((2, 1, 8, 8), np.uint8), [0, 1]).classes
    ('0', '1')

    Args:
        inputs: `(n, channels, height, width)` uint8, with 1 or 3 channels.
        labels: `(n,)`, the class number of each image.
        classes: the class names; the numbers themselves by default.
        name: the name of the domain.

    """
    images = np.asarray(inputs)
    ids = np.asarray(labels)
    last = images.ndim == 4 and images.shape[3] in (1, 3) and images.shape[1] not in (1, 3)
    hint = "; put the channels first with np.moveaxis(inputs, 3, 1)" if last else ""
    if images.dtype != np.uint8 or images.ndim != 4:
        raise InputError(
            "expected inputs of shape (n, channels, height, width) and dtype uint8, "
            f"got shape {images.shape} and dtype {images.dtype}{hint}"
        )
    if last:
        raise InputError(f"expected inputs with 1 or 3 channels, got shape {images.shape}{hint}")
    count = class_count(int(ids.max()), name) if ids.size else 0
    return Domain(name, images, ids, tuple(map(str, range(count)) if classes is None else classes))


def check_labels(labels: ArrayLike, n: int, classes: Sequence[str]) -> Ids:
    """Return `labels` as `(n,)` class numbers, checked against the inputs and the class names."""
    array = np.asarray(labels)
    if array.shape != (n,):
        raise InputError(
            f"expected labels of shape ({n},), one for each input, got shape {array.shape}"
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"expected labels that are integers, got dtype {array.dtype}")
    if n and (array.min() < 0 or array.max() >= len(classes)):
        bad = int(np.argmax((array < 0) | (array >= len(classes))))
        raise InputError(
            f"expected labels from 0 to {len(classes) - 1}, got {array[bad]} in row {bad}"
        )
    return array.astype(np.int64, copy=False)


def class_count(largest: int, where: str) -> int:
    """Return the number of classes if labels go up to `largest`.

    A typo must not create billions of class names.
    """
    if largest >= MOST_CLASSES:
        raise InputError(f"expected labels below {MOST_CLASSES:,}, got {largest} in {where}")
    return largest + 1


def split_numbers(n: int, fraction: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Shuffle the numbers from 0 to n - 1 and cut them in two, the first part rounded down.

    >>> [len(part) for part in split_numbers(2427, 0.8, seed=0)]
    [1941, 486]
    """
    if not 0 < fraction < 1:
        raise InputError(f"expected a fraction between 0 and 1, got {fraction}")
    shuffled = np.random.default_rng(seed).permutation(n)
    cut = int(fraction * n)
    return shuffled[:cut], shuffled[cut:]


def partial(domain: Domain, classes: Sequence[str]) -> Domain:
    """Keep the images of some classes; the label space stays as it is.

    In partial-set adaptation the target has an unknown subset of the source's classes: the model
    keeps an output for each class.

    >>> images = np.zeros((4, 3, 8, 8), np.uint8)
    >>> art = Domain("art", images, np.array([0, 1, 2, 1]), ("bed", "bike", "bottle"))
    >>> part = partial(art, ["bike", "bottle"])
    >>> part.labels, part.classes
    (array([1, 2, 1]), ('bed', 'bike', 'bottle'))

    Args:
        domain: the whole domain.
        classes: the names of the classes to keep.

    """
    wanted = [class_number(domain, name) for name in classes]
    chosen = np.flatnonzero(np.isin(domain.labels, wanted))
    if not len(chosen):
        raise InputError(
            f"expected images of the classes {', '.join(classes)} in {domain.name}, got none"
        )
    return domain.subset(chosen)


def relabel(domain: Domain, classes: Sequence[str]) -> Domain:
    """Number the classes in another order, matched by name.

    The order of a model that was trained on another list.

    >>> art = Domain("art", np.zeros((2, 3, 8, 8), np.uint8), np.array([0, 1]), ("TV", "Table"))
    >>> relabel(art, ["Table", "TV"]).labels
    array([1, 0])

    Args:
        domain: the domain as it is.
        classes: the same class names in the order wanted.

    """
    if len(set(classes)) != len(classes) or set(classes) != set(domain.classes):
        odd = sorted(set(classes) ^ set(domain.classes)) or sorted(classes)
        raise InputError(
            f"expected the {len(domain.classes)} class names of {domain.name}, got a difference in "
            f"{odd}"
        )
    order = np.array([list(classes).index(name) for name in domain.classes])
    return replace(domain, labels=order[domain.labels], classes=tuple(classes))


def check_same_classes(*domains: Domain) -> tuple[str, ...]:
    """Return the common label space of several domains.

    Domains that number their classes differently are refused.

    Office-Home exists in three orders: with the labels of one and the names of another, a good
    model scores badly.

    Args:
        *domains: the domains to compare.

    """
    first = domains[0]
    for other in domains[1:]:
        if other.classes != first.classes:
            raise InputError(
                f"expected {other.name} to have the classes of {first.name} in the same order, "
                f"got {_first_difference(first.classes, other.classes)}; match them by name with "
                "relabel"
            )
    return first.classes


def class_number(domain: Domain, name: str) -> int:
    """The label of a class."""
    if name not in domain.classes:
        raise InputError(
            f"expected a class of {domain.name} (such as {', '.join(domain.classes[:3])}), got "
            f"{name!r}"
        )
    return domain.classes.index(name)


def _first_difference(ours: Sequence[str], theirs: Sequence[str]) -> str:
    if len(ours) != len(theirs):
        return f"{len(theirs)} classes instead of {len(ours)}"
    number = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    return f"label {number} for {theirs[number]!r} instead of {ours[number]!r}"
