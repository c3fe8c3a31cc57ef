"""A person's labels: which rows of the target to label, and the labels given.

A few labelled rows should represent all of them. Rows are ordered by predicted class and within it
by confidence, so that neighbours are similar. The rows to label are spread evenly along that order,
at multiples of the golden ratio from a random start. This has three consequences. Each row is
equally likely to be chosen, so no weights are needed. A few rows cover groups of classes, many
cover each class and its range of confidences. And the first n rows do not depend on n: with more
rows the existing labels stay valid, and all of them together are spread about as evenly as if they had been
drawn at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import (
    InputError,
    Logits,
    Maps,
    as_logits,
    as_maps,
    as_numpy,
    check_not_probabilities,
    check_pixels_per_image,
    check_rows,
    class_positions,
    is_integer,
)
from pseudocal.calibrators.confidence import confidences
from pseudocal.maps import check_maps, draw, nothing, predicted, rows_at

RowNumbers = NDArray[np.intp]

GOLDEN = 0.6180339887498949  # any number of steps of this size around a circle leaves no large gap
PLASTIC = (0.7548776662466927, 0.5698402909980532)  # the same in two dimensions
CANNOT_TELL = -1  # the person does not know: skipped, but counted
NONE_OF_THESE = -2  # the input belongs to none of the classes: the prediction is wrong


def rows_to_label(
    logits: ArrayLike, n: int, *, seed: int = 0, groups: ArrayLike | None = None
) -> RowNumbers:
    """The rows for a person to label, in the order in which to label them.

    With eight rows of two classes, four cover each class twice:

    >>> logits = np.array(
    ...     [[1, 0], [2, 0], [3, 0], [4, 0], [0, 1], [0, 2], [0, 3], [0, 4]], dtype=float
    ... )
    >>> rows_to_label(logits, 4)
    array([6, 2, 5, 3])

    Six begin with the same four:

    >>> rows_to_label(logits, 6)
    array([6, 2, 5, 3, 0, 4])

    Args:
        logits: The logits of the whole target, of shape `(rows, classes)`. Rows that look like
            probabilities are refused: pass their logarithm.
        n: The number of rows to label.
        seed: The seed of the random start. The rows depend on the logits, the seed and the groups
            only.
        groups: Group numbers `(rows,)`, equal for rows that are not independent, such as pixels of
            one image. Rows are spread over the groups first.

    Returns:
        `n` distinct row numbers.

    """
    z = as_logits(logits)
    check_not_probabilities(z)
    return rows_of_any_logits(z, n, seed=seed, groups=groups)


def rows_of_any_logits(
    logits: ArrayLike, n: int, *, seed: int = 0, groups: ArrayLike | None = None
) -> RowNumbers:
    """`rows_to_label`, even if the logits look like probabilities."""
    z = as_logits(logits)
    check_rows(z)
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= len(z):
        raise InputError(f"expected a number of rows to label from 1 to {len(z)}, got {n!r}")
    if seed < 0:
        raise InputError(f"expected a seed of at least 0, got {seed}")
    order = labelling_order(z)
    rng = np.random.default_rng(seed)
    if groups is None:
        return order[_spread(len(z), int(n), rng)]
    return _spread_over_groups(order, as_row_groups(groups, len(z)), int(n), rng)


def labelling_order(logits: Logits) -> RowNumbers:
    """Row numbers by predicted class, and within it by confidence, rising and falling in turn.

    The turns make neighbours of two classes similar too. With confidences of 73%, 88% and 95% for
    both classes:

    >>> labelling_order(np.array([[1.0, 0], [2, 0], [3, 0], [0, 1], [0, 2], [0, 3]]))
    array([0, 1, 2, 5, 4, 3])
    """
    confidence = confidences(logits)
    classes = np.unique(logits.argmax(axis=1), return_inverse=True)[1]
    return np.lexsort((np.where(classes % 2, -confidence, confidence), classes))


def _spread(size: int, n: int, rng: np.random.Generator) -> RowNumbers:
    """`n` distinct positions out of `size`, evenly spread, each equally likely."""
    start = rng.random()
    places = np.empty(0, dtype=np.intp)
    steps = n
    while len(places) < n:  # if n is close to `size`, some steps hit a position that is taken
        at = ((start + GOLDEN * np.arange(steps)) % 1 * size).astype(np.intp)
        places = _first_met(np.minimum(at, size - 1))
        steps *= 2
    return places[:n]


def _spread_over_groups(
    order: RowNumbers, groups: NDArray[np.intp], n: int, rng: np.random.Generator
) -> RowNumbers:
    """Like `_spread`, in two dimensions.

    Over the groups, weighted by their rows, and over the rows within each.
    """
    by_group = order[np.argsort(groups[order], kind="stable")]
    count = np.bincount(groups)
    first = np.cumsum(count) - count
    across, along = rng.random(2)
    shuffled = rng.permutation(
        len(count)
    )  # neighbouring groups may be similar, such as frames of a film
    ends = np.cumsum(count[shuffled])
    taken = np.empty(0, dtype=np.intp)
    steps = n
    while len(taken) < n:
        k = np.arange(steps)
        at = np.minimum((across + PLASTIC[0] * k) % 1 * len(order), len(order) - 1)
        group = shuffled[np.searchsorted(ends, at, side="right")]
        within = ((along + PLASTIC[1] * k) % 1 * count[group]).astype(np.intp)
        taken = _first_met(first[group] + np.minimum(within, count[group] - 1))
        steps *= 2
    return by_group[taken[:n]]


def _first_met(places: RowNumbers) -> RowNumbers:
    """The positions without repetitions, in order."""
    return places[np.sort(np.unique(places, return_index=True)[1])]


def as_row_groups(groups: ArrayLike, n: int) -> NDArray[np.intp]:
    """Groups numbered from zero, one for each of `n` rows."""
    numbers = as_numpy(groups, "groups")
    if numbers.shape != (n,) or not is_integer(numbers):
        raise InputError(
            f"expected groups as {n} integers, got {numbers.dtype} of shape {numbers.shape}"
        )
    found: NDArray[np.intp] = np.unique(numbers, return_inverse=True)[1]
    return found


@dataclass(frozen=True, eq=False)
class LabelSample:
    """A person's labels, the rows they belong to, and how the rows were drawn.

    >>> sample = LabelSample([4, 0, 2], [1, CANNOT_TELL, NONE_OF_THESE])
    >>> len(sample), sample.rows
    (3, array([4, 0, 2]))

    Attributes:
        rows: Distinct row numbers of the target, of shape `(n,)`.
        labels: The class of each row, `CANNOT_TELL` or `NONE_OF_THESE`, of shape `(n,)`. A class is
            its position in the logits, from 0; floats that are whole numbers count as integers. If
            all labels are -1 or 1, there is a warning, since -1 is `CANNOT_TELL`.
        sampling: "stratified" if `rows_to_label` chose the rows, or "random" if they were drawn at
            random in another way. Rows chosen in any other way, such as those that are easy to
            label or look wrong, do not represent the target.
        seed: The seed passed to `rows_to_label`.
        pool: The rows that were drawn from, as row numbers, if these are not all rows: see
            `threshold_pool`. Such labels decide on a threshold; they do not represent the target.

    """

    rows: Any
    labels: Any
    sampling: Literal["stratified", "random"] = "stratified"
    seed: int = 0
    pool: Any = None

    def __post_init__(self) -> None:
        rows = as_numpy(self.rows, "rows")
        labels = as_numpy(self.labels, "labels")
        if rows.ndim != 1 or len(rows) == 0 or rows.shape != labels.shape:
            raise InputError(
                f"expected a label for each row, got shapes {rows.shape} and {labels.shape}"
            )
        if labels.dtype.kind == "f" and (np.isfinite(labels) & (labels == np.rint(labels))).all():
            labels = labels.astype(np.int64)
        for name, array in (("rows", rows), ("labels", labels)):
            if not is_integer(array):
                hint = "" if name == "rows" else class_positions(array)
                if name == "labels" and array.dtype == bool:
                    hint = ": pass labels.astype(int) if True is the second of two classes"
                raise InputError(
                    f"expected {name} that are integers, got dtype {array.dtype}{hint}"
                )
        if len(np.unique(rows)) < len(rows):
            repeated = int(np.sort(rows)[:-1][np.diff(np.sort(rows)) == 0][0])
            raise InputError(f"expected one label for each row, got several for row {repeated}")
        if self.sampling not in ("stratified", "random"):
            raise InputError(f"expected sampling 'stratified' or 'random', got {self.sampling!r}")
        if set(np.unique(labels).tolist()) == {CANNOT_TELL, 1}:
            warnings.warn(
                f"{int((labels == CANNOT_TELL).sum())} of {len(labels)} labels are {CANNOT_TELL}, "
                "which means 'cannot tell', and the others are 1. If -1 and 1 are your classes, "
                "pass their positions instead, 0 to classes - 1: "
                "np.searchsorted(model.classes_, labels)",
                UserWarning,
                stacklevel=3,  # after the __init__ of the dataclass
            )
        object.__setattr__(self, "rows", rows.astype(np.intp))
        object.__setattr__(self, "labels", labels.astype(np.int64))
        if self.pool is not None:
            object.__setattr__(self, "pool", self._checked_pool())

    def __len__(self) -> int:
        return len(self.rows)

    def _checked_pool(self) -> RowNumbers:
        pool = as_numpy(self.pool, "pool")
        if pool.ndim != 1 or not is_integer(pool):
            raise InputError(
                f"expected a pool of row numbers, got {pool.dtype} of shape {pool.shape}"
            )
        if self.sampling != "random":
            raise InputError("expected sampling 'random' for labels drawn from a pool")
        other = np.setdiff1d(self.rows, pool)
        if len(other):
            raise InputError(f"expected labels of rows of the pool, got row {other[0]}")
        return pool.astype(np.intp)


def check_label_sample(
    sample: LabelSample, logits: Logits, groups: ArrayLike | None = None
) -> RowNumbers:
    """Reject labels that are not classes, missing rows, and rows that are not a random sample.

    Returns:
        The rows in the order in which they are to be labelled. Rows drawn in another way are in the
        order given.

    """
    n, classes = logits.shape
    rows: RowNumbers = sample.rows
    labels = sample.labels
    if sample.pool is not None:
        raise InputError(
            f"expected labels that represent all rows, got labels drawn from {len(sample.pool)} of "
            f"{n} rows for a threshold: pass them to find_threshold"
        )
    if rows.min() < 0 or rows.max() >= n:
        bad = int(rows[(rows < 0) | (rows >= n)][0])
        raise InputError(f"expected row numbers from 0 to {n - 1}, got {bad}")
    invalid = (labels >= classes) | (labels < NONE_OF_THESE)
    if invalid.any():
        raise InputError(
            f"expected labels from 0 to {classes - 1}, CANNOT_TELL ({CANNOT_TELL}) or "
            f"NONE_OF_THESE ({NONE_OF_THESE}), got {labels[invalid][0]} for row {rows[invalid][0]}"
        )
    if sample.sampling == "random":
        return rows
    chosen = rows_of_any_logits(logits, len(rows), seed=sample.seed, groups=groups)
    other = np.setdiff1d(rows, chosen)
    if len(other):
        raise InputError(
            f"expected labels of the first {len(rows)} rows of rows_to_label with seed "
            f"{sample.seed}, got row {other[0]}, which is not one of them: rows chosen in another "
            "way are not a random sample of the target. Only if they were really drawn at random, "
            "pass sampling='random'. Label rows that the person could not label as CANNOT_TELL; do "
            "not skip them"
        )
    return chosen


@dataclass(frozen=True, eq=False)
class PixelPool:
    """Sampled pixels of many images as rows, of which a person labels some.

    Attributes:
        logits: The logits of each pixel, of shape `(n, classes)`.
        images: The number of its image, from 0, of shape `(n,)`.
        y: Its line in the map of logits, from the top, of shape `(n,)`.
        x: Its column, from the left, of shape `(n,)`.

    """

    logits: Logits
    images: RowNumbers
    y: RowNumbers
    x: RowNumbers


def pixel_pool(
    batches: Iterable[ArrayLike], *, pixels_per_image: int = 500, seed: int = 0
) -> PixelPool:
    """Sample pixels of each image.

    `rows_to_label(pool.logits, n, groups=pool.images)` chooses those to label. Pixels with -inf for
    every class, such as padding, are skipped. Large and small images count the same.

    >>> pool = pixel_pool([np.zeros((2, 3, 4, 5)), np.zeros((1, 3, 4, 5))], pixels_per_image=6)
    >>> pool.logits.shape, pool.images.max()
    ((18, 3), np.int64(2))

    Args:
        batches: Batches of maps, of shape `(images, classes, height, width)`.
        pixels_per_image: The largest number of pixels to sample from each image.
        seed: The seed of the sample.

    """
    check_pixels_per_image(pixels_per_image)
    rng = np.random.default_rng(seed)
    parts = []
    number = 0
    for batch in batches:
        maps: Maps = as_maps(batch)
        check_maps(maps)
        for image, classes in zip(maps, predicted(maps), strict=True):
            at = draw(np.flatnonzero(classes != nothing(len(image))), pixels_per_image, rng)
            y, x = np.unravel_index(at, classes.shape)
            parts.append((rows_at(image, at), np.full(len(at), number, dtype=np.intp), y, x))
            number += 1
    if not any(len(part[0]) for part in parts):
        raise InputError(
            f"expected maps with at least one pixel that has a class, got none in {number} images"
        )
    return PixelPool(*(np.concatenate(column) for column in zip(*parts, strict=True)))
