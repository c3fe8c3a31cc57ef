"""The paper's table of segmentation: no calibration, TempScal, Ensemble, PseudoCal and Oracle on one target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from pseudocal.adapt.files import save_json
from pseudocal.arrays import Predictor
from pseudocal.calibrators import Ensemble, PseudoCal, oracle, pixel_rows, tempscal
from pseudocal.data import Scenes, Unlabelled, scenes
from pseudocal.metrics import Segmented
from pseudocal.predictors import as_predictor
from pseudocal.segmentation.train import train_segmenter

METHODS = {
    "none": "No calibration",
    "tempscal": "TempScal",
    "ensemble": "Ensemble",
    "pseudocal": "PseudoCal",
    "oracle": "Oracle",
}
BATCH = 20
TARGET = 150  # scenes of a target: the models are what differs between cells


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
    fitted = {
        "none": 1.0,
        "tempscal": tempscal(pixel_rows(model, _batches(source_val), pixels=pixels, seed=seed)).temperature,
        "pseudocal": PseudoCal(pixels=pixels, seed=seed).fit(model, _inputs(target.unlabelled())).temperature,
        "oracle": _oracle(model, target, pixels, seed),
    }
    seen = evaluate(as_predictor(model), target, temperatures=tuple(fitted.values()))
    return [Cell(name, t, s.score()) for (name, t), s in zip(fitted.items(), seen, strict=True)]


def compare_ensemble(members: Sequence[Any], target: Scenes) -> Cell:
    """The mean probability of several models."""
    together = Ensemble(tuple(as_predictor(member) for member in members))
    return Cell("ensemble", 1.0, evaluate(together, target)[0].score())


def evaluate(predict: Predictor, domain: Scenes, *, temperatures: Sequence[float] = (1.0,)) -> list[Segmented]:
    """The sums of all metrics over a domain, a few images at a time, at each of some temperatures."""
    totals: list[Any] = [0] * len(temperatures)
    for x, masks in _batches(domain):
        maps = predict(x)
        totals = [n + Segmented.of(maps, masks, temperature=t) for n, t in zip(totals, temperatures, strict=True)]
    return totals


def _oracle(model: Any, target: Scenes, pixels: int | None, seed: int) -> float:
    rows = pixel_rows(model, _batches(target), pixels=pixels, seed=seed)
    return oracle(rows.logits, rows.labels, weights=rows.weights, groups=rows.groups).temperature


def _batches(domain: Scenes) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(domain), BATCH):
        rows = slice(start, min(start + BATCH, len(domain)))
        yield domain.inputs[rows].astype(np.float32), domain.masks[rows]


def _inputs(target: Unlabelled) -> Iterator[Any]:
    return (target.inputs[i : i + BATCH].astype(np.float32) for i in range(0, len(target), BATCH))


def scenes_table(
    folder: Path | str,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    vendors: Sequence[str] = ("noto", "twemoji", "openmoji", "fluent"),
    iterations: int = 250,
    batch: int = 8,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, dict[str, float]]:
    """Train on one vendor's scenes, calibrate on another's: the mean of every metric by method, in `METHODS`' order.

    Each model and each cell is a file in `folder`; what is there already is not done again.
    """
    folder, data = Path(folder), scenes(*vendors)
    targets = {name: data[name][:TARGET] for name in vendors}
    records: list[dict[str, Any]] = []
    for source in vendors:
        halves = {seed: data[source].split(0.75, seed=seed) for seed in seeds}
        models: dict[int, Any] = {}
        for seed, (train, _) in halves.items():
            out = folder / "models" / f"{source}-{seed}"
            trained = train_segmenter(train, out=out, seed=seed, iterations=iterations, batch=batch)
            models[seed] = trained.load()
            say(f"{source}, seed {seed}: trained in {trained.seconds:.0f} s")
        for target in (name for name in vendors if name != source):
            for which in (*seeds, None):  # None is the ensemble of all
                path = folder / "cells" / f"{source}-{target}-{'ensemble' if which is None else which}.json"
                if not path.exists():
                    if which is None:
                        cells = [compare_ensemble([*models.values()], targets[target])]
                    else:
                        cells = compare(models[which], halves[which][1], targets[target], pixels=2000, seed=which)
                    save_json(path, [asdict(cell) for cell in cells])
                    found = ", ".join(f"{c.method} {c.scores['ece']:.2%} (T = {c.temperature:.2f})" for c in cells)
                    say(f"{source} to {target}: {found}")
                records += json.loads(path.read_text())
    return {method: _mean(records, method) for method in METHODS}


def _mean(records: list[dict[str, Any]], method: str) -> dict[str, float]:
    rows = [record["scores"] for record in records if record["method"] == method]
    return {name: mean(row[name] for row in rows) for name in rows[0]}


def table_lines(table: dict[str, dict[str, float]]) -> Iterator[str]:
    r"""The table as Markdown.

    >>> print(*table_lines({"none": {"ece": 0.1, "nll": 1.0, "brier": 0.5, "accuracy": 0.75, "miou": 0.5}}), sep="\n")
    | | ECE | NLL | Brier | pixel accuracy | mIoU |
    |---|---|---|---|---|---|
    | No calibration | 10.00 | 1.000 | 0.500 | 75.0 | 50.0 |
    """
    yield "| | ECE | NLL | Brier | pixel accuracy | mIoU |"
    yield "|---|---|---|---|---|---|"
    for method, s in table.items():
        percent = f"{100 * s['accuracy']:.1f} | {100 * s['miou']:.1f}"
        yield f"| {METHODS[method]} | {100 * s['ece']:.2f} | {s['nll']:.3f} | {s['brier']:.3f} | {percent} |"
