"""A few labelled pixels for a segmentation model: CamVid, day to dusk.

    python benchmarks/labels_pixels.py camvid_120x160.npz runs/camvid

Trains the U-Net of `benchmarks/camvid.py` on day frames, unless it is in the folder. Pixels of the
dusk frames are drawn as `label` draws them and labelled from the masks, and the temperature is
scored on all dusk pixels. The prior is PseudoCal's temperature.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

from camvid import read, trained_unet
from pseudocal import LabelSample, PseudoCal, rows_to_label
from pseudocal.calibrators import pixel_pool
from pseudocal.lab.segmentation.comparison import evaluate_maps, fit_oracle
from pseudocal.predictors import as_predictor

NUMBERS = (20, 50, 100, 200)
BATCH = 20
IGNORED = 255


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="for the model")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=500)
    given = parser.parse_args()
    day, _, dusk = read(given.data)
    predict = as_predictor(
        trained_unet(day, given.folder, seed=0, iterations=given.iterations).load()
    )
    images = [
        dusk.inputs[start : start + BATCH].astype(np.float32)
        for start in range(0, len(dusk), BATCH)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it should not be applied is the point
        found = PseudoCal().fit(predict, images)
    pool = pixel_pool((predict(batch) for batch in images), pixels_per_image=500)
    masks = dusk.masks[pool.images, pool.y, pool.x].astype(np.int64)
    kept = np.flatnonzero(masks != IGNORED)  # what nobody labelled is no pixel to ask about here
    logits, labels, frames = pool.logits[kept], masks[kept], pool.images[kept]
    ends = {
        "none": 1.0,
        "PseudoCal": found.temperature,
        "oracle": fit_oracle(predict, dusk, 20_000, 0).temperature,
    }
    refined = {}
    for n in NUMBERS:
        for seed in range(given.draws):
            rows = rows_to_label(logits, n, seed=seed, groups=frames)
            refined[n, seed] = found.refined(
                logits, LabelSample(rows, labels[rows], seed=seed), groups=frames
            )
    temperatures = [*ends.values(), *(each.temperature for each in refined.values())]
    scores = [
        100 * seen.score()["ece"]
        for seen in evaluate_maps(predict, dusk, temperatures=tuple(temperatures))
    ]
    print(
        ", ".join(
            f"{name}: T = {t:.2f}, ECE {e:.1f}"
            for (name, t), e in zip(ends.items(), scores, strict=False)
        )
    )
    by_draw = dict(zip(refined, scores[len(ends) :], strict=True))
    accuracy = float((logits.argmax(axis=1) == labels).mean())
    print(
        "| n | ECE | worst | interval of T covers the oracle's T | interval covers the accuracy | apply |",
        "|---|---|---|---|---|---|",
        sep="\n",
    )
    for n in NUMBERS:
        eces = [by_draw[n, seed] for seed in range(given.draws)]
        told = [refined[n, seed].measured for seed in range(given.draws)]
        counts = [
            sum(m.temperature.low <= ends["oracle"] <= m.temperature.high for m in told if m),
            sum(m.accuracy.low <= accuracy <= m.accuracy.high for m in told if m),
            sum(m.verdict == "apply" for m in told if m),
        ]
        cells = " | ".join(f"{count} of {given.draws}" for count in counts)
        print(f"| {n} | {np.mean(eces):.1f} | {max(eces):.1f} | {cells} |")


if __name__ == "__main__":
    main()
