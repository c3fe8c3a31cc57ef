"""What a pass over the target leaves behind: all that a calibration is made from, in bounded memory, and mergeable."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import Labelled, Logits
from pseudocal.calibrators.second_opinion import Agreement, Mistakes, agreement_of
from pseudocal.reservoir import Reservoir, Sample
from pseudocal.scaling import TemperatureScaling, fit_temperature

OF_PIXELS = 4  # pixels of an image say nearly the same: so much less memory holds all that they tell, beside a frame
MOST_SHAPES = 1000  # beyond so many sizes it is not the sizes that are worth naming
FIRST_LOOK = 64  # mixes before the anytime mode looks at its standard error for the first time

Packed = dict[str, NDArray[Any]]


class Collected:
    """Samples of the mixes and of the real logits, and counts of what was done.

    Two of them merge into what one pass over both parts would have left, so a cluster collects part by part.

    >>> rng = np.random.default_rng(0)
    >>> part, other = Collected(2**20, rng), Collected(2**20, rng)
    >>> part.add_real(np.array([[2.0, 0.0]]))
    >>> other.add_mixes(Labelled(np.array([[1.0, 0.0]]), np.array([0])), pairs=3)
    >>> part.merge(other)
    >>> part.counts
    {'pairs': 3, 'mixes': 1, 'forward_passes': 0}
    """

    def __init__(self, memory: int, rng: np.random.Generator) -> None:
        mixes_rng, real_rng = rng.spawn(2)
        self.mixes = Reservoir(memory * 2 // 3, mixes_rng)
        self.real = Reservoir(memory // 3, real_rng)  # each with the class of a second opinion, or the model's own
        self.mistakes: Mistakes | None = None  # what a second opinion was asked about, if there is one
        self.inputs = 0  # real ones, each counted once, whether the model gives it one row or a row for each pixel
        self.pairs = 0
        self.shapes: list[tuple[int, ...]] = []  # of the inputs met here, as long as no two were paired
        self.epochs = 1
        self.forward_passes = 0  # set by whoever counted them
        # images are numbered from a random start, so those of parts that know nothing of each other stay apart
        self._first_id = rng.integers(2**62, dtype=np.int64)

    def meet(self, shape: tuple[int, ...]) -> None:
        """Note the shape of inputs, to be able to say why none was paired."""
        if self.pairs == 0 and len(self.shapes) < MOST_SHAPES and shape not in self.shapes:
            self.shapes.append(shape)

    def add_real(self, logits: Logits | Labelled) -> None:
        """Take in what the model says of real inputs that it met for the first time."""
        _add(self.real, logits if isinstance(logits, Labelled) else Labelled(logits, logits.argmax(axis=1)))

    def add_mistakes(self, mistakes: Mistakes) -> None:
        """Take in what a second opinion said of sure mistakes."""
        self.mistakes = (self.mistakes or Mistakes()) + mistakes

    def add_mixes(self, mixes: Labelled, *, pairs: int) -> None:
        """Take in the mixes that were made from `pairs` pairs."""
        self.pairs += pairs
        if mixes.groups is not None:
            mixes = replace(mixes, groups=mixes.groups + self._first_id + (self.epochs << 32))
        if len(mixes):
            _add(self.mixes, mixes)

    def merge(self, other: Collected) -> None:
        """Take in what was collected from another part of the target."""
        self.merge_packed(other.pack())

    def pack(self) -> Packed:
        """All of it as plain arrays, to be sent elsewhere."""
        mixes, real = self.mixes.sample, self.real.sample
        numbers = [self.inputs, self.pairs, self.forward_passes, self.epochs, mixes.seen, real.seen]
        packed = {"counts": np.array(numbers, dtype=np.int64), "ceilings": np.array([mixes.ceiling, real.ceiling])}
        if self.mistakes is not None:
            packed["mistakes"] = np.array(astuple(self.mistakes))
        return packed | {name: s.rows for name, s in (("mixes", mixes), ("real", real)) if s.rows is not None}

    def merge_packed(self, packed: Packed) -> None:
        """Take in what was collected and packed elsewhere."""
        inputs, pairs, forward_passes, epochs, mixes, real = packed["counts"].tolist()
        below_mixes, below_real = packed["ceilings"].tolist()
        _merge(self.mixes, Sample(packed.get("mixes"), mixes, below_mixes))
        _merge(self.real, Sample(packed.get("real"), real, below_real))
        if "mistakes" in packed:
            self.add_mistakes(Mistakes(*packed["mistakes"].tolist()))
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
        """Fit the mixes. Those of later epochs are of the same inputs, so they count as no new evidence for the error.

        They are some, since the pairs are new: the interval is then wider than it need be, never narrower.
        """
        mixes = self.mixes.labelled
        fitted = fit_temperature(mixes.logits, mixes.labels, weights=mixes.weights, groups=mixes.groups)
        if fitted.groups is None:
            return replace(fitted, log_se=fitted.log_se * math.sqrt(self.epochs))
        log_se = fitted.log_se * math.sqrt(self.epochs) if self.inputs > 2 else math.inf  # of one pair of images
        return replace(fitted, log_se=log_se, groups=fitted.groups / self.epochs)


def _add(reservoir: Reservoir, rows: Labelled) -> None:
    _make_room(reservoir, of_pixels=rows.groups is not None)
    reservoir.add(rows)


def _merge(reservoir: Reservoir, sample: Sample) -> None:
    _make_room(reservoir, of_pixels=sample.rows is not None and "group" in (sample.rows.dtype.names or ()))
    reservoir.merge_sample(sample)


def _make_room(reservoir: Reservoir, *, of_pixels: bool) -> None:
    if reservoir.seen == 0 and of_pixels:
        reservoir.memory //= OF_PIXELS


class Settled:
    """Whether the temperature is known well enough; looks seldom, when the answer may have changed."""

    def __init__(self, tolerance: float | None) -> None:
        self._tolerance = tolerance
        self._look_at = FIRST_LOOK

    def __call__(self, collected: Collected) -> bool:
        """Look, if it is time to."""
        held = len(collected.mixes)
        if self._tolerance is None or held < self._look_at:
            return False
        error = collected.temperature().log_se
        needed = held * (error / self._tolerance) ** 2  # the error falls with the root of the number
        self._look_at = int(np.clip(1.02 * needed, 1.1 * held, 2 * held))
        return error < self._tolerance
