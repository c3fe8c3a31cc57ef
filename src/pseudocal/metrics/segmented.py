"""How good the confidences of pixels are: sums that stream and merge, per class and per image."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Maps, as_maps, check_temperature, cores
from pseudocal.maps import IGNORED, as_masks, check_classes
from pseudocal.metrics.blocks import Column
from pseudocal.metrics.proportions import clopper_pearson, independent_pixels
from pseudocal.metrics.reliability import Reliability, bin_of, equal_width
from pseudocal.metrics.resize import resized_rows

BLOCK = 1 << 18  # logits per block: with its scratch it stays in a core's cache

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Segmented:
    """What the metrics of segmentation need of each image: a kilobyte, however many pixels it has.

    >>> logits = np.log([[[[0.75, 0.5]], [[0.25, 0.5]]]])          # one image of two pixels
    >>> seen = Segmented.of(logits, [[[0, 1]]])
    >>> seen.accuracy, round(seen.ece, 3), seen.miou      # of the first class one pixel of two, of the other none
    (0.5, 0.375, 0.25)

    Images are added up as they come: `sum(Segmented.of(model(x), masks) for x, masks in loader)`.

    >>> (seen + seen).images, (seen + seen).miou
    (2, 0.25)
    """

    edges: Column  # (bins + 1,)
    count: Counts  # (images, bins), and so are the next two
    confidence_sum: Column
    correct_sum: Counts
    nll_sum: Column  # (images,)
    brier_sum: Column  # (images,)
    hits: Counts  # (images, classes): pixels that are and are called so
    called: Counts  # (images, classes)
    labelled: Counts  # (images, classes)
    by_class: Column  # (classes, 3, bins): count, confidence and right of the pixels that are called so

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
        """Score logits `(n, classes, h, w)`, divided by `temperature`, against labels `(n, height, width)`.

        Where the labels lie denser than the logits, the logits are resized, bilinearly, a few rows at a time.
        """
        images = as_maps(maps)
        masks = as_masks(labels, len(images))
        check_temperature(temperature)
        edges = equal_width(bins)
        parts = [
            _image(image, mask, temperature, ignore, edges, align_corners)
            for image, mask in zip(images, masks, strict=True)
        ]
        return sum(parts[1:], start=parts[0])

    def __add__(self, other: Segmented) -> Segmented:
        if not np.array_equal(self.edges, other.edges) or self.hits.shape[1] != other.hits.shape[1]:
            raise InputError("expected the same bins and classes on both sides, got others")
        joined = [np.concatenate([a, b]) for a, b in zip(self._per_image(), other._per_image(), strict=True)]
        return Segmented(self.edges, *joined, self.by_class + other.by_class)  # type: ignore[call-arg]

    def __radd__(self, other: int) -> Segmented:
        if other != 0:  # what `sum` starts from
            raise InputError(f"expected a Segmented to add, got {other!r}")
        return self

    def _per_image(self) -> tuple[NDArray[Any], ...]:
        return (
            self.count,
            self.confidence_sum,
            self.correct_sum,
            self.nll_sum,
            self.brier_sum,
            self.hits,
            self.called,
            self.labelled,
        )

    @property
    def images(self) -> int:
        """How many images were seen."""
        return len(self.count)

    @property
    def pixels(self) -> int:
        """How many pixels counted."""
        return int(self.count.sum())

    def _counted(self) -> int:
        """How many pixels counted, for the metrics, which are means over them."""
        if self.pixels == 0:
            raise InputError(f"expected at least one pixel that is not ignored, got none in {self.images:,} images")
        return self.pixels

    @property
    def reliability(self) -> Reliability:
        """Confidence against accuracy of all pixels, bin by bin."""
        self._counted()
        return Reliability(self.edges, self.count.sum(0), self.confidence_sum.sum(0), self.correct_sum.sum(0))

    def accuracy_interval(self, level: float = 0.95) -> tuple[Column, Column]:
        """The interval of each bin's accuracy, as of so many images rather than of so many pixels; NaN if it is empty.

        Ten images that are right as a whole are like ten pixels: they leave room for doubt down to 0.025 ** (1 / 10).

        >>> seen = Segmented.of(np.zeros((10, 2, 9, 9)), np.zeros((10, 9, 9), int), bins=1)
        >>> low, high = seen.accuracy_interval()
        >>> low.round(4), high
        (array([0.6915]), array([1.]))
        """
        n = independent_pixels(self.correct_sum, self.count, level)
        share = self.reliability.accuracy
        low, high = clopper_pearson(np.nan_to_num(share) * n, n, level)
        return np.where(np.isnan(share), np.nan, low), np.where(np.isnan(share), np.nan, high)

    @property
    def ece(self) -> float:
        """The gap between confidence and accuracy, averaged over the pixels."""
        return self.reliability.ece

    @property
    def accuracy(self) -> float:
        """The share of pixels that are right."""
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
        """Intersection over union, averaged over the classes that occur in the labels or among the predictions."""
        self._counted()
        return float(np.nanmean(_iou(self.hits.sum(0), self.called.sum(0), self.labelled.sum(0))))

    def score(self) -> dict[str, float]:
        """Every metric by its name.

        >>> Segmented.of(np.zeros((1, 2, 1, 1)), [[[0]]]).score()
        {'accuracy': 1.0, 'nll': 0.693..., 'brier': 0.5, 'ece': 0.5, 'miou': 1.0}
        """
        return {name: getattr(self, name) for name in ("accuracy", "nll", "brier", "ece", "miou")}

    def classes(self, names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """A row for each class: its pixels, IoU and recall; and of what is called so, precision, confidence and ECE."""
        labelled, called, hits = self.labelled.sum(0), self.called.sum(0), self.hits.sum(0)
        iou, gaps = _iou(hits, called, labelled), np.abs(self.by_class[:, 1] - self.by_class[:, 2]).sum(axis=1)
        return [
            {
                "class": names[c] if c < len(names) else str(c),
                "pixels": int(labelled[c]),
                "iou": float(iou[c]),
                "recall": _share(hits[c], labelled[c]),
                "precision": _share(hits[c], called[c]),
                "confidence": _share(self.by_class[c, 1].sum(), called[c]),
                "ece": _share(gaps[c], called[c]),
            }
            for c in range(len(labelled))
        ]

    def each(self) -> dict[str, Column]:
        """The metrics of each image by itself, `(images,)`; NaN where no pixel counts."""
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


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")


def _image(
    image: Maps, mask: NDArray[Any], temperature: float, ignore: int | None, edges: Column, corners: bool
) -> Segmented:
    """Sums over the pixels of one image, a band of rows at a time on every core; added up in a fixed order."""
    size = (mask.shape[0], mask.shape[1])
    step = max(1, BLOCK // (len(image) * size[1]))
    bands = [slice(start, min(start + step, size[0])) for start in range(0, size[0], step)]
    sums = partial(_band, image, mask, size, 1 / temperature, ignore, edges, corners)
    if len(bands) == 1:
        parts = [sums(bands[0])]
    else:
        with ThreadPoolExecutor(cores()) as pool:
            parts = list(pool.map(sums, bands))
    cells, labelled, nll, brier = (np.sum(part, axis=0) for part in zip(*parts, strict=True))  # (3, classes, bins), ...
    count, confidence, correct = cells
    return Segmented(
        edges,
        count.sum(0)[None].astype(np.int64),
        confidence.sum(0)[None],
        correct.sum(0)[None].astype(np.int64),
        np.array([nll]),
        np.array([brier]),
        correct.sum(1)[None].astype(np.int64),
        count.sum(1)[None].astype(np.int64),
        labelled[None],
        cells.transpose(1, 0, 2),
    )


def _band(
    image: Maps,
    mask: NDArray[Any],
    size: tuple[int, int],
    b: float,
    ignore: int | None,
    edges: Column,
    corners: bool,
    rows: slice,
) -> tuple[Column, Counts, float, float]:
    classes, bins = len(image), len(edges) - 1
    labels = mask[rows]
    valid = np.ones(labels.shape, dtype=bool) if ignore is None else labels != ignore
    check_classes(labels, valid, classes, top=rows.start)
    same = image.shape[1:] == size
    z = image[:, rows].astype(np.float32) if same else resized_rows(image, size, rows, align_corners=corners)
    z = z.reshape(classes, -1) if valid.all() else z[:, valid]
    return _sums(z, labels[valid], b, edges, bins)


def _sums(z: Floats, labels: NDArray[Any], b: float, edges: Column, bins: int) -> tuple[Column, Counts, float, float]:
    """Sums over pixels of logits `(classes, m)`, which are overwritten."""
    classes = len(z)
    called = z.argmax(axis=0)
    z *= np.float32(b)
    with np.errstate(invalid="ignore"):  # told in words
        z -= z.max(axis=0)
    if np.isnan(z.min(initial=0)):
        raise InputError("expected logits below +inf, one of them finite at each pixel that counts, got others")
    at_label = z.reshape(-1)[labels * np.intp(z.shape[1]) + np.arange(z.shape[1])]
    np.exp(z, out=z)
    total = z.sum(axis=0)
    confidence = (1 / total).astype(np.float64)
    nll = float(np.sum(np.log(total) - at_label, dtype=np.float64))
    squares = np.einsum("cm,cm->m", z, z) / total**2
    brier = float(np.sum(squares - 2 * np.exp(at_label) / total + 1, dtype=np.float64))
    cell, right = called * bins + bin_of(confidence, edges), called == labels
    sums = np.stack(
        [
            np.bincount(cell, minlength=classes * bins),
            np.bincount(cell, confidence, classes * bins),
            np.bincount(cell[right], minlength=classes * bins),
        ]
    ).reshape(3, classes, bins)
    return sums.astype(np.float64), np.bincount(labels, minlength=classes), nll, brier
