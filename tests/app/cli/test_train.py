"""`pseudocal train`, as one types it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pseudocal.app.cli import main
from pseudocal.lab.adapt import load_network


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Data that was built for another test serves this one too."""
    monkeypatch.setenv("PSEUDOCAL_CACHE", str(tmp_path_factory.getbasetemp() / "train-cache"))


def train(out, *more):
    words = [
        "train",
        "digits",
        "--source",
        "optdigits",
        "--target",
        "fonts",
        "-o",
        str(out),
        "--iterations",
        "20",
    ]
    return main([*words, *more])


def test_writes_a_model_and_what_calibration_needs(tmp_path, capsys):
    assert train(tmp_path / "run", "--method", "mcc", "--evaluate", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert 0 < result["target_accuracy"] < 1
    with np.load(result["target"]) as outputs:
        assert set(outputs) == {"features", "logits"}  # and no labels
    assert load_network(tmp_path / "run") is not None


def test_a_partial_target_has_half_of_the_classes(tmp_path, capsys):
    assert train(tmp_path / "all", "--method", "source-only", "--json") == 0
    assert train(tmp_path / "part", "--method", "source-only", "--partial", "--json") == 0
    whole, part = (
        np.load(json.loads(line)["target"])["logits"]
        for line in capsys.readouterr().out.splitlines()
    )
    assert len(part) == len(whole) / 2
    assert part.shape[1] == whole.shape[1] == 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "mcx"], "expected a method among"),
        (["--preset", "best"], "expected a preset of mcc among"),
        (["--backbone", "resnet7"], "expected"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, words, message):
    assert train(tmp_path / "run", *words) == 3
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert train(tmp_path / "file" / "run") == 4
    assert "expected an output that can be written" in capsys.readouterr().err


def test_no_room_for_what_is_trained(disk, capsys):
    out = disk("96k")
    assert train(out / "run") == 4
    said = capsys.readouterr().err
    assert said.startswith(f"pseudocal: expected room for {out / 'run'}")
    assert "No space left on device" in said
    assert said.count("\n") == 1
    left = {path.name for path in (out / "run").iterdir()}
    assert left - {"log.jsonl", "tensorboard"} == {"run.json"}  # it goes on from here


def test_a_read_only_disk(disk, capsys):
    import subprocess

    out = disk("1m")
    subprocess.run(["mount", "-o", "remount,ro", str(out)], check=True)
    assert train(out) == 4
    assert (
        f"expected an output that can be written, got {out}: Read-only file system"
        in capsys.readouterr().err
    )
