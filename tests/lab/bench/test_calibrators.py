"""Calibrators that somebody adds: what they are given, and what happens when one fails."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from pseudocal import Calibration, PseudoCal
from pseudocal.app.cli import main
from pseudocal.calibrators import CALIBRATORS
from pseudocal.calibrators.table import Entry
from pseudocal.lab.bench import Store, Suite, run
from pseudocal.lab.bench.calibrators import COMPARED, LIBRARY
from pseudocal.predictors import as_predictor

# the tiny networks of these tests predict nearly one class
pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)


def copied(model, target_inputs, *, seed: int = 0) -> Calibration:
    """A literal copy of PseudoCal, with one mixup sample for each input as in the paper."""
    return PseudoCal(seed=seed, epochs=1).fit(model, target_inputs)


@pytest.mark.parametrize("number", [1, 2])  # a head above a frozen backbone; a whole network
def test_a_copy_of_pseudocal_equals_pseudocal(tiny, cache, tmp_path, monkeypatch, number):
    entry = Entry("A copy", copied, ("model", "target_inputs"))
    monkeypatch.setitem(CALIBRATORS, "copied", entry)
    store = Store(tmp_path)
    task = tiny.tasks[number].of_seed(1)
    assert run(Suite("copies", (task,), ("none", "pseudocal", "copied", "oracle")), store) == []
    scores = store.scores(task)
    assert scores["copied"]["temperature"] != pytest.approx(1.0, abs=1e-3)
    for metric in ("ece", "nll", "brier", "temperature"):
        assert scores["copied"][metric] == pytest.approx(scores["pseudocal"][metric], abs=1e-6)


def test_a_calibrator_of_the_library_has_a_name_of_its_own():
    taken = [name for name in LIBRARY if COMPARED[name] != LIBRARY[name]]
    assert taken == [], "rename them: lab/bench/calibrators.py has others of these names"


def test_parts_of_the_material_fit_together(tiny, done, monkeypatch):
    given = {}

    def look(
        model, target_inputs, head, target_features, target_logits, members, member_logits
    ) -> Calibration:
        given.update(locals())
        return Calibration("look", CALIBRATORS["none"].function().scaling)

    from pseudocal.calibrators import calibrate_by_name
    from pseudocal.lab.bench.stages.calibrate import material_for

    parts: Any = tuple(look.__code__.co_varnames[: look.__code__.co_argcount])
    monkeypatch.setitem(CALIBRATORS, "look", Entry("Look", look, parts))
    task = tiny.tasks[1]
    assert task.frozen
    calibrate_by_name("look", material_for("look", task, done))
    assert given["target_inputs"].shape[1:] == (1, 16, 16)  # images, not features
    logits = given["target_logits"]
    found = as_predictor(given["model"])(given["target_inputs"])
    np.testing.assert_allclose(found, logits, atol=1e-4)
    above = as_predictor(given["head"])(given["target_features"])
    np.testing.assert_allclose(above, logits, atol=1e-4)
    for member, expected in zip(given["members"], given["member_logits"], strict=True):
        found = as_predictor(member)(given["target_inputs"])
        np.testing.assert_allclose(found, expected, atol=1e-4)


def broken(target_logits) -> Calibration:
    raise ZeroDivisionError("broken on purpose")


def too_large(target_logits) -> Calibration:
    raise torch.OutOfMemoryError("out of memory on purpose")


def too_short(target_logits):
    return target_logits[:-1]


def broken_oracle(target_logits, target_labels) -> Calibration:
    raise KeyError("broken with labels")


def test_an_exception_of_a_calibrator_costs_its_own_cell_only(
    tiny_file, tiny, cache, tmp_path, monkeypatch, capsys
):
    logits: Any = ("target_logits",)
    labelled: Any = ("target_logits", "target_labels")
    added = {
        "broken": Entry("Broken", broken, logits),
        "too-large": Entry("Too large", too_large, logits),
        "too-short": Entry("Too short", too_short, logits, corrects=None),
        "broken-oracle": Entry("Broken oracle", broken_oracle, labelled),
    }
    for name, entry in added.items():
        monkeypatch.setitem(CALIBRATORS, name, entry)
    suite = Suite("broken", tiny.tasks[1:2], (*added, "none", "pseudocal", "oracle"))
    store = Store(tmp_path)
    assert run(suite, store) == []
    (task,) = suite.tasks
    assert set(store.scores(task)) == {"none", "pseudocal", "oracle"}
    note = json.loads((store.folder(task) / "calibrations/broken.error.json").read_text())
    assert note["error"] == "ZeroDivisionError: broken on purpose"
    assert 'raise ZeroDivisionError("broken on purpose")' in note["traceback"]
    assert main(["bench", "table", "broken", "--out", str(tmp_path), "--metric", "ece"]) == 0
    said = capsys.readouterr()
    assert "| Broken | - | - | - |" in said.out
    assert "no Broken: ZeroDivisionError: broken on purpose (traceback in " in said.err
    assert "no Too large: OutOfMemoryError: out of memory on purpose" in said.err
    assert "no Too short: InputError: expected corrected logits (200, 10)" in said.err
    assert "no Broken oracle: KeyError: 'broken with labels'" in said.err

    monkeypatch.setitem(CALIBRATORS, "broken", Entry("Broken", CALIBRATORS["none"].function))
    assert run(suite, store, redo="calibrate") == []
    assert set(store.scores(task)) == {"broken", "none", "pseudocal", "oracle"}
