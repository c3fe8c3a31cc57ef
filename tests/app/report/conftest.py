"""A finished run without a model, with and without ground truth and images."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, LabelSample, TemperatureScaling, rows_to_label
from pseudocal.app.pixels import SHOWN_MAPS
from pseudocal.app.report import Report, Summary, report_of
from pseudocal.app.report.images import map_images
from pseudocal.app.report.predictions import Confidences, class_name, row_chunks, row_table
from pseudocal.app.report.record import Example
from pseudocal.app.run import AboutData, AboutModel, Timing
from pseudocal.arrays import Labelled
from pseudocal.calibrators import Reason, ReasonCode
from pseudocal.calibrators.confidence import Effect
from pseudocal.calibrators.labels import CANNOT_TELL, NONE_OF_THESE
from pseudocal.calibrators.trust import AccuracyEstimate, Trust, Verdict
from pseudocal.maps import IGNORED

NASTY = "<img src=x onerror=document.title='owned'>"
VERDICTS = ("apply", "caution", "do not apply")


def contrast(one: str, other: str) -> float:
    """The contrast ratio of the web's accessibility guidelines."""

    def light(colour: str) -> float:
        parts = [int(v) / 255 for v in colour[4:-1].split(",")]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def make_trust(verdict: Verdict = "apply") -> Trust:
    reasons = (Reason(ReasonCode.MIXUP_AGREES, {"mixup": 2.9}), Reason(ReasonCode.MIXUP_ONLY))
    effects = {
        "none": Effect(1.0, 0.83, 0.25),
        "mixup": Effect(2.9, 0.6, 0.02),
        "agreement": Effect(3.1, 0.58, 0.0),
    }
    return Trust(
        verdict,
        reasons,
        AccuracyEstimate(0.58, 0.46, 0.7),
        {"confidence after": 0.6},
        0.01,
        effects,
    )


def make_run(
    image_files: list[Path] | None = None,
    labelled: bool = False,
    verdict: Verdict = "apply",
    temperature: float = 2.9,
    **changes: Any,
) -> SimpleNamespace:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(600, 6)) * 1.5
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    names = [f"{i:03d}.png" for i in range(600)]
    names[0] = f"{NASTY}.png"
    scaling = TemperatureScaling(temperature, log_se=0.03, rows=580)
    counts = {"pairs": 600, "mixup_samples": 580, "forward_passes": 1180}
    settings = {
        "lam": 0.65,
        "seed": 0,
        "model": NASTY,
        "estimator": "mixup",
        "on_unreliable": "identity",
    }
    calibration = Calibration(
        "pseudocal", scaling, settings, counts, trust=make_trust(verdict)
    ).without_refused()
    fields: dict[str, Any] = {
        "model": AboutModel(
            f"models/{NASTY}",
            NASTY,
            "onnx",
            "onnx",
            "logits",
            (NASTY,),
            () if calibration.refused else ("model.onnx",),
        ),
        "data": AboutData(
            f"data/{NASTY}",
            602,
            600,
            "not changed",
            ((f"{NASTY}.jpg", f"cannot identify {NASTY}"), ("b.jpg", "cut")),
        ),
        "calibration": calibration,
        "logits": 3 * z,
        "names": names,
        "classes": [NASTY, *"bcdef"],
        "mixup_samples": Labelled(3 * z[:580], labels[:580]),
        "image_files": [image_files[i % len(image_files)] for i in range(600)]
        if image_files
        else [None] * 600,
        "ground_truth": labels if labelled else None,
        "timing": Timing(12.3, "2026-01-01T00:00:00+00:00"),
    }
    return SimpleNamespace(**(fields | changes))


def make_summary(run: SimpleNamespace) -> tuple[Summary, list[Any]]:
    """The summary of a run, and its parts of the table of predictions."""
    summary = Summary(run.calibration, run.classes)
    parts = []
    for rows in row_chunks(run.logits):
        seen = Confidences.of(run.logits[rows], run.calibration)
        truth = None if run.ground_truth is None else run.ground_truth[rows]
        summary.add_rows(
            run.logits[rows],
            seen,
            run.names[rows],
            image_files=run.image_files[rows],
            ground_truth=truth,
        )
        parts.append(row_table(run.names[rows], seen, run.classes))
    return summary, parts


