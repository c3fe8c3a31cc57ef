"""How often 95% intervals of T cover the truth when pixels come in images.

Intervals are computed by image, and as if all pixels were independent.

There are four kinds of small images whose difficulty varies from image to image. The truth is the
temperature of very many of them. An "array" is shuffled and paired as a whole. A "stream" yields
one image at a time, or four, which are paired with those still in memory. "Large frames" keep four
images and two thousand pixels of mixup samples, "short of memory" keeps two images, the minimum,
and a hundred pixels. Run by `make bench`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from pseudocal import PseudoCal, fit_temperature

MANY, SETS = 30_000, 600
MEMORY = {"large frames": 2**20, "short of memory": 2**16}  # bytes


def blocks(n: int, rng: np.random.Generator) -> np.ndarray:
    """Blocks of colour on a colour, four classes, strong in some images and weak in others."""
    strength = np.exp(0.5 * rng.standard_normal((n, 1, 1, 1)))
    colour = rng.standard_normal((n, 4, 1, 1))
    block = rng.standard_normal((n, 4, 2, 2)).repeat(3, axis=2).repeat(3, axis=3)
    return 4 * (strength * (0.7 * colour + block) + 0.5 * rng.standard_normal((n, 4, 6, 6)))


def fields(n: int, rng: np.random.Generator) -> np.ndarray:
    """Fields of 2 x 2 pixels, eight classes, a tint with long tails, noisy in some images and clear in others."""
    field = rng.standard_normal((n, 8, 5, 5)).repeat(2, axis=2).repeat(2, axis=3)
    tint = rng.standard_t(5, (n, 8, 1, 1))
    return 3 * (
        field
        + 0.5 * tint
        + rng.gamma(2.0, 0.35, (n, 1, 1, 1)) * rng.standard_normal((n, 8, 10, 10))
    )


def horizons(n: int, rng: np.random.Generator) -> np.ndarray:
    """One class above another, of three, where they meet differs.

    Sharp in some images and faint in others.
    """
    above, below = 1.5 * rng.standard_normal((2, n, 3, 1, 1))
    rows = np.arange(8)[:, None]
    scene = np.where(rows < rng.integers(2, 7, (n, 1, 1, 1)), above, below)
    return 3 * (
        np.exp(0.7 * rng.standard_normal((n, 1, 1, 1))) * scene
        + 0.7 * rng.standard_normal((n, 3, 8, 8))
    )


def nights(n: int, rng: np.random.Generator) -> np.ndarray:
    """Three classes that change slowly over an image; one in eight is dark, tinted and noisy."""
    field = rng.standard_normal((n, 3, 4, 4)).repeat(3, axis=2).repeat(3, axis=3)
    tint, noise = rng.standard_normal((n, 3, 1, 1)), rng.standard_normal((n, 3, 12, 12))
    dark = rng.random((n, 1, 1, 1)) < 1 / 8
    return 3 * np.tanh(np.where(dark, 0.5 * field + 1.2 * tint + noise, 1.5 * field + 0.3 * noise))


CASES = [
    ("array", 20),
    ("array", 50),
    ("stream", 50),
    ("stream of fours", 60),
    ("stream", 200),
    ("large frames", 100),
    ("short of memory", 100),
]


def fit(
    kind: str, images: np.ndarray, seed: int
) -> tuple[float, tuple[float, float], tuple[float, float], float]:
    """The temperature, its interval by image and as if pixels were independent, and its error by image."""
    step = {"array": len(images), "stream of fours": 4}.get(kind, 1)
    memory, classes = MEMORY.get(kind, 2**29), images.shape[1]
    larger = (
        memory // 4 // images[0].nbytes
    )  # an image so many times larger takes all that there is for images
    if kind == "short of memory":
        images = images.repeat(larger, axis=3)
    if kind == "large frames":  # channels that the model does not look at
        images = np.pad(images, ((0, 0), (0, larger * classes // 5), (0, 0), (0, 0)))
    batches = [images[i : i + step] for i in range(0, len(images), step)]
    collected = PseudoCal(seed=seed, memory=memory, epochs=1).collect(
        lambda x: x[:, :classes], images if kind == "array" else batches
    )
    mixup_samples, fitted = collected.mixup_samples.labelled, collected.temperature()
    independent = fit_temperature(
        mixup_samples.logits, mixup_samples.labels, weights=mixup_samples.weights
    )
    return fitted.temperature, fitted.interval(), independent.interval(), fitted.log_se


def coverage(draw: Callable[[int, np.random.Generator], np.ndarray], sets: int) -> None:
    """Print the rows of one kind of images."""
    truth = (
        PseudoCal(seed=3, epochs=1)
        .fit(lambda x: x, draw(MANY, np.random.default_rng(1)).astype(np.float32))
        .temperature
    )
    for kind, n in CASES:
        found = [
            fit(kind, draw(n, np.random.default_rng(s)).astype(np.float32), s)
            for s in range(2, sets + 2)
        ]
        by_image = np.mean([low <= truth <= high for _, (low, high), _, _ in found])
        independent = np.mean([low <= truth <= high for _, _, (low, high), _ in found])
        errors, estimates = [np.log(f[0] / truth) for f in found], [f[3] for f in found]
        numbers = (
            f"{by_image:.3f} | {independent:.3f} | {np.std(errors):.3f} | {np.mean(estimates):.3f}"
        )
        print(f"| {draw.__name__}, T = {truth:.2f} | {kind} | {n} | {numbers} |", flush=True)


def main(sets: int = SETS) -> None:
    """Print the table."""
    print(f"\n95% intervals of T, {sets} sets of images in each row\n")
    print(
        "| images | | how many | covered, by image | covered, as if independent | error of log T | its estimate |"
    )
    print("|---|---|---|---|---|---|---|")
    for draw in (blocks, fields, horizons, nights):
        coverage(draw, sets)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
