"""Summarise predictions for a report as they come, from a classifier or a segmenter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.report.images import map_images
from pseudocal.app.report.predictions import Confidences, class_name
from pseudocal.app.report.sections import MapImages, Segmentation
from pseudocal.arrays import Labelled, Labels, Logits, Maps
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Outcomes, Segmented
from pseudocal.metrics.images import ImageRow
from pseudocal.metrics.outcomes import bin_of, equal_width
from pseudocal.passes import Doubles
from pseudocal.scaling import TemperatureScaling

BINS = 15  # bins of the histogram of confidences, as in the reliability diagrams
THRESHOLDS = (
    0.0,
    *(np.arange(30, 90, 5) / 100).tolist(),
    0.9,
    0.95,
    0.97,
    0.98,
    0.99,
    0.995,
)  # of confidence
EXAMPLES = 12  # inputs in each list of examples
MAPS = 6  # images that are shown pixel by pixel
JOINED = 256  # images whose sums are joined, since joined sums take less memory


class Candidate(NamedTuple):
    """An input that may be shown as an example, with its confidence before and after calibration."""

    name: str
    class_name: str
    before: float
    after: float
    image_file: Path | None = None
    label: str | None = None
    text: str | None = None


ORDERS = {"changed": lambda one: -abs(one.after - one.before), "unsure": lambda one: one.after}


@dataclass(eq=False)
class Tally:
    """Sums over predictions, and the best examples.

    Its size does not grow with the number of inputs.

    Attributes:
        histogram: predictions in each bin of confidence before and after, `(2, bins)`.
        moved: sums of the confidences before and after of the predictions in each bin before, `(2,
            bins)`.
        by_class: predictions of each class, the sums of their confidences before and after, and how
            many are right, `(4, classes)`; NaN if that is not known.
        selection: predictions by the largest threshold that they reach after calibration, the sums
            of their confidences after, and how many are right, `(3, thresholds)`.
        shown: the best candidates for each list of examples, best first.

    """

    histogram: Doubles = field(default_factory=lambda: np.zeros((2, BINS)))
    moved: Doubles = field(default_factory=lambda: np.zeros((2, BINS)))
    by_class: Any = 0.0
    selection: Doubles = field(default_factory=lambda: np.zeros((3, len(THRESHOLDS))))
    shown: dict[str, list[Candidate]] = field(default_factory=lambda: {key: [] for key in ORDERS})

    def add(
        self,
        predicted: NDArray[Any],
        both: Sequence[Doubles],
        classes: int,
        *,
        weights: NDArray[Any] | None = None,
        right: NDArray[Any] | None = None,
    ) -> None:
        """Add the predicted classes of inputs or pixels, their confidences before and after, and which are right."""
        weights = np.ones(len(predicted)) if weights is None else weights
        before, after = (one * weights for one in both)
        known = np.full(len(predicted), np.nan) if right is None else right * weights
        bins = [bin_of(one, equal_width(BINS)) for one in both]
        level = np.searchsorted(THRESHOLDS, both[1], side="right") - 1
        self.histogram += [np.bincount(k, weights, BINS) for k in bins]
        self.moved += [np.bincount(bins[0], part, BINS) for part in (before, after)]
        sums = [np.bincount(predicted, part, classes) for part in (weights, before, after, known)]
        self.by_class = self.by_class + np.stack(sums)
        self.selection += [
            np.bincount(level, part, len(THRESHOLDS)) for part in (weights, after, known)
        ]

    def consider(self, candidates: Sequence[Candidate]) -> None:
        """Keep the best candidates so far; on ties, the earlier one."""
        for key, order in ORDERS.items():
            self.shown[key] = sorted((*self.shown[key], *candidates), key=order)[:EXAMPLES]


@dataclass(eq=False)
class RowSummary:
    """The summary of a classifier's predictions, built chunk by chunk.

    >>> from pseudocal import TemperatureScaling
    >>> summary = RowSummary(Calibration("pseudocal", TemperatureScaling(2.0)), ["cat", "dog"])
    >>> logits = np.array([[0.0, np.log(9.0)]])
    >>> summary.add(logits, Confidences.of(logits, summary.calibration), ["a.png"])
    >>> summary.tally.shown["changed"][0].class_name
    'dog'

    Attributes:
        calibration: the calibration to apply.
        classes: the class names, as far as they are known.
        tally: the sums so far.

    """

    calibration: Calibration
    classes: Sequence[str] = ()
    tally: Tally = field(default_factory=Tally)
    _outcomes: list[tuple[Outcomes, Outcomes]] = field(default_factory=list)

    segmentation: ClassVar[None] = None

    def add(
        self,
        logits: Logits,
        confidences: Confidences,
        names: Sequence[str],
        *,
        image_files: Sequence[Path | None] | None = None,
        texts: Sequence[str] | None = None,
        ground_truth: Labels | None = None,
    ) -> None:
        """Add some rows.

        Args:
            logits: `(n, classes)`, few enough to be processed at once: see `row_chunks`.
            confidences: their most likely classes before and after calibration.
            names: the name of each input.
            image_files: the image file of each input, None for inputs without one.
            texts: the inputs, if they are texts.
            ground_truth: the true classes `(n,)`, for evaluation only; given in every call or in
                none.

        """
        predicted = confidences.top[:, 0]
        before = confidences.before[:, 0].astype(np.float64)
        after = confidences.after[:, 0].astype(np.float64)
        right = None if ground_truth is None else predicted == ground_truth
        self.tally.add(predicted, (before, after), logits.shape[1], right=right)
        for i in _best(before, after):
            label = None
            if ground_truth is not None:
                label = class_name(int(ground_truth[i]), self.classes)
            candidate = Candidate(
                names[i],
                class_name(int(predicted[i]), self.classes),
                float(before[i]),
                float(after[i]),
                None if image_files is None else image_files[i],
                label,
                None if texts is None else texts[i],
            )
            self.tally.consider([candidate])
        if ground_truth is not None:
            scaled = TemperatureScaling(judged_temperature(self.calibration))(logits)
            outcomes = (Outcomes.from_logits(each, ground_truth) for each in (logits, scaled))
            self._outcomes.append((next(outcomes), next(outcomes)))

    def seen(self) -> tuple[Outcomes, Outcomes] | None:
        """Return the outcomes before and after calibration, also if T was refused.

        None without labels.
        """
        if not self._outcomes:
            return None
        before, after = (Outcomes.concatenate(parts) for parts in zip(*self._outcomes, strict=True))
        return before, after


@dataclass(eq=False)
class ImageSummary:
    """The summary of a segmenter's predictions, built image by image.

    Attributes:
        calibration: the calibration to apply.
        classes: the class names, as far as they are known.
        tally: the sums so far.

    """

    calibration: Calibration
    classes: Sequence[str] = ()
    tally: Tally = field(default_factory=Tally)
    _maps: list[MapImages] = field(default_factory=list)
    _sums: list[tuple[Segmented, Segmented]] = field(default_factory=list)

    def measure(self, image: Maps, mask: NDArray[Any]) -> None:
        """Add the labels of one image, for evaluation only.

        Args:
            image: logits `(classes, height, width)`.
            mask: the true classes `(height, width)`.

        """
        judged = judged_temperature(self.calibration)
        before, after = (Segmented.of(image, mask, temperature=t) for t in (1.0, judged))
        self._sums.append((before, after))
        if len(self._sums) >= JOINED:
            self._sums = [self._joined()]

    def add_row(self, name: str, row: ImageRow, *, image_file: Path | None = None) -> None:
        """Consider one image as an example.

        Args:
            name: the name of the image.
            row: its class shares and mean confidences.
            image_file: its file.

        """
        if not np.isnan(row.after):
            predicted = f"mostly {class_name(int(row.fractions.argmax()), self.classes)}"
            self.tally.consider([Candidate(name, predicted, row.before, row.after, image_file)])

    def add_sample(self, pixels: Labelled) -> None:
        """Add the logits of a weighted sample of the pixels of all images.

        Args:
            pixels: the sample.

        """
        seen = Confidences.of(pixels.logits, self.calibration)
        both = [part[:, 0].astype(np.float64) for part in (seen.before, seen.after)]
        self.tally.add(seen.top[:, 0], both, pixels.logits.shape[1], weights=pixels.weights)

    def show(
        self,
        image: Maps,
        name: str,
        *,
        image_file: Path | None = None,
        mask: NDArray[Any] | None = None,
    ) -> None:
        """Draw one image pixel by pixel, unless there are enough already.

        Args:
            image: logits `(classes, height, width)`.
            name: the name of the image.
            image_file: its file.
            mask: the true classes `(height, width)`, for evaluation only.

        """
        if len(self._maps) < MAPS:
            self._maps.append(
                map_images(image, name, self.calibration.temperature, image_file, mask)
            )

    def seen(self) -> tuple[Segmented, Segmented] | None:
        """Return the sums before and after calibration, also if T was refused.

        None without masks.
        """
        return self._joined() if self._sums else None

    def _joined(self) -> tuple[Segmented, Segmented]:
        before, after = (Segmented.concatenate(parts) for parts in zip(*self._sums, strict=True))
        return before, after

    @property
    def segmentation(self) -> Segmentation:
        """A few images as maps, and the table of classes, which has IoU, precision and ECE if there are masks."""
        pixels, before, after, _ = self.tally.by_class
        seen = self.seen()
        tables = [] if seen is None else [part.classes() for part in seen]
        refused = self.calibration.refused is not None
        header = ["class", "fraction of pixels"]
        header += ["confidence"] if refused else ["confidence before", "confidence after"]
        if tables:
            header += [
                "IoU",
                "precision",
                "ECE before",
                "ECE with the refused T" if refused else "ECE after",
            ]
        rows = []
        for c in np.flatnonzero(pixels).tolist():
            values = [
                pixels[c] / pixels.sum(),
                *(part[c] / pixels[c] for part in (before, after)[: 2 - refused]),
            ]
            if tables:
                old = tables[0][c]
                new = tables[1][c]
                values += [old["iou"], old["precision"], old["ece"], new["ece"]]
            rows.append(
                (class_name(c, self.classes), *("-" if np.isnan(v) else f"{v:.1%}" for v in values))
            )
        return Segmentation(tuple(self._maps), tuple(header), tuple(rows))


Summary = RowSummary | ImageSummary


def judged_temperature(calibration: Calibration) -> float:
    """Return the temperature that the verdict is about.

    The one that applies, or the one that was refused.

    >>> from pseudocal import TemperatureScaling
    >>> judged_temperature(Calibration("pseudocal", TemperatureScaling(1.0), refused=3.0))
    3.0
    """
    return calibration.refused or calibration.temperature


def _best(before: Doubles, after: Doubles) -> list[int]:
    """Return the rows that may be among the examples, in ascending order.

    >>> _best(np.array([0.9, 0.8]), np.array([0.5, 0.7]))
    [0, 1]
    """
    orders = (np.argsort(-np.abs(after - before), kind="stable"), np.argsort(after, kind="stable"))
    return sorted({int(i) for order in orders for i in order[:EXAMPLES]})
