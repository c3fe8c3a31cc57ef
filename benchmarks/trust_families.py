"""Families of cases for `benchmarks/trust.py` that train in seconds to minutes, without stored models.

- Handwritten digits of scikit-learn and emoji (features of the packaged EfficientNet, since no
  installed package has images of its 1,000 ImageNet classes), both with corruptions that a camera
  might cause.
- Digits of USPS.
- Tasks with two classes: digits and tumours of scikit-learn, reviews and a census.

USPS, reviews and census are files outside the project (`--data`). Missing files are skipped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter, rotate, shift
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pseudocal import PseudoCal
from pseudocal.calibrators.surrogate import Surrogate
from pseudocal.lab.bench.views import View
from pseudocal.lab.data import load
from pseudocal.mixup import partners
from pseudocal.predictors import as_predictor
from trust_cases import LAM, Case, case_of_logits
from trust_surrogates import OTHER, surrogate_of
from two_class_data import census, reviews

Images = np.ndarray  # (n, height, width, channels) from 0 to 1
Corruption = Callable[[Images, np.random.Generator], Images]
MOST_DIGITS = 1500  # of each kind
SIDE = 64  # pixels of an emoji: a quarter of the work of the usual 128

CORRUPTIONS: dict[str, Corruption] = {
    "none": lambda x, rng: x,
    "little noise": lambda x, rng: x + 0.15 * rng.standard_normal(x.shape),
    "noise": lambda x, rng: x + 0.35 * rng.standard_normal(x.shape),
    "blur": lambda x, rng: gaussian_filter(x, (0, x.shape[1] / 16, x.shape[2] / 16, 0)),
    "strong blur": lambda x, rng: gaussian_filter(x, (0, x.shape[1] / 9, x.shape[2] / 9, 0)),
    "low contrast": lambda x, rng: 0.5 + 0.3 * (x - 0.5),
    "fog": lambda x, rng: (
        0.45 * x + 0.55 * gaussian_filter(rng.random(x.shape), (0, 1, 1, 0)) ** 0.5
    ),
    "rotation": lambda x, rng: rotate(x, 30, axes=(1, 2), reshape=False, order=1, mode="nearest"),
    "shift": lambda x, rng: shift(
        x, (0, x.shape[1] / 8, x.shape[2] / 8, 0), order=1, mode="nearest"
    ),
    "occlusion": lambda x, rng: np.where(
        np.arange(x.shape[1])[:, None, None] < x.shape[1] * 0.3, 0.0, x
    ),
}


def case_of(family: str, task: str, models: list[Any], x: np.ndarray, y: np.ndarray) -> Case:
    """The first model on one target, with the others as second opinions."""
    first, *seconds = (as_predictor(model) for model in models)
    evidence = PseudoCal(epochs=1).collect(first, x, second_opinion=[*seconds, Surrogate()])
    logits, opinions = np.asarray(first(x), np.float64), tuple(evidence.opinions)
    surrogate = (
        None
        if evidence.surrogate_samples is None
        else evidence.surrogate_samples.opinion(logits.shape[1])
    )
    return Case(
        family, task, logits, y, evidence.mixup_samples.labelled, opinions, surrogate=surrogate
    )


# from family, task, models (the first is calibrated), inputs and labels of the target
Make = Callable[[str, str, list[Any], np.ndarray, np.ndarray], Any]


def twins(model: Any, x: Any, y: np.ndarray, n: int = 3) -> list[Any]:
    """One trained on all rows, the others on rows drawn with replacement."""
    rng = np.random.default_rng(0)
    rows = [np.arange(len(y))] + [rng.integers(len(y), size=len(y)) for _ in range(n - 1)]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # that it did not converge: few iterations leave some variety
        return [
            clone(model).set_params(**_seeded(model, i)).fit(x[drawn], y[drawn])
            for i, drawn in enumerate(rows)
        ]


def _seeded(model: Any, seed: int) -> dict[str, int]:
    return {name: seed for name in model.get_params() if name.split("__")[-1] == "random_state"}


def kinds_of(x: np.ndarray, y: np.ndarray) -> dict[str, list[Any]]:
    """Three kinds of models with twins, and one pair of two kinds."""
    kinds = {
        "network": twins(MLPClassifier((64,), max_iter=100), x, y),
        "regression": twins(LogisticRegression(C=0.01), x, y),
        "trees": twins(ExtraTreesClassifier(50, min_samples_leaf=2), x, y),
    }
    return kinds | {"network, regression": [kinds["network"][0], *kinds["regression"][1:]]}


def small_digits(make: Make = case_of) -> Iterator[Any]:
    """Under corruptions; the trees and the careful regression are underconfident."""
    x, y = load_digits(return_X_y=True)
    x, half = x.reshape(-1, 8, 8, 1) / 16, np.random.default_rng(0).permutation(len(y))
    train, test = half[:900], half[900:]
    kinds = kinds_of(x[train].reshape(900, -1), y[train])
    for name, corrupt in CORRUPTIONS.items():
        seen = corrupt(x[test], np.random.default_rng(1)).reshape(len(test), -1)
        for kind, models in kinds.items():
            yield make("scikit-learn digits", f"{name}, {kind}", models, seen, y[test])


def written_digits(path: Path, make: Make = case_of) -> Iterator[Any]:
    """USPS to each of the built-in kinds of digits and back.

    The same three kinds of models, on pixels.
    """
    with np.load(path, allow_pickle=False) as file:
        found = {"usps": (file["train_x"], file["train_y"].astype(np.int64))}
    found |= {
        name: (d.inputs[:, 0], d.labels)
        for name, d in load("digits", "mnist", "optdigits", "fonts").items()
    }
    rng, some, models = np.random.default_rng(0), {}, {}
    for name, (x, y) in found.items():
        rows = rng.permutation(len(y))[:MOST_DIGITS]
        some[name] = x[rows].reshape(-1, 256) / 255, y[rows]
        models[name] = kinds_of(*some[name])
    for source, target in permutations(some, 2):
        if "usps" in (source, target):
            for kind, twins_of in models[source].items():
                yield make("USPS", f"{source} to {target}, {kind}", twins_of, *some[target])


def corrupted_emoji(folder: Path) -> Iterator[Case]:
    """Heads on clean images of two vendors, used on corrupted others.

    The careful heads are underconfident.
    """
    features, others = emoji_features(folder), emoji_features(folder, OTHER["efficientnet-lite0"])
    train, labels = features["train"]
    kinds = {
        "sure": twins(make_pipeline(StandardScaler(), LogisticRegression(C=1.0)), train, labels),
        "careful": twins(
            make_pipeline(StandardScaler(), LogisticRegression(C=1e-4)), train, labels
        ),
    }
    partner = partners(len(features["none"][0]))
    for name in CORRUPTIONS:
        real, mixed = features[name]
        for kind, models in kinds.items():
            both = [[model.decision_function(x) for model in models] for x in (real, mixed)]
            surrogate = surrogate_of(both[0][0], both[1][0], partner, others[name])
            labels_of = features["labels"][0]
            yield case_of_logits(
                "corrupted emoji", f"{name}, {kind}", *both, partner, labels_of, surrogate=surrogate
            )


def emoji_features(
    folder: Path, name: str = "efficientnet-lite0"
) -> dict[str, tuple[np.ndarray, ...]]:
    """Features of clean images with their labels, and of corrupted images and their mixup samples.

    Kept in a file.
    """
    from pseudocal.lab.adapt.backbones import build_backbone, compute_features
    from pseudocal.lab.adapt.choices import Choice

    path = folder / (
        "corrupted_emoji.npz" if name == "efficientnet-lite0" else f"corrupted_emoji_{name}.npz"
    )
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            found = dict(file)
        return {
            name: tuple(a for key, a in found.items() if key.startswith(f"{name}/"))
            for name in _names(found)
        }
    domains = load("emoji", "noto", "fluent").values()
    images, labels = (
        np.concatenate([getattr(domain, part) for domain in domains])
        for part in ("inputs", "labels")
    )
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:1300], order[1300:2000]
    backbone = build_backbone(Choice(name, size=SIDE))
    clean = images[test].transpose(0, 2, 3, 1) / 255
    features = {
        "train": (compute_features(backbone, images[train]), labels[train]),
        "labels": (labels[test],),
    }
    for each, corrupt in CORRUPTIONS.items():
        seen = 255 * np.clip(corrupt(clean, np.random.default_rng(1)), 0, 1).transpose(
            0, 3, 1, 2
        ).astype(np.float32)
        both = seen, View(LAM, 0).of(seen)
        features[each] = tuple(compute_features(backbone, x) for x in both)
    flat: dict[str, Any] = {
        f"{name}/{i}": a for name, arrays in features.items() for i, a in enumerate(arrays)
    }
    np.savez(path, **flat)
    return features


def _names(found: dict[str, np.ndarray]) -> set[str]:
    return {key.split("/")[0] for key in found}


def two_digits(make: Make = case_of) -> Iterator[Any]:
    """Threes and eights of scikit-learn under the same corruptions."""
    x, y = load_digits(return_X_y=True)
    kept = np.isin(y, (3, 8))
    x, y = x[kept].reshape(-1, 8, 8, 1) / 16, (y[kept] == 8).astype(np.int64)
    half = np.random.default_rng(0).permutation(len(y))
    train, test = half[:160], half[160:]
    models = twins(
        LogisticRegression(C=30.0, max_iter=1000), x[train].reshape(len(train), -1), y[train]
    )
    for name, corrupt in CORRUPTIONS.items():
        seen = corrupt(x[test], np.random.default_rng(1)).reshape(len(test), -1)
        yield make("two classes", f"3 or 8, {name}", models, seen, y[test])


def tumours(make: Make = case_of) -> Iterator[Any]:
    """Benign or malign, where the measurements become noisier or drift."""
    x, y = load_breast_cancer(return_X_y=True)
    x, half = (x - x.mean(axis=0)) / x.std(axis=0), np.random.default_rng(0).permutation(len(y))
    train, test = half[:200], half[200:]
    models = twins(LogisticRegression(C=30.0, max_iter=1000), x[train], y[train])
    rng = np.random.default_rng(1)
    for noise, drift in ((0.0, 0.0), (0.5, 0.0), (1.5, 0.0), (0.0, 0.7), (0.5, -0.7)):
        seen = x[test] + noise * rng.standard_normal(x[test].shape) + drift
        yield make("two classes", f"tumours, noise {noise}, drift {drift}", models, seen, y[test])


def texts_of_others(path: Path, make: Make = case_of) -> Iterator[Any]:
    """Good or bad: logistic regression, trained on one kind of text and used on another."""
    for shift_of in reviews(path):
        models = twins(LogisticRegression(C=30.0, solver="liblinear"), *shift_of.source)
        yield make("two classes", f"reviews, {shift_of.name}", models, *shift_of.target)


def later_years(path: Path, make: Make = case_of) -> Iterator[Any]:
    """Employed or not: trained on 2015, used on the years after."""
    for shift_of in census(path):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=30.0, max_iter=1000))
        yield make(
            "two classes",
            f"census, {shift_of.name}",
            twins(model, *shift_of.source),
            *shift_of.target,
        )


FILES = (
    ("USPS", "usps.npz", written_digits),
    ("two classes", "sentiment_4domains.npz", texts_of_others),
    ("two classes", "employment_ma.npz", later_years),
)


def families(folder: Path, data: Path | None) -> dict[str, list[Case]]:
    """All that can be had.

    Corrupted emoji need the extra `adapt`, and a quarter of an hour the first time.
    """
    found = {
        "scikit-learn digits": [*small_digits()],
        "USPS": [],
        "two classes": [*two_digits(), *tumours()],
    }
    for family, name, read in FILES:
        if data is not None and (data / name).exists():
            found[family] += read(data / name)
        else:
            print(f"left out: {name}, no such file")
    found = {family: cases for family, cases in found.items() if cases}
    try:
        return {"corrupted emoji": [*corrupted_emoji(folder)], **found}
    except ImportError as error:
        print(f"left out: corrupted emoji, {error}")
        return found
