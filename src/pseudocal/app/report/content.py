"""Make a report from a summary, with code that applies the result: the same for a classifier and a segmenter."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.app.report.advice import facts_of
from pseudocal.app.report.pictures import thumbnail
from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import (
    AboutData,
    AboutFit,
    AboutModel,
    Bins,
    ClassShare,
    Diagrams,
    Estimate,
    Example,
    Examples,
    Histogram,
    Measurement,
    Timing,
)
from pseudocal.app.report.summaries import BINS, Candidate, Summary, Tally, class_name, judged_temperature
from pseudocal.arrays import InputError, Labelled, cores
from pseudocal.calibrators import Calibration
from pseudocal.metrics import Interval, Outcomes, Reliability, Segmented, bootstrap, paired
from pseudocal.scaling import TemperatureScaling

ONNX = """\
import onnxruntime as ort
from scipy.special import softmax

session = ort.InferenceSession("model.onnx")         # from this folder; the division by T is inside
logits = session.run([{output!r}], {{session.get_inputs()[0].name: x}})[0]
probabilities = softmax(logits, axis=1)
"""
ONNX_INSIDE = """\
import onnxruntime as ort

session = ort.InferenceSession("model.onnx")         # from this folder; the division by T is inside
outputs = session.run(None, {{session.get_inputs()[0].name: x}})    # the same outputs as before, calibrated
"""
PT2 = """\
import torch

model = torch.export.load("model.pt2").module()      # from this folder; the division by T is inside
probabilities = model(x).softmax(dim=1)
"""
TORCHSCRIPT = """\
import torch

model = torch.jit.load("model.pt")                   # from this folder; the division by T is inside
probabilities = model(x).softmax(dim=1)
"""
HUGGING_FACE = """\
from transformers import AutoConfig, AutoModelForImageClassification

config = AutoConfig.from_pretrained("config.json")   # from this folder; copy it over the model's own to ship it
model = AutoModelForImageClassification.from_pretrained({name!r}, config=config)
logits = model(pixel_values=x).logits
probabilities = (logits / model.config.pseudocal_temperature).softmax(dim=1)
"""
SKLEARN = """\
from pseudocal import Calibration

calibration = Calibration.load("calibration.json")   # from this folder
probabilities = calibration.probabilities(model.predict_log_proba(x))
"""
LOGITS = """\
from pseudocal import Calibration

calibration = Calibration.load("calibration.json")   # from this folder
probabilities = calibration.probabilities(logits)    # or without this library: softmax(logits / {temperature:.6g})
"""
REFUSED = """\
from scipy.special import softmax

probabilities = softmax(logits, axis=1)              # T = 1: the model as it is
"""
SNIPPETS = {
    "huggingface": HUGGING_FACE,
    "onnx": ONNX,
    "onnx-inside": ONNX_INSIDE,
    "pt2": PT2,
    "sklearn": SKLEARN,
    "torchscript": TORCHSCRIPT,
}
CLASSES_SHOWN = 10
COUNTS = ("pairs", "mixes", "forward_passes")
MEASURED: tuple[Any, ...] = ("ece", "nll", "brier", "accuracy")
MEASURED_OF_IMAGES: tuple[Any, ...] = (*MEASURED, "miou")
Seen = Outcomes | Segmented  # what the metrics need to know about labelled inputs or images


def report_of(summary: Summary, fitted_on: Labelled, *, model: AboutModel, data: AboutData, timing: Timing) -> Report:
    """Make the report of a calibration.

    Args:
        summary: the summary of the predictions, with the calibration.
        fitted_on: what the temperature was fitted on: a sample of the mixes, those of pixels with groups; or the inputs
            that a person has answered, if the calibration was refined.
        model: the description of the model.
        data: the description of the data.
        timing: when the job finished, and how long it took.

    """
    calibration, seen = summary.calibration, summary.seen()
    report = Report(
        model=model,
        data=data,
        calibration=_fit(calibration),
        trust=calibration.trust,
        answers=calibration.measured,
        confidence=_histogram(summary.tally),
        classes=_shares(summary.tally, summary.classes),
        reliability=diagrams_of_fit(fitted_on, calibration) if seen is None else diagrams_of_labels(*seen),
        measured=None if seen is None else measure(*seen),
        examples=_examples(summary.tally, changed=calibration.refused is None),
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
    probabilities = calibration.probabilities(logits)    # or without this library: softmax(logits / 2)
    """
    shipped = model.kind == "sklearn" or model.files
    snippet = SNIPPETS.get(model.recipe if shipped else "", LOGITS)
    if segments:
        snippet = snippet.replace("ForImageClassification", "ForSemanticSegmentation")
    return snippet.format(temperature=temperature, name=model.name, output=model.output)


