"""Is there a better preprocessing than the given one? Try a few images before a run.

A network that gets its images as in training is decided, and says different things of different
images. Two scores of an image measure this, both after each row of logits is standardised, so that
multiplying all logits by a number changes nothing:

- how far its largest logit stands out. A broken network that always predicts one class may have a
  large score.
- the information: the Kullback-Leibler divergence of its prediction from the mean prediction. A
  broken network may have a large score on images that are all of one kind.

The normalisations race: all predict a few images, those that are clearly worse than another one
drop out, and the others go on. If only the given one is left, it races against other ways to
resize. A variant is named if it is the only one left beside the given one and leads in both scores,
clearly in one of them, and if neither the confidence nor the predicted classes nor the agreement
with a second model speak against it. If in doubt, nothing is said (`benchmarks/preprocessing.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.preprocessing import NORMALISATIONS, Preprocessing
from pseudocal.app.inputs.sets import ImageSet, RemoteImageSet
from pseudocal.arrays import Floats, InputError, Predictor, softmax

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_IMAGES = 300
# the largest part of the images that a run prepares, and of its forward passes
COST = 0.04
ROUND = 8  # images of a round of the race
FEWEST = 16  # images from which on an undecided race means something
OUT_OF_RACE = 1.5  # standard errors behind another variant, the mean of both scores
CHANCE = 0.006  # of a lead this large if the given variant were as good
# the least gain by resizing in how far logits stand out: a tighter view often gains a little
RESIZED = 0.1
LEAST_CONFIDENCE = 0.3  # mean, of a variant that is better
LARGEST_CLASS = 0.5  # the most common prediction: more is a collapse
LOST_AGREEMENT = 0.1  # with the second model, corrected for chance
# of the images: if pixels become much larger and few predictions change, only logits were scaled
SAME_CLASSES = 0.9
MUCH_LARGER = 50
SAME = 0.05  # the largest difference between two normalisations that are the same
ORDERS: tuple[Literal["rgb", "bgr"], ...] = ("rgb", "bgr")
CROP = 0.875  # the usual fraction left by the crop

Images = ImageSet | RemoteImageSet
# the preprocessing of the second model if the first has this one
OfSecond = Callable[[Preprocessing], Preprocessing]


class NotComparableError(Exception):
    """The outputs of the model have no scores to compare."""


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
        """Both scores of each image, of shape (2, images)."""
        logits = np.concatenate(self.logits)
        return np.stack([standing_out(logits), information(logits)])

    @property
    def images(self) -> int:
        """How many images were tried."""
        return sum(len(each) for each in self.logits)

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
        """The agreement with the second model, corrected for chance; None without one.

        Two networks that always predict the same class agree by chance.
        """
        if not self.second:
            return None
        second = np.concatenate(self.second)
        observed = float((second == self.predicted).mean())
        classes = max(second.max(), self.predicted.max()) + 1
        counts = [np.bincount(each, minlength=classes) for each in (second, self.predicted)]
        by_chance = float(np.dot(*counts)) / self.images**2
        return (observed - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0


def _preparing(decoded: Sequence[Image]) -> Callable[[Preprocessing], NDArray[np.float32]]:
    """Prepare one batch of images. Most variants only normalise otherwise: each size is made once."""

    @cache
    def fitted(resizing: Preprocessing) -> list[NDArray[np.float32]]:
        return [resizing.fit(image) for image in decoded]

    def prepared(preprocessing: Preprocessing) -> NDArray[np.float32]:
        return np.stack([preprocessing.normalise(x) for x in fitted(_resizing(preprocessing))])

    return prepared


def _resizing(preprocessing: Preprocessing) -> Preprocessing:
    """The same without a normalisation."""
    return replace(preprocessing, scale=1, mean=(0.0,), std=(1.0,), order="rgb")


def standardised(logits: Floats) -> Floats:
    """Each row with mean 0 and standard deviation 1; zero where that is not possible."""
    centred = np.asarray(logits, dtype=np.float64)
    centred = centred - centred.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    rows: Floats = centred / np.where(spread == 0, 1, spread)
    return np.where(np.isfinite(rows), rows, 0)


def standing_out(logits: Floats) -> Floats:
    """How far the largest logit lies above the mean of its row, in standard deviations.

    >>> standing_out(np.array([[3.0, 0.0, 0.0], [300.0, 0.0, 0.0], [1.0, 1.0, 1.0]])).round(3)
    array([1.414, 1.414, 0.   ])
    """
    score: Floats = standardised(logits).max(axis=1)
    return score


def information(logits: Floats) -> Floats:
    """How much the prediction of each row differs from the mean prediction, in nats.

    >>> information(np.array([[3.0, 0.0, 0.0], [3.0, 0.0, 0.0]])).round(3)
    array([0., 0.])
    >>> information(np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 3.0]])).round(3)
    array([0.319, 0.319])
    """
    p = softmax(standardised(logits)) + np.finfo(np.float64).tiny
    divergence: Floats = (p * np.log(p / p.mean(axis=0))).sum(axis=1)
    return divergence


def lead(better: Floats, worse: Floats) -> Floats:
    """The mean differences of both scores of the same images, in standard errors.

    >>> better = np.array([[2.0, 3.0, 4.0, 7.0], [1.0, 1.0, 1.0, 1.0]])
    >>> lead(better, np.array([[1.0, 1.0, 1.0, 5.0], [1.0, 1.0, 1.0, 1.0]])).round(3)
    array([4.899, 0.   ])
    """
    n = min(better.shape[1], worse.shape[1])
    difference = better[:, :n] - worse[:, :n]
    error = difference.std(axis=1, ddof=1) / math.sqrt(n)
    leads: Floats = difference.mean(axis=1) / np.where(error > 0, error, np.inf)
    return leads


def normalisations_of(given: Preprocessing) -> list[Variant]:
    """The given preprocessing, and the usual normalisations that differ from it.

    >>> [variant.flags for variant in normalisations_of(Preprocessing(channels=1))]
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
    return found