def make_report(**settings: Any) -> Report:
    run = make_run(**settings)
    summary, _ = make_summary(run)
    return report_of(summary, run.mixup_samples, model=run.model, data=run.data, timing=run.timing)


def make_refined() -> Report:
    """A report after fifty labels, two of which are no class."""
    run = make_run(labelled=True, verdict="do not apply")
    rows = rows_to_label(run.logits, 50)
    labels = run.ground_truth[rows]
    labels[0] = CANNOT_TELL
    labels[1] = NONE_OF_THESE
    calibration = run.calibration.refined(run.logits, LabelSample(rows, labels))
    summary, _ = make_summary(make_run(calibration=calibration))
    fitted_on = Labelled(run.logits[rows], run.ground_truth[rows])
    return report_of(summary, fitted_on, model=run.model, data=run.data, timing=run.timing)


def add_image(
    summary: Summary,
    image: Any,
    name: str,
    *,
    image_file: Path | None = None,
    mask: Any = None,
) -> None:
    """Add all pixels of one image, as a run adds a sample of them."""
    logits = image.reshape(len(image), -1).T
    seen = Confidences.of(logits, summary.calibration)
    fractions = np.bincount(logits.argmax(axis=1), minlength=len(image)) / len(logits)
    predicted = f"mostly {class_name(int(fractions.argmax()), summary.classes)}"
    means = float(seen.before[:, 0].mean()), float(seen.after[:, 0].mean())
    summary.add_predictions(seen, len(image))
    summary.consider(Example(name, predicted, *means), image_file)
    if len(summary.maps) < SHOWN_MAPS:
        t = summary.calibration.temperature
        summary.maps.append(map_images(image, name, t, image_file, mask))
    if mask is not None:
        summary.measure(image, mask)


def make_segmented(
    image_files: list[Path] | None = None,
    labelled: bool = False,
    temperature: float = 3.0,
    size: tuple[int, int] = (20, 40),
    verdict: Verdict = "caution",
) -> Report:
    """Twelve frames, two to one, of a segmentation model with logits three times too large.

    The top row has no ground truth.
    """
    rng = np.random.default_rng(0)
    counts = {"pairs": 12, "mixup_samples": 400, "forward_passes": 24}
    scaling = TemperatureScaling(temperature, log_se=0.03, rows=400)
    settings = {"lam": 0.65, "on_unreliable": "identity"}
    calibration = Calibration(
        "pseudocal", scaling, settings, counts, trust=make_trust(verdict)
    ).without_refused()
    summary = Summary(calibration, [NASTY, "yellow", "traffic light", "road"], "pixels")
    for i in range(12):
        z = 1.5 * rng.normal(size=(4, *size))
        mask = (z + rng.gumbel(size=(4, 1, 1))).argmax(axis=0)
        mask[0] = IGNORED
        image_file = image_files[i % len(image_files)] if image_files else None
        truth = mask if labelled else None
        add_image(summary, 3 * z, f"{i:02} {NASTY}", image_file=image_file, mask=truth)
    mixup_samples = Labelled(
        3 * rng.normal(size=(400, 4)), rng.integers(0, 4, 400), groups=np.arange(400) % 12
    )
    run = make_run(timing=Timing(1.0, "2026-01-01T00:00:00+00:00"))
    return report_of(summary, mixup_samples, model=run.model, data=run.data, timing=run.timing)


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    return SimpleNamespace(
        NASTY=NASTY,
        VERDICTS=VERDICTS,
        contrast=contrast,
        add_image=add_image,
        make_run=make_run,
        make_summary=make_summary,
        make_report=make_report,
        make_refined=make_refined,
        make_segmented=make_segmented,
    )


@pytest.fixture
def image_files(tmp_path: Path) -> list[Path]:
    from PIL import Image

    paths = []
    for i in range(5):
        pixels = np.random.default_rng(i).integers(0, 255, size=(8, 12, 3), dtype=np.uint8)
        paths.append(tmp_path / f"{i} {NASTY.replace('/', '')}.png")
        Image.fromarray(pixels).resize((300, 200)).save(paths[-1])
    return paths