def _fit(calibration: Calibration) -> AboutFit:
    low, high = calibration.interval
    missing = [name for name in COUNTS if name not in calibration.counts]
    if missing:
        raise InputError(f"expected a calibration that counts its {missing[0]}, got {calibration.counts}")
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
    count, before, after = np.sum(tally.by_class, axis=1).tolist()
    return Histogram(
        edges=tuple(np.linspace(0, 1, BINS + 1).tolist()),
        before=tuple(np.rint(tally.histogram[0]).astype(int).tolist()),
        after=tuple(np.rint(tally.histogram[1]).astype(int).tolist()),
        mean_before=before / count,
        mean_after=after / count,
    )


def _shares(tally: Tally, classes: Sequence[str]) -> tuple[ClassShare, ...]:
    """Return the classes that are predicted most often.

    >>> _shares(Tally(by_class=np.array([[1.0, 3.0], [0.9, 2.4], [0.8, 2.1]])), ["cat", "dog"])
    (ClassShare(name='dog', share=0.75), ClassShare(name='cat', share=0.25))
    """
    count = tally.by_class[0]
    top = [int(i) for i in np.argsort(-count, kind="stable")[:CLASSES_SHOWN] if count[i]]
    return tuple(ClassShare(class_name(i, classes), float(count[i] / count.sum())) for i in top)


def _examples(tally: Tally, *, changed: bool) -> Examples:
    """The examples with their pictures; if T = 1, none has changed."""
    shown = tally.shown if changed else tally.shown | {"changed": []}
    with ThreadPoolExecutor(cores()) as pool:  # most of the work is decoding pictures
        return Examples(**{key: tuple(pool.map(_example, each)) for key, each in shown.items()})


def _example(one: Candidate) -> Example:
    picture = None if one.picture is None else thumbnail(one.picture)
    return Example(one.name, one.class_name, one.before, one.after, picture, one.label)


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
            new, change = bootstrap(name, after, **options), paired(name, before, after, **options)
            row = Measurement(name, row.before, _estimate(new), _estimate(change))
        rows.append(row)
    return tuple(rows)


def diagrams_of_labels(before: Seen, after: Seen) -> Diagrams:
    """Return the reliability of labelled inputs or pixels."""
    return Diagrams("pixels" if isinstance(before, Segmented) else "inputs", _bins(before), _bins(after))


def diagrams_of_fit(fitted_on: Labelled, calibration: Calibration) -> Diagrams:
    """Return the reliability of what T was fitted on; without intervals for mixes of pixels, which share images.

    >>> from pseudocal import TemperatureScaling
    >>> mixes = Labelled(np.zeros((4, 2)), np.zeros(4, int), groups=np.zeros(4, int))
    >>> diagrams_of_fit(mixes, Calibration("pseudocal", TemperatureScaling(2.0))).before.low[0] is not None
    False
    """
    independent, z = fitted_on.groups is None, fitted_on.logits
    scaled = TemperatureScaling(judged_temperature(calibration))(z)
    before, after = (Outcomes.from_logits(logits, fitted_on.labels) for logits in (z, scaled))
    of: Literal["mixes", "answers"] = "mixes" if calibration.measured is None else "answers"
    return Diagrams(of, _bins(before, independent=independent), _bins(after, independent=independent))


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


def timing_since(started: float) -> Timing:
    """Measure the time from `started` until now.

    Args:
        started: the value of `time.monotonic` at the start.

    """
    return Timing(time.monotonic() - started, datetime.now(UTC).isoformat(timespec="seconds"))
