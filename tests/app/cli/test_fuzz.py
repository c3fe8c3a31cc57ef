"""Damaged files of every kind that the command reads.

An exit code that is documented, one line, results untouched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pseudocal.app.cli import main

from .damage import Reader, calibrate, check_cases, saved

ROWS, CLASSES = 24, 3
READERS = [
    *(Reader(name, calibrate(data=name)) for name in ("x.npy", "x.npz", "x.csv", "x.parquet")),
    *(
        Reader(name, calibrate("fuzz_model:predict", "x.npy", "--ground-truth", name))
        for name in ("y.npy", "y.csv", "y.txt")
    ),
    Reader("names.txt", calibrate("fuzz_model:predict", "x.npy", "--classes", "names.txt")),
    Reader("model.onnx", calibrate("model.onnx")),
    Reader("model.skops", calibrate("model.skops")),
    Reader(
        "images/a.png",
        calibrate("fuzz_model:see", "images", "--size", "4", "--max-bad", "50%"),
    ),
    *(
        Reader(name, saved("evaluate", name, "y.npy"))
        for name in ("z.npy", "z.npz", "z.csv", "z.parquet")
    ),
    *(
        Reader(name, saved("evaluate", "z.npy", name))
        for name in ("y.npy", "y.csv", "y.txt", "y.parquet")
    ),
    Reader(
        "calibration.json", saved("evaluate", "z.npy", "y.npy", "--calibration", "calibration.json")
    ),
    Reader(
        "calibration.json",
        lambda f: ["apply", f / "calibration.json", f / "z.npy", "-o", f / "p.npy"],
    ),
    Reader("results/report.json", saved("report", "results")),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with one good file of each kind."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet
    import skops.io
    import torch
    from PIL import Image
    from sklearn.linear_model import LogisticRegression

    folder, rng = tmp_path_factory.mktemp("good"), np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 4)).astype(np.float32)
    weights = 3 * rng.normal(size=(4, CLASSES)).astype(np.float32)
    z, y = x @ weights, (x @ weights + rng.gumbel(size=(ROWS, CLASSES))).argmax(axis=1)
    y[:CLASSES] = range(CLASSES)
    for name, array in (("x", x), ("z", z)):
        np.save(folder / f"{name}.npy", array)
        np.savez_compressed(folder / f"{name}.npz", a=array)
        table = pa.table({f"c{i}": array[:, i] for i in range(array.shape[1])})
        pa.csv.write_csv(table, folder / f"{name}.csv")
        pa.parquet.write_table(table, folder / f"{name}.parquet")
    np.save(folder / "y.npy", y)
    pa.parquet.write_table(pa.table({"label": y}), folder / "y.parquet")
    (folder / "y.csv").write_text("label\n" + "".join(f"{label}\n" for label in y))
    (folder / "y.txt").write_text("".join(f"{label}\n" for label in y))
    (folder / "names.txt").write_text("cat\ndog\nbird\n")
    skops.io.dump(LogisticRegression().fit(x, y), folder / "model.skops")
    linear = torch.nn.Linear(4, CLASSES)
    linear.weight.data = torch.tensor(weights.T.copy())
    names: dict[str, Any] = {
        "input_names": ["x"],
        "output_names": ["z"],
        "dynamic_axes": {"x": {0: "n"}},
    }
    with pytest.warns(DeprecationWarning):  # noqa: PT030  whatever it says, it writes the file
        torch.onnx.export(
            linear, (torch.zeros(2, 4),), folder / "model.onnx", dynamo=False, **names
        )
    (folder / "images").mkdir()
    for name in "abcdefgh":
        pixels = rng.integers(0, 256, 3) + rng.integers(-40, 40, (6, 6, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(
            folder / "images" / f"{name}.png"
        )
    model: Any = ModuleType("fuzz_model")
    model.predict = lambda x: np.asarray(x, dtype=np.float64) @ weights
    model.see = lambda x: np.asarray(x).mean(axis=(2, 3)) * 9
    sys.modules["fuzz_model"] = model
    assert main([str(word) for word in calibrate()(folder)]) == 0
    (folder / "out").rename(folder / "results")
    (folder / "calibration.json").write_bytes(
        (folder / "results" / "calibration.json").read_bytes()
    )
    yield folder
    del sys.modules["fuzz_model"]


def test_100_damaged_files(good, capsys):
    check_cases(range(100), READERS, good, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 5000, 490))
def test_5000_damaged_files(start, good, capsys):
    check_cases(range(start, start + 490), READERS, good, capsys)
