"""Is there a better preprocessing than the given one? Try a few images before a run.

A network that gets its images as in training has one class that stands out. The score of an image
is therefore how far its largest logit lies above the mean of its logits, in standard deviations.
It does not change if all logits are multiplied by a number, as the confidence does.

The plausible variants race: all predict a few images, those that are clearly worse than the best
drop out, and the others go on. Another variant is clearly better than the given one if a paired t-test
of their scores says so, and if neither the confidence nor the predicted classes nor the agreement
with a second model speak against it
(`benchmarks/preprocessing.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.preprocessing import NORMALISATIONS, Preprocessing
from pseudocal.app.inputs.sets import ImageSet, RemoteImageSet
from pseudocal.arrays import Floats, InputError, Predictor, softmax

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_IMAGES = 300
COST = 0.04  # the largest part of the forward passes of a run; with preparation 5% of its time
ROUND = 8  # images of a round of the race
OUT_OF_RACE = 1.5  # standard errors below the best
CHANCE = 0.006  # of a lead this large if the given variant were as good
RESIZED = 0.1  # the least gain in the score by resizing, where a tighter view often gains a little
LEAST_CONFIDENCE = 0.3  # mean, of a variant that is better
LARGEST_CLASS = 0.5  # the most common prediction: more is a collapse
LOST_AGREEMENT = 0.1  # with the second model
# of the images: if pixels become much larger and few predictions change, only logits were scaled
SAME_CLASSES = 0.9
MUCH_LARGER = 50
SAME = 0.05  # the largest difference between two normalisations that are the same
ORDERS: tuple[Literal["rgb", "bgr"], ...] = ("rgb", "bgr")
CROP = 0.875  # the usual fraction left by the crop

Images = ImageSet | RemoteImageSet
# the preprocessing of the second model if the first has this one
OfSecond = Callable[[Preprocessing], Preprocessing]


class WrongPreprocessingError(InputError):
    """Another preprocessing is clearly better than the given one; `table` compares the variants."""

    def __init__(self, message: str, table: str) -> None:
        super().__init__(message)
        self.table = table


@dataclass
class Variant:
    """A preprocessing, and what the model says of the images that were tried with it."""

    name: str
    flags: str  # what to pass on the command line
    preprocessing: Preprocessing
    logits: list[Floats] = field(default_factory=list)
    second: list[NDArray[np.intp]] = field(default_factory=list)  # classes by the second model

    @property
    def scores(self) -> Floats:
        """The score of each image."""
        return standing_out(np.concatenate(self.logits))

    @property
    def confidence(self) -> float:
        """The mean confidence."""
        return float(softmax(np.concatenate(self.logits)).max(axis=1).mean())

    @property
    def predicted(self) -> NDArray[np.intp]:
        """The predicted class of each image."""
        classes: NDArray[np.intp] = np.concatenate(self.logits).argmax(axis=1)
        return classes

    @property
    def largest_class(self) -> float:
        """The fraction of the images with the most common predicted class."""
        return float(np.bincount(self.predicted).max() / len(self.predicted))

    @property
    def agreement(self) -> float | None:
        """The fraction of the images on which the second model agrees; None without one."""
        if not self.second:
            return None
        return float((np.concatenate(self.second) == self.predicted).mean())


class FittedImages:
    """The images of a round. Most variants differ in normalisation only, so each size is made once."""

    def __init__(self, decoded: Sequence[Image]) -> None:
        self._decoded = decoded
        self._fitted: dict[Preprocessing, list[NDArray[np.float32]]] = {}

    def prepared(self, preprocessing: Preprocessing) -> NDArray[np.float32]:
        """One batch of these images."""
        resizing = replace(preprocessing, scale=1, mean=(0.0,), std=(1.0,), order="rgb")
        if resizing not in self._fitted:
            self._fitted[resizing] = [resizing.fit(image) for image in self._decoded]
        return np.stack([preprocessing.normalise(values) for values in self._fitted[resizing]])


def standing_out(logits: Floats) -> Floats:
    """How far the largest logit lies above the mean of its row, in standard deviations.

    >>> standing_out(np.array([[3.0, 0.0, 0.0], [300.0, 0.0, 0.0], [1.0, 1.0, 1.0]])).round(3)
    array([1.414, 1.414, 0.   ])
    """
    centred = np.asarray(logits, dtype=np.float64)
    centred = centred - centred.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1)
    score: Floats = centred.max(axis=1) / np.where(spread == 0, 1, spread)
    return np.where(np.isfinite(score), score, 0)


def standard_errors(better: Floats, worse: Floats) -> float:
    """The mean difference of the scores of the same images, in standard errors.

    >>> standard_errors(np.array([2.0, 3.0, 4.0, 7.0]), np.array([1.0, 1.0, 1.0, 5.0])).__round__(3)
    4.899
    """
    n = min(len(better), len(worse))
    difference = better[:n] - worse[:n]
    error = difference.std(ddof=1) / math.sqrt(n)
    return float(difference.mean() / error) if error > 0 else 0.0


def variants_of(given: Preprocessing) -> list[Variant]:
    """The given preprocessing, and the plausible ones that differ from it.

    >>> [variant.flags for variant in variants_of(Preprocessing(channels=1))][:3]
    ['', '--preprocess minus-one-one', '--preprocess zero-255']
    """
    found = [Variant("as given", "", given)]
    for order in ORDERS:
        for name, settings in NORMALISATIONS.items():
            if given.channels == 1 and (order == "bgr" or len(settings["mean"]) > 1):
                continue
            other = normalised(given, name, order)
            flags = f"--preprocess {name}"
            if order != given.order:
                flags += f" --channel-order {order}"
            if not _same(other, given):
                found.append(Variant(f"{name}, {order.upper()}", flags, other))
    side = min(given.size)
    margin = math.floor(side / CROP)
    resized = {"stretched": ("--resize stretch", replace(given, resize="stretch", edge=None))}
    if side == max(given.size):  # a margin is the same on all sides
        resized["no margin"] = (f"--resize {side}", replace(given, resize="crop", edge=side))
        resized["margin"] = (f"--resize {margin}", replace(given, resize="crop", edge=margin))
    for name, (flags, other) in resized.items():
        same = other.resize == given.resize and (other.edge or side) == (given.edge or side)
        if not same:
            found.append(Variant(name, flags, other))
    return found


def normalised(
    preprocessing: Preprocessing, name: str, order: Literal["rgb", "bgr"]
) -> Preprocessing:
    """The same preprocessing with a normalisation by name, and with another order of colours."""
    settings = NORMALISATIONS[name]
    return replace(
        preprocessing, scale=1 / 255, mean=settings["mean"], std=settings["std"], order=order
    )


def _same(one: Preprocessing, other: Preprocessing) -> bool:
    """Whether two variants normalise alike, up to small differences of mean and std."""
    gains = [255 * each.scale / np.asarray(each.std) for each in (one, other)]
    shifts = [np.asarray(each.mean) / np.asarray(each.std) for each in (one, other)]
    same_gain = np.allclose(gains[0], gains[1], rtol=SAME, atol=0)
    same_shift = np.allclose(shifts[0], shifts[1], rtol=0, atol=SAME)
    return one.order == other.order and same_gain and same_shift


def compare_variants(
    predict: Predictor,
    images: Images,
    rows: Sequence[int],
    passes: int,
    second: tuple[Predictor, OfSecond] | None = None,
) -> list[Variant]:
    """Let the variants race over some images, and return those that were tried, best first.

    Those that stayed in the race longer come first.

    Nothing is returned if there are too few passes, or if the model has no logits of whole images.

    Args:
        predict: the model, from prepared images to logits.
        images: the images, with the given preprocessing.
        rows: the numbers of the images to use, in random order.
        passes: forward passes of the model to use.
        second: a second model, and how its images are prepared.

    """
    tried = variants_of(images.preprocessing)
    given = tried[0]
    rounds = _rounds(images, rows)
    racing = list(tried)
    while len(racing) > 1 and passes >= ROUND * len(racing):
        decoded = next(rounds, None)
        if decoded is None:
            break
        fitted = FittedImages(decoded)
        for variant in racing:
            logits = np.asarray(predict(fitted.prepared(variant.preprocessing)))
            if logits.ndim != 2:  # a segmentation model
                return []
            variant.logits.append(logits)
            if second is not None:
                x = fitted.prepared(second[1](variant.preprocessing))
                variant.second.append(np.asarray(second[0](x)).argmax(axis=1))
        passes -= ROUND * len(racing) * (1 if second is None else 2)
        racing = _still_racing(racing, given)
    measured = [variant for variant in tried if variant.logits]
    return sorted(measured, key=_place)


def _place(variant: Variant) -> tuple[int, float]:
    """Sorts the variants: first those with most images, then those with the largest score."""
    scores = variant.scores
    return -len(scores), -float(scores.mean())


def _still_racing(racing: list[Variant], given: Variant) -> list[Variant]:
    """The variants that are not clearly worse than the best; the given one is compared to the end."""
    best = max(racing, key=lambda each: each.scores.mean())
    kept = []
    for variant in racing:
        same = variant is not given and np.array_equal(variant.logits[-1], given.logits[-1])
        behind = standard_errors(best.scores, variant.scores) > OUT_OF_RACE
        if variant is given or not (same or behind):
            kept.append(variant)
    return kept


def _rounds(images: Images, rows: Sequence[int]) -> Iterator[list[Image]]:
    """Decode the images of one round after another; those that cannot be read are left out."""
    decoded: list[Image] = []
    for i in rows:
        with suppress(Exception):  # the run counts and reports what cannot be read
            decoded.append(images.decoded(int(i)))
        if len(decoded) == ROUND:
            yield decoded
            decoded = []


def better_than_given(variants: Sequence[Variant]) -> Variant | None:
    """The best variant if it is clearly better than the given one; None if it is not."""
    from scipy.special import stdtr  # loaded late: it slows down the start of the command

    if len(variants) < 2:
        return None
    best = variants[0]
    given = next(variant for variant in variants if not variant.flags)
    if best is given:
        return None
    lead = standard_errors(best.scores, given.scores)
    if stdtr(len(best.scores) - 1, -lead) > CHANCE:  # Student's t
        return None
    gain = float(best.scores.mean() / given.scores.mean()) - 1
    if _same(best.preprocessing, given.preprocessing) and gain < RESIZED:
        return None
    if best.confidence < LEAST_CONFIDENCE:
        return None
    same = float((best.predicted == given.predicted).mean())
    larger = float(np.mean(given.preprocessing.std) / np.mean(best.preprocessing.std))
    if same >= SAME_CLASSES and larger > MUCH_LARGER:
        return None
    if best.largest_class > max(LARGEST_CLASS, given.largest_class):
        return None
    if best.agreement is not None and given.agreement is not None:
        lost = given.agreement - best.agreement
        return best if lost <= LOST_AGREEMENT else None
    return best


def table_of(variants: Sequence[Variant]) -> str:
    """Compare the variants, line by line."""
    lines = ["  preprocessing         images  score  confidence  classes  agreement"]
    for variant in variants:
        images = len(variant.scores)
        agreement = "-" if variant.agreement is None else f"{variant.agreement:.0%}"
        lines.append(
            f"  {variant.name:20}{images:8}{variant.scores.mean():7.2f}{variant.confidence:12.0%}"
            f"{len(np.unique(variant.predicted)):9}{agreement:>11}"
        )
    return "\n".join(lines)


def check_preprocessing(
    predict: Predictor,
    images: Images,
    rows: Sequence[int],
    passes: int,
    second: tuple[Predictor, OfSecond] | None = None,
) -> int:
    """Raise an error if another preprocessing is clearly better; the arguments are as above.

    Returns how many images were tried with the given one: 0 if nothing could be compared.
    """
    variants = compare_variants(predict, images, rows[:MOST_IMAGES], passes, second)
    better = better_than_given(variants)
    if better is not None:
        raise WrongPreprocessingError(
            f"the images seem to be preprocessed differently than in training: with {better.flags} the "
            "predictions stand out more; pass that, or --preprocess-check off to go on",
            table_of(variants),
        )
    return max((len(each.scores) for each in variants if not each.flags), default=0)
