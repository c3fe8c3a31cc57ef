"""Make a report from a summary, with code that applies the result.

The same for a classifier and a segmenter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.app.report.advice import facts_of
from pseudocal.app.report.images import thumbnail
from pseudocal.app.report.predictions import class_name
from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import (
    AboutFit,
    Bins,
    ClassFraction,
    Diagrams,
    Estimate,
    Example,
    Examples,
    Histogram,
    Measurement,
    Threshold,
)
from pseudocal.app.report.snippets import LOGITS, REFUSED, SNIPPETS
from pseudocal.app.report.summaries import (
    BINS,
    THRESHOLDS,
    Candidate,
    Summary,
    Tally,
    judged_temperature,
)
from pseudocal.app.run import AboutData, AboutModel, Timing
from pseudocal.arrays import InputError, Labelled, cores
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Interval, Outcomes, Reliability, Segmented, bootstrap, paired
from pseudocal.metrics.outcomes import equal_width
from pseudocal.metrics.samples import sample_of
from pseudocal.scaling import TemperatureScaling

CLASSES_SHOWN = 60
NOISE_DRAWS = 100  # random outcomes of a perfectly calibrated model, whose ECE is averaged
NO_BINS = Bins((0.0, 1.0), (0,), (None,), (None,), (None,), (None,), 0.0)  # of nothing
SHOWN_TEXT = 160  # characters of a text that is shown
COUNTS = ("pairs", "mixup_samples", "forward_passes")
MEASURED: tuple[Any, ...] = ("ece", "nll", "brier", "accuracy")
MEASURED_OF_IMAGES: tuple[Any, ...] = (*MEASURED, "miou")
Seen = Outcomes | Segmented  # what the metrics need to know about labelled inputs or images


def report_of(
    summary: Summary, fitted_on: Labelled, *, model: AboutModel, data: AboutData, timing: Timing
) -> Report:
    """Make the report of a calibration.

    Args:
        summary: the summary of the predictions, with the calibration.
        fitted_on: what the temperature was fitted on: a sample of the mixup samples, those of
            pixels with groups; or the inputs that a person has answered, if the calibration was
            refined.
        model: the description of the model.
        data: the description of the data.
        timing: when the job finished, and how long it took.

    """
    calibration = summary.calibration
    seen = summary.seen()
    report = Report(
        model=model,
        data=data,
        calibration=_fit(calibration),
        trust=calibration.trust,
        answers=calibration.measured,
        confidence=_histogram(summary.tally),
        classes=_fractions(summary.tally, summary.classes),
        selection=_selection(summary.tally),
        reliability=diagrams_of_fit(fitted_on, calibration)
        if seen is None
        else diagrams_of_labels(*seen),
        measured=None if seen is None else measure(*seen),
        examples=_examples(summary.tally, changed=calibration.temperature != 1),
        segmentation=summary.segmentation,
        usage=REFUSED
        if calibration.refused is not None
        else usage_of(model, calibration.temperature, segments=summary.segmentation is not None),
        settings=calibration.settings,
        versions=calibration.versions,
        timing=timing,
    )
    return replace(report, facts=facts_of(report))


def usage_of(model: AboutModel, temperature: float, *, segments: bool = False) -> str:
    """Return Python code that applies the result.

    >>> model = AboutModel(name="f", title="f", kind="callable", recipe="callable", output=None)
    >>> print(usage_of(model, 2.0).splitlines()[-1])
    probabilities = calibration.probabilities(logits)    # or without this library: softmax(logits /
    2)
    """
    shipped = model.kind in ("lightgbm", "sklearn", "xgboost") or model.files
    snippet = SNIPPETS.get(model.recipe if shipped else "", LOGITS)
    if segments:
        snippet = snippet.replace("ForImageClassification", "ForSemanticSegmentation")
    return snippet.format(temperature=temperature, name=model.name, output=model.output)


def _fit(calibration: Calibration) -> AboutFit:
    low, high = calibration.interval
    missing = [name for name in COUNTS if name not in calibration.counts]
    if missing:
        raise InputError(
            f"expected a calibration that counts its {missing[0]}, got {calibration.counts}"
        )
    return AboutFit(
        method=calibration.method,
        temperature=calibration.temperature,
        low=None if math.isnan(low) else low,
        high=high if math.isfinite(high) else None,
        bound=calibration.bound,
        refused=calibration.refused,
        **{name: calibration.counts[name] for name in COUNTS},
    )


def _histogram(tally: Tally) -> Histogram:
    count, before, after, _ = np.sum(tally.by_class, axis=1).tolist()
    filled = np.where(tally.histogram[0] > 0, tally.histogram[0], np.nan)
    return Histogram(
        edges=tuple(equal_width(BINS).tolist()),
        before=tuple(np.rint(tally.histogram[0]).astype(int).tolist()),
        after=tuple(np.rint(tally.histogram[1]).astype(int).tolist()),
        sure_before=_finite(tally.moved[0] / filled),
        sure_after=_finite(tally.moved[1] / filled),
        mean_before=before / count,
        mean_after=after / count,
    )


def _fractions(tally: Tally, classes: Sequence[str]) -> tuple[ClassFraction, ...]:
    """Return the classes that are predicted most often.

    >>> _fractions(Tally(by_class=np.array([[0.0, 4.0], [0.0, 3.2], [0.0, 2.8], [0.0, 3.0]])), ["cat", "dog"])
    (ClassFraction(name='dog', fraction=1.0, before=0.8, after=0.7, right=0.75),)
    """
    count = tally.by_class[0]
    top = [int(i) for i in np.argsort(-count, kind="stable")[:CLASSES_SHOWN] if count[i]]
    return tuple(
        _fraction(class_name(i, classes), tally.by_class[:, i].tolist(), float(count.sum()))
        for i in top
    )


def _fraction(name: str, sums: list[float], total: float) -> ClassFraction:
    count, before, after, right = sums
    known = None if math.isnan(right) else right / count
    return ClassFraction(name, count / total, before / count, after / count, known)


def _selection(tally: Tally) -> tuple[Threshold, ...]:
    """What is left at each threshold, while anything is, and how much of it is wrong.

    >>> tally = Tally()
    >>> tally.add(np.array([0, 1]), [np.array([0.9, 0.6])] * 2, 2, right=np.array([True, False]))
    >>> [(row.threshold, row.coverage, round(row.expected, 3), row.wrong) for row in _selection(tally)[::8]]
    [(0.0, 1.0, 0.25, 0.5), (0.65, 0.5, 0.1, 0.0)]
    """
    left, sure, right = tally.selection[:, ::-1].cumsum(axis=1)[
        :, ::-1
    ]  # at this threshold or above
    rows = []
    for k, threshold in enumerate(THRESHOLDS):
        if left[k] > 0:
            wrong = None if np.isnan(right[k]) else float(1 - right[k] / left[k])
            rows.append(
                Threshold(threshold, float(left[k] / left[0]), float(1 - sure[k] / left[k]), wrong)
            )
    return tuple(rows)


def _examples(tally: Tally, *, changed: bool) -> Examples:
    """The examples with their images; if T = 1, none has changed."""
    shown = tally.shown if changed else tally.shown | {"changed": []}
    with ThreadPoolExecutor(cores()) as pool:  # most of the work is decoding images
        return Examples(**{key: tuple(pool.map(_example, each)) for key, each in shown.items()})


def _example(one: Candidate) -> Example:
    image_file = None if one.image_file is None else thumbnail(one.image_file)
    text = None if one.text is None else _beginning(one.text)
    return Example(one.name, one.class_name, one.before, one.after, image_file, one.label, text)


def _beginning(text: str) -> str:
    r"""Return the beginning of a text on one line.

    >>> _beginning("Nice,\n but late."), len(_beginning("very " * 100))
    ('Nice, but late.', 160)
    """
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_TEXT else line[: SHOWN_TEXT - 3] + "..."


def measure(
    before: Seen, after: Seen | None = None, *, resamples: int | None = None, seed: int = 0
) -> tuple[Measurement, ...]:
    """Compute each metric with an interval and, if `after` is given, its paired change.

    >>> outcomes = Outcomes.from_probabilities([[0.75, 0.25]] * 4, labels=[0, 0, 0, 1])
    >>> [(row.metric, row.before.value) for row in measure(outcomes) if row.metric != "nll"]
    [('ece', 0.0), ('brier', 0.375), ('accuracy', 0.75)]

    Args:
        before: the outcomes of labelled inputs, or the sums of labelled images, before calibration.
        after: the same after calibration; None to measure once.
        resamples: the number of bootstrap resamples; None for 500 of inputs or 1,000 of images.
        seed: the seed of the bootstrap.

    """
    images = isinstance(before, Segmented)
    options = {"resamples": resamples or (1000 if images else 500), "seed": seed}
    rows = []
    for name in MEASURED_OF_IMAGES if images else MEASURED:
        row = Measurement(name, _estimate(bootstrap(name, before, **options)))
        if after is not None:
            new = bootstrap(name, after, **options)
            change = paired(name, before, after, **options)
            row = Measurement(name, row.before, _estimate(new), _estimate(change))
        rows.append(row)
    return tuple(rows)


def diagrams_of_labels(before: Seen, after: Seen) -> Diagrams:
    """Return the reliability of labelled inputs or pixels."""
    noise = float(
        sample_of("ece", after).draws_if_calibrated(NOISE_DRAWS, np.random.default_rng(0)).mean()
    )
    return Diagrams(
        "pixels" if isinstance(before, Segmented) else "inputs", _bins(before), _bins(after), noise
    )


def diagrams_of_fit(fitted_on: Labelled, calibration: Calibration) -> Diagrams:
    """Return the reliability of what T was fitted on.

    Without intervals for mixup samples of pixels, which share images.

    >>> from pseudocal import TemperatureScaling
    >>> mixup_samples = Labelled(np.zeros((4, 2)), np.zeros(4, int), groups=np.zeros(4, int))
    >>> diagrams_of_fit(mixup_samples, Calibration("pseudocal", TemperatureScaling(2.0))).before.low[0] is not None
    False
    """
    if not len(fitted_on):
        return Diagrams("mixup", NO_BINS, NO_BINS)
    independent = fitted_on.groups is None
    z = fitted_on.logits
    scaled = TemperatureScaling(judged_temperature(calibration))(z)
    before, after = (Outcomes.from_logits(logits, fitted_on.labels) for logits in (z, scaled))
    of: Literal["mixup", "answers"] = "mixup" if calibration.measured is None else "answers"
    return Diagrams(
        of, _bins(before, independent=independent), _bins(after, independent=independent)
    )


def _bins(seen: Seen, *, independent: bool = True) -> Bins:
    """Make a reliability diagram; there are intervals only if rows or images are independent."""
    labelled = seen.reliability if isinstance(seen, Segmented) else Reliability.of(seen)
    low, high = (seen if isinstance(seen, Segmented) else labelled).accuracy_interval()
    none = np.full(len(labelled.count), np.nan)
    return Bins(
        edges=tuple(labelled.edges.tolist()),
        count=tuple(labelled.count.tolist()),
        confidence=_finite(labelled.confidence),
        accuracy=_finite(labelled.accuracy),
        low=_finite(low if independent else none),
        high=_finite(high if independent else none),
        ece=labelled.ece,
    )


def _estimate(interval: Interval) -> Estimate:
    return Estimate(*_finite([interval.value, interval.low, interval.high]))


def _finite(values: ArrayLike) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in np.asarray(values))
