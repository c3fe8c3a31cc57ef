"""A suite of seconds.

Heads of a few steps on a frozen random network, and one network trained as a whole.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pseudocal.lab.bench import Store, Suite, run
from pseudocal.lab.bench.suite_file import read_suite
from pseudocal.lab.data import builtin_digits, builtin_scenes
from pseudocal.lab.data.cache import write_checked

torch.set_num_threads(
    1
)  # these networks are tiny: threads that wait for each other cost more than they give

TINY = """
calibrators = ["none", "vectorscal", "tempscal", "transcal", "mc-dropout", "ensemble", "pseudocal", "pseudo-ensemble",
               "cutmix", "manifoldmix", "lambda-0.8-soft", "oracle"]

[[tasks]]
data = "digits"
source = "optdigits"
target = "fonts"
method = ["source-only", "mcc"]
backbone = "digits"
frozen = true
width = 16
iterations = 20

[[tasks]]
data = "digits"
source = "optdigits"
target = "fonts"
scenario = "partial-set"
method = "bnm"
backbone = "digits"
width = 16
iterations = 30
"""


def small_digits() -> dict[str, np.ndarray]:
    """In the place of the digits, 200 images of each domain.

    A square whose place is the class, light or dark.
    """
    arrays: dict[str, np.ndarray] = {}
    for seed, name in enumerate(("mnist", "optdigits", "fonts")):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 10, 200)
        images = rng.integers(0, 100, (200, 1, 16, 16))
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 4)
            image[0, 5 * row : 5 * row + 4, 4 * column : 4 * column + 4] += 140 - 20 * seed
        arrays |= {f"{name}_images": images.astype(np.uint8), f"{name}_labels": labels}
    return arrays


def small_scenes() -> dict[str, np.ndarray]:
    """In the place of the scenes, 24 images of each vendor.

    Two halves whose class is the brightest channel.
    """
    arrays = {"classes": np.array(["red", "green", "blue"])}
    for seed, name in enumerate(("noto", "twemoji", "openmoji", "fluent")):
        rng = np.random.default_rng(seed)
        halves = rng.integers(0, 200, (24, 3, 1, 2)).repeat(16, axis=2).repeat(8, axis=3)
        noise = rng.integers(0, 40 + 15 * seed, halves.shape)
        arrays[f"{name}_images"] = np.clip(halves + noise, 0, 255).astype(np.uint8)
        arrays[f"{name}_masks"] = halves.argmax(axis=1).astype(np.uint8)
    return arrays


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache folder of our own, for workers too: environment variables reach them."""
    before = os.environ.get("PSEUDOCAL_CACHE")
    folder = tmp_path_factory.mktemp("cache")
    write_checked(folder / f"digits-{builtin_digits.DIGITS_DIGEST[:12]}.npz", small_digits())
    write_checked(folder / f"scenes-{builtin_scenes.SCENES_DIGEST[:12]}.npz", small_scenes())
    os.environ["PSEUDOCAL_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["PSEUDOCAL_CACHE"]
    else:
        os.environ["PSEUDOCAL_CACHE"] = before


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("suites") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def tiny(tiny_file) -> Suite:
    return read_suite(tiny_file)


@pytest.fixture(scope="session")
def done(tiny, cache, tmp_path_factory) -> Store:
    """The suite, run here one task after the other."""
    store = Store(tmp_path_factory.mktemp("done"))
    assert run(tiny, store) == []
    return store


def content(out: Path) -> dict[str, bytes]:
    """All files but those that hold times, and hidden ones: locks, and what a kill left aside.

    The events of TensorBoard hold times.
    """
    files = [
        path
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "times.json" and path.parent.name != "tensorboard"
    ]
    files = [path for path in files if not path.name.startswith(".")]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def content_of():
    return content
