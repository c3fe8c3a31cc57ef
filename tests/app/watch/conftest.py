"""A small world to watch: two linear networks, a calibrated run, and days of new data."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

CLASSES = 4
WIDTH = 6
COLUMNS = "abcdef"
# the last two columns are noise; each network reads it in its own way
WEIGHTS, NOISE, OTHER_NOISE = (
    np.random.default_rng(seed).normal(size=(rows, CLASSES))
    for seed, rows in ((7, WIDTH - 2), (8, 2), (9, 2))
)
FIRST = 2 * np.concatenate([WEIGHTS, NOISE])
SECOND = 2 * np.concatenate([WEIGHTS, OTHER_NOISE])


def save_linear(path: Path, weights: Any) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", CLASSES])],
        [numpy_helper.from_array(weights.astype(np.float32), "w")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def day(n: int, noise: float, seed: int) -> tuple[Any, Any]:
    """Inputs and true classes; more noise makes the networks worse."""
    rng = np.random.default_rng(seed)
    clean = 2 * rng.normal(size=(n, WIDTH - 2))
    truth = (clean @ WEIGHTS).argmax(axis=1)
    return np.concatenate([clean, noise * rng.normal(size=(n, 2))], axis=1).astype("f4"), truth


class World(NamedTuple):
    folder: Path
    out: Path
    monitor: Path

    def batch(self, name: str, n: int = 150, noise: float = 0.3) -> Path:
        x, truth = day(n, noise, zlib.crc32(name.encode()))
        np.save(self.folder / f"{name}.npy", x)
        np.save(self.folder / f"{name}.truth.npy", truth)
        return self.folder / f"{name}.npy"

    def truth(self, name: str) -> Path:
        return self.folder / f"{name}.truth.npy"


def make_world(folder: Path, *, second: bool = True, n: int = 800) -> World:
    from pseudocal.app import calibrate

    save_linear(folder / "model.onnx", FIRST)
    save_linear(folder / "other.onnx", SECOND)
    np.save(folder / "baseline.npy", day(n, 0.3, 0)[0])
    calibrate(
        folder / "model.onnx",
        folder / "baseline.npy",
        folder / "out",
        second_opinion=str(folder / "other.onnx") if second else None,
        table="csv",
    )
    return World(folder, folder / "out", folder / "monitor")


@pytest.fixture
def world(tmp_path: Path) -> World:
    pytest.importorskip("onnxruntime")
    return make_world(tmp_path)


@pytest.fixture
def give_labels() -> Callable[[World, Any], Path]:
    """Fill in the table of a monitor with the truth, as a person would."""
    import csv

    def give(world: World, names: dict[str, str]) -> Path:
        with (world.monitor / "labelling" / "to-label.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        path = world.folder / "labels.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "label"])
            for row in rows:
                truth = np.load(world.truth(names[row["batch"]]))
                writer.writerow([row["file"], truth[int(row["input"])]])
        return path

    return give
