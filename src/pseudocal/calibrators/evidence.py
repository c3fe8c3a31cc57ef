"""What a pass over the target leaves behind: all that a calibration is made from, in bounded memory, and mergeable."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Labelled, Logits, Maps
from pseudocal.calibrators.agreement import Agreement, Mistakes, agreement_of
from pseudocal.randomness import Streams
from pseudocal.reservoir import Reservoir, Sample
from pseudocal.scaling import TemperatureScaling, fit_temperature

LESS_FOR_PIXELS = 4  # pixels of an image say nearly the same: a quarter of the memory holds what they tell
MOST_SHAPES = 1000  # beyond so many sizes it is not the sizes that are worth naming
FIRST_LOOK = 64  # mixes before the anytime mode looks at its standard error for the first time

Packed = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Step:
    """One batch of the target: what the model says of its inputs, and of the mixes that were made from them.

    Attributes:
        rows: which inputs of the data they are, `(n,)`.
        logits: what the model says of each, `(n, classes)`, or a map of each, `(n, classes, height, width)`.
        shape: the shape of one input.
        real: the same, of maps a sample of pixels, with the classes of a second opinion as labels, or the model's own
            if there is none.
        pairs: how many pairs of inputs were drawn.
        mixes: the labelled mixes.
        mistakes: what a second opinion said of sure mistakes, if there is one.
        passes: how many inputs and mixes were predicted, by both models.
        epoch: which pass over the data it is, from 0 on.

    """

    rows: NDArray[np.intp]
    logits: Logits | Maps
    shape: tuple[int, ...]
    real: Labelled
    pairs: int
    mixes: Labelled
    mistakes: Mistakes | None
    passes: int
    epoch: int = 0


class Evidence:
    """Samples of the mixes and of the real logits, and counts of what was done.

    Evidence from two parts of the target merges into what one pass over both would have left.

    >>> x = np.array([[2.0, 0.0]])
    >>> step = Step(np.array([0]), x, (2,), Labelled(x, np.array([0])), 3, Labelled(x, np.array([0])), None, 5)
    >>> part, other = Evidence(2**20, Streams(0, 0)), Evidence(2**20, Streams(0, 1))
    >>> part.add(step)
    >>> other.add(step)
    >>> part.merge(other.pack())
    >>> part.counts
    {'pairs': 6, 'mixes': 2, 'forward_passes': 10}
    """

    def __init__(self, memory: int, streams: Streams) -> None:
        self.mixes = Reservoir(memory * 2 // 3, streams.kept_mixes())
        self.real = Reservoir(memory // 3, streams.kept_real())
        self.mistakes: Mistakes | None = None
        self.inputs = 0  # real ones, each counted once, whether the model gives it one row or a row for each pixel
        self.pairs = 0
        self.shapes: list[tuple[int, ...]] = []  # of the inputs, as long as no two were paired
        self.epochs = 1
        self.forward_passes = 0
        # images are numbered from a random start, so those of parts that know nothing of each other stay apart
        self._first_image = streams.images().integers(2**62, dtype=np.int64)
        self._look_at = FIRST_LOOK

    def add(self, step: Step) -> None:
        """Take in what one batch gave."""
        self.epochs = step.epoch + 1
        self.forward_passes += step.passes
        self.pairs += step.pairs
        if self.pairs == 0 and len(self.shapes) < MOST_SHAPES and step.shape not in self.shapes:
            self.shapes.append(step.shape)
        if step.epoch == 0:
            self.inputs += len(step.logits)
            _make_room(self.real, of_pixels=step.real.groups is not None)
            self.real.add(step.real)
        if step.mistakes is not None:
            self.mistakes = (self.mistakes or Mistakes()) + step.mistakes
        if len(step.mixes):
            self._add_mixes(step.mixes, step.epoch)

    def _add_mixes(self, mixes: Labelled, epoch: int) -> None:
        if mixes.groups is not None:
            mixes = replace(mixes, groups=mixes.groups + self._first_image + (epoch << 32))
        _make_room(self.mixes, of_pixels=mixes.groups is not None)
        self.mixes.add(mixes)

    def pack(self) -> Packed:
        """All of it as plain arrays, to be sent elsewhere."""
        mixes, real = self.mixes.sample, self.real.sample
        numbers = [self.inputs, self.pairs, self.forward_passes, self.epochs, mixes.seen, real.seen]
        packed = {"counts": np.array(numbers, dtype=np.int64), "ceilings": np.array([mixes.ceiling, real.ceiling])}
        if self.mistakes is not None:
            packed["mistakes"] = np.array(astuple(self.mistakes))
        return packed | {name: s.rows for name, s in (("mixes", mixes), ("real", real)) if s.rows is not None}

    def merge(self, packed: Packed) -> None:
        """Take in what was collected from another part of the target and packed there."""
        inputs, pairs, forward_passes, epochs, mixes, real = packed["counts"].tolist()
        below_mixes, below_real = packed["ceilings"].tolist()
        _merge(self.mixes, Sample(packed.get("mixes"), mixes, below_mixes))
        _merge(self.real, Sample(packed.get("real"), real, below_real))
        if "mistakes" in packed:
            self.mistakes = (self.mistakes or Mistakes()) + Mistakes(*packed["mistakes"].tolist())
        self.inputs += inputs
        self.pairs += pairs
        self.forward_passes += forward_passes
        self.epochs = max(self.epochs, epochs)

    @property
    def counts(self) -> dict[str, int]:
        """What was done."""
        return {"pairs": self.pairs, "mixes": self.mixes.seen, "forward_passes": self.forward_passes}

    @property
    def agreement(self) -> Agreement | None:
        """How often a second opinion agrees, if there is one."""
        return None if self.mistakes is None else agreement_of(self.real.labelled, self.mistakes)

    def temperature(self) -> TemperatureScaling:
        """Fit the mixes.

        Mixes of later epochs are of the same inputs, so they count as no new evidence for the error. They are some,
        since the pairs are new: the interval is then wider than it need be, never narrower.
        """
        mixes = self.mixes.labelled
        fitted = fit_temperature(mixes.logits, mixes.labels, weights=mixes.weights, groups=mixes.groups)
        fitted = replace(fitted, effective_rows=fitted.effective_rows / self.epochs)
        if fitted.groups is None:
            return replace(fitted, log_se=fitted.log_se * math.sqrt(self.epochs))
        log_se = fitted.log_se * math.sqrt(self.epochs) if self.inputs > 2 else math.inf  # of one pair of images
        return replace(fitted, log_se=log_se, groups=fitted.groups / self.epochs)

    def settled(self, tolerance: float | None) -> bool:
        """Whether the standard error of log T is below `tolerance`; looks seldom, when the answer may have changed."""
        held = len(self.mixes)
        if tolerance is None or held < self._look_at:
            return False
        error = self.temperature().log_se
        needed = held * (error / tolerance) ** 2  # the error falls with the root of the number
        self._look_at = int(np.clip(1.02 * needed, 1.1 * held, 2 * held))
        return error < tolerance

    def why_no_mixes(self, strategy: str | None) -> str:
        """What to say where nothing could be mixed; `strategy` is what took the place of mixup."""
        rows, maps = self.inputs, self.real.seen > 0 and self.real.labelled.groups is not None
        if self.pairs == 0 and rows > 1 and len(self.shapes) == rows:
            first = ", ".join(" x ".join(map(str, shape)) for shape in self.shapes[:3])
            return (
                f"expected inputs of which two share a size, since those are paired, got {rows} of as many sizes "
                f"({first}{', ...' if rows > 3 else ''}): resize them to one size, or to a few"
            )
        if self.pairs == 0 and rows > 1:
            return f"expected batches of at least two inputs to pair within them, got {rows} inputs in batches of one"
        if self.pairs == 0:
            return f"expected at least two target inputs to mix, got {rows}"
        if strategy is not None:
            return f"expected at least one row from the strategy, got none of {self.pairs} pairs"
        if maps:
            return (
                f"expected images that the model tells apart somewhere, got {rows} of which no two that were paired "
                "differ in the class of any pixel: are they different images?"
            )
        return (
            f"expected target inputs that the model tells apart, got one predicted class for all {rows}: "
            "a model that always says the same cannot be calibrated by mixing its inputs"
        )


def _merge(reservoir: Reservoir, sample: Sample) -> None:
    _make_room(reservoir, of_pixels=sample.rows is not None and "group" in (sample.rows.dtype.names or ()))
    reservoir.merge_sample(sample)


def _make_room(reservoir: Reservoir, *, of_pixels: bool) -> None:
    """Leave memory to the frames where rows are pixels."""
    if reservoir.seen == 0 and of_pixels:
        reservoir.memory //= LESS_FOR_PIXELS
