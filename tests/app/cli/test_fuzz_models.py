"""Damaged model folders of Hugging Face, and damaged files of torch that the user has said to trust."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .damage import Reader, calibrate, check_cases

HUB = ("config.json", "preprocessor_config.json", "model.safetensors")
READERS = [
    *(Reader(f"hub/{name}", calibrate("hub", "images")) for name in HUB),
    *(
        Reader(name, calibrate(name, "x.npy", "--trust-model"))
        for name in ("model.pt", "model.pt2")
    ),
]
pytestmark = pytest.mark.filterwarnings("default")  # torch and transformers warn of much


@pytest.fixture(scope="module")
def good(hub: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one good model of each kind, eight images and a few rows."""
    import torch
    from PIL import Image

    folder, rng = tmp_path_factory.mktemp("good"), np.random.default_rng(0)
    shutil.copytree(hub, folder / "hub")
    (folder / "images").mkdir()
    for name in "abcdefgh":
        pixels = rng.integers(0, 256, 3) + rng.integers(-40, 40, (16, 16, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(
            folder / "images" / f"{name}.png"
        )
    np.save(folder / "x.npy", rng.normal(size=(24, 4)).astype(np.float32))
    linear = torch.nn.Linear(4, 3).eval()
    linear.weight.data = torch.tensor(3 * rng.normal(size=(3, 4)).astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(linear, torch.zeros(2, 4)).save(folder / "model.pt")
        shapes: Any = ({0: torch.export.Dim("n", max=4096)},)
        torch.export.save(
            torch.export.export(linear, (torch.zeros(2, 4),), dynamic_shapes=shapes),
            folder / "model.pt2",
        )
    assert json.loads((folder / "hub" / "config.json").read_text())["model_type"] == "resnet"
    return folder


def test_30_damaged_models(good, capfd):
    check_cases(range(30), READERS, good, capfd)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(30, 1000, 194))
def test_1000_damaged_models(start, good, capfd):
    check_cases(range(start, start + 194), READERS, good, capfd)
