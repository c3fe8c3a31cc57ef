"""From predictions, summed up part by part, to the record of a report."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.app.models.files import NOT_EXPORTED
from pseudocal.app.report.findings import facts_of, headline_of, recommendation_of
from pseudocal.app.report.images import thumbnail
from pseudocal.app.report.page import from_template
from pseudocal.app.report.predictions import Confidences, class_name
from pseudocal.app.report.record import (
    Bins,
    ClassRow,
    Diagrams,
    Estimate,
    Example,
    Examples,
    Fit,
    Histogram,
    MapImages,
    Measurement,
    Report,
    Threshold,
    Unit,
)
from pseudocal.app.report.wording import Headline, Recommendation
from pseudocal.app.run import AboutData, AboutModel, Timing
from pseudocal.app.thresholds import RunThreshold
from pseudocal.arrays import InputError, Labelled, Labels, Logits, cores
from pseudocal.calibrators import Calibration, Reason, ReasonCode
from pseudocal.metrics import Interval, Outcomes, Reliability, Segmented, bootstrap, paired
from pseudocal.metrics.outcomes import bin_of, equal_width
from pseudocal.metrics.samples import sample_of
from pseudocal.passes import Doubles
from pseudocal.scaling import TemperatureScaling

BINS = 15  # bins of the histogram of confidences, as in the reliability diagrams
# thresholds of confidence
THRESHOLDS = (0.0, *(np.arange(2, 90, 2) / 100).tolist(), 0.9, 0.95, 0.97, 0.98, 0.99, 0.995)
EXAMPLES = 12  # inputs in each list of examples
JOINED = 256  # images whose sums are joined, since joined sums take less memory
SHOWN_TEXT = 160  # characters of a text that is shown
CLASSES_SHOWN = 60
NOISE_DRAWS = 100  # random outcomes of a perfectly calibrated model, whose ECE is averaged
NO_BINS = Bins((0.0, 1.0), (0,), (None,), (None,), (None,), (None,), 0.0)  # of nothing
COUNTS = ("pairs", "mixup_samples", "forward_passes")
MEASURED: tuple[Any, ...] = ("ece", "nll", "brier", "accuracy")
MEASURED_OF_IMAGES: tuple[Any, ...] = (*MEASURED, "miou")

# lists of examples, each with a key of the confidences before and after: the smallest are shown
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "changed": lambda before, after: -abs(after - before),
    "least_confident": lambda before, after: after,
}
Seen = Outcomes | Segmented  # what the metrics need to know about inputs or images


# ------------------------------------------------------------------------------ summing up


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
        self.histogram += [np.bincount(part, weights, BINS) for part in (bins, bins_after)]
        before = before * weights
        after = after * weights
        sums = [np.bincount(predicted, part, classes) for part in (weights, before, after, known)]
        self.by_class = self.by_class + np.stack(sums)
        kept = (weights, after, known)
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

    def seen(self) -> tuple[Any, Any] | None:
        """The outcomes or sums before and after calibration, also with a rejected T.

        None without ground truth.
        """
        return self._joined() if self._measured else None

    def _joined(self) -> tuple[Any, Any]:
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


# ------------------------------------------------------------------------------ the record


def report_of(
    summary: Summary,
    fitted_on: Labelled,
    *,
    model: AboutModel,
    data: AboutData,
    timing: Timing,
    out: Path,
    kept: bool = True,
    threshold: RunThreshold | None = None,
    outputs: Sequence[str] = (),
) -> Report:
    """Make the report of a calibration.

    The temperature was fitted on mixup samples, those of pixels with groups; or on the labelled
    inputs, if the calibration was refined. Commands of the report name the folder `out`; `kept`
    says whether the run is kept there, and `outputs` how `apply` names the file of saved outputs.
    """
    calibration = summary.calibration
    seen = summary.seen()
    if seen is None:
        reliability = diagrams_of_fit(fitted_on, calibration)
        metrics = None
    else:
        reliability = diagrams_of_ground_truth(*seen)
        metrics = measure(*seen)
    confidence = _histogram(summary)
    report = Report(
        # both are replaced below
        headline=Headline("unknown", {"before": confidence.mean_before, "inputs": ""}),
        recommendation=Recommendation("keep", {}, Reason(ReasonCode.NOTHING_FITTED)),
        model=model,
        data=data,
        unit=summary.unit,
        calibration=_fit(calibration),
        trust=calibration.trust,
        labels=calibration.measured,
        confidence=confidence,
        classes=class_rows(summary),
        selection=selection_of(summary),
        reliability=reliability,
        metrics=metrics,
        examples=_examples(summary),
        maps=tuple(summary.maps),
        usage=usage_of(
            model,
            calibration.temperature,
            segments=summary.unit == "pixels",
            unchanged=calibration.verdict in ("already calibrated", "do not apply"),
        ),
        settings=calibration.settings,
        versions=calibration.versions,
        timing=timing,
        threshold=threshold,
    )
    return replace(
        report,
        headline=headline_of(report),
        recommendation=recommendation_of(report, out, kept=kept, outputs=outputs),
        facts=facts_of(report),
    )


def usage_of(
    model: AboutModel, temperature: float, *, segments: bool = False, unchanged: bool = False
) -> str:
    """Python code that applies the result.

    >>> model = AboutModel(name="f", title="f", kind="callable", recipe="callable", output=None)
    >>> print(usage_of(model, 2.0).splitlines()[-1])
    probabilities = calibration.probabilities(logits)    # or: softmax(logits / 2)
    """
    how = "logits"
    if unchanged:
        how = "unchanged"
    elif model.files or model.kind in NOT_EXPORTED:
        how = model.recipe
    return from_template(
        "usage.txt", how=how, model=model, temperature=temperature, segments=segments
    )


def _fit(calibration: Calibration) -> Fit:
    low, high = calibration.interval
    missing = [name for name in COUNTS if name not in calibration.counts]
    if missing:
        raise InputError(f"the calibration does not count its {missing[0]}")
    return Fit(
        method=calibration.method,
        temperature=calibration.temperature,
        low=None if math.isnan(low) else low,
        high=high if math.isfinite(high) else None,
        bound=calibration.bound,
        refused=calibration.refused,
        **{name: calibration.counts[name] for name in COUNTS},
    )


def _histogram(summary: Summary) -> Histogram:
    count, before, after, _ = np.sum(summary.by_class, axis=1).tolist()
    return Histogram(
        edges=tuple(equal_width(BINS).tolist()),
        before=tuple(np.rint(summary.histogram[0]).astype(int).tolist()),
        after=tuple(np.rint(summary.histogram[1]).astype(int).tolist()),
        mean_before=before / count,
        mean_after=after / count,
    )


def class_rows(summary: Summary) -> tuple[ClassRow, ...]:
    """The classes that are predicted most often; of a segmentation model, all predicted classes."""
    count = summary.by_class[0]
    predicted = np.flatnonzero(count).tolist()
    if summary.unit == "inputs":
        predicted = sorted(predicted, key=lambda i: -count[i])[:CLASSES_SHOWN]
    total = float(count.sum())
    seen = summary.seen() if summary.unit == "pixels" else None
    scores = None if seen is None else [part.classes() for part in seen]
    rows = []
    for i in predicted:
        n, before, after, right = summary.by_class[:, i].tolist()
        of_class = _finite([right / n])
        if scores is not None:
            old, new = (each[i] for each in scores)
            of_class = _finite([old["precision"], old["iou"], old["ece"], new["ece"]])
        name = class_name(i, summary.classes)
        rows.append(ClassRow(name, n / total, before / n, after / n, *of_class))
    return tuple(rows)


def selection_of(summary: Summary) -> tuple[Threshold, ...]:
    """Coverage and error at each threshold that any prediction reaches."""
    from_above = summary.selection[:, ::-1].cumsum(axis=1)[:, ::-1]
    count, confidence, right = from_above[:, from_above[0] > 0]
    coverage = (count / from_above[0, 0]).tolist()
    expected_error = (1 - confidence / count).tolist()
    error = _finite(1 - right / count)
    return tuple(map(Threshold, THRESHOLDS, coverage, expected_error, error))


def _examples(summary: Summary) -> Examples:
    """The examples with their images; if T = 1, none has changed."""
    shown = dict(summary.shown)
    if summary.calibration.temperature == 1:
        shown["changed"] = []
    with ThreadPoolExecutor(cores()) as pool:  # most of the work is decoding images
        return Examples(**{key: tuple(pool.map(_example, each)) for key, each in shown.items()})


def _example(one: tuple[Example, Path | None]) -> Example:
    example, path = one
    return replace(example, thumbnail=None if path is None else thumbnail(path))


def measure(before: Seen, after: Seen | None = None) -> tuple[Measurement, ...]:
    """Compute each metric with an interval and, if `after` is given, its paired change.

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 0, 1])
    >>> [(row.metric, row.before.value) for row in measure(outcomes) if row.metric != "nll"]
    [('ece', 0.0), ('brier', 0.375), ('accuracy', 0.75)]
    """
    images = isinstance(before, Segmented)
    resamples = 1000 if images else 500
    rows = []
    for name in MEASURED_OF_IMAGES if images else MEASURED:
        row = Measurement(name, _estimate(bootstrap(name, before, resamples=resamples)))
        if after is not None:
            new = bootstrap(name, after, resamples=resamples)
            change = paired(name, before, after, resamples=resamples)
            row = Measurement(name, row.before, _estimate(new), _estimate(change))
        rows.append(row)
    return tuple(rows)


def diagrams_of_ground_truth(before: Seen, after: Seen) -> Diagrams:
    """The reliability of inputs or pixels with ground truth."""
    sample = sample_of("ece", after)
    noise = sample.draws_if_calibrated(NOISE_DRAWS, np.random.default_rng(0)).mean()
    return Diagrams("ground truth", _bins(before), _bins(after), float(noise))


def diagrams_of_fit(fitted_on: Labelled, calibration: Calibration) -> Diagrams:
    """The reliability of what T was fitted on.

    There are no intervals for pixels: many are of one image.

    >>> from pseudocal import TemperatureScaling
    >>> mixup_samples = Labelled(np.zeros((4, 2)), np.zeros(4, int), groups=np.zeros(4, int))
    >>> diagrams = diagrams_of_fit(mixup_samples, Calibration("pseudocal", TemperatureScaling(2.0)))
    >>> diagrams.before.low[0] is None
    True
    """
    if not len(fitted_on):
        return Diagrams("mixup", NO_BINS, NO_BINS)
    independent = fitted_on.groups is None
    scaled = TemperatureScaling(judged_temperature(calibration))(fitted_on.logits)
    before = Outcomes.from_logits(fitted_on.logits, fitted_on.labels)
    after = Outcomes.from_logits(scaled, fitted_on.labels)
    return Diagrams(
        "mixup" if calibration.measured is None else "labels",
        _bins(before, independent=independent),
        _bins(after, independent=independent),
    )


def _bins(seen: Seen, *, independent: bool = True) -> Bins:
    """A reliability diagram; there are intervals only if rows or images are independent."""
    if isinstance(seen, Segmented):
        labelled = seen.reliability
        low, high = seen.accuracy_interval()
    else:
        labelled = Reliability.of(seen)
        low, high = labelled.accuracy_interval()
    if not independent:
        low = high = np.full(len(labelled.count), np.nan)
    return Bins(
        edges=tuple(labelled.edges.tolist()),
        count=tuple(labelled.count.tolist()),
        confidence=_finite(labelled.confidence),
        accuracy=_finite(labelled.accuracy),
        low=_finite(low),
        high=_finite(high),
        ece=labelled.ece,
    )


def _estimate(interval: Interval) -> Estimate:
    return Estimate(*_finite([interval.value, interval.low, interval.high]))


def _finite(values: ArrayLike) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in np.asarray(values))
