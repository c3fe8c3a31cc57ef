"""`pseudocal evaluate` and `pseudocal apply`."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import typer

from pseudocal import Calibration, TemperatureScaling, softmax
from pseudocal.metrics import Outcomes, ece


@pytest.fixture
def saved(tmp_path):
    """Logits three times too large for their labels."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 4)) * 2
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    np.save(tmp_path / "z.npy", 3 * z)
    np.save(tmp_path / "y.npy", labels)
    Calibration("pseudocal", TemperatureScaling(3.0, log_se=0.01, rows=500)).save(
        tmp_path / "calibration.json"
    )
    return tmp_path


def test_evaluate_scores(pseudocal, saved):
    done = pseudocal("evaluate", saved / "z.npy", saved / "y.npy", "--json")
    rows = {row["metric"]: row["before"] for row in json.loads(done.out)}
    assert rows["ece"]["value"] == ece(
        Outcomes.from_logits(np.load(saved / "z.npy"), np.load(saved / "y.npy"))
    )
    assert rows["ece"]["low"] < rows["ece"]["value"] < rows["ece"]["high"]


def test_evaluate_before_and_after(pseudocal, saved):
    files = (saved / "z.npy", saved / "y.npy", "--calibration", saved / "calibration.json")
    rows = {row["metric"]: row for row in json.loads(pseudocal("evaluate", *files, "--json").out)}
    assert rows["ece"]["change"]["high"] < 0
    assert rows["accuracy"]["change"]["value"] == 0
    lines = pseudocal("evaluate", *files).out.splitlines()
    assert lines[0].split() == ["metric", "before", "after", "change"]
    assert len(lines) == 5


def test_apply_writes_probabilities(pseudocal, saved):
    assert (
        pseudocal("apply", saved / "calibration.json", saved / "z.npy", "-o", saved / "p.npy").code
        == 0
    )
    np.testing.assert_allclose(
        np.load(saved / "p.npy"), softmax(np.load(saved / "z.npy") / 3), rtol=1e-12
    )


def test_a_calibration_for_other_classes_is_refused(pseudocal, saved):
    calibration = saved / "calibration.json"
    Calibration("pseudocal", TemperatureScaling(3.0), classes=5).save(calibration)
    logits = saved / "z.npy"
    for words in (
        ("apply", calibration, logits, "-o", saved / "p.npy"),
        ("evaluate", logits, saved / "y.npy", "--calibration", calibration),
    ):
        done = pseudocal(*words)
        assert done.code == 3
        assert "expected logits of 5 classes" in done.err
    assert not (saved / "p.npy").exists()


def test_apply_takes_probabilities(pseudocal, saved):
    np.save(saved / "p.npy", softmax(np.load(saved / "z.npy")))
    files = (saved / "calibration.json", saved / "p.npy", "-o", saved / "q.npy")
    assert pseudocal("apply", *files, "--output-type", "probabilities").code == 0
    np.testing.assert_allclose(
        np.load(saved / "q.npy"), softmax(np.load(saved / "z.npy") / 3), rtol=1e-9
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "no.npy", "y.npy"),
        ("evaluate", "y.npy", "y.npy"),
        ("evaluate", "z.npy", "no.npy"),
        ("apply", "z.npy", "z.npy", "-o", "p.npy"),
        ("apply", "calibration.json", "y.npy", "-o", "p.npy"),
        ("apply", "calibration.json", "z.npy", "-o", "p.txt"),
        ("report", "."),
    ],
)
def test_mistakes_are_one_line(arguments, pseudocal, saved, monkeypatch):
    monkeypatch.chdir(saved)
    before = sorted(saved.iterdir())
    done = pseudocal(*arguments)
    assert done.code == 3
    assert done.err.startswith("pseudocal: ")
    assert len(done.err.splitlines()) == 1
    assert sorted(saved.iterdir()) == before


@pytest.mark.parametrize("words", ["evaluate p.npy y.npy", "apply calibration.json p.npy -o q.npy"])
def test_probabilities_are_not_taken_for_logits(pseudocal, saved, monkeypatch, words):
    monkeypatch.chdir(saved)
    np.save("p.npy", softmax(np.load("z.npy")))
    done = pseudocal(*words.split())
    assert (
        done.code,
        "; pass --output-type probabilities" in done.err,
    ) == (3, True)
    assert not (saved / "q.npy").exists()
    assert pseudocal(*words.split(), "--output-type", "probabilities").code == 0
    assert pseudocal(*words.split(), "--output-type", "logits").code == 0


@pytest.mark.parametrize("pixels", [(), (2, 3)])
def test_nan_becomes_no_probability(pseudocal, saved, pixels):
    z = np.random.default_rng(0).normal(size=(60, 4, *pixels))
    z[41, 2] = np.nan
    np.save(saved / "z.npy", z)
    done = pseudocal("apply", saved / "calibration.json", saved / "z.npy", "-o", saved / "p.npy")
    assert (done.code, f"got NaN in {'image' if pixels else 'row'} 41" in done.err) == (3, True)
    assert not (saved / "p.npy").exists()


def test_an_output_that_cannot_be_written(pseudocal, saved):
    done = pseudocal(
        "apply", saved / "calibration.json", saved / "z.npy", "-o", saved / "z.npy" / "p.npy"
    )
    assert done.code == 4
    assert done.err.startswith("pseudocal: expected an output that can be written")


def test_help_names_the_commands_and_codes(pseudocal):
    done = pseudocal("--help")
    assert done.code == 0
    for word in ("calibrate", "evaluate", "apply", "report", "Exit codes"):
        assert word in done.out


@pytest.mark.parametrize("group", [(), ("bench",)])
def test_help_says_in_whole_what_each_command_does(pseudocal, group, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = pseudocal(*group, "--help").out.partition(" Commands ")[2].partition("╰")[0]
    assert commands.count("\n") > 5
    assert "..." not in commands


def test_options_are_in_groups_and_an_example_is_at_the_end(pseudocal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = pseudocal("calibrate", "--help").out
    titles = ("Data", "Model", "Images", "Tables and text", "Method", "Second opinion", "Output")
    places = [text.index(f"─ {title} ─") for title in (*titles, "Performance")]
    assert places == sorted(places)
    groups = dict(zip(titles, pairwise(places), strict=True))
    for title, flag in (
        ("Data", "--ground-truth"),
        ("Images", "--preprocess"),
        ("Second opinion", "surrogate[:BACKBONE]"),
        ("Output", "save logits in OUT"),
    ):
        start, end = groups[title]
        assert flag in text[start:end]
    assert text.rstrip().endswith("-o out/ --second-opinion other.onnx")


@pytest.mark.parametrize("command", [("calibrate",), ("label",), ("refine",), ("bench", "run")])
def test_no_part_of_a_help_text_is_taken_for_markup(command, pseudocal, monkeypatch):
    """Rich drops what looks like a tag, such as a default in square brackets."""
    from rich.text import Text

    from pseudocal.app.cli import app

    found: Any = typer.main.get_command(app)
    for name in command:
        found = found.commands[name]
    for parameter in found.params:
        text = getattr(parameter, "help", None) or ""
        assert Text.from_markup(text).plain == text
