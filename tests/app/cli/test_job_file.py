"""`calibrate --job OUT/job.toml` does a job again, to the last digit."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import numpy as np
import pytest

from pseudocal import Calibration, InputError, PseudoCal
from pseudocal.app import Job
from pseudocal.app.job import read_job, write_job


def content(out: Path) -> dict[str, bytes]:
    return {
        name: (out / name).read_bytes()
        for name in ("evidence.npz", "logits.npy", "predictions.csv", "second-0.npy")
    }


def test_a_job_is_done_again_to_the_last_digit(
    pseudocal, vision, hub, image_files, tmp_path, monkeypatch
):
    monkeypatch.chdir(image_files.parent)
    options = (
        "--size",
        16,
        "--seed",
        3,
        "--lam",
        0.7,
        "--format",
        "csv",
        "--batch-size",
        20,
        "--max-samples",
        50,
    )
    done = pseudocal(
        *("calibrate", vision["onnx"], image_files.name, "-o", os.path.relpath(tmp_path / "a")),
        *("--second-opinion", hub, *options),
    )
    assert done.code == 0, done.err
    job = tomllib.loads((tmp_path / "a" / "job.toml").read_text())
    assert (job["data"], job["batch_size"], job["method"]["seed"]) == (str(image_files), 20, 3)
    assert job["out"] == str(tmp_path / "a")  # wherever it is done again
    assert job["preprocessing"]["size"] == [16, 16]
    assert job["preprocessing"]["mean"] == [0.0]  # which was assumed
    assert (
        (tmp_path / "a" / "job.toml")
        .read_text()
        .startswith("# assumed, not given: mean, std, resize")
    )
    monkeypatch.chdir(tmp_path)
    again = pseudocal("calibrate", "--job", tmp_path / "a" / "job.toml", "-o", tmp_path / "b")
    assert again.code == 0, again.err
    assert content(tmp_path / "a") == content(tmp_path / "b")
    one, other = (Calibration.load(tmp_path / name / "calibration.json") for name in ("a", "b"))
    assert (one.scaling, one.trust, one.counts) == (other.scaling, other.trust, other.counts)


def test_what_a_person_writes_has_defaults_and_is_checked(pseudocal, tabular, features, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(
        f'model = "{tabular["onnx"]}"\ndata = "{features}"\nout = "{tmp_path / "out"}"\n[method]\nseed = 5\n'
    )
    job = read_job(path)
    assert job == Job(tabular["onnx"], str(features), tmp_path / "out", method=PseudoCal(seed=5))
    assert pseudocal("calibrate", "--job", path, "-q").code == 0
    assert Calibration.load(tmp_path / "out" / "calibration.json").settings["seed"] == 5
    both = pseudocal("calibrate", "--job", path, "--seed", 1)
    assert (both.code, "expected no other settings with --job, got --seed" in both.err) == (3, True)
    assert pseudocal("calibrate", tabular["onnx"]).code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('model = "m"\ndata = "d"\n', "out is missing in"),
        ('model = 3\ndata = "d"\nout = "o"\n', r"Expected `str`, got `int` - at `\$.model`"),
        ('model = "m"\ndata = "d"\nout = "o"\ntrust = true\n', "got 'trust'"),
        ('model = "m"\ndata = "d"\nout = "o"\n[method]\nlam = 2.0\n', "lam"),
        ('model = "m"\ndata = "d"\nout = "o"\n[method]\nlamb = 0.7\n', "lamb"),
        (
            'model = "m"\ndata = "d"\nout = "o"\npredict = "none"\n',
            r"Invalid enum value 'none' - at `\$.predict`",
        ),
        ("model = \n", "is not a job in TOML"),
    ],
)
def test_a_job_that_cannot_be_is_refused(text, message, tmp_path):
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_job(tmp_path / "job.toml")


def test_every_setting_comes_back(tmp_path):
    job = Job(
        'a "model".onnx',
        "dätä",
        tmp_path / "o\\ut",
        method=PseudoCal(lam=0.1 + 0.55, tolerance=1e-3, pixels_per_image=None),
        second_opinion="other.onnx",
        preprocessing={"size": (32, 48), "mean": (1 / 3,), "layout": "nhwc"},
        second_preprocessing={"normalisation": "imagenet"},
        features=("a", "b"),
        classes=("x\ty", "z"),
        ground_truth=tmp_path / "labels.npy",
        max_bad=0.02,
        keep_logits=False,
    )
    write_job(job, tmp_path / "job.toml")
    assert read_job(tmp_path / "job.toml") == job
    assert np.float64(read_job(tmp_path / "job.toml").method.lam) == 0.1 + 0.55
