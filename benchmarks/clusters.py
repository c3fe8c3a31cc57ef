"""How often 95% intervals of T hold the truth where pixels come in images: by image, and as if all were independent.

Images of 6 x 6 pixels and four classes whose strength and colours differ from one to the next; the truth is the
temperature of 40,000 of them. "array" is shuffled and paired as a whole; a "stream" comes one image at a time and is
paired with what is still in memory; "short of memory" remembers four images. Run by `make bench`.
"""

from __future__ import annotations

import numpy as np

from pseudocal import PseudoCal, fit_temperature

CLASSES, SIZE, SETS = 4, 6, 200
CASES = [("array", 20), ("array", 50), ("array", 200), ("stream", 50), ("stream", 200), ("short of memory", 100)]


def model(x: np.ndarray) -> np.ndarray:
    """Logits that are too large."""
    return 4 * x


def images(n: int, rng: np.random.Generator) -> np.ndarray:
    """Blocks of colour on a colour, strong in some images and weak in others."""
    strength = np.exp(0.5 * rng.standard_normal((n, 1, 1, 1)))
    colour = rng.standard_normal((n, CLASSES, 1, 1))
    blocks = rng.standard_normal((n, CLASSES, 2, 2)).repeat(3, axis=2).repeat(3, axis=3)
    return (strength * (0.7 * colour + blocks) + 0.5 * rng.standard_normal((n, CLASSES, SIZE, SIZE))).astype(np.float32)


def main() -> None:
    """Print the table."""
    truth = PseudoCal(seed=3).fit(model, images(40_000, np.random.default_rng(1))).temperature
    print(f"\nIntervals of T = {truth:.3f}, {SETS} sets of images\n")
    print("| | images | held by image | held as if independent | error of log T | its estimate |")
    print("|---|---|---|---|---|---|")
    for kind, n in CASES:
        held, blind, errors, estimates = [], [], [], []
        for seed in range(SETS):
            x = images(n, np.random.default_rng(10_000 + seed))
            data = x if kind == "array" else [x[i : i + 1] for i in range(n)]
            if kind == "short of memory":
                data = [part.repeat(6, axis=2).repeat(6, axis=3) for part in data]
            method = PseudoCal(seed=seed, memory=2**16 if kind == "short of memory" else 2**29)
            collected = method.collect(model, data)
            mixes, fitted = collected.mixes.labelled, collected.temperature()
            plain = fit_temperature(mixes.logits, mixes.labels, weights=mixes.weights)
            for scaling, into in ((fitted, held), (plain, blind)):
                low, high = scaling.interval()
                into.append(low <= truth <= high)
            errors.append(np.log(fitted.temperature / truth))
            estimates.append(fitted.log_se)
        shares = f"{np.mean(held):.3f} | {np.mean(blind):.3f}"
        print(f"| {kind} | {n} | {shares} | {np.std(errors):.3f} | {np.mean(estimates):.3f} |", flush=True)


if __name__ == "__main__":
    main()
