"""Running sums over the predictions of a classifier or a segmentation model."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.report.predictions import Confidences, class_name
from pseudocal.app.report.record import Example, MapImages, Unit
from pseudocal.arrays import Labels, Logits
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Outcomes, Segmented
from pseudocal.metrics.outcomes import bin_of, equal_width
from pseudocal.passes import Doubles
from pseudocal.scaling import TemperatureScaling

BINS = 15  # bins of the histogram of confidences, as in the reliability diagrams
# thresholds of confidence
THRESHOLDS = (0.0, *(np.arange(30, 90, 5) / 100).tolist(), 0.9, 0.95, 0.97, 0.98, 0.99, 0.995)
EXAMPLES = 12  # inputs in each list of examples
JOINED = 256  # images whose sums are joined, since joined sums take less memory
SHOWN_TEXT = 160  # characters of a text that is shown

# lists of examples, each with a key of the confidences before and after: the smallest are shown
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "changed": lambda before, after: -abs(after - before),
    "least_confident": lambda before, after: after,
}
Seen = Outcomes | Segmented  # what the metrics need to know about inputs or images


@dataclass(eq=False)
class Summary:
    """Sums over predictions, built part by part, and the best examples.

    Without ground truth, its size does not grow with the number of inputs.

    >>> from pseudocal import TemperatureScaling
    >>> summary = Summary(Calibration("pseudocal", TemperatureScaling(2.0)), ["cat", "dog"])
    >>> logits = np.array([[0.0, np.log(9.0)]])
    >>> summary.add_rows(logits, Confidences.of(logits, summary.calibration), ["a.png"])
    >>> summary.shown["changed"][0][0].class_name
    'dog'
    """

    calibration: Calibration
    classes: Sequence[str] = ()  # the class names, as far as they are known
    unit: Unit = "inputs"
    # predictions in each bin of confidence before and after
    histogram: Doubles = field(default_factory=lambda: np.zeros((2, BINS)))
    # sums of the confidences before and after of the predictions in each bin before
    moved: Doubles = field(default_factory=lambda: np.zeros((2, BINS)))
    # predictions of each class, the sums of their confidences before and after, and how many are
    # right, `(4, classes)`; NaN if that is not known
    by_class: Any = 0.0
    # predictions by the largest threshold that they reach after calibration, the sums of their
    # confidences after, and how many are right
    selection: Doubles = field(default_factory=lambda: np.zeros((3, len(THRESHOLDS))))
    # the best examples of each list with their image files, best first
    shown: dict[str, list[tuple[Example, Path | None]]] = field(
        default_factory=lambda: {key: [] for key in ORDERS}
    )
    maps: list[MapImages] = field(default_factory=list)
    _measured: list[tuple[Any, Any]] = field(default_factory=list)

    def add_rows(
        self,
        logits: Logits,
        seen: Confidences,
        names: Sequence[str],
        *,
        image_files: Sequence[Path | None] | None = None,
        texts: Sequence[str] | None = None,
        ground_truth: Labels | None = None,
    ) -> None:
        """Add some inputs, few enough to be processed at once: see `row_chunks`.

        Ground truth is for evaluation only, and given in every call or in none.
        """
        predicted = seen.top[:, 0]
        right = None if ground_truth is None else predicted == ground_truth
        self.add_predictions(seen, logits.shape[1], right=right)
        before = seen.before[:, 0].astype(np.float64)
        after = seen.after[:, 0].astype(np.float64)
        best = [np.argsort(key(before, after), kind="stable") for key in ORDERS.values()]
        for i in sorted({i for rows in best for i in rows[:EXAMPLES].tolist()}):
            true_class = None
            if ground_truth is not None:
                true_class = class_name(int(ground_truth[i]), self.classes)
            example = Example(
                names[i],
                class_name(int(predicted[i]), self.classes),
                float(before[i]),
                float(after[i]),
                true_class=true_class,
                text=None if texts is None else _beginning(texts[i]),
            )
            self.consider(example, None if image_files is None else image_files[i])
        if ground_truth is not None:
            self.measure(logits, ground_truth)

    def add_predictions(
        self,
        seen: Confidences,
        classes: int,
        *,
        weights: NDArray[Any] | None = None,
        right: NDArray[Any] | None = None,
    ) -> None:
        """Add predictions of inputs or pixels to the sums; `right` says which are right, if known."""
        predicted = seen.top[:, 0]
        before = seen.before[:, 0].astype(np.float64)
        after = seen.after[:, 0].astype(np.float64)
        if weights is None:
            weights = np.ones(len(predicted))
        known = np.full(len(predicted), np.nan) if right is None else right * weights
        bins = bin_of(before, equal_width(BINS))
        bins_after = bin_of(after, equal_width(BINS))
        level = np.searchsorted(THRESHOLDS, after, side="right") - 1
        self.histogram[0] += np.bincount(bins, weights, BINS)
        self.histogram[1] += np.bincount(bins_after, weights, BINS)
        self.moved[0] += np.bincount(bins, before * weights, BINS)
        self.moved[1] += np.bincount(bins, after * weights, BINS)
        sums = (weights, before * weights, after * weights, known)
        by_class = [np.bincount(predicted, part, classes) for part in sums]
        self.by_class = self.by_class + np.stack(by_class)
        kept = (weights, after * weights, known)
        self.selection += [np.bincount(level, part, len(THRESHOLDS)) for part in kept]

    def consider(self, example: Example, image_file: Path | None = None) -> None:
        """Keep the best examples so far; on ties, the earlier one. Padding is none."""
        if math.isnan(example.after):
            return
        for name, key in ORDERS.items():
            keys = [key(one.before, one.after) for one, _ in self.shown[name]]
            place = bisect_right(keys, key(example.before, example.after))
            self.shown[name].insert(place, (example, image_file))
            del self.shown[name][EXAMPLES:]

    def measure(self, logits: NDArray[Any], ground_truth: NDArray[Any]) -> None:
        """Add the ground truth of rows or of one image `(classes, height, width)`.

        It is for evaluation only.
        """
        temperature = judged_temperature(self.calibration)
        if self.unit == "inputs":
            scaled = TemperatureScaling(temperature)(logits)
            old: Seen = Outcomes.from_logits(logits, ground_truth)
            new: Seen = Outcomes.from_logits(scaled, ground_truth)
        else:
            old = Segmented.of(logits, ground_truth)
            new = Segmented.of(logits, ground_truth, temperature=temperature)
        self._measured.append((old, new))
        if len(self._measured) >= JOINED:
            self._measured = [self._joined()]

    def seen(self) -> tuple[Seen, Seen] | None:
        """The outcomes or sums before and after calibration, also with a rejected T.

        None without ground truth.
        """
        return self._joined() if self._measured else None

    def _joined(self) -> tuple[Seen, Seen]:
        before, after = zip(*self._measured, strict=True)
        kind = Outcomes if self.unit == "inputs" else Segmented
        return kind.concatenate(before), kind.concatenate(after)


def judged_temperature(calibration: Calibration) -> float:
    """The temperature that the verdict is about: the one that applies, or a rejected one.

    >>> from pseudocal import TemperatureScaling
    >>> judged_temperature(Calibration("pseudocal", TemperatureScaling(1.0), refused=3.0))
    3.0
    """
    return calibration.refused or calibration.temperature


def _beginning(text: str) -> str:
    r"""Return the beginning of a text on one line.

    >>> _beginning("Nice,\n but late."), len(_beginning("very " * 100))
    ('Nice, but late.', 160)
    """
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_TEXT else line[: SHOWN_TEXT - 3] + "..."
