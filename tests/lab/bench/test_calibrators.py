"""Calibrators that somebody adds: what they are given, and what happens when one fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pseudocal import Calibration, PseudoCal
from pseudocal.calibrators import CALIBRATORS
from pseudocal.calibrators.table import Entry
from pseudocal.lab.bench import Store, Suite, run
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
