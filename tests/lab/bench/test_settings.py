"""The settings that a user can reach: by options of the command, and in a suite's file."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from pseudocal.app.cli import app
from pseudocal.arrays import InputError
from pseudocal.lab.bench.suite_file import parse_suite, read_local, read_suite

pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)
TASK = {"data": "digits", "source": "optdigits", "target": "fonts", "method": "mcc"}


def test_options_of_the_command_reach_every_task(tiny_file, cache, tmp_path):
    options = [
        "--iterations",
        "2",
        "--batch",
        "8",
        "--lr",
        "0.02",
        "--precision",
        "mixed",
        "--workers",
        "1",
    ]
    ran = CliRunner().invoke(
        app, ["bench", "run", str(tiny_file), "--quick", "-o", str(tmp_path), *options]
    )
    # after two steps all models predict one class, which leaves some calibrators without pairs
    assert ran.exit_code in (0, 6), ran.output
    assert "3 of 3 tasks of tiny-quick are done" in ran.output
    tasks = json.loads((tmp_path / "suites" / "tiny-quick.json").read_text())["tasks"]
    assert {(t["iterations"], t["batch"], t["lr"], t["precision"]) for t in tasks} == {
        (2, 8, 0.02, "mixed")
    }


def test_a_suite_file_takes_them_too(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'root = "/data"\nlists = "/lists"\nprefix = ["/old", "/new"]\ndevice = "cuda"\n'
        '[[tasks]]\ndata = "digits"\nsource = "mnist"\ntarget = "fonts"\nmethod = "mcc"\nbatch = 8\nlr = 1\n'
    )
    (task,) = read_suite(path).tasks
    assert (task.batch, task.lr) == (8, 1)
    local = read_local(path)
    assert (str(local["root"]), local["prefix"], local["device"]) == (
        "/data",
        ("/old", "/new"),
        "cuda",
    )
    path.write_text('prefix = "/old"\n')
    with pytest.raises(InputError, match=r"expected prefix as \[old, new\], got '/old'"):
        read_local(path)
    with pytest.raises(InputError, match="expected batch to be int, got 'x'"):
        parse_suite({"tasks": [TASK | {"batch": "x"}]}, "mine")


def test_a_gpu_that_is_not_there_is_refused(tiny_file, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    ran = CliRunner().invoke(
        app, ["bench", "run", str(tiny_file), "-o", str(tmp_path), "--device", "cuda"]
    )
    assert isinstance(ran.exception, InputError)
    assert "expected a GPU that torch can use, got cuda with 0 of them" in str(ran.exception)


def test_train_takes_the_same_options(cache, tmp_path):
    options = [
        "--source",
        "optdigits",
        "--target",
        "fonts",
        "--iterations",
        "2",
        "--batch",
        "8",
        "--lr",
        "0.02",
    ]
    ran = CliRunner().invoke(
        app, ["train", "digits", *options, "--precision", "mixed", "-q", "-o", str(tmp_path)]
    )
    assert ran.exit_code == 0, ran.output
    settings = json.loads((tmp_path / "run.json").read_text())["settings"]
    assert (settings["batch"], settings["lr"], settings["precision"]) == (8, 0.02, "mixed")
