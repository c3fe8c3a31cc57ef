"""What a pass over the target collects for a calibration, in bounded memory, and mergeable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Labelled, Logits
from pseudocal.calibrators.agreement import (
    Agreement,
    Opinion,
    Suspects,
    agreement_of,
    count_agreement,
    find_mistakes,
)
from pseudocal.calibrators.surrogate import (
    PACKED,
    SurrogateBatch,
    SurrogateSample,
    check_surrogate,
)
from pseudocal.randomness import Streams
from pseudocal.reservoir import Reservoir, Sample, check_sample
from pseudocal.scaling import TemperatureScaling
from pseudocal.scaling.temperature import fit_any_logits

# pixels of an image are strongly correlated: a quarter of the memory is enough for them
LESS_FOR_PIXELS = 4
MOST_SHAPES = 1000  # shapes of inputs that are remembered for the error message
# mixup samples before the standard error is compared with the tolerance for the first time
FIRST_LOOK = 64
LARGEST_COUNT = 2**53  # up to which floats are exact
ROUNDING = 1 + 1e-6  # sums of many floats may exceed each other by this

Packed = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Step:
    """One batch of the target.

    The logits of its inputs and of the mixup samples that were made from them.

    Attributes:
        rows: The row numbers of the inputs in the data, of shape `(n,)`.
        shape: The shape of one input.
        real: The logits of the inputs (of maps, those of a sample of pixels), labelled with the
            predicted class.
        pairs: The number of pairs of inputs.
        mixup_samples: The labelled mixup samples.
        opinions: What each second model says of the inputs and of the mixup samples; empty if there
            is none.
        passes: The number of inputs and mixup samples that all models predicted.
        epoch: How often the inputs were paired before.
        surrogate_samples: What a surrogate learns from the batch; empty if there is none.
        second_logits: The logits of each second model for the inputs, of shape `(n, classes)`;
            empty if there is none, and in every epoch but the first.

    """

    rows: NDArray[np.intp]
    shape: tuple[int, ...]
    real: Labelled
    pairs: int
    mixup_samples: Labelled
    opinions: Sequence[Opinion]
    passes: int
    epoch: int = 0
    surrogate_samples: Sequence[SurrogateBatch] = ()
    second_logits: Sequence[Logits] = ()

    def __repr__(self) -> str:
        mixed = f"{self.pairs} pairs, {len(self.mixup_samples)} mixup samples"
        return f"Step({len(self.rows)} inputs, {mixed}, epoch {self.epoch})"

    @property
    def logits(self) -> Logits | None:
        """The logits of the inputs, of shape `(n, classes)`.

        None for maps, which are too large to carry along.
        """
        return self.real.logits if self.real.groups is None else None


def count_opinions(
    others: Sequence[Logits], real: Labelled, suspects: Suspects, said: Sequence[Logits | None]
) -> list[Opinion]:
    """Count what each second model says of one batch.

    Of its inputs, whose logits are `others`, and of the suspects among its mixup samples.
    """
    mistakes = find_mistakes(suspects, said)
    return [
        count_agreement(real.logits, second_logits) + wrong
        for second_logits, wrong in zip(others, mistakes, strict=True)
    ]


class _Counts(NamedTuple):
    """The counts in packed evidence, in their order."""

    inputs: int
    pairs: int
    forward_passes: int
    epochs: int
    mixup_samples: int  # all that were seen, also those that were not kept
    real: int  # likewise


class Evidence:
    """Samples of the mixup samples and of the real logits, and counts of what was done.

    Evidence from two parts of the target merges into the evidence that one pass over both would
    have collected.

    >>> x = np.array([[2.0, 0.0]])
    >>> step = Step(np.array([0]), (2,), Labelled(x, np.array([0])), 3, Labelled(x, np.array([0])), (), 5)
    >>> part, other = Evidence(2**20, Streams(0, 0)), Evidence(2**20, Streams(0, 1))
    >>> part.add(step)
    >>> other.add(step)
    >>> part.merge(other.pack())
    >>> part.counts
    {'pairs': 6, 'mixup_samples': 2, 'forward_passes': 10}

    Args:
        memory: The most bytes that the samples may take.
        streams: The random streams that decide which rows are kept.

    """

    def __init__(self, memory: int, streams: Streams) -> None:
        self.mixup_samples = Reservoir(memory * 2 // 3, streams.kept_mixup())
        self.real = Reservoir(memory // 3, streams.kept_real())
        self.opinions: list[Opinion] = []
        self.surrogate_samples: SurrogateSample | None = None
        self.inputs = 0  # real inputs, each counted once, also if every pixel of it has a row
        self.pairs = 0
        # shapes of the inputs, until two of them have been paired
        self.shapes: list[tuple[int, ...]] = []
        self.epochs = 1
        self.forward_passes = 0
        # images are numbered from a random start, so that the numbers of different blocks do not
        # collide
        self._first_image = streams.images().integers(2**62, dtype=np.int64)
        self._look_at = FIRST_LOOK

    def add(self, step: Step) -> None:
        """Add the step of one batch.

        Args:
            step: The step, as `PseudoCal.steps` yields it.

        """
        self.epochs = max(self.epochs, step.epoch + 1)
        self.forward_passes += step.passes
        self.pairs += step.pairs
        if self.pairs == 0 and len(self.shapes) < MOST_SHAPES and step.shape not in self.shapes:
            self.shapes.append(step.shape)
        if step.epoch == 0:
            self.inputs += len(step.rows)
            _make_room(self.real, of_pixels=step.real.groups is not None)
            self.real.add(step.real)
        self._add_opinions(step.opinions)
        for batch_sample in step.surrogate_samples:
            self.surrogate_samples = self.surrogate_samples or SurrogateSample.of(batch_sample)
            self.surrogate_samples.add(batch_sample)
        if len(step.mixup_samples):
            self._add_mixup(step.mixup_samples, step.epoch)

    def _add_mixup(self, mixup_samples: Labelled, epoch: int) -> None:
        if mixup_samples.groups is not None:
            mixup_samples = replace(
                mixup_samples, groups=mixup_samples.groups + self._first_image + (epoch << 32)
            )
        _make_room(self.mixup_samples, of_pixels=mixup_samples.groups is not None)
        self.mixup_samples.add(mixup_samples)

    def _add_opinions(self, opinions: Sequence[Opinion]) -> None:
        before = self.opinions or [Opinion.empty(len(opinion.inputs)) for opinion in opinions]
        self.opinions = [old + new for old, new in zip(before, opinions, strict=True)]

    def pack(self) -> Packed:
        """The evidence as plain arrays, to be sent to another process."""
        mixup_samples, real = self.mixup_samples.sample, self.real.sample
        counts = _Counts(
            inputs=self.inputs,
            pairs=self.pairs,
            forward_passes=self.forward_passes,
            epochs=self.epochs,
            mixup_samples=mixup_samples.seen,
            real=real.seen,
        )
        packed = {
            "counts": np.array(counts, dtype=np.int64),
            "ceilings": np.array([mixup_samples.ceiling, real.ceiling]),
        }
        if self.opinions:
            packed["opinions"] = np.r_[
                len(self.opinions), np.ravel([astuple(opinion) for opinion in self.opinions])
            ]
        if self.surrogate_samples is not None:
            packed |= self.surrogate_samples.pack()
        if mixup_samples.rows is not None:
            packed["mixup"] = mixup_samples.rows
        if real.rows is not None:
            packed["real"] = real.rows
        return packed

    def merge(self, packed: Packed) -> None:
        """Merge evidence from another part of the target.

        Args:
            packed: The evidence, as `pack` returns it.

        """
        counts = _Counts(*packed["counts"].tolist())
        below_mixup, below_real = packed["ceilings"].tolist()
        _merge(self.mixup_samples, Sample(packed.get("mixup"), counts.mixup_samples, below_mixup))
        _merge(self.real, Sample(packed.get("real"), counts.real, below_real))
        if "opinions" in packed:
            opinions = int(packed["opinions"][0])
            numbers = packed["opinions"][1:]
            self._add_opinions(
                [Opinion(*of_one) for of_one in numbers.reshape(opinions, len(fields(Opinion)), -1)]
            )
        if PACKED[0] in packed:
            self.surrogate_samples = self.surrogate_samples or SurrogateSample.like(packed)
            self.surrogate_samples.merge(packed)
        self.inputs += counts.inputs
        self.pairs += counts.pairs
        self.forward_passes += counts.forward_passes
        self.epochs = max(self.epochs, counts.epochs)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of pairs, mixup samples and forward passes."""
        return {
            "pairs": self.pairs,
            "mixup_samples": self.mixup_samples.seen,
            "forward_passes": self.forward_passes,
        }

    @property
    def agreements(self) -> list[Agreement]:
        """The agreement with each second opinion.

        Later epochs repeat the inputs, so they do not reduce its error.
        """
        real, epochs = self.real.labelled, self.epochs
        found = [agreement_of(opinion, real) for opinion in self.opinions]
        found = [replace(a, rows=a.rows // epochs, mistakes=a.mistakes / epochs) for a in found]
        if self.surrogate_samples is not None:  # which has each input once
            surrogate = agreement_of(self.surrogate_samples.opinion(real.logits.shape[1]), real)
            found.append(
                replace(
                    surrogate,
                    mistakes=surrogate.mistakes / epochs,
                    surrogate=True,
                    from_second=self.surrogate_samples.from_second,
                )
            )
        return found

    def temperature(self) -> TemperatureScaling:
        """Fit the temperature on the mixup samples.

        Mixup samples of later epochs reuse the same inputs, so they do not reduce the standard
        error. This is conservative, since the pairs are new.
        """
        mixup_samples = self.mixup_samples.labelled
        fitted = fit_any_logits(
            mixup_samples.logits,
            mixup_samples.labels,
            weights=mixup_samples.weights,
            groups=mixup_samples.groups,
        )
        fitted = replace(fitted, effective_rows=fitted.effective_rows / self.epochs)
        log_se = fitted.log_se * math.sqrt(self.epochs)
        if fitted.groups is None:
            return replace(fitted, log_se=log_se)
        if self.inputs <= 2:  # one pair of images tells nothing of the error
            log_se = math.inf
        return replace(fitted, log_se=log_se, groups=fitted.groups / self.epochs)

    def converged(self, tolerance: float | None) -> bool:
        """Whether the standard error of log T is below a tolerance.

        It is computed only when that may have changed.

        Args:
            tolerance: The tolerance; None means never.

        """
        held = len(self.mixup_samples)
        if tolerance is None or held < self._look_at:
            return False
        error = self.temperature().log_se
        ratio = min(error / tolerance, 1e6)  # its square is finite
        # the error decreases with the square root of the number of mixup samples
        needed = held * ratio**2
        self._look_at = int(np.clip(1.02 * needed, 1.1 * held, 2 * held))
        return error < tolerance

    def why_no_mixup_samples(self, strategy: str | None) -> str:
        """The error message if there are no mixup samples.

        Args:
            strategy: The name of the strategy that replaced mixup, if any.

        """
        rows = self.inputs
        maps = self.real.seen > 0 and self.real.labelled.groups is not None
        if self.pairs == 0 and rows > 1 and len(self.shapes) == rows:
            first = ", ".join(" x ".join(map(str, shape)) for shape in self.shapes[:3])
            more = ", ..." if rows > 3 else ""
            return (
                f"no two of the {rows} inputs have the same shape ({first}{more}): resize "
                "them to one size, or to a few"
            )
        if self.pairs == 0 and rows > 1:
            return f"expected batches of at least two inputs to pair within them, got {rows} inputs in batches of one"
        if self.pairs == 0:
            return f"expected at least two target inputs to mix, got {rows}"
        if strategy is not None:
            return f"expected at least one row from the strategy, got none of {self.pairs} pairs"
        if maps:
            return (
                f"expected images whose predicted classes differ somewhere, got {rows} of which no "
                "two that were paired differ in any pixel: are they different images?"
            )
        return (
            "expected target inputs of at least two predicted classes, got one predicted class "
            f"for all {rows}: a model that always predicts the same class cannot be calibrated by "
            "mixing its inputs"
        )


def check_packed(packed: Packed, classes: int, *, of_pixels: bool = False) -> None:
    """Refuse what `Evidence.pack` could not have returned: it may come from somebody else.

    >>> packed = Evidence(2**20, Streams(0, 0)).pack()
    >>> check_packed(packed, classes=3)
    >>> check_packed(packed | {"counts": -packed["counts"]}, classes=3)
    Traceback (most recent call last):
    pseudocal.arrays.InputError: the evidence counts [0, 0, 0, -1, 0, 0]

    Args:
        packed: The evidence.
        classes: The number of classes.
        of_pixels: Whether each row is a pixel, so that rows have groups.

    """
    unknown = set(packed) - {"counts", "ceilings", "opinions", "mixup", "real", *PACKED}
    if unknown:
        raise InputError(f"the evidence has an unknown array {min(unknown)!r}")
    counts = _Counts(*_numbers(packed, "counts", np.int64, len(_Counts._fields)))
    in_range = all(0 <= count <= LARGEST_COUNT for count in counts)
    if not in_range or not 1 <= counts.epochs <= max(1, counts.forward_passes):
        raise InputError(f"the evidence counts {[*counts]}")
    below_mixup, below_real = _numbers(packed, "ceilings", np.float64, 2)
    check_sample(
        Sample(packed.get("mixup"), counts.mixup_samples, below_mixup),
        "mixup",
        columns=classes,
        classes=classes,
        groups=[(), (2,)] if of_pixels else (),
    )
    check_sample(
        Sample(packed.get("real"), counts.real, below_real),
        "real",
        columns=classes,
        classes=classes,
        groups=[()] if of_pixels else (),
    )
    if "opinions" in packed:
        _check_opinions(packed["opinions"], classes, counts.epochs, counts.mixup_samples)
    if PACKED[0] in packed:
        check_surrogate(packed, classes)
    elif not packed.keys().isdisjoint(PACKED):
        raise InputError(f"the evidence has no {PACKED[0]}")


def _numbers(packed: Packed, name: str, dtype: Any, size: int) -> list[Any]:
    """A few numbers of packed evidence."""
    if name not in packed:
        raise InputError(f"the evidence has no {name}")
    array = packed[name]
    if array.dtype != dtype or array.shape != (size,):
        raise InputError(f"{name} is {array.dtype} of shape {array.shape}, not {size} numbers")
    found: list[Any] = array.tolist()
    return found


def _check_opinions(array: NDArray[Any], classes: int, epochs: int, mixup_samples: int) -> None:
    """Refuse counts of second models that contradict each other."""
    of_one = len(fields(Opinion)) * classes
    if array.dtype != np.float64 or array.ndim != 1 or len(array) < 1 + of_one:
        raise InputError(f"opinions is {array.dtype} of shape {array.shape}")
    if array[0] * of_one != len(array) - 1:
        raise InputError(f"opinions has {len(array) - 1} counts of {array[0]:g} second models")
    if not np.all((array >= 0) & (array <= LARGEST_COUNT)):
        raise InputError("opinions has counts that are negative, infinite or NaN")
    for numbers in array[1:].reshape(-1, len(fields(Opinion)), classes):
        opinion = Opinion(*numbers)
        agreed = np.all(opinion.agreed <= opinion.inputs)
        confident = np.all(opinion.second_confidence <= opinion.inputs * ROUNDING)
        shared = np.all(opinion.shared <= opinion.mistakes * ROUNDING)
        # by the inequality of Cauchy and Schwarz
        most = float(opinion.squares.sum()) * mixup_samples * ROUNDING
        weighted = float(opinion.mistakes.sum()) ** 2 <= most
        if not (agreed and confident and shared and weighted):
            raise InputError("opinions has counts that contradict each other")
        if opinion.inputs.sum() < epochs:
            raise InputError(f"opinions has {opinion.inputs.sum():g} inputs in {epochs} epochs")


def _merge(reservoir: Reservoir, sample: Sample) -> None:
    _make_room(
        reservoir, of_pixels=sample.rows is not None and "group" in (sample.rows.dtype.names or ())
    )
    reservoir.merge_sample(sample)


def _make_room(reservoir: Reservoir, *, of_pixels: bool) -> None:
    """Use less memory if rows are pixels, since the images need it."""
    if reservoir.seen == 0 and of_pixels:
        reservoir.memory //= LESS_FOR_PIXELS
