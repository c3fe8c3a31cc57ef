"""The paper's comparison for segmentation.

No calibration, TempScal, Ensemble, PseudoCal and Oracle on one target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pseudocal.arrays import Predictor
from pseudocal.calibrators import (
    Calibration,
    Ensemble,
    PseudoCal,
    oracle,
    pixel_rows,
    tempscal,
    uncalibrated,
)
from pseudocal.lab.data import Scenes, Unlabelled
from pseudocal.metrics import Segmented
from pseudocal.metrics.images import resized_rows
from pseudocal.predictors import as_predictor

SCENE_BATCH = 20
LARGE_BATCH = 4  # of frames with more pixels than the next line says
LARGE = 100_000

Fit = Callable[[Any, Scenes, Unlabelled, int | None, int], Calibration]
FITS: dict[
    str, Fit
] = {  # arguments: the model, labelled source scenes, the target, pixels per image, the seed
    "none": lambda model, source_val, target, pixels, seed: uncalibrated(),
    "tempscal": lambda model, source_val, target, pixels, seed: tempscal(
        pixel_rows(model, _batches(source_val), pixels_per_image=pixels, seed=seed)
    ),
    "pseudocal": lambda model, source_val, target, pixels, seed: PseudoCal(
        pixels_per_image=pixels, seed=seed, epochs=1, estimator="mixup"
    ).fit(model, _inputs(target)),
}
SEGMENTATION_CALIBRATORS = ("none", "tempscal", "ensemble", "pseudocal", "oracle")


@dataclass(frozen=True)
class CalibratorScore:
    """The scores of one calibrator on one target.

    Attributes:
        method: the name of the calibrator.
        temperature: the temperature that it found.
        scores: the metrics at that temperature, by name.

    """

    method: str
    temperature: float
    scores: dict[str, float]


def compare_on_scenes(
    model: Any,
    source_val: Scenes,
    target: Scenes,
    *,
    pixels_per_image: int | None = 20_000,
    full_size: bool = False,
    seed: int = 0,
) -> list[CalibratorScore]:
    """Compare all calibrators that scale one model.

    The target's masks are used for the oracle and the scores only.

    Args:
        model: anything that `as_predictor` takes.
        source_val: labelled source scenes that the model was not trained on.
        target: the target with its masks.
        pixels_per_image: the number of pixels of each image to fit on; None for all.
        full_size: whether to fit at the size of the images, like all scores, and not at the size of
            the model's output.
        seed: the seed of the pairs and the pixels.

    """
    if full_size:
        model = at_full_size(model)
    fitted = {
        name: fit(model, source_val, target.unlabelled(), pixels_per_image, seed)
        for name, fit in FITS.items()
    }
    fitted["oracle"] = fit_oracle(model, target, pixels_per_image, seed)
    found = {name: each.temperature for name, each in fitted.items()}
    seen = evaluate_maps(as_predictor(model), target, temperatures=tuple(found.values()))
    return [
        CalibratorScore(name, t, s.score())
        for (name, t), s in zip(found.items(), seen, strict=True)
    ]


def at_full_size(model: Any) -> Predictor:
    """Return a model whose logits are resized bilinearly to the size of its images.

    >>> half = lambda x: np.zeros((len(x), 2, 1, 2))
    >>> at_full_size(half)(np.zeros((5, 3, 2, 4))).shape
    (5, 2, 2, 4)

    Args:
        model: anything that `as_predictor` takes.

    """
    predict = as_predictor(model)

    def enlarged(images: Any) -> Any:
        maps = predict(images)
        height, width = images.shape[-2:]
        if maps.shape[-2:] == (height, width):
            return maps
        return np.stack([resized_rows(each, (height, width), slice(0, height)) for each in maps])

    return enlarged


def compare_ensemble(members: Sequence[Any], target: Scenes) -> CalibratorScore:
    """Score the mean probability of several models."""
    return CalibratorScore("ensemble", 1.0, evaluate_ensemble(members, target).score())


def evaluate_maps(
    predict: Predictor, domain: Scenes, *, temperatures: Sequence[float] = (1.0,)
) -> list[Segmented]:
    """Sum all metrics over a domain, a few images at a time, at each of several temperatures."""
    totals: list[Any] = [0] * len(temperatures)
    for x, masks in _batches(domain):
        maps = predict(x)
        totals = [
            n + Segmented.of(maps, masks, temperature=t)
            for n, t in zip(totals, temperatures, strict=True)
        ]
    return totals


def evaluate_ensemble(members: Sequence[Any], domain: Scenes) -> Segmented:
    """Sum all metrics over a domain for the mean probability of several models."""
    return evaluate_maps(Ensemble(tuple(as_predictor(member) for member in members)), domain)[0]


def fit_oracle(model: Any, target: Scenes, pixels_per_image: int | None, seed: int) -> Calibration:
    """Fit the temperature with the lowest NLL on the target's masks."""
    return oracle(pixel_rows(model, _batches(target), pixels_per_image=pixels_per_image, seed=seed))


def _batches(domain: Scenes) -> Iterator[tuple[Any, Any]]:
    for rows in _slices(domain):
        yield domain.inputs[rows].astype(np.float32), domain.masks[rows]


def _inputs(target: Unlabelled) -> Iterator[Any]:
    return (target.inputs[rows].astype(np.float32) for rows in _slices(target))


def _slices(domain: Scenes | Unlabelled) -> Iterator[slice]:
    batch = SCENE_BATCH if np.prod(domain.inputs.shape[-2:]) <= LARGE else LARGE_BATCH
    return (slice(start, min(start + batch, len(domain))) for start in range(0, len(domain), batch))
