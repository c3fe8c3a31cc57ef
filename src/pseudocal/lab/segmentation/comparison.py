"""The paper's comparison for segmentation: no calibration, TempScal, Ensemble, PseudoCal and Oracle on one target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pseudocal.arrays import Predictor
from pseudocal.calibrators import Calibration, Ensemble, PseudoCal, oracle, pixel_rows, tempscal, uncalibrated
from pseudocal.lab.data import Scenes, Unlabelled
from pseudocal.metrics import Segmented
from pseudocal.predictors import as_predictor

BATCH = 20

Fit = Callable[[Any, Scenes, Unlabelled, int | None, int], Calibration]  # model, source_val, target, pixels, seed
FITS: dict[str, Fit] = {
    "none": lambda model, source_val, target, pixels, seed: uncalibrated(),
    "tempscal": lambda model, source_val, target, pixels, seed: tempscal(
        pixel_rows(model, _batches(source_val), pixels_per_image=pixels, seed=seed)
    ),
    "pseudocal": lambda model, source_val, target, pixels, seed: PseudoCal(pixels_per_image=pixels, seed=seed).fit(
        model, _inputs(target)
    ),
}
METHODS = ("none", "tempscal", "ensemble", "pseudocal", "oracle")


@dataclass(frozen=True)
class Cell:
    """How one method does on one target: the temperature it found, and the metrics after it."""

    method: str
    temperature: float
    scores: dict[str, float]


def compare(
    model: Any,
    source_val: Scenes,
    target: Scenes,
    *,
    pixels: int | None = 20_000,
    seed: int = 0,
) -> list[Cell]:
    """Every method that scales one model; the target's masks go to the oracle and into the scores alone."""
    fitted = {name: fit(model, source_val, target.unlabelled(), pixels, seed) for name, fit in FITS.items()}
    fitted["oracle"] = fit_oracle(model, target, pixels, seed)
    found = {name: each.temperature for name, each in fitted.items()}
    seen = evaluate(as_predictor(model), target, temperatures=tuple(found.values()))
    return [Cell(name, t, s.score()) for (name, t), s in zip(found.items(), seen, strict=True)]


def compare_ensemble(members: Sequence[Any], target: Scenes) -> Cell:
    """The mean probability of several models."""
    return Cell("ensemble", 1.0, evaluate_ensemble(members, target).score())


def evaluate(predict: Predictor, domain: Scenes, *, temperatures: Sequence[float] = (1.0,)) -> list[Segmented]:
    """The sums of all metrics over a domain, a few images at a time, at each of some temperatures."""
    totals: list[Any] = [0] * len(temperatures)
    for x, masks in _batches(domain):
        maps = predict(x)
        totals = [n + Segmented.of(maps, masks, temperature=t) for n, t in zip(totals, temperatures, strict=True)]
    return totals


def evaluate_ensemble(members: Sequence[Any], domain: Scenes) -> Segmented:
    """The sums of all metrics over a domain for the mean probability of several models."""
    return evaluate(Ensemble(tuple(as_predictor(member) for member in members)), domain)[0]


def fit_oracle(model: Any, target: Scenes, pixels: int | None, seed: int) -> Calibration:
    """The temperature of least NLL on the target's masks."""
    return oracle(pixel_rows(model, _batches(target), pixels_per_image=pixels, seed=seed))


def _batches(domain: Scenes) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(domain), BATCH):
        rows = slice(start, min(start + BATCH, len(domain)))
        yield domain.inputs[rows].astype(np.float32), domain.masks[rows]


def _inputs(target: Unlabelled) -> Iterator[Any]:
    return (target.inputs[i : i + BATCH].astype(np.float32) for i in range(0, len(target), BATCH))
