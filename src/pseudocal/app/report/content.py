"""From summary to a report: the same for a classifier and a segmenter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from pseudocal.app.report.facts import facts_of
from pseudocal.app.report.measurements import diagrams_of_labels, diagrams_of_mixes, measure
from pseudocal.app.report.pictures import thumbnail
from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import (
    AboutData,
    AboutFit,
    AboutModel,
    AboutTrust,
    ClassShare,
    Example,
    Examples,
    Histogram,
    Timing,
)
from pseudocal.app.report.summaries import BINS, Candidate, Summary, Tally, class_name
from pseudocal.app.report.usage import usage_of
from pseudocal.arrays import InputError, Labelled, cores
from pseudocal.calibrators import Calibration

CLASSES_SHOWN = 10
COUNTS = ("pairs", "mixes", "forward_passes")


def report_of(summary: Summary, mixes: Labelled, *, model: AboutModel, data: AboutData, timing: Timing) -> Report:
    """All that there is to say about a calibration.

    Args:
        summary: what was seen of the predictions, with the calibration that it is about.
        mixes: a sample of the mixes that the temperature was fitted on; those of pixels have groups.
        model: what was calibrated.
        data: what it was calibrated on.
        timing: when, and how long it took.

    """
    calibration, seen = summary.calibration, summary.seen()
    report = Report(
        model=model,
        data=data,
        calibration=_fit(calibration),
        trust=_trust(calibration),
        confidence=_histogram(summary.tally),
        classes=_shares(summary.tally, summary.classes),
        reliability=diagrams_of_mixes(mixes, calibration) if seen is None else diagrams_of_labels(*seen),
        measured=None if seen is None else measure(*seen),
        examples=_examples(summary.tally),
        segmentation=summary.segmentation,
        usage=usage_of(model, calibration.temperature, segments=summary.segmentation is not None),
        settings=calibration.settings,
        versions=calibration.versions,
        timing=timing,
    )
    return replace(report, facts=facts_of(report))


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
        **{name: calibration.counts[name] for name in COUNTS},
    )


def _trust(calibration: Calibration) -> AboutTrust | None:
    trust = calibration.trust
    if trust is None:
        return None
    return AboutTrust(
        verdict=trust.verdict,
        reasons=trust.reasons,
        forecast=trust.forecast,
        evidence=trust.evidence,
        score=trust.score,
        replaced=trust.verdict == "do not apply" and calibration.settings.get("on_distrust") == "identity",
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
    """The classes that are predicted most.

    >>> _shares(Tally(by_class=np.array([[1.0, 3.0], [0.9, 2.4], [0.8, 2.1]])), ["cat", "dog"])
    (ClassShare(name='dog', share=0.75), ClassShare(name='cat', share=0.25))
    """
    count = tally.by_class[0]
    top = [int(i) for i in np.argsort(-count, kind="stable")[:CLASSES_SHOWN] if count[i]]
    return tuple(ClassShare(class_name(i, classes), float(count[i] / count.sum())) for i in top)


def _examples(tally: Tally) -> Examples:
    with ThreadPoolExecutor(cores()) as pool:  # most of it is to decode pictures
        return Examples(**{key: tuple(pool.map(_example, shown)) for key, shown in tally.shown.items()})


def _example(one: Candidate) -> Example:
    picture = None if one.picture is None else thumbnail(one.picture)
    return Example(one.name, one.class_name, one.before, one.after, picture, one.label)
