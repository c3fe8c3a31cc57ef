"""Label spaces, by class name: the partial set, another order, and whether two domains agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pseudocal.arrays import InputError
from pseudocal.lab.data.domain import Domain


def partial(domain: Domain, classes: Sequence[str]) -> Domain:
    """Keep the rows of the named classes; the label space stays as it is.

    In partial-set adaptation the target holds some of the source's classes, and nobody says which: the model keeps an
    output for each class.

    >>> art = Domain("art", np.zeros((4, 3, 8, 8), np.uint8), np.array([0, 1, 2, 1]), ("bed", "bike", "bottle"))
    >>> part = partial(art, ["bike", "bottle"])
    >>> part.labels, part.classes
    (array([1, 2, 1]), ('bed', 'bike', 'bottle'))
    """
    wanted = [class_number(domain, name) for name in classes]
    rows = np.flatnonzero(np.isin(domain.labels, wanted))
    if not len(rows):
        raise InputError(f"expected rows of the classes {', '.join(classes)} in {domain.name}, got none")
    return domain.subset(rows)


def relabel(domain: Domain, classes: Sequence[str]) -> Domain:
    """Number the classes in another order, matched by name: what a model trained on another list expects.

    >>> art = Domain("art", np.zeros((2, 3, 8, 8), np.uint8), np.array([0, 1]), ("TV", "Table"))
    >>> relabel(art, ["Table", "TV"]).labels
    array([1, 0])
    """
    if len(set(classes)) != len(classes) or set(classes) != set(domain.classes):
        odd = sorted(set(classes) ^ set(domain.classes)) or sorted(classes)
        raise InputError(f"expected the {len(domain.classes)} class names of {domain.name}, got a difference in {odd}")
    order = np.array([list(classes).index(name) for name in domain.classes])
    return replace(domain, labels=order[domain.labels], classes=tuple(classes))


def check_same_classes(*domains: Domain) -> tuple[str, ...]:
    """The one label space of several domains, refusing those that number their classes differently.

    Office-Home comes in three orders: labels of one under the names of another score a good model as a bad one.
    """
    first = domains[0]
    for other in domains[1:]:
        if other.classes != first.classes:
            raise InputError(
                f"expected {other.name} to have the classes of {first.name} in the same order, "
                f"got {_first_difference(first.classes, other.classes)}; match them by name with relabel"
            )
    return first.classes


def class_number(domain: Domain, name: str) -> int:
    """The label of a class."""
    if name not in domain.classes:
        raise InputError(f"expected a class of {domain.name} (such as {', '.join(domain.classes[:3])}), got {name!r}")
    return domain.classes.index(name)


def _first_difference(ours: Sequence[str], theirs: Sequence[str]) -> str:
    if len(ours) != len(theirs):
        return f"{len(theirs)} classes beside {len(ours)}"
    number = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    return f"label {number} for {theirs[number]!r} beside {ours[number]!r}"