def resized_of(given: Preprocessing) -> list[Variant]:
    """The given preprocessing, and the usual ways to resize that differ from it.

    >>> [variant.flags for variant in resized_of(Preprocessing((224, 224)))]
    ['', '--resize stretch', '--resize 256']
    """
    found = [Variant("as given", "", given)]
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


@dataclass
class Budget:
    """What the check may still spend; each number is a part of that of the run."""

    passes: int  # of each model
    prepared: int  # images, each counted once for each size

    @classmethod
    def of_run(cls, images: int, passes: int) -> Budget:
        """The budget for a run of so many images and passes of each model."""
        return cls(int(COST * passes), min(MOST_IMAGES, int(COST * images)))

    def spend(self, passes: int, prepared: int) -> bool:
        """Spend it if there is enough."""
        if passes > self.passes or prepared > self.prepared:
            return False
        self.passes -= passes
        self.prepared -= prepared
        return True


def compare_variants(
    predict: Predictor,
    images: Images,
    rows: Sequence[int],
    budget: Budget,
    second: tuple[Predictor, OfSecond] | None = None,
) -> list[Variant]:
    """Let the variants race over some images, and return those that were tried, best first.

    Nothing is returned if the budget is too small. A model without logits of more than two classes
    for whole images is not comparable.

    Args:
        predict: the model, from prepared images to logits.
        images: the images, with the given preprocessing.
        rows: the numbers of the images to use, in random order.
        budget: what to spend.
        second: a second model, and how its images are prepared.

    """
    rounds = _rounds(images, rows)
    normalisations = normalisations_of(images.preprocessing)
    left = _race(normalisations, predict, rounds, budget, second)
    if [variant.flags for variant in left] == [""]:
        resized = resized_of(images.preprocessing)
        _race(resized, predict, rounds, budget, second)
        if resized[0].logits:
            return _ranked(resized)
    return _ranked(normalisations)


def _race(
    tried: list[Variant],
    predict: Predictor,
    rounds: Iterator[list[Image]],
    budget: Budget,
    second: tuple[Predictor, OfSecond] | None,
) -> list[Variant]:
    """Let the variants predict round after round, and return those that are left."""
    racing = list(tried)
    sizes = {_resizing(variant.preprocessing) for variant in tried}
    while len(racing) > 1:
        if not budget.spend(ROUND * len(racing), ROUND * min(len(sizes), len(racing))):
            break
        decoded = next(rounds, None)
        if decoded is None:
            break
        prepared = _preparing(decoded)
        for variant in racing:
            logits = np.asarray(predict(prepared(variant.preprocessing)))
            if logits.ndim != 2:
                raise NotComparableError("a segmentation model")
            if logits.shape[1] < 3:  # nothing can stand out
                raise NotComparableError("two classes")
            variant.logits.append(logits)
            if second is not None:
                x = prepared(second[1](variant.preprocessing))
                variant.second.append(np.asarray(second[0](x)).argmax(axis=1))
        racing = _still_racing(racing)
    return racing


