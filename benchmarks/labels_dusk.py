"""`label` and `refine` from files to files: CamVid's dusk frames, pixels labelled from the masks.

    python benchmarks/labels_dusk.py --data FOLDER --folder runs/camvid

Trains the U-Net of `benchmarks/camvid.py` by day, unless it is in the folder, and saves it as
TorchScript. `pseudocal.app` calibrates it on the dusk frames, chooses pixels, and takes the labels.
Pixels without a class in the mask are labelled "cannot tell", so there are more chosen pixels than
labels. Each temperature is scored on all dusk pixels.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import pseudocal.app
from camvid import read, trained_unet
from pseudocal.app import Result
from pseudocal.app.job import ImageSettings
from pseudocal.lab.data import Scenes
from pseudocal.lab.segmentation.comparison import evaluate_maps, fit_oracle
from pseudocal.predictors import as_predictor

NUMBERS = (20, 50, 100, 200)
IGNORED = 255


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder of camvid_120x160.npz")
    parser.add_argument("--folder", type=Path, default=Path("runs/camvid"), help="for the model")
    parser.add_argument("--iterations", type=int, default=500)
    given = parser.parse_args()
    day, _, dusk = read(given.data / "camvid_120x160.npz")
    network = trained_unet(day, given.folder, seed=0, iterations=given.iterations).load()
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PseudoCal should not be applied is the point
        folder = Path(name)
        save_files(network, dusk, folder)
        results = {"PseudoCal": calibrated(folder)}
        for n in NUMBERS:
            answers = answered(folder, dusk, n)
            results[f"{n} labelled pixels"] = pseudocal.app.refine(
                folder / "out", answers, trust=True
            )
    predict = as_predictor(network)
    oracle = fit_oracle(predict, dusk, 20_000, 0).temperature
    found = {
        "none": 1.0,
        **{title: result.calibration.temperature for title, result in results.items()},
        "oracle": oracle,
    }
    scores = [
        100 * seen.score()["ece"]
        for seen in evaluate_maps(predict, dusk, temperatures=tuple(found.values()))
    ]
    print("| | T | ECE | verdict | accuracy |", "|---|---|---|---|---|", sep="\n")
    for (title, temperature), ece in zip(found.items(), scores, strict=True):
        print(f"| {title} | {temperature:.2f} | {ece:.1f} | {said_by(results.get(title))} |")


def save_files(network: Any, dusk: Scenes, folder: Path) -> None:
    """The model and the frames as files."""
    import torch

    (folder / "frames").mkdir()
    for i in range(len(dusk)):
        Image.fromarray(np.asarray(dusk.inputs[i : i + 1])[0].transpose(1, 2, 0)).save(
            folder / "frames" / f"{i:03}.png"
        )
    example = torch.from_numpy(np.asarray(dusk.inputs[:2]).astype(np.float32))
    torch.jit.trace(network.eval(), example).save(folder / "unet.pt")


def calibrated(folder: Path) -> Result:
    """Without a label."""
    prepared = ImageSettings(size=(120, 160), scale=1.0, resize="stretch", layout="nchw")
    paths = [str(folder / name) for name in ("unet.pt", "frames", "out")]
    return pseudocal.app.calibrate(*paths, preprocessing=prepared, trust=True, batch_size=20)


def answered(folder: Path, dusk: Scenes, n: int) -> Path:
    """Label pixels from the masks until `n` pixels have a class."""
    asked = n
    while True:
        pseudocal.app.label(folder / "out", asked)
        with (folder / "out" / "to-label.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        labels = [
            int(dusk.masks[int(Path(row["file"]).stem), int(row["y"]), int(row["x"])])
            for row in rows
        ]
        missing = n - sum(label != IGNORED for label in labels)
        if missing <= 0:
            break
        asked += missing
    for row, label in zip(rows, labels, strict=True):
        row["label"] = "cannot tell" if label == IGNORED else str(label)
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return folder / "labels.csv"


def said_by(result: Result | None) -> str:
    """The verdict, and the accuracy if it was measured."""
    if result is None:
        return "- | -"
    measured = result.calibration.measured
    accuracy = "-" if measured is None else f"{measured.accuracy.value:.1%}"
    return f"{result.calibration.verdict} | {accuracy}"


if __name__ == "__main__":
    main()
