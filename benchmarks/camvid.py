"""A small U-Net trained on CamVid's day frames and calibrated on its dusk frames, without labels.

    python benchmarks/camvid.py camvid_120x160.npz runs/camvid

The file contains `x` (n, height, width, 3), `y` (n, height, width) with 11 classes and 11 for
ignored pixels, and `seq`, the sequence of each frame. 0001TP was filmed at dusk. One in five day
frames, by sequence order, is held out for TempScal. Takes about ten minutes on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pseudocal.calibrators import CALIBRATORS
from pseudocal.lab.adapt.runs import torch_threads
from pseudocal.lab.data import Scenes
from pseudocal.lab.segmentation import SegmenterRun, TrainedSegmenter, train_segmenter
from pseudocal.lab.segmentation.comparison import (
    SEGMENTATION_CALIBRATORS,
    CalibratorScore,
    compare_ensemble,
    compare_on_scenes,
)

DUSK, UNLABELLED = "0001TP", 11


def read(path: Path) -> tuple[Scenes, Scenes, Scenes]:
    """Day frames to train on, day frames held out, dusk frames."""
    with np.load(path, allow_pickle=False) as file:
        x, y, seq, classes = (file[name] for name in ("x", "y", "seq", "classes"))
    x = x.transpose(0, 3, 1, 2) if x.shape[-1] == 3 else x
    masks = np.where(y == UNLABELLED, 255, y).astype(np.uint8)
    names = tuple(map(str, classes[:UNLABELLED]))
    dusk = np.asarray(seq == DUSK)
    day = np.flatnonzero(~dusk)
    held = day[4::5]
    parts = {"day": np.setdiff1d(day, held), "held out": held, "dusk": np.flatnonzero(dusk)}
    first, second, third = (
        Scenes(name, x[rows], masks[rows], names) for name, rows in parts.items()
    )
    return first, second, third


def trained_unet(day: Scenes, folder: Path, *, seed: int, iterations: int) -> TrainedSegmenter:
    """The U-Net that was trained on day frames, unless the folder has it.

    One thread, whatever the machine has: their number changes the last digits of the weights, and
    after some hundred steps the network.
    """
    run = SegmenterRun(
        folder / f"unet-{iterations}-{seed}", seed=seed, iterations=iterations, batch=8
    )
    with torch_threads(1):
        return train_segmenter(day, run)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="for the models")
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        help="the first is calibrated, all are the ensemble",
    )
    parser.add_argument("--iterations", type=int, default=500)
    given = parser.parse_args()
    day, held, dusk = read(given.data)
    print(f"{len(day)} day frames, {len(held)} held out, {len(dusk)} at dusk", flush=True)
    members = []
    for seed in given.seeds:
        trained = trained_unet(day, given.folder, seed=seed, iterations=given.iterations)
        print(f"seed {seed}: trained in {trained.seconds:.0f} s", flush=True)
        members.append(trained.load())
    for name, domain in (("day, held out", held), ("dusk", dusk)):
        cells = {
            cell.method: cell
            for cell in [
                *compare_on_scenes(members[0], held, domain),
                compare_ensemble(members, domain),
            ]
        }
        print(
            f"\n{name}: "
            + ", ".join(f"{m} T = {c.temperature:.3f}" for m, c in cells.items() if m != "ensemble")
        )
        print(
            "\n".join(table_lines([cells[method] for method in SEGMENTATION_CALIBRATORS])),
            flush=True,
        )


def table_lines(cells: list[CalibratorScore]) -> Iterator[str]:
    """The table as Markdown."""
    yield "| | ECE | NLL | Brier | pixel accuracy | mIoU |"
    yield "|---|---|---|---|---|---|"
    for cell in cells:
        s, title = cell.scores, CALIBRATORS[cell.method].title
        percent = f"{100 * s['accuracy']:.1f} | {100 * s['miou']:.1f}"
        yield f"| {title} | {100 * s['ece']:.2f} | {s['nll']:.3f} | {s['brier']:.3f} | {percent} |"


if __name__ == "__main__":
    main()
