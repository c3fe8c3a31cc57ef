"""`pseudocal demo`.

Train on one vendor's emoji, adapt to another's, calibrate without labels, compare.

All results of a model come from the folder that `pseudocal calibrate` would write for it. The
target's labels are only used at the end, for the table and for the evaluation in the reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from pseudocal.app.cli.printing import show_progress
from pseudocal.app.cli.training import Stages
from pseudocal.app.jobs.job import Job
from pseudocal.app.jobs.pipeline import job_steps
from pseudocal.app.jobs.setup import Models
from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.arrays import Labelled, Logits
from pseudocal.calibrators import Calibration, PseudoCal, oracle, tempscal, uncalibrated
from pseudocal.files import check_writable
from pseudocal.lab.adapt import Network, Trained, TrainingRun, build_backbone, train
from pseudocal.lab.adapt.backbones import Remembered
from pseudocal.lab.adapt.runs import torch_threads
from pseudocal.lab.adapt.tensors import Tensors, predict_arrays
from pseudocal.lab.data import Domain, load
from pseudocal.predictors import as_predictor
from pseudocal.scaling import TemperatureScaling

Say = Callable[[str], None]
Features = Callable[[NDArray[Any]], NDArray[np.float32]]
NONE, ORACLE = "no calibration", "oracle (needs labels)"
PSEUDOCAL, AGREEMENT = "PseudoCal", "PseudoCal, agreement"


@dataclass(frozen=True)
class Demo:
    """The settings of the demo.

    Attributes:
        out: the folder for all results.
        dataset: the data set.
        source: the labelled domain to train on.
        target: the domain to adapt to and calibrate on.
        methods: the adaptation methods; the reliability diagrams are drawn for the last one.
        backbone: the name of the backbone.
        iterations: the number of training steps.
        rows: the number of images to use of each domain; None for all.
        quiet: whether to show no progress.

    """

    out: Path
    dataset: str = "emoji"
    source: str = "noto"
    target: str = "fluent"
    methods: tuple[str, ...] = ("source-only", "mcc")
    backbone: str = "efficientnet-lite0"
    iterations: int = 1000
    rows: int | None = None
    quiet: bool = False


@dataclass(frozen=True, eq=False)
class Shown:
    """One model on the target.

    Attributes:
        method: the adaptation method.
        logits: the logits of the target.
        labels: the labels of the target, for the comparison only.
        calibrations: the calibrations by name.
        folder: the folder of the report.

    """

    method: str
    logits: Logits
    labels: NDArray[np.int64]
    calibrations: dict[str, Calibration]
    folder: Path


def run_demo(demo: Demo, say: Say = lambda text: None) -> list[Shown]:
    """Run the demo, and say what is being done."""
    check_writable(demo.out)
    with torch_threads(
        1
    ):  # more threads wait for each other on a busy machine, and change the last digits
        return _all_shown(demo, say)


def _all_shown(demo: Demo, say: Say) -> list[Shown]:
    say(f"the images of {demo.dataset}: drawn on first use, which takes a minute")
    domains = load(demo.dataset, demo.source, demo.target)
    source, target = (domains[name][: demo.rows] for name in (demo.source, demo.target))
    _write_images(target, demo.out)
    body = build_backbone(demo.backbone)
    shared = Remembered(body.eval()) if body.pretrained else None
    return [_show(demo, method, source, target, shared, say) for method in demo.methods]


def _show(
    demo: Demo, method: str, source: Domain, target: Domain, shared: Features | None, say: Say
) -> Shown:
    """Train a model and a second opinion, and calibrate the model with the help of the other."""
    say(f"{method}: training on {demo.source}, without the labels of {demo.target}, from two seeds")
    runs = [_train(demo, method, seed, source, target) for seed in (0, 1)]
    first, second = (_opened(run, target, shared) for run in runs)
    folder = demo.out / method
    say(f"{method}: calibrating on {len(target):,} images of {demo.target} without labels")
    _calibrate(demo, (first, second), runs, folder, PseudoCal())
    _calibrate(demo, (first, second), runs, folder / "mixup", PseudoCal(estimator="mixup"))
    with np.load(runs[0].source_val, allow_pickle=False) as held_out:
        validation = Labelled(held_out["logits"], held_out["labels"])
    logits = np.load(folder / "logits.npy", allow_pickle=False)
    calibrations = {
        NONE: uncalibrated(),
        "TempScal": tempscal(validation),
        PSEUDOCAL: _fitted(folder / "mixup"),
        AGREEMENT: _fitted(folder),
        ORACLE: oracle(logits, target.labels),
    }
    return Shown(method, logits, target.labels, calibrations, folder)


def _fitted(folder: Path) -> Calibration:
    """The calibration of a folder with the temperature that was fitted, also if it was refused.

    For the comparison.
    """
    found = Calibration.load(folder / "calibration.json")
    return (
        found
        if found.refused is None
        else replace(found, scaling=TemperatureScaling(found.refused), refused=None)
    )


def _write_images(target: Domain, out: Path) -> None:
    """Write the target as a folder of images, and its labels to a file that only evaluation reads."""
    from PIL import Image

    folder = out / "image_files"
    folder.mkdir(exist_ok=True)
    names = [f"{i:04d}.png" for i in range(len(target))]
    for name, image in zip(names, target.inputs[:], strict=True):
        pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
        Image.fromarray(pixels).save(folder / name)
    lines = [f"{name},{label}" for name, label in zip(names, target.labels, strict=True)]
    (out / "labels.csv").write_text("\n".join(["file,label", *lines]) + "\n", encoding="utf-8")


def _train(demo: Demo, method: str, seed: int, source: Domain, target: Domain) -> Trained:
    with Stages(quiet=demo.quiet) as stages:
        return train(
            source,
            target.unlabelled(),
            TrainingRun(
                demo.out / "models" / f"{method}-{seed}",
                seed=seed,
                iterations=demo.iterations,
                progress=stages,
            ),
            method=method,
            backbone=demo.backbone,
            width=256,
        )


def _opened(run: Trained, target: Domain, shared: Features | None) -> OpenModel:
    """Wrap a trained network as `calibrate` would open it from a file.

    It normalises images itself.
    """
    network = run.load()
    return OpenModel(
        kind="network",
        predict=as_predictor(network) if shared is None else _above(network, shared),
        expects=Expects(
            target.inputs.shape[1:],
            "float32",
            preprocessing={"scale": 1.0, "mean": (0.0,), "std": (1.0,)},
        ),
        classes=target.classes,
        notes=(f"trained by pseudocal in {run.out}",),
    )


def _above(network: Network, features: Features) -> Callable[[Any], Logits]:
    """Predict with the head of a network above a frozen backbone that it shares with others."""
    top = Network(nn.Identity(), network.head).eval()
    return lambda images: predict_arrays(top, Tensors(features(images)))["logits"]


def _calibrate(
    demo: Demo, models: Models, runs: list[Trained], folder: Path, method: PseudoCal
) -> None:
    job = Job(
        model=str(runs[0].out),
        second_opinion=str(runs[1].out),
        data=str(demo.out / "image_files"),
        out=folder,
        method=method,
        labels=demo.out / "labels.csv",
    )
    show_progress(job_steps(job, models), quiet=True)
