"""A finished run without a model: logits three times too large, with and without labels and pictures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, TemperatureScaling
from pseudocal.app.report import Confidences, Run, content_of
from pseudocal.app.report.segmented import Images, segmented_content
from pseudocal.arrays import Labelled
from pseudocal.calibrators.trust import Forecast, Trust, Verdict

NASTY = "<img src=x onerror=document.title='owned'>"
VERDICTS = ("apply", "caution", "do not apply")


def make_trust(verdict: Verdict = "apply") -> Trust:
    reasons = (
        f"Two models agree on 62% of the inputs, says {NASTY}.",
        "A second reason, somewhat longer than the first.",
    )
    return Trust(verdict, reasons, Forecast(0.58, 0.46, 0.7), {"confidence after": 0.6}, 0.01)


def make_run(
    pictures: list[Path] | None = None, labelled: bool = False, verdict: Verdict = "apply", **changes: Any
) -> Run:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(600, 6)) * 1.5
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    names = [f"{i:03d}.png" for i in range(600)]
    names[0] = f"{NASTY}.png"
    scaling = TemperatureScaling(2.9, log_se=0.03, rows=580)
    counts = {"pairs": 600, "mixes": 580, "forward_passes": 1180}
    settings = {"lam": 0.65, "seed": 0, "model": NASTY}
    fields: dict[str, Any] = {
        "model": {
            "name": f"models/{NASTY}", "title": NASTY, "kind": "onnx", "recipe": "onnx", "output": "logits",
            "notes": [NASTY], "files": ["model.onnx"],
        },
        "data": {
            "name": f"data/{NASTY}", "inputs": 602, "used": 600, "preparation": "as they are",
            "unreadable": [[f"{NASTY}.jpg", f"cannot identify {NASTY}"], ["b.jpg", "truncated"]],
        },
        "calibration": Calibration("pseudocal", scaling, settings, counts, trust=make_trust(verdict)),
        "logits": 3 * z,
        "names": names,
        "classes": [NASTY, *"bcdef"],
        "mixes": Labelled(3 * z[:580], labels[:580]),
        "pictures": [pictures[i % len(pictures)] for i in range(600)] if pictures else [None] * 600,
        "labels": labels if labelled else None,
        "timing": {"seconds": 12.3, "finished": "2026-01-01T00:00:00+00:00"},
    }  # fmt: skip
    return Run(**(fields | changes))


def make_content(**settings: Any) -> dict[str, Any]:
    run = make_run(**settings)
    return content_of(run, Confidences.of(run.logits, run.calibration))


def make_segmented(
    pictures: list[Path] | None = None,
    labelled: bool = False,
    temperature: float = 3.0,
    size: tuple[int, int] = (20, 40),
) -> dict[str, Any]:
    """Twelve frames, two to one, of a segmenter with logits three times too large; the top row has no label."""
    rng = np.random.default_rng(0)
    counts = {"pairs": 12, "mixes": 400, "forward_passes": 24}
    scaling = TemperatureScaling(temperature, log_se=0.03, rows=400)
    images = Images(Calibration("pseudocal", scaling, {"lam": 0.65}, counts, trust=make_trust("caution")))
    for i in range(12):
        z = 1.5 * rng.normal(size=(4, *size))
        mask = (z + rng.gumbel(size=(4, 1, 1))).argmax(axis=0)
        mask[0] = 255
        images.add(
            3 * z, f"{i:02} {NASTY}", pictures[i % len(pictures)] if pictures else None, mask if labelled else None
        )
    mixes = Labelled(3 * rng.normal(size=(400, 4)), rng.integers(0, 4, 400))
    run = make_run()
    timing = {"seconds": 1.0, "finished": "2026-01-01T00:00:00+00:00"}
    classes = [NASTY, "yellow", "traffic light", "road"]
    return segmented_content(images, mixes, model=run.model, data=run.data, classes=classes, timing=timing)


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    return SimpleNamespace(
        NASTY=NASTY,
        VERDICTS=VERDICTS,
        make_run=make_run,
        make_content=make_content,
        make_segmented=make_segmented,
    )


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    from PIL import Image

    paths = []
    for i in range(5):
        pixels = np.random.default_rng(i).integers(0, 255, size=(8, 12, 3), dtype=np.uint8)
        paths.append(tmp_path / f"{i} {NASTY.replace('/', '')}.png")
        Image.fromarray(pixels).resize((300, 200)).save(paths[-1])
    return paths