def _still_racing(racing: list[Variant]) -> list[Variant]:
    """The given variant, and the others that are not clearly worse than another one.

    Variants with the same logits, such as grey images in another order of colours, run once.
    """
    scores = [variant.scores for variant in racing]
    kept = racing[:1]
    for variant, own in zip(racing[1:], scores[1:], strict=True):
        same = any(np.array_equal(variant.logits[-1], each.logits[-1]) for each in kept)
        if not same and all(lead(other, own).mean() <= OUT_OF_RACE for other in scores):
            kept.append(variant)
    return kept


def _ranked(variants: list[Variant]) -> list[Variant]:
    """The variants that were tried: those with most images first, then those that stand out most."""
    measured = [variant for variant in variants if variant.logits]
    return sorted(measured, key=lambda each: (-each.images, -float(each.scores[0].mean())))


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
    """The best variant if it is clearly better than the given one; None if in doubt."""
    from scipy.special import stdtr  # loaded late: it slows down the start of the command

    if not variants:
        return None
    given = next(variant for variant in variants if not variant.flags)
    finalists = [each for each in variants if each.images == given.images and each is not given]
    if len(finalists) != 1:
        return None
    best = finalists[0]
    leads = lead(best.scores, given.scores)
    if leads.min() <= 0 or stdtr(best.images - 1, -leads.max()) > CHANCE:  # Student's t
        return None
    needed = (1 + RESIZED) * given.scores[0].mean()
    if _same(best.preprocessing, given.preprocessing) and best.scores[0].mean() < needed:
        return None
    same = float((best.predicted == given.predicted).mean())
    larger = float(np.mean(given.preprocessing.std) / np.mean(best.preprocessing.std))
    lost = (given.agreement or 0) - (best.agreement or 0)  # both are None without a second model
    doubts = (
        best.confidence < LEAST_CONFIDENCE,
        same >= SAME_CLASSES and larger > MUCH_LARGER,
        best.largest_class > max(LARGEST_CLASS, given.largest_class),
        lost > LOST_AGREEMENT,
    )
    return None if any(doubts) else best


def table_of(variants: Sequence[Variant]) -> str:
    """Compare the variants, line by line."""
    lines = ["  preprocessing         images  score  information  confidence  classes  agreement"]
    for variant in variants:
        score, nats = variant.scores.mean(axis=1)
        agreement = "-" if variant.agreement is None else f"{variant.agreement:.0%}"
        lines.append(
            f"  {variant.name:20}{variant.images:8}{score:7.2f}{nats:13.2f}"
            f"{variant.confidence:12.0%}{len(np.unique(variant.predicted)):9}{agreement:>11}"
        )
    return "\n".join(lines)


def check_preprocessing(
    predict: Predictor,
    images: Images,
    rows: Sequence[int],
    passes: int,
    second: tuple[Predictor, OfSecond] | None = None,
) -> str:
    """Raise an error if another preprocessing is clearly better.

    Args:
        predict: the model, from prepared images to logits.
        images: the images, with the given preprocessing.
        rows: the numbers of the images of the run, in random order.
        passes: forward passes of each model in the run.
        second: a second model, and how its images are prepared.

    Returns:
        What was found, in words.

    """
    budget = Budget.of_run(len(rows), passes)
    try:
        variants = compare_variants(predict, images, rows[:MOST_IMAGES], budget, second)
    except NotComparableError as error:
        return f"not possible ({error})"
    better = better_than_given(variants)
    if better is not None:
        raise WrongPreprocessingError(
            f"the images seem to be preprocessed differently than in training: with {better.flags} "
            "the predictions are more distinct; pass that, or --preprocess-check off to continue",
            table_of(variants),
        )
    if not variants:
        return "not possible (too few images)"
    given = next(each for each in variants if not each.flags)
    others = [each for each in variants if each.flags and each.images == given.images]
    if given.images < FEWEST and len(_still_racing([given, *others])) > 1:
        return f"inconclusive: tried on {given.images} images only"
    return f"no clearly better one found on {given.images} images"
