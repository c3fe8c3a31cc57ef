"""Running sums over the predictions of a classifier or a segmentation model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.report.images import map_images
from pseudocal.app.report.predictions import Confidences, class_name
from pseudocal.app.report.record import MapImages, Unit
from pseudocal.arrays import Labelled, Labels, Logits, Maps
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Outcomes, Segmented
from pseudocal.metrics.images import ImageRow
from pseudocal.metrics.outcomes import bin_of, equal_width
from pseudocal.passes import Doubles
from pseudocal.scaling import TemperatureScaling

BINS = 15  # bins of the histogram of confidences, as in the reliability diagrams
# thresholds of confidence
THRESHOLDS = (0.0, *(np.arange(30, 90, 5) / 100).tolist(), 0.9, 0.95, 0.97, 0.98, 0.99, 0.995)
EXAMPLES = 12  # inputs in each list of examples
MAPS = 6  # images that are shown pixel by pixel
JOINED = 256  # images whose sums are joined, since joined sums take less memory


class Candidate(NamedTuple):
    """An input that may be shown as an example, with its confidence before and after."""

    name: str
    class_name: str
    before: float
    after: float
    image_file: Path | None = None
    true_class: str | None = None
    text: str | None = None


class ClassScores(NamedTuple):
    """The scores of a class of a segmentation model; NaN where they are undefined."""

    precision: float
    iou: float
    ece_before: float
    ece_after: float


ORDERS = {
    "changed": lambda one: -abs(one.after - one.before),
    "least_confident": lambda one: one.after,
}


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
        both: tuple[Doubles, Doubles],
        classes: int,
        *,
        weights: NDArray[Any] | None = None,
        right: NDArray[Any] | None = None,
    ) -> None:
        """Add predictions.

        Args:
            predicted: the predicted class of each input or pixel.
            both: their confidences before and after calibration.
            classes: the number of classes.
            weights: their weights; None if they count alike.
            right: which are right; None if unknown.

        """
        if weights is None:
            weights = np.ones(len(predicted))
        known = np.full(len(predicted), np.nan) if right is None else right * weights
        before, after = both
        bins = bin_of(before, equal_width(BINS))
        bins_after = bin_of(after, equal_width(BINS))
        level = np.searchsorted(THRESHOLDS, after, side="right") - 1
        sums = (weights, before * weights, after * weights, known)
        self.histogram[0] += np.bincount(bins, weights, BINS)
        self.histogram[1] += np.bincount(bins_after, weights, BINS)
        self.moved[0] += np.bincount(bins, before * weights, BINS)
        self.moved[1] += np.bincount(bins, after * weights, BINS)
        by_class = [np.bincount(predicted, part, classes) for part in sums]
        self.by_class = self.by_class + np.stack(by_class)
        kept = (weights, after * weights, known)
        self.selection += [np.bincount(level, part, len(THRESHOLDS)) for part in kept]

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

    unit: ClassVar[Unit] = "inputs"

    @property
    def maps(self) -> tuple[MapImages, ...]:
        """None: a classifier has no maps."""
        return ()

    def class_scores(self) -> None:
        """None: the sums have the precision of each class already."""

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
            true_class = None
            if ground_truth is not None:
                true_class = class_name(int(ground_truth[i]), self.classes)
            candidate = Candidate(
                names[i],
                class_name(int(predicted[i]), self.classes),
                float(before[i]),
                float(after[i]),
                None if image_files is None else image_files[i],
                true_class,
                None if texts is None else texts[i],
            )
            self.tally.consider([candidate])
        if ground_truth is not None:
            scaled = TemperatureScaling(judged_temperature(self.calibration))(logits)
            old = Outcomes.from_logits(logits, ground_truth)
            new = Outcomes.from_logits(scaled, ground_truth)
            self._outcomes.append((old, new))

    def seen(self) -> tuple[Outcomes, Outcomes] | None:
        """The outcomes before and after calibration, also with a rejected T.

        None without ground truth.
        """
        if not self._outcomes:
            return None
        before, after = zip(*self._outcomes, strict=True)
        return Outcomes.concatenate(before), Outcomes.concatenate(after)


@dataclass(eq=False)
class ImageSummary:
    """The summary of a segmentation model's predictions, built image by image.

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

    unit: ClassVar[Unit] = "pixels"

    @property
    def maps(self) -> tuple[MapImages, ...]:
        """A few images, pixel by pixel."""
        return tuple(self._maps)

    def measure(self, image: Maps, mask: NDArray[Any]) -> None:
        """Add the ground truth of one image, for evaluation only.

        Args:
            image: logits `(classes, height, width)`.
            mask: the true classes `(height, width)`.

        """
        before = Segmented.of(image, mask)
        after = Segmented.of(image, mask, temperature=judged_temperature(self.calibration))
        self._sums.append((before, after))
        if len(self._sums) >= JOINED:
            self._sums = [self._joined()]

    def add_row(self, name: str, row: ImageRow, *, image_file: Path | None = None) -> None:
        """Consider one image as an example.

        Args:
            name: the name of the image.
            row: its class fractions and mean confidences.
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
        before = seen.before[:, 0].astype(np.float64)
        after = seen.after[:, 0].astype(np.float64)
        classes = pixels.logits.shape[1]
        self.tally.add(seen.top[:, 0], (before, after), classes, weights=pixels.weights)

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
            temperature = self.calibration.temperature
            self._maps.append(map_images(image, name, temperature, image_file, mask))

    def seen(self) -> tuple[Segmented, Segmented] | None:
        """The sums before and after calibration, also with a rejected T.

        None without ground truth.
        """
        return self._joined() if self._sums else None

    def _joined(self) -> tuple[Segmented, Segmented]:
        before, after = zip(*self._sums, strict=True)
        return Segmented.concatenate(before), Segmented.concatenate(after)

    def class_scores(self) -> list[ClassScores] | None:
        """IoU, precision and ECE of each class; None without ground truth."""
        seen = self.seen()
        if seen is None:
            return None
        before, after = seen
        found = []
        for old, new in zip(before.classes(), after.classes(), strict=True):
            found.append(ClassScores(old["precision"], old["iou"], old["ece"], new["ece"]))
        return found


Summary = RowSummary | ImageSummary


def judged_temperature(calibration: Calibration) -> float:
    """The temperature that the verdict is about: the one that applies, or a rejected one.

    >>> from pseudocal import TemperatureScaling
    >>> judged_temperature(Calibration("pseudocal", TemperatureScaling(1.0), refused=3.0))
    3.0
    """
    return calibration.refused or calibration.temperature


def _best(before: Doubles, after: Doubles) -> list[int]:
    """The rows that may be among the examples, in ascending order.

    >>> _best(np.array([0.9, 0.8]), np.array([0.5, 0.7]))
    [0, 1]
    """
    changed = np.argsort(-np.abs(after - before), kind="stable")[:EXAMPLES]
    least_confident = np.argsort(after, kind="stable")[:EXAMPLES]
    return sorted({*changed.tolist(), *least_confident.tolist()})
