"""`pseudocal demo`.

Train on one vendor's emoji, adapt to another's, calibrate without labels, compare.

All results of a model come from the run folder that `pseudocal calibrate` would write for it. The
target's labels are only used at the end, for the table and for the evaluation in the reports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from pseudocal.app.job import Job
from pseudocal.app.labelling import label
from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.app.pipeline import calibrate_steps, run_steps
from pseudocal.app.progress import Stages
from pseudocal.app.run import PAGE, Run
from pseudocal.arrays import Labelled, Logits
from pseudocal.calibrators import Calibration, PseudoCal, oracle, tempscal, uncalibrated
from pseudocal.calibrators.labels import LabelSample, rows_to_label
from pseudocal.files import check_writable
from pseudocal.lab.adapt import Network, Trained, TrainingRun, build_backbone, train
from pseudocal.lab.adapt.backbones import Remembered
from pseudocal.lab.adapt.runs import torch_threads
from pseudocal.lab.adapt.tensors import Tensors, predict_arrays
from pseudocal.lab.bench.figures import pyplot
from pseudocal.lab.data import Domain, load
from pseudocal.metrics import Outcomes, Reliability, accuracy, ece, paired
from pseudocal.metrics.intervals import Interval
from pseudocal.predictors import as_predictor
from pseudocal.scaling import TemperatureScaling

Features = Callable[[NDArray[Any]], NDArray[np.float32]]
NONE = "no calibration"
ORACLE = "oracle (needs labels)"
PSEUDOCAL = "PseudoCal"
AGREEMENT = "PseudoCal, agreement"
LABELS = (0, 50, 100)  # how many inputs are labelled
HEAD = f"  {'':24}{'T':>6}{'ECE':>8}   {'ECE after minus before':40}verdict"
IMAGES = "images"
GROUND_TRUTH = "ground_truth.csv"


@dataclass(frozen=True)
class Demo:
    """The settings of the demo."""

    out: Path
    dataset: str = "emoji"
    source: str = "noto"  # the labelled domain to train on
    target: str = "fluent"  # the domain to adapt to and calibrate on
    methods: tuple[str, ...] = ("source-only", "mcc")  # diagrams are drawn for the last one
    backbone: str = "efficientnet-lite0"
    iterations: int = 1000
    rows: int | None = None  # images to use of each domain; None for all
    quiet: bool = False


@dataclass(frozen=True, eq=False)
class Shown:
    """One model on the target."""

    method: str  # the adaptation method
    logits: Logits
    labels: NDArray[np.int64]  # for the comparison only
    calibrations: dict[str, Calibration]
    folder: Path  # of the report


# ------------------------------------------------------------------------------ training


def run_demo(demo: Demo) -> list[Shown]:
    """Run the demo."""
    check_writable(demo.out)
    # more threads wait for each other on a busy machine, and change the last digits
    with torch_threads(1):
        _say(demo, f"the images of {demo.dataset}: drawn on first use, which takes a minute")
        domains = load(demo.dataset, demo.source, demo.target)
        source = domains[demo.source][: demo.rows]
        target = domains[demo.target][: demo.rows]
        _write_images(target, demo.out)
        body = build_backbone(demo.backbone)
        shared = Remembered(body.eval()) if body.pretrained else None
        return [_show(demo, method, source, target, shared) for method in demo.methods]


def _say(demo: Demo, text: str) -> None:
    if not demo.quiet:
        sys.stderr.write(text + "\n")


def _show(
    demo: Demo, method: str, source: Domain, target: Domain, shared: Features | None
) -> Shown:
    """Train a model and a second opinion, and calibrate the model with the help of the other."""
    labels = f"without the labels of {demo.target}"
    _say(demo, f"{method}: training on {demo.source}, {labels}, from two seeds")
    runs = [_train(demo, method, seed, source, target) for seed in (0, 1)]
    models = tuple(_opened(run, target, shared) for run in runs)
    folder = demo.out / method
    _say(demo, f"{method}: calibrating on {len(target):,} images of {demo.target} without labels")
    job = Job(
        model=str(runs[0].out),
        second_opinion=str(runs[1].out),
        data=str(demo.out / IMAGES),
        out=folder,
        method=PseudoCal(),
        ground_truth=demo.out / GROUND_TRUTH,
    )
    run_steps(calibrate_steps(job, models))
    mixup = replace(job, out=folder / "mixup", method=PseudoCal(estimator="mixup"))
    run_steps(calibrate_steps(mixup, models))
    with np.load(runs[0].source_val, allow_pickle=False) as held_out:
        validation = Labelled(held_out["logits"], held_out["labels"])
    logits = np.array(Run.open(folder).logits)
    calibrations = {
        NONE: uncalibrated(),
        "TempScal": tempscal(validation),
        PSEUDOCAL: _fitted(folder / "mixup"),
        AGREEMENT: _fitted(folder),
        ORACLE: oracle(logits, target.labels),
    }
    return Shown(method, logits, target.labels, calibrations, folder)


def _fitted(folder: Path) -> Calibration:
    """The calibration of a run with the fitted temperature, also if it was refused."""
    found = Run.open(folder).calibration()
    if found.refused is None:
        return found
    return replace(found, scaling=TemperatureScaling(found.refused), refused=None)


def _write_images(target: Domain, out: Path) -> None:
    """Write the target as a folder of images, and its labels to a file for evaluation only."""
    from PIL import Image

    folder = out / IMAGES
    folder.mkdir(exist_ok=True)
    names = [f"{i:04d}.png" for i in range(len(target))]
    for name, image in zip(names, target.inputs[:], strict=True):
        pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
        Image.fromarray(pixels).save(folder / name)
    lines = [f"{name},{label}" for name, label in zip(names, target.labels, strict=True)]
    (out / GROUND_TRUTH).write_text("\n".join(["file,label", *lines]) + "\n", encoding="utf-8")


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
    """Wrap a trained network, which normalises images itself, as if opened from a file."""
    network = run.load()
    itself = {"scale": 1.0, "mean": (0.0,), "std": (1.0,)}
    return OpenModel(
        kind="network",
        predict=as_predictor(network) if shared is None else _above(network, shared),
        expects=Expects(target.inputs.shape[1:], "float32", preprocessing=itself),
        classes=target.classes,
        notes=(f"trained by pseudocal in {run.out}",),
    )


def _above(network: Network, features: Features) -> Callable[[Any], Logits]:
    """Predict with the head of a network above a frozen backbone that it shares with others."""
    top = Network(nn.Identity(), network.head).eval()
    return lambda images: predict_arrays(top, Tensors(features(images)))["logits"]


# ------------------------------------------------------------------------------ results


@dataclass(frozen=True)
class Line:
    """The result of one calibrator on one model."""

    name: str
    calibration: Calibration
    ece: float
    change: Interval | None  # the paired change of the ECE; None for no calibration

    @property
    def word(self) -> str:
        """Whether it helped, by the interval of the change."""
        if self.change is None:
            return ""
        if self.change.high < 0:
            return "better"
        return "WORSE" if self.change.low > 0 else "no clear change"

    def __str__(self) -> str:
        change = "" if self.change is None else f"{self.change:.1%} {self.word}"
        verdict = "" if self.calibration.trust is None else self.calibration.trust.verdict
        t = self.calibration.temperature
        return f"  {self.name:24}{t:6.2f}{self.ece:8.1%}   {change:40}{verdict}".rstrip()


def lines_of(demo: Demo, shown: Sequence[Shown]) -> list[str]:
    """Draw the diagrams, and return the table, what to learn from it, and where the files are."""
    adapted = shown[-1]
    diagrams = demo.out / "reliability.svg"
    draw_reliability(adapted, f"{adapted.method}, {demo.source} to {demo.target}", diagrams)
    compared = {each.method: compare(each) for each in shown}
    used = f"used on {demo.target}: {len(adapted.labels):,} images"
    lines = [f"trained on {demo.source}, {used}, labels used for the comparison only", ""]
    for each in shown:
        lines += [*table_lines(each, compared[each.method]), ""]
    lines += [*lesson_lines(compared), "", *labelled_lines(adapted), ""]
    lines += [f"report on {each.method}: {each.folder / PAGE}" for each in shown]
    return [*lines, f"reliability diagrams of {adapted.method}: {diagrams}"]


def compare(each: Shown) -> list[Line]:
    """Compare every calibrator with no calibration, on the labels."""
    before = outcomes(each, NONE)
    lines = []
    for name, calibration in each.calibrations.items():
        after = outcomes(each, name)
        change = None if name == NONE else paired(ece, before, after)
        lines.append(Line(name, calibration, ece(after), change))
    return lines


def table_lines(each: Shown, lines: Sequence[Line]) -> Iterator[str]:
    """The accuracy of a model and its estimate, then a line for each calibrator."""
    trust = next(line.calibration.trust for line in lines if line.calibration.trust is not None)
    estimate = trust.estimated_accuracy
    interval = f"{estimate.low:.0%} to {estimate.high:.0%}"
    right = accuracy(outcomes(each, NONE))
    yield f"{each.method}: accuracy {right:.1%}, estimate {estimate.value:.0%} ({interval})"
    yield HEAD
    yield from map(str, lines)


def lesson_lines(compared: Mapping[str, Sequence[Line]]) -> Iterator[str]:
    """Where a calibrator made the ECE worse, and what the verdict was without labels."""
    for method, lines in compared.items():
        before = next(line.ece for line in lines if line.name == NONE)
        for line in lines:
            if line.word != "WORSE":
                continue
            change = f"from an ECE of {before:.1%} to {line.ece:.1%}"
            yield f"{method}: {line.name} made it worse, {change}."
            trust = line.calibration.trust
            if trust is not None:
                yield f"  Its verdict, made without labels: {trust.verdict}. {trust.reasons[0]}"


def labelled_lines(each: Shown) -> Iterator[str]:
    """The effect of a few labels, taken from the known ones here, and a page for labelling."""
    rows = rows_to_label(each.logits, max(LABELS))
    others = np.setdiff1d(np.arange(len(each.labels)), rows)
    yield f"{each.method}: inputs of `pseudocal label`, labelled here from the known labels:"
    errors = []
    for n in LABELS:
        found = each.calibrations[AGREEMENT]
        if n:
            labels = LabelSample(rows[:n], each.labels[rows[:n]])
            found = found.refined(each.logits, labels)
        error = ece(Outcomes.from_logits(found(each.logits[others]), each.labels[others]))
        errors.append(error)
        result = f"T = {found.temperature:.2f}, ECE {error:.1%}, verdict: {found.verdict}"
        if found.measured is not None:
            result += f", accuracy {found.measured.accuracy.value:.0%}"
        yield f"  {n:3} labels: {result}"
    change = f"from {errors[0]:.1%} to {errors[1]:.1%}"
    yield f"  {LABELS[1]} labels changed the ECE on the {len(others):,} images without a label {change}."
    yield f"  To label them yourself, open {label(each.folder, LABELS[1])}, save labels.csv, and run"
    yield f"  pseudocal refine {each.folder} labels.csv"


def outcomes(each: Shown, name: str) -> Outcomes:
    """Return the outcomes of a calibrated model on the labels."""
    return Outcomes.from_logits(each.calibrations[name](each.logits), each.labels)


def draw_reliability(each: Shown, title: str, path: Path) -> None:
    """Draw accuracy against confidence side by side, above the fraction of predictions per bin."""
    found = {name: Reliability.of(outcomes(each, name)) for name in each.calibrations}
    plt = pyplot()
    size = (3.2 * len(found), 4.4)
    figure, axes = plt.subplots(2, len(found), figsize=size, sharex=True, height_ratios=[4, 1])
    for (name, r), (top, bottom) in zip(found.items(), axes.T, strict=True):
        low, high = r.accuracy_interval()
        some = r.count > 0
        bars = [(r.accuracy - low)[some], (high - r.accuracy)[some]]
        top.plot([0, 1], [0, 1], color="0.6", lw=1)
        top.errorbar(r.confidence[some], r.accuracy[some], bars, fmt="o", ms=4, capsize=2)
        top.set(title=f"{name}\nECE {r.ece:.1%}", ylim=(0, 1.02), xlim=(0, 1.02))
        fractions = r.count / r.count.sum()
        bottom.bar(r.edges[:-1], fractions, np.diff(r.edges), align="edge", edgecolor="white")
        bottom.set(xlabel="confidence")
    axes[0, 0].set(ylabel="accuracy")
    axes[1, 0].set(ylabel="fraction")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
