"""Ridge regression to classes with some folds left out, from one sum of outer products for each fold.

Leaving folds out is leaving their sums out, so a model for every pair of five folds costs one pass
over the rows and fifteen solutions. If there are fewer rows than features, rows are first projected
onto the space that they span, which changes no prediction: then the sums are as small as the kernel
matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Floats
from pseudocal.mixup.pairs import Classes, Numbers

Rows32 = NDArray[np.float32]

SURROGATE_FOLDS = 5
ROWS_TO_STRENGTH = 130  # rows per unit of the ridge; rows have unit length
CHUNK_OF_ROWS = 2**25  # bytes of float64 rows that are processed at a time


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Rows minus the mean of all, at unit length.

    >>> x = np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 5.0], [2.0, -5.0]])
    >>> UnitRows.fitted(x, np.arange(4)).of(x).tolist()
    [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]

    Attributes:
        mean: The mean of each column.
        scale: What each column is divided by.
        basis: The columns span the space that rows are projected onto; None for all of it.

    """

    mean: Floats
    scale: Floats
    basis: Rows32 | None = None

    @classmethod
    def fitted(cls, x: NDArray[Any], at: Numbers, *, scaled: bool = False) -> UnitRows:
        """From the rows of `x` at some places, in that order.

        Args:
            x: The rows, `(n, d)`.
            at: The numbers of those that count.
            scaled: Whether to divide columns by their standard deviation.

        """
        mean = sum(x[part].astype(np.float64).sum(axis=0) for part in _chunks(x, at)) / len(at)
        scale = np.ones_like(mean)
        if scaled:
            scale = np.sqrt(
                sum(((x[part] - mean) ** 2).sum(axis=0) for part in _chunks(x, at)) / len(at)
            )
            scale[scale == 0] = 1.0
        plain = cls(mean, scale)
        if len(at) >= x.shape[1]:
            return plain
        return cls(mean, scale, np.linalg.qr(plain.of(x[at]).T)[0])

    def of(self, x: NDArray[Any]) -> Rows32:
        """The rows at unit length, as float32; a row at the mean stays zero."""
        centred = (x - self.mean) / self.scale
        length = np.sqrt((centred**2).sum(axis=1, keepdims=True))
        unit = (centred / np.where(length > 0, length, 1.0)).astype(np.float32)
        return unit if self.basis is None else unit @ self.basis


@dataclass(frozen=True, eq=False)
class FoldedRidge:
    """Ridge regressions to classes, each of which leaves some folds out.

    Two points of each of two classes; each is classified by the folds that it is not in:

    >>> x = np.array([[5.0, 1.0], [5.0, -1.0], [-5.0, 1.0], [-5.0, -1.0]])
    >>> at, folds = np.arange(4), np.array([0, 1, 2, 3])
    >>> ridge = FoldedRidge.fitted(UnitRows.fitted(x, at), x, np.array([0, 0, 1, 1]), at, folds, 2)
    >>> ridge.classes(x, at, folds[:, None])
    array([0, 0, 1, 1])

    Attributes:
        unit: Prepares rows.
        outer: The sum of the outer products of the rows of each fold with themselves, `(folds, d,
            d)`.
        cross: The sum of the rows of each fold and class, `(folds, d, classes)`.
        counts: The number of rows of each fold.

    """

    unit: UnitRows
    outer: Floats
    cross: Floats
    counts: NDArray[np.int64]

    @classmethod
    def fitted(
        cls,
        unit: UnitRows,
        x: NDArray[Any],
        labels: Classes,
        at: Numbers,
        folds: Classes,
        classes: int,
    ) -> FoldedRidge:
        """Sum over rows, in their order.

        Args:
            unit: Prepares rows.
            x: The rows, `(n, d)`.
            labels: Their classes, `(n,)`.
            at: The numbers of those to learn from.
            folds: The fold of each of those.
            classes: The number of classes.

        """
        width = x.shape[1] if unit.basis is None else unit.basis.shape[1]
        outer = np.zeros((SURROGATE_FOLDS, width, width))
        cross = np.zeros((SURROGATE_FOLDS, width, classes))
        for fold in range(SURROGATE_FOLDS):
            for part in _chunks(x, at[folds == fold]):
                rows = unit.of(x[part])
                outer[fold] += rows.T @ rows
                cross[fold] += rows.T @ np.eye(classes, dtype=np.float32)[labels[part]]
        return cls(unit, outer, cross, np.bincount(folds, minlength=SURROGATE_FOLDS))

    def weights(self, skipped: frozenset[int]) -> Rows32:
        """The coefficients `(d, classes)` without some folds.

        With so strong a ridge float32 is exact enough.
        """
        from scipy.linalg import solve

        kept = [fold for fold in range(SURROGATE_FOLDS) if fold not in skipped]
        matrix, sums = (each[kept].sum(axis=0) for each in (self.outer, self.cross))
        matrix[np.diag_indices_from(matrix)] += max(1, self.counts[kept].sum()) / ROWS_TO_STRENGTH
        found: Rows32 = solve(matrix.astype(np.float32), sums.astype(np.float32), assume_a="pos")
        return found

    def classes(self, x: NDArray[Any], at: Numbers, without: Classes) -> Classes:
        """The class of rows, each by the regression without certain folds.

        Args:
            x: The rows, `(n, d)`.
            at: The numbers of those to classify.
            without: The folds to leave out for each of those, `(m, k)`.

        """
        found = np.zeros(len(at), dtype=np.int64)
        sets = np.sort(without, axis=1)
        for skipped in np.unique(sets, axis=0):
            weights = self.weights(frozenset(skipped.tolist()))
            places = np.flatnonzero((sets == skipped).all(axis=1))
            for part in _chunks(x, places):
                found[part] = (self.unit.of(x[at[part]]) @ weights).argmax(axis=1)
        return found


def _chunks(x: NDArray[Any], at: Numbers) -> Iterator[Numbers]:
    """The numbers of rows in pieces whose rows are of bounded size."""
    step = max(1, CHUNK_OF_ROWS // (8 * x.shape[1]))
    return (at[start : start + step] for start in range(0, len(at), step))
