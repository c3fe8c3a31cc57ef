"""Second opinions on pixels: whether the agreement of two segmenters tells how often the first is right.

    python benchmarks/segmenter_opinions.py runs/bench --camvid camvid_120x160.npz

The small U-Nets of the suite `scenes`, each with that of the next seed as the second opinion. And CamVid, if its file
is given (see `camvid.py`), with two U-Nets: day to dusk, and held-out day frames as they are and corrupted. The formula
is that of classification, with each pixel as an input: agreement on real pixels, and on certain mistakes where two
images are mixed. Its error is resampled by image. Trains what is missing: a minute each for scenes, three for CamVid.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, replace
from itertools import chain, permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from camvid import read
from pseudocal import PseudoCal
from pseudocal.arrays import Labelled, Predictor
from pseudocal.batches import blend
from pseudocal.calibrators.agreement import Opinion, agreement_of, count_agreement, count_mistakes, surely_mistaken
from pseudocal.calibrators.confidence import match_confidence
from pseudocal.calibrators.trust import NORMAL_90, TOGETHER
from pseudocal.lab.bench import Store, Task, built_in
from pseudocal.lab.bench.segmenters import target_of
from pseudocal.lab.bench.stages import make_model
from pseudocal.lab.data import Scenes
from pseudocal.lab.segmentation import SegmenterRun, load_segmenter, train_segmenter
from pseudocal.lab.segmentation.comparison import evaluate_maps, fit_oracle
from pseudocal.predictors import as_predictor
from pseudocal.synthesis import partners
from trust_families import CORRUPTIONS
from trust_tables import table

SEEDS, BATCH, LAM = 3, 20, 0.65
DRAWS = 400  # of images, for the sampling error
SHIFTS = ("none", "little noise", "noise", "blur", "low contrast", "fog")  # of held-out day frames


class Row(NamedTuple):
    """One segmenter on one target: what is expected without masks, and what is true."""

    accuracy: float
    forecast: float
    error: float  # of sampling, by image
    rate: float
    shared: float  # of mistakes on mixes
    truly_shared: float  # of mistakes on real pixels
    ece: dict[str, float]

    @property
    def covered(self) -> bool:
        """Whether the 90% interval holds, with the error of the method that classification has."""
        return abs(self.forecast - self.accuracy) <= NORMAL_90 * self.error


def rows_of(maps: Any) -> np.ndarray:
    """The logits of all pixels of one image, `(pixels, classes)`."""
    return maps.reshape(len(maps), -1).T.astype(np.float64)


def counted(first: Predictor, second: Predictor, images: np.ndarray) -> tuple[list[Opinion], Labelled]:
    """What the second model says, image by image, and a tenth of the first one's pixels."""
    rng, partner, own, its = np.random.default_rng(0), partners(len(images), batch_size=BATCH), [], []
    opinions, kept = [], []
    for start in range(0, len(images), BATCH):
        x = images[start : start + BATCH].astype(np.float32)
        for mine, other in zip(first(x), second(x), strict=True):
            logits, others = rows_of(mine), rows_of(other)
            opinions.append(count_agreement(logits, others))
            own.append(logits.argmax(axis=1))
            its.append(others.argmax(axis=1))
            kept.append(logits[rng.choice(len(logits), len(logits) // 10, replace=False)])
    for start in range(0, len(images), BATCH):
        here = np.arange(start, min(start + BATCH, len(images)))
        both = images[np.r_[here, partner[here]]].astype(np.float32)
        mixed = np.asarray(blend(both, np.arange(len(here)), len(here) + np.arange(len(here)), LAM), np.float32)
        for i, mine, other in zip(here, first(mixed), second(mixed), strict=True):
            predicted, its_own = rows_of(mine).argmax(axis=1), rows_of(other).argmax(axis=1)
            shares = [classes[k] for classes in (own, its) for k in (i, partner[i])]
            wrong = surely_mistaken(predicted, shares) & (own[i] != own[partner[i]])
            same = (its_own == predicted)[wrong]
            opinions[i] += count_mistakes(predicted[wrong], same, len(mine))
    sample = np.concatenate(kept)
    return opinions, Labelled(sample, sample.argmax(axis=1))


def truly_shared(first: Predictor, second: Predictor, target: Scenes) -> float:
    """The share of the first one's mistakes on real pixels that the second makes too: what mixes should show."""
    wrong = shared = 0
    for start in range(0, len(target), BATCH):
        x, masks = target.inputs[start : start + BATCH].astype(np.float32), target.masks[start : start + BATCH]
        one, other = (predict(x).argmax(axis=1) for predict in (first, second))
        mistaken = (one != masks) & (masks != 255)
        wrong, shared = wrong + int(mistaken.sum()), shared + int((mistaken & (one == other)).sum())
    return shared / wrong


def row(first: Predictor, second: Predictor, target: Scenes) -> Row:
    """Forecast and temperatures without masks, then what the masks say."""
    images = np.asarray(target.inputs)
    opinions, real = counted(first, second, images)
    agreement = agreement_of(sum(opinions[1:], opinions[0]), real)
    by_image, rng = np.array([astuple(opinion) for opinion in opinions]), np.random.default_rng(1)
    draws = (by_image[rng.integers(len(by_image), size=len(by_image))] for _ in range(DRAWS))
    drawn = [agreement_of(Opinion(*images_of.sum(axis=0)), real).accuracy for images_of in draws]
    of_method = np.hypot(TOGETHER[0] / np.sqrt(agreement.classes), TOGETHER[1]) / NORMAL_90
    temperatures = {
        "none": 1.0,
        "PseudoCal": PseudoCal().fit(first, images.astype(np.float32), batch_size=BATCH).temperature,
        "raw agreement": match_confidence(real.logits, agreement.rate).temperature,
        "agreement": match_confidence(real.logits, agreement.accuracy).temperature,
        "oracle": fit_oracle(first, target, 2000, 0).temperature,
    }
    seen = evaluate_maps(first, target, temperatures=tuple(temperatures.values()))
    scores = [each.score() for each in seen]
    return Row(
        scores[0]["accuracy"],
        agreement.accuracy,
        float(np.hypot(of_method, np.std(drawn))),
        agreement.rate,
        agreement.shared,
        truly_shared(first, second, target),
        {name: 100 * score["ece"] for name, score in zip(temperatures, scores, strict=True)},
    )


def by_vendor(store: Store, *, quick: bool) -> Iterator[tuple[str, Predictor, Predictor, Scenes]]:
    """The tasks of the suite `scenes`; a second opinion is the segmenter of the next seed."""

    def segmenter(task: Task) -> Predictor:
        make_model(task.training, store)
        return as_predictor(load_segmenter(store.folder(task.training)))

    for task in built_in("scenes", seeds=SEEDS, quick=quick).tasks:
        other = replace(task, seed=(task.seed + 1) % SEEDS)
        yield f"scenes to {task.target}", segmenter(task), segmenter(other), target_of(task, store)


def camvid(path: Path, folder: Path) -> Iterator[tuple[str, Predictor, Predictor, Scenes]]:
    """Day to dusk, and held-out day frames as they are and corrupted."""
    day, held, dusk = read(path)
    runs = [SegmenterRun(folder / "camvid" / f"unet-{seed}", seed=seed, iterations=500, batch=8) for seed in range(2)]
    models = [as_predictor(train_segmenter(day, run).load()) for run in runs]
    targets = {"CamVid, dusk": dusk}
    clean = np.asarray(held.inputs).transpose(0, 2, 3, 1) / 255
    for name in SHIFTS:
        seen = 255 * np.clip(CORRUPTIONS[name](clean, np.random.default_rng(1)), 0, 1)
        where = "CamVid, day" if name == "none" else "CamVid, corrupted"
        targets[f"{where}/{name}"] = replace(held, inputs=seen.transpose(0, 3, 1, 2).astype(np.uint8))
    for name, target in targets.items():
        for first, second in permutations(models):
            yield name.split("/")[0], first, second, target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the models")
    parser.add_argument("--quick", action="store_true", help="the scenes of one source only")
    parser.add_argument("--camvid", type=Path, help="the file of CamVid; left out without it")
    args = parser.parse_args()
    found: dict[str, list[Row]] = defaultdict(list)
    cases = chain(
        by_vendor(Store(args.folder), quick=args.quick), camvid(args.camvid, args.folder) if args.camvid else []
    )
    for family, first, second, target in cases:
        found[family].append(row(first, second, target))
    found["all"] = [one for group in found.values() for one in group]
    lines = []
    for family, group in found.items():
        ece = " | ".join(f"{np.mean([one.ece[name] for one in group]):.1f}" for name in group[0].ece)
        seen = [np.mean([getattr(one, name) for one in group]) for name in ("accuracy", "forecast", "rate")]
        shared = [np.mean([getattr(one, name) for one in group]) for name in ("shared", "truly_shared")]
        covered, off = np.mean([one.covered for one in group]), np.mean([abs(r.forecast - r.accuracy) for r in group])
        numbers = " | ".join(f"{value:.0%}" for value in (*seen, *shared, covered))
        lines.append(f"| {family} | {len(group)} | {ece} | {numbers} | {100 * off:.1f} |")
    names = " | ".join(f"ECE: {name}" if name == "none" else name for name in found["all"][0].ece)
    header = f"| target | cases | {names} | accuracy | forecast | agreement | shared on mixes | shared in truth "
    print(table(f"{header}| covered | error of the forecast |", lines))


if __name__ == "__main__":
    main()
