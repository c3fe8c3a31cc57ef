"""Files that somebody truncates while a command reads them end in one line and exit code 3, not in a bus error."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

MODEL = """
import os

import numpy as np

seen = 0


def logits(x):
    global seen
    seen += len(x)
    if seen > 1000:
        os.truncate("{file}", 0)
    return np.asarray(x)[:, :3]


def maps(x):
    global seen
    seen += len(x)
    if seen > 10:
        os.truncate("{file}", 0)
    return np.asarray(x)[:, :3]
"""

APPLY = """
import os
import sys

from pseudocal.app import outputs
from pseudocal.app.cli import main

before = outputs.{function}


def truncating(scaling, logits):
    os.truncate("logits.npy", 0)
    return before(scaling, logits)


outputs.{function} = truncating
sys.exit(main(sys.argv[1:]))
"""


def run(folder, *arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def check_message(done, file):
    assert done.returncode == 3, (done.returncode, done.stderr)
    (line,) = [line for line in done.stderr.splitlines() if "changed while it was read" in line]
    assert file in line
    assert done.stderr.strip().endswith(line)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(20_000, 64)).astype(np.float32))
    return tmp_path


def test_inputs_that_are_truncated_during_a_calibration(folder):
    (folder / "cutter.py").write_text(MODEL.format(file="x.npy"))
    done = run(
        folder,
        "-m",
        "pseudocal",
        "calibrate",
        "cutter:logits",
        "x.npy",
        "--output-type",
        "logits",
        "-o",
        "out",
    )
    check_message(done, "x.npy")
    assert not (folder / "out" / "report.json").exists()


def test_masks_that_are_truncated_during_a_calibration(folder):
    rng = np.random.default_rng(0)
    np.save(folder / "images.npy", rng.normal(size=(40, 3, 64, 64)).astype(np.float32))
    np.save(folder / "masks.npy", rng.integers(0, 3, size=(40, 64, 64)).astype(np.uint8))
    (folder / "cutter.py").write_text(MODEL.format(file="masks.npy"))
    command = [
        "calibrate",
        "cutter:maps",
        "images.npy",
        "--output-type",
        "logits",
        "--ground-truth",
        "masks.npy",
        "-o",
        "out",
    ]
    done = run(folder, "-m", "pseudocal", *command)
    check_message(done, "masks.npy")


@pytest.mark.parametrize(
    ("function", "command"),
    [
        ("scaled_probabilities", ["apply", "calibration.json", "logits.npy", "-o", "p.npy"]),
        ("scaled", ["evaluate", "logits.npy", "labels.npy", "--calibration", "calibration.json"]),
    ],
)
def test_saved_logits_that_are_truncated_while_they_are_read(folder, function, command):
    from pseudocal import Calibration, TemperatureScaling

    Calibration("pseudocal", TemperatureScaling(2.0)).save(folder / "calibration.json")
    np.save(
        folder / "logits.npy",
        np.random.default_rng(0).normal(size=(12_000, 1000)).astype(np.float32),
    )
    np.save(folder / "labels.npy", np.zeros(12_000, dtype=int))
    (folder / "cut.py").write_text(APPLY.format(function=function))
    done = run(folder, "cut.py", *command)
    check_message(done, "logits.npy")
    assert not (folder / "p.npy").exists()
