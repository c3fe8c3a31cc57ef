"""The sections of a report as typed records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pseudocal.calibrators.trust import Forecast, Verdict

Reason = tuple[str, str]  # the name of an input or a block, and why it is not used


@dataclass(frozen=True)
class AboutModel:
    """What was calibrated.

    Attributes:
        name: the model as it was given: a path, an address or an import name.
        title: a short name for headings.
        kind: the format of the model, such as "onnx".
        recipe: which lines of code use the result: the kind, or "onnx-inside".
        output: the output that is calibrated, where a model has several.
        notes: what was found out or assumed on opening it.
        files: the files of the calibrated model, by name.

    """

    name: str
    title: str
    kind: str
    recipe: str
    output: str | None
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class AboutData:
    """What it was calibrated on.

    Attributes:
        name: the data as they were given.
        inputs: how many inputs there are.
        used: how many were used.
        preparation: what happens to an input before the model sees it.
        unreadable: inputs that could not be read, and why.
        left_out: blocks that workers could not process, and why.
        blocks: how many blocks of what there were, in words; None if there were none.

    """

    name: str
    inputs: int
    used: int
    preparation: str
    unreadable: tuple[Reason, ...] = ()
    left_out: tuple[Reason, ...] = ()
    blocks: str | None = None


@dataclass(frozen=True)
class AboutFit:
    """The temperature, its 95% interval, and what it was fitted on.

    Attributes:
        method: the name of the calibrator.
        temperature: what logits are divided by.
        low: the lower end of the interval; None if it is not known.
        high: the upper end; None if there is none.
        bound: which end of the searched range the temperature lies at, if it does.
        pairs: how many pairs of inputs were drawn.
        mixes: how many of them, or of their pixels, were mixed.
        forward_passes: how many inputs went through the model.

    """

    method: str
    temperature: float
    low: float | None
    high: float | None
    bound: str | None
    pairs: int
    mixes: int
    forward_passes: int


@dataclass(frozen=True)
class AboutTrust:
    """The verdict.

    Attributes:
        verdict: whether to apply the temperature.
        reasons: why, the worst first.
        forecast: the accuracy to expect.
        evidence: the numbers that were looked at.
        score: the larger the worse; None without a second opinion.
        replaced: whether a temperature of one stands in for one that should not be applied.

    """

    verdict: Verdict
    reasons: tuple[str, ...]
    forecast: Forecast
    evidence: dict[str, float]
    score: float | None
    replaced: bool


@dataclass(frozen=True)
class Histogram:
    """Confidence before and after: edges of the bins, counts in each, means."""

    edges: tuple[float, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    mean_before: float
    mean_after: float


@dataclass(frozen=True)
class ClassShare:
    """A class and its share among the predictions."""

    name: str
    share: float


@dataclass(frozen=True)
class FilledBin:
    """One bin of a reliability diagram that has predictions; the interval is of the accuracy."""

    left: float
    right: float
    count: int
    confidence: float
    accuracy: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Bins:
    """Reliability: per bin of confidence its predictions, mean confidence and accuracy with its interval.

    Means are None where a bin is empty, and intervals are None where there are none.
    """

    edges: tuple[float, ...]
    count: tuple[int, ...]
    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    ece: float


@dataclass(frozen=True)
class Diagrams:
    """Reliability before and after, of the labelled inputs or pixels, or of the mixes."""

    of: Literal["inputs", "pixels", "mixes"]
    before: Bins
    after: Bins


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; None where a number is not finite."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Measurement:
    """A metric before calibration, after it, and its paired change; the last two only if there is an after."""

    metric: Literal["ece", "nll", "brier", "accuracy", "miou"]
    before: Estimate
    after: Estimate | None = None
    change: Estimate | None = None


@dataclass(frozen=True)
class Example:
    """One input: its predicted class, its confidence before and after, its picture and its label if there are some."""

    name: str
    class_name: str
    before: float
    after: float
    thumbnail: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Examples:
    """The inputs whose confidence changed most, and those that the calibrated model is least sure of."""

    changed: tuple[Example, ...]
    unsure: tuple[Example, ...]


@dataclass(frozen=True)
class MapPictures:
    """One image pixel by pixel: the picture, the confidence before and after, and where the model is right."""

    name: str
    picture: str | None
    before: str
    after: str
    correct: str | None


@dataclass(frozen=True)
class Segmentation:
    """What only a segmenter has: a few images as maps, and a table of classes."""

    maps: tuple[MapPictures, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Fact:
    """A sentence that one should know before using the calibration."""

    level: Literal["caution", "note"]
    text: str


@dataclass(frozen=True)
class Timing:
    """How many seconds it took, and when it was finished."""

    seconds: float
    finished: str
