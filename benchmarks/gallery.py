"""The three reports of the gallery in the docs, from data included in scikit-learn.

    python benchmarks/gallery.py docs/howto/gallery

1. `digits`: a table of noisy handwritten digits, two networks, ground truth for comparison.
2. `labels`: the same digits as images, one network, and fifty labels taken from the ground truth.
3. `tumours`: two classes, two networks that are nearly always right, ground truth for comparison.

The ground truth is not used to calibrate. Takes about ten seconds of CPU time. `make docs` runs
this.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pseudocal import rows_to_label
from pseudocal.app import calibrate, refine
from pseudocal.app.job import ImageSettings

Array = NDArray[np.float64]
MODELS = ModuleType("gallery")  # what the jobs know as gallery:first and so on
TIMES = 8  # a pixel of a digit is so many pixels of its image
LABELS = 50


def network(
    x: Array, y: NDArray[np.int64], seed: int, scaler: Any = None
) -> Callable[[Array], Array]:
    """Train a small network, and return its logits as a function."""
    model = make_pipeline(scaler, MLPClassifier((32,), max_iter=1000, random_state=seed)).fit(x, y)
    return lambda rows: np.log(np.clip(model.predict_proba(rows), 1e-12, 1))


def digits() -> Path:
    """Digits with noise: the networks were trained on clean ones."""
    x, y = load_digits(return_X_y=True)
    MODELS.first, MODELS.second = (network(x[:900], y[:900], seed) for seed in (0, 1))  # type: ignore[attr-defined]
    np.save("noisy_digits.npy", x[900:] + np.random.default_rng(0).normal(0, 4, size=x[900:].shape))
    np.save("labels.npy", y[900:])
    given: dict[str, Any] = {
        "second_opinion": "gallery:second",
        "ground_truth": Path("labels.npy"),
        "output_type": "logits",
    }
    return calibrate("gallery:first", "noisy_digits.npy", "out", **given).out


def labels() -> Path:
    """Digits as images, one network, and fifty labels."""
    x, y = load_digits(return_X_y=True)
    first = network(x[:900], y[:900], 0)

    def of_images(batch: NDArray[np.float32]) -> Array:
        pixels = batch.reshape(len(batch), 8, TIMES, 8, TIMES).mean(axis=(2, 4))
        return first(16 * pixels.reshape(len(batch), 64))

    MODELS.of_images = of_images  # type: ignore[attr-defined]
    noisy = (
        (x[900:] + np.random.default_rng(1).normal(0, 5, size=x[900:].shape)).clip(0, 16) * 255 / 16
    )
    Path("digits").mkdir()
    for i, image_file in enumerate(noisy.reshape(-1, 8, 8).round().astype(np.uint8)):
        Image.fromarray(image_file.repeat(TIMES, axis=0).repeat(TIMES, axis=1)).save(
            f"digits/{i:03d}.png"
        )
    prepared = ImageSettings(
        size=(8 * TIMES, 8 * TIMES),
        channels=1,
        normalisation="zero-one",
        layout="nchw",
        resize="stretch",
    )
    out = calibrate(
        "gallery:of_images", "digits", "out", preprocessing=prepared, output_type="logits"
    ).out
    with Path("labels.csv").open("w", newline="") as file:
        said = [
            (f"{row:03d}.png", y[900 + row])
            for row in rows_to_label(np.load(out / "logits.npy"), LABELS)
        ]
        csv.writer(file).writerows([("file", "label"), *said])
    return refine(out, "labels.csv").out


def tumours() -> Path:
    """Two classes.

    What two networks that are both wrong agree on cannot be told from what they know.
    """
    x, y = load_breast_cancer(return_X_y=True)
    one, other = (network(x[:250], y[:250], seed, StandardScaler()) for seed in (0, 1))
    MODELS.one, MODELS.other = one, other  # type: ignore[attr-defined]
    np.save("tumours.npy", x[250:])
    np.save("labels.npy", y[250:])
    given: dict[str, Any] = {
        "second_opinion": "gallery:other",
        "ground_truth": Path("labels.npy"),
        "classes": ("malignant", "benign"),
    }
    return calibrate("gallery:one", "tumours.npy", "out", output_type="logits", **given).out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the three pages")
    out = parser.parse_args().out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    sys.modules[MODELS.__name__] = MODELS
    for make in (digits, labels, tumours):
        with TemporaryDirectory() as name, chdir(name):
            shutil.copy(make() / "report.html", out / f"{make.__name__}.html")
        print(out / f"{make.__name__}.html")


if __name__ == "__main__":
    main()
