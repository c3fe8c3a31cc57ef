"""Metrics of segmentation.

Sums per image and per class that can be computed batch by batch and merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Maps, as_maps, check_temperature, cores
from pseudocal.maps import IGNORED, as_masks, check_classes
from pseudocal.metrics.images import independent_pixels, resized_rows
from pseudocal.metrics.outcomes import bin_of, clopper_pearson, equal_width
from pseudocal.metrics.scores import Reliability
from pseudocal.passes import Doubles

BAND = 1 << 18  # logits per band: with its scratch memory a band stays in a core's cache

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Segmented:
    """The sums of each image from which the metrics of segmentation are computed.

    About a kilobyte per image.

    >>> logits = np.log([[[[0.75, 0.5]], [[0.25, 0.5]]]])          # one image of two pixels
    >>> seen = Segmented.of(logits, [[[0, 1]]])
    >>> seen.accuracy, round(seen.ece, 3), seen.miou      # the IoU of the first class is 1/2, of the other 0
    (0.5, 0.375, 0.25)

    Batches of images are added up: `sum(Segmented.of(model(x), masks) for x, masks in loader)`.

    >>> (seen + seen).images, (seen + seen).miou
    (2, 0.25)

    Attributes:
        edges: The edges of the bins of confidence, `(bins + 1,)`.
        count: The number of pixels of each image and bin, `(images, bins)`.
        confidence_sum: The sum of their confidences, `(images, bins)`.
        correct_sum: The number of them that are right, `(images, bins)`.
        nll_sum: The sum of the negative log-likelihoods of each image, `(images,)`.
        brier_sum: The sum of the Brier scores of each image, `(images,)`.
        hits: The number of correctly predicted pixels of each class, `(images, classes)`.
        called: The number of pixels predicted as each class, `(images, classes)`.
        labelled: The number of pixels labelled as each class, `(images, classes)`.
        by_class: Count, sum of confidences and number right of each predicted class, `(classes, 3,
            bins)`.

    """

    edges: Doubles
    count: Counts
    confidence_sum: Doubles
    correct_sum: Counts
    nll_sum: Doubles
    brier_sum: Doubles
    hits: Counts
    called: Counts
    labelled: Counts
    by_class: Doubles

    @classmethod
    def of(
        cls,
        maps: ArrayLike,
        labels: ArrayLike,
        *,
        temperature: float = 1.0,
        ignore: int | None = IGNORED,
        bins: int = 15,
        align_corners: bool = False,
    ) -> Segmented:
        """Score the logits of images against their labels.

        Args:
            maps: Logits of shape `(n, classes, h, w)`.
            labels: Classes of shape `(n, height, width)`; logits of another size are resized to it.
            temperature: The number that the logits are divided by.
            ignore: The label of ignored pixels; None if there are none.
            bins: The number of bins of confidence.
            align_corners: Whether resizing aligns the centres of the corner pixels.

        """
        images = as_maps(maps)
        masks = as_masks(labels, len(images))
        scoring = _Scoring(
            1 / check_temperature(temperature), ignore, equal_width(bins), align_corners
        )
        return cls.concatenate(
            _image(image, mask, scoring) for image, mask in zip(images, masks, strict=True)
        )

    @classmethod
    def concatenate(cls, parts: Iterable[Segmented]) -> Segmented:
        """Join images in order, with a single copy; repeated `+` copies again and again."""
        parts = list(parts)
        if len({(tuple(part.edges), part.hits.shape[1]) for part in parts}) != 1:
            sizes = [
                f"{len(part.edges) - 1} bins and {part.hits.shape[1]} classes" for part in parts
            ]
            raise InputError(
                f"expected parts of the same bins and classes, got {' and '.join(sizes) or 'none'}"
            )
        joined = [
            np.concatenate(columns)
            for columns in zip(*(part._per_image() for part in parts), strict=True)
        ]
        return cls(parts[0].edges, *joined, np.sum([part.by_class for part in parts], axis=0))  # type: ignore[call-arg]

    def __add__(self, other: Segmented) -> Segmented:
        return Segmented.concatenate([self, other])

    def __radd__(self, other: int) -> Segmented:
        if other != 0:  # what `sum` starts from
            raise InputError(f"expected a Segmented to add, got {other!r}")
        return self

    def _per_image(self) -> tuple[NDArray[Any], ...]:
        return tuple(getattr(self, field.name) for field in fields(self)[1:-1])

    @property
    def images(self) -> int:
        """The number of images."""
        return len(self.count)

    @property
    def pixels(self) -> int:
        """The number of pixels that are not ignored."""
        return int(self.count.sum())

    def _counted(self) -> int:
        """The number of pixels that are not ignored; an error if there are none."""
        if self.pixels == 0:
            raise InputError(
                f"expected at least one pixel that is not ignored, got none in {self.images:,} "
                "images"
            )
        return self.pixels

    @property
    def reliability(self) -> Reliability:
        """The reliability diagram of all pixels."""
        self._counted()
        return Reliability(
            self.edges, self.count.sum(0), self.confidence_sum.sum(0), self.correct_sum.sum(0)
        )

    def accuracy_interval(self, level: float = 0.95) -> tuple[Doubles, Doubles]:
        """The interval of each bin's accuracy, NaN if it is empty.

        Pixels of one image are not taken as independent.

        Ten images without a mistake count as ten pixels, so the lower end is 0.025 ** (1 / 10):

        >>> seen = Segmented.of(np.zeros((10, 2, 9, 9)), np.zeros((10, 9, 9), int), bins=1)
        >>> low, high = seen.accuracy_interval()
        >>> low.round(4), high
        (array([0.6915]), array([1.]))
        """
        n = independent_pixels(self.correct_sum, self.count, level)
        fraction = self.reliability.accuracy
        low, high = clopper_pearson(np.nan_to_num(fraction) * n, n, level)
        return np.where(np.isnan(fraction), np.nan, low), np.where(np.isnan(fraction), np.nan, high)

    @property
    def ece(self) -> float:
        """The gap between confidence and accuracy, averaged over the pixels."""
        return self.reliability.ece

    @property
    def accuracy(self) -> float:
        """The fraction of pixels that are right."""
        return float(self.correct_sum.sum() / self._counted())

    @property
    def nll(self) -> float:
        """The mean negative log-likelihood of the labels, in nats."""
        return float(self.nll_sum.sum() / self._counted())

    @property
    def brier(self) -> float:
        """The mean squared error between probabilities and one-hot labels, summed over the classes."""
        return float(self.brier_sum.sum() / self._counted())

    @property
    def miou(self) -> float:
        """Intersection over union, averaged over the classes that occur in the labels or in the predictions."""
        self._counted()
        return float(np.nanmean(_iou(self.hits.sum(0), self.called.sum(0), self.labelled.sum(0))))

    def score(self) -> dict[str, float]:
        """Every metric by its name.

        >>> Segmented.of(np.zeros((1, 2, 1, 1)), [[[0]]]).score()
        {'accuracy': 1.0, 'nll': 0.693..., 'brier': 0.5, 'ece': 0.5, 'miou': 1.0}
        """
        return {name: getattr(self, name) for name in ("accuracy", "nll", "brier", "ece", "miou")}

    def classes(self, names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """For each class its pixels, IoU and recall, and the precision, confidence and ECE of its predictions."""
        labelled = self.labelled.sum(0)
        called = self.called.sum(0)
        hits = self.hits.sum(0)
        iou = _iou(hits, called, labelled)
        gaps = np.abs(self.by_class[:, 1] - self.by_class[:, 2]).sum(axis=1)
        return [
            {
                "class": names[c] if c < len(names) else str(c),
                "pixels": int(labelled[c]),
                "iou": float(iou[c]),
                "recall": _fraction(hits[c], labelled[c]),
                "precision": _fraction(hits[c], called[c]),
                "confidence": _fraction(self.by_class[c, 1].sum(), called[c]),
                "ece": _fraction(gaps[c], called[c]),
            }
            for c in range(len(labelled))
        ]

    def each(self) -> dict[str, Doubles]:
        """The metrics of each image, `(images,)`; NaN if all its pixels are ignored."""
        n = np.where(self.count.sum(1) > 0, self.count.sum(1), np.nan)
        return {
            "accuracy": self.correct_sum.sum(1) / n,
            "confidence": self.confidence_sum.sum(1) / n,
            "nll": self.nll_sum / n,
            "brier": self.brier_sum / n,
            "ece": np.abs(self.confidence_sum - self.correct_sum).sum(1) / n,
        }


def _iou(hits: Floats, called: Floats, labelled: Floats) -> Floats:
    union = called + labelled - hits
    iou: Floats = np.divide(hits, union, out=np.full(np.shape(hits), np.nan), where=union > 0)
    return iou


def _fraction(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")


class _Scoring(NamedTuple):
    scale: float
    ignore: int | None
    edges: Doubles
    align_corners: bool


def _image(image: Maps, mask: NDArray[Any], scoring: _Scoring) -> Segmented:
    """Sums over the pixels of one image, computed in bands on all cores and added in a fixed order."""
    height, width = mask.shape
    step = max(1, BAND // (len(image) * width))
    bands = [slice(start, min(start + step, height)) for start in range(0, height, step)]
    sums = partial(_band, image, mask, scoring)
    if len(bands) == 1:
        parts = [sums(bands[0])]
    else:
        with ThreadPoolExecutor(cores()) as pool:
            parts = list(pool.map(sums, bands))
    cells, labelled, nll, brier = (
        np.sum(part, axis=0) for part in zip(*parts, strict=True)
    )  # (3, classes, bins), ...
    count, confidence, correct = cells
    return Segmented(
        edges=scoring.edges,
        count=count.sum(0)[None].astype(np.int64),
        confidence_sum=confidence.sum(0)[None],
        correct_sum=correct.sum(0)[None].astype(np.int64),
        nll_sum=np.array([nll]),
        brier_sum=np.array([brier]),
        hits=correct.sum(1)[None].astype(np.int64),
        called=count.sum(1)[None].astype(np.int64),
        labelled=labelled[None],
        by_class=cells.transpose(1, 0, 2),
    )


def _band(
    image: Maps, mask: NDArray[Any], scoring: _Scoring, rows: slice
) -> tuple[Doubles, Counts, float, float]:
    """Sums over a band of an image, resized to its mask."""
    classes = len(image)
    labels = mask[rows]
    ignore = scoring.ignore
    valid = np.ones(labels.shape, dtype=bool) if ignore is None else labels != ignore
    check_classes(labels, valid, classes, top=rows.start)
    if image.shape[1:] == mask.shape:
        z = image[:, rows].astype(np.float32)
    else:
        z = resized_rows(
            image, (mask.shape[0], mask.shape[1]), rows, align_corners=scoring.align_corners
        )
    z = z.reshape(classes, -1) if valid.all() else z[:, valid]
    return _sums(z, labels[valid], scoring.scale, scoring.edges)


def _sums(
    z: Floats, labels: NDArray[Any], scale: float, edges: Doubles
) -> tuple[Doubles, Counts, float, float]:
    """Sums over pixels of logits `(classes, m)`, which are overwritten."""
    classes = len(z)
    bins = len(edges) - 1
    called = z.argmax(axis=0)
    z *= np.float32(scale)
    with np.errstate(invalid="ignore"):  # rejected just below
        z -= z.max(axis=0)
    if np.isnan(z.min(initial=0)):
        raise InputError(
            "expected logits below +inf, one of them finite at each pixel that counts, got NaN or "
            "inf"
        )
    at_label = z.reshape(-1)[labels * np.intp(z.shape[1]) + np.arange(z.shape[1])]
    np.exp(z, out=z)
    total = z.sum(axis=0)
    confidence = (1 / total).astype(np.float64)
    nll = float(np.sum(np.log(total) - at_label, dtype=np.float64))
    squares = np.einsum("cm,cm->m", z, z) / total**2
    brier = float(np.sum(squares - 2 * np.exp(at_label) / total + 1, dtype=np.float64))
    cell = called * bins + bin_of(confidence, edges)
    right = called == labels
    sums = np.stack(
        [
            np.bincount(cell, minlength=classes * bins),
            np.bincount(cell, confidence, classes * bins),
            np.bincount(cell[right], minlength=classes * bins),
        ]
    ).reshape(3, classes, bins)
    return sums.astype(np.float64), np.bincount(labels, minlength=classes), nll, brier
