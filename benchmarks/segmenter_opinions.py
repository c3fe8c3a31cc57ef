"""Whether the agreement of two segmentation models tells how often the first is right.

    python benchmarks/segmenter_opinions.py runs/bench --camvid camvid_120x160.npz

The first data are the small U-Nets of the suite `scenes`, each with the next seed as second
opinion. The second, if the file is given, is CamVid (see `camvid.py`) with two U-Nets: day to dusk,
and held-out day frames, original and corrupted. The formula is that of classification, with each
pixel as an input: agreement on real pixels, and on certain mistakes where two images are mixed. Its
error is resampled by image. Trains missing models: a minute each for scenes, three for CamVid.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, replace
from itertools import chain, permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from camvid import read, trained_unet
from pseudocal import fit_temperature
from pseudocal.arrays import Labelled, Predictor
from pseudocal.batches import blend
from pseudocal.calibrators.agreement import (
    Opinion,
    agreement_of,
    certain_errors,
    count_agreement,
    count_mistakes,
)
from pseudocal.calibrators.confidence import match_confidence
from pseudocal.calibrators.trust import NORMAL_90
from pseudocal.lab.bench import Store, Task, built_in
from pseudocal.lab.bench.segmentation_tasks import target_scenes
from pseudocal.lab.bench.stages import make_model
from pseudocal.lab.data import Scenes
from pseudocal.lab.segmentation import load_segmenter
from pseudocal.maps import IGNORED
from pseudocal.metrics import Outcomes, ece
from pseudocal.mixup import partners
from pseudocal.predictors import as_predictor
from trust_families import CORRUPTIONS
from trust_tables import table

SEEDS, BATCH, LAM = 3, 20, 0.65
DRAWS = 200  # of images, for the sampling error
PIXELS = 1000  # of each image, for temperatures and scores
SHIFTS = ("none", "noise")  # of held-out day frames


class Row(NamedTuple):
    """One segmenter on one target: what is expected without masks, and what is true."""

    accuracy: float
    estimated_accuracy: float
    error: float  # of sampling, by image
    rate: float
    shared: float  # of mistakes on mixup samples
    truly_shared: float  # of mistakes on real pixels
    ece: dict[str, float]

    @property
    def covered(self) -> bool:
        """Whether the 90% interval holds, with the error of the method that classification has."""
        return abs(self.estimated_accuracy - self.accuracy) <= NORMAL_90 * self.error


class Said(NamedTuple):
    """What one model says of the images and of their mixup samples.

    Logits `(images, pixels, classes)`.
    """

    real: np.ndarray
    mixed: np.ndarray

    @property
    def own(self) -> np.ndarray:
        """The predicted class of each real pixel."""
        return self.real.argmax(axis=2)


def said(predict: Predictor, images: np.ndarray, partner: np.ndarray) -> Said:
    """Predict the images, and each of them mixed with its partner."""
    real, mixed = [], []
    for start in range(0, len(images), BATCH):
        here = np.arange(start, min(start + BATCH, len(images)))
        both, n = images[np.r_[here, partner[here]]].astype(np.float32), len(here)
        blended = np.asarray(blend(both, np.arange(n), n + np.arange(n), LAM), np.float32)
        real.append(predict(both[:n]))
        mixed.append(predict(blended))
    flat = [
        np.concatenate(maps).reshape(len(images), maps[0].shape[1], -1) for maps in (real, mixed)
    ]
    return Said(*(maps.transpose(0, 2, 1) for maps in flat))


def counted(one: Said, two: Said, partner: np.ndarray) -> list[Opinion]:
    """What the second model says, image by image."""
    opinions, own, its = [], one.own, two.own
    for i, k in enumerate(partner):
        predicted = one.mixed[i].argmax(axis=1)
        wrong = certain_errors(predicted, [own[i], own[k], its[i], its[k]]) & (own[i] != own[k])
        same = (two.mixed[i].argmax(axis=1) == predicted)[wrong]
        mistakes = count_mistakes(predicted[wrong], same, one.real.shape[2])
        opinions.append(count_agreement(one.real[i], two.real[i]) + mistakes)
    return opinions


def some(maps: np.ndarray, labels: np.ndarray, kept: np.ndarray) -> Labelled:
    """At most so many labelled pixels of each image."""
    rng, rows, found = np.random.default_rng(0), [], []
    for image, classes, valid in zip(maps, labels, kept, strict=True):
        at = np.flatnonzero(valid)
        at = rng.choice(at, min(PIXELS, len(at)), replace=False)
        rows.append(image[at])
        found.append(classes[at])
    return Labelled(np.concatenate(rows).astype(np.float64), np.concatenate(found).astype(np.int64))


def row(first: Predictor, second: Predictor, target: Scenes) -> Row:
    """Estimate and temperatures without masks, then what the masks say."""
    images, partner = np.asarray(target.inputs), partners(len(target), batch_size=BATCH)
    one, two = (said(model, images, partner) for model in (first, second))
    own, masks = one.own, np.asarray(target.masks).reshape(len(images), -1)
    opinions, real = counted(one, two, partner), some(one.real, own, np.ones_like(own))
    agreement = agreement_of(sum(opinions[1:], opinions[0]), real)
    by_image, rng = np.array([astuple(opinion) for opinion in opinions]), np.random.default_rng(1)
    draws = (by_image[rng.integers(len(by_image), size=len(by_image))] for _ in range(DRAWS))
    few = Labelled(real.logits[::20], real.labels[::20])  # enough for the weights of the classes
    drawn = [agreement_of(Opinion(*of_images.sum(axis=0)), few).accuracy for of_images in draws]
    of_method = np.hypot(0.84 / np.sqrt(agreement.classes), 0.05) / NORMAL_90  # as measured then
    mixup_samples, truth = (
        some(one.mixed, own, own != own[partner]),
        some(one.real, masks, masks != IGNORED),
    )
    temperatures = {
        "none": 1.0,
        "PseudoCal": fit_temperature(mixup_samples.logits, mixup_samples.labels).temperature,
        "raw agreement": match_confidence(real.logits, agreement.rate).temperature,
        "agreement": match_confidence(real.logits, agreement.accuracy).temperature,
        "oracle": fit_temperature(truth.logits, truth.labels).temperature,
    }
    wrong = (own != masks) & (masks != IGNORED)
    return Row(
        1 - wrong.sum() / (masks != IGNORED).sum(),
        agreement.accuracy,
        float(np.hypot(of_method, np.std(drawn))),
        agreement.rate,
        agreement.shared,
        float((own == two.own)[wrong].mean()),
        {
            name: 100 * ece(Outcomes.from_logits(truth.logits / t, truth.labels))
            for name, t in temperatures.items()
        },
    )


def by_vendor(store: Store, *, quick: bool) -> Iterator[tuple[str, Predictor, Predictor, Scenes]]:
    """The tasks of the suite `scenes`; a second opinion is the segmenter of the next seed."""

    def segmenter(task: Task) -> Predictor:
        make_model(task.training, store)
        return as_predictor(load_segmenter(store.folder(task.training)))

    for task in built_in("scenes", seeds=SEEDS, quick=quick).tasks:
        other = replace(task, seed=(task.seed + 1) % SEEDS)
        yield (
            f"scenes to {task.target}",
            segmenter(task),
            segmenter(other),
            target_scenes(task, store),
        )


def camvid(path: Path, folder: Path) -> Iterator[tuple[str, Predictor, Predictor, Scenes]]:
    """Day to dusk, and held-out day frames as they are and corrupted."""
    day, held, dusk = read(path)
    trained = [trained_unet(day, folder / "camvid", seed=seed, iterations=500) for seed in range(2)]
    models = [as_predictor(each.load()) for each in trained]
    targets = {"CamVid, dusk": dusk}
    clean = np.asarray(held.inputs).transpose(0, 2, 3, 1) / 255
    for name in SHIFTS:
        seen = 255 * np.clip(CORRUPTIONS[name](clean, np.random.default_rng(1)), 0, 1)
        where = "CamVid, day" if name == "none" else "CamVid, corrupted"
        targets[f"{where}/{name}"] = replace(
            held, inputs=seen.transpose(0, 3, 1, 2).astype(np.uint8)
        )
    for name, target in targets.items():
        for first, second in permutations(models):
            yield name.split("/")[0], first, second, target


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="for the models")
    parser.add_argument("--quick", action="store_true", help="the scenes of one source only")
    parser.add_argument("--camvid", type=Path, help="the file of CamVid; left out without it")
    args = parser.parse_args()
    found: dict[str, list[Row]] = defaultdict(list)
    cases = chain(
        by_vendor(Store(args.folder), quick=args.quick),
        camvid(args.camvid, args.folder) if args.camvid else [],
    )
    for family, first, second, target in cases:
        found[family].append(row(first, second, target))
        print(family, found[family][-1], file=sys.stderr, flush=True)
    found["all"] = [one for group in found.values() for one in group]
    lines = []
    for family, group in found.items():
        ece = " | ".join(
            f"{np.mean([one.ece[name] for one in group]):.1f}" for name in group[0].ece
        )
        seen = [
            np.mean([getattr(one, name) for one in group])
            for name in ("accuracy", "estimated_accuracy", "rate")
        ]
        shared = [
            np.mean([getattr(one, name) for one in group]) for name in ("shared", "truly_shared")
        ]
        covered, off = (
            np.mean([one.covered for one in group]),
            np.mean([abs(r.estimated_accuracy - r.accuracy) for r in group]),
        )
        numbers = " | ".join(f"{value:.0%}" for value in (*seen, *shared, covered))
        lines.append(f"| {family} | {len(group)} | {ece} | {numbers} | {100 * off:.1f} |")
    names = " | ".join(f"ECE: {name}" if name == "none" else name for name in found["all"][0].ece)
    header = (
        f"| target | cases | {names} | accuracy | estimate | agreement | shared on mixup samples "
        "| shared in truth | covered | error of the estimate |"
    )
    print(table(header, lines))


if __name__ == "__main__":
    main()
