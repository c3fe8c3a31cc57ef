"""The advice in a report: the verdict panel, what to know before using the result, and code that applies it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pseudocal.app.report.record import Report
from pseudocal.app.report.sections import AboutModel, AboutTrust, Fact

FEW_IMAGES = 50
FEW_DIFFER = 0.1
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
SNIPPETS = {
    "huggingface": HUGGING_FACE,
    "onnx": ONNX,
    "onnx-inside": ONNX_INSIDE,
    "pt2": PT2,
    "sklearn": SKLEARN,
    "torchscript": TORCHSCRIPT,
}
TRACK_LEFT, TRACK_RIGHT = 14, 346  # x of the ends of each track in the panel
TRACK_FIRST, TRACK_STEP = 30, 40  # y of the first track, and the distance to the next
HEADINGS = {
    "apply": "Apply",
    "caution": "Use with caution",
    "do not apply": "Do not apply",
}
REPLACED = (
    "As requested, a temperature of one replaces the one that was fitted: the confidences do not change. "
    "The reasons refer to the temperature that was refused."
)


def facts_of(report: Report) -> tuple[Fact, ...]:
    """List what the reader should know, cautions first."""
    found = [fact for check in CHECKS for fact in check(report)]
    return tuple(sorted(found, key=lambda fact: fact.level != "caution"))


def _harm(report: Report) -> Iterator[Fact]:
    """Warn if labels show clearly that calibration makes the ECE worse; the verdict itself sees no labels."""
    for row in report.measured or ():
        change = row.change
        if row.metric == "ece" and change is not None and change.value and (change.low or 0) > 0:
            digits = max(3, 1 - math.floor(math.log10(change.value)))
            before, after = (f"{part.value:.{digits}f}" for part in (row.before, row.after) if part is not None)
            yield _caution(
                f"On the labels that were given, calibration makes the ECE worse: {before} before, {after} after."
            )


def _few_images(report: Report) -> Iterator[Fact]:
    pairs = report.calibration.pairs
    if report.segmentation is not None and pairs < FEW_IMAGES:
        yield _caution(
            f"The temperature rests on only {pairs:,} pairs of images. Use {FEW_IMAGES} or more: pixels of the same "
            "image carry nearly the same information."
        )


def _differ(report: Report) -> Iterator[Fact]:
    """Say how many pairs could be mixed."""
    mixes, pairs = report.calibration.mixes, report.calibration.pairs
    if report.segmentation is not None:
        yield _note(
            f"{mixes:,} pixels of {pairs:,} pairs of images were mixed: those with two different predicted classes."
        )
        return
    text = (
        f"{mixes / pairs:.0%} of the pairs of inputs ({mixes:,} of {pairs:,}) have two different predicted classes; "
        "only these are mixed."
    )
    yield _caution(text) if mixes / pairs < FEW_DIFFER else _note(text)


def _sampling(report: Report) -> Iterator[Fact]:
    yield _note(
        "The interval of the temperature covers sampling error only: how much T would change with other inputs from "
        "the same source. It does not cover how well mixes represent real inputs."
    )


def _labels(report: Report) -> Iterator[Fact]:
    if not report.measured:
        yield _note("No labels were given, so whether the confidences match the accuracy has not been measured.")


def _unreadable(report: Report) -> Iterator[Fact]:
    count = len(report.data.unreadable)
    if count:
        yield _note(f"{count:,} of {report.data.inputs:,} inputs could not be read; they are listed below.")


def _left_out(report: Report) -> Iterator[Fact]:
    """Say how many blocks the workers could not process."""
    count = len(report.data.left_out)
    if count:
        yield _note(f"{count:,} of {report.data.blocks} were left out; they are listed below.")


def _caution(text: str) -> Fact:
    """Make a caution.

    >>> _caution("Few images.")
    Fact(level='caution', text='Few images.')
    """
    return Fact("caution", text)


def _note(text: str) -> Fact:
    return Fact("note", text)


CHECKS = (_harm, _few_images, _differ, _unreadable, _left_out, _labels, _sampling)


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


@dataclass(frozen=True)
class Track:
    """A line from 0 to 100% with a mark on it and, for the forecast, an interval."""

    kind: str  # "forecast", "before", "after" or "measured": the shape and colour of the mark
    label: str
    value: str
    y: float
    x: float
    bar: tuple[float, float] | None = None  # from x, width


@dataclass(frozen=True)
class Panel:
    """The verdict panel."""

    kind: str  # "apply", "caution" or "refuse": a class of the style sheet
    heading: str
    note: str | None
    description: str
    tracks: tuple[Track, ...]

    @property
    def height(self) -> float:
        """The height of the chart."""
        return self.tracks[-1].y + 34

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Five marks along the bottom."""
        return tuple((_x(k / 4), f"{25 * k}%") for k in range(5))


def panel(report: Report) -> Panel | None:
    """Make the panel of a report; None if it has no verdict."""
    trust = report.trust
    if trust is None:
        return None
    tracks = _tracks(report, trust)
    return Panel(
        kind="refuse" if trust.verdict == "do not apply" else trust.verdict,
        heading=HEADINGS[trust.verdict],
        note=REPLACED if trust.replaced else None,
        description=". ".join(f"{track.label}: {track.value}" for track in tracks) + ".",
        tracks=tracks,
    )


def _tracks(report: Report, trust: AboutTrust) -> tuple[Track, ...]:
    """Return the forecast, the mean confidence before and after and, with labels, the measured accuracy."""
    forecast, confidence = trust.forecast, report.confidence
    low, high = _x(forecast.low), _x(forecast.high)
    interval = f"{forecast.accuracy:.0%} ({forecast.low:.0%} to {forecast.high:.0%})"
    rows: list[tuple[str, str, str, float]] = [
        ("forecast", "Accuracy, forecast", interval, forecast.accuracy),
        ("before", "Mean confidence before", f"{confidence.mean_before:.1%}", confidence.mean_before),
        ("after", "Mean confidence after", f"{confidence.mean_after:.1%}", confidence.mean_after),
    ]
    for row in report.measured or ():
        value = row.before.value
        if row.metric == "accuracy" and value is not None:
            rows.append(("measured", "Accuracy, measured", f"{value:.1%}", value))
    return tuple(
        Track(
            kind, label, text, TRACK_FIRST + TRACK_STEP * i, _x(value), (low, round(high - low, 2)) if i == 0 else None
        )
        for i, (kind, label, text, value) in enumerate(rows)
    )


def _x(value: float) -> float:
    """Return the x coordinate of a share.

    >>> _x(0), _x(0.5), _x(1)
    (14, 180.0, 346)
    """
    return round(TRACK_LEFT + value * (TRACK_RIGHT - TRACK_LEFT), 2)
