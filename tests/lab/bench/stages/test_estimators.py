"""The package's own estimators in the benchmark are those of the library on whole networks."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pseudocal import PseudoCal, Surrogate
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.labels import rows_to_label
from pseudocal.lab.bench import Store, Suite, built_in, run, views
from pseudocal.lab.bench.calibrators import ESTIMATORS, sees_labels
from pseudocal.lab.bench.stages import estimators, predict
from pseudocal.lab.bench.stages.predict import load_whole_network
from pseudocal.lab.bench.stages.score import _target_labels
from pseudocal.lab.bench.views import domains_of
from pseudocal.predictors import as_predictor
from pseudocal.scaling import fit_temperature

# the tiny networks of these tests predict nearly one class
pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)
NAMES = ("none", *ESTIMATORS, "oracle")


@pytest.fixture(scope="module")
def estimated(tiny, cache, tmp_path_factory) -> tuple[Store, Suite]:
    store = Store(tmp_path_factory.mktemp("estimated"))
    head = replace(tiny.tasks[0], iterations=300)
    whole = replace(tiny.tasks[2], method="source-only", iterations=15)
    suite = Suite("estimated", (head, whole), NAMES)
    assert run(suite, store) == []
    return store, suite


def saved(store, task, name) -> Calibration:
    return Calibration.load(store.folder(task) / "calibrations" / f"{name}.json")


def mean_of(logits, temperature) -> float:
    return float(confidences(logits, temperature).mean())


@pytest.mark.parametrize("number", [0, 1])  # a head above a frozen backbone; a whole network
def test_agreement_and_surrogate_are_those_of_the_library(estimated, number):
    store, suite = estimated
    task = suite.tasks[number]
    images = domains_of(task, store)[1].inputs
    model = load_whole_network(task, store)
    second = load_whole_network(task.of_seed(1), store)

    def features(x):
        with torch.no_grad():
            return second.features(torch.as_tensor(np.asarray(x, np.float32))).numpy()

    method = PseudoCal(epochs=1, seed=task.seed)
    evidence = method.collect(model, images, second_opinion=[second, Surrogate(features)])
    found = json.loads((store.folder(task) / "mixup" / "estimates.json").read_text())
    assert found["mixup"] == pytest.approx(evidence.temperature().temperature, rel=1e-5)
    both = dict(zip(("agreement", "surrogate"), evidence.agreements, strict=True))
    for name, expected in both.items():
        assert found[name]["usable"] == expected.usable
        assert found[name]["accuracy"] == pytest.approx(expected.accuracy, abs=1e-4)
        if found[name]["usable"]:
            fitted = saved(store, task, name)
            logits = evidence.real.labelled.logits
            assert mean_of(logits, fitted.temperature) == pytest.approx(expected.accuracy, abs=1e-4)
    assert found["agreement"]["usable"]
    usable = [found[name]["accuracy"] for name in both if found[name]["usable"]]
    if not usable:
        return
    mean = saved(store, task, "mean-estimate")
    with np.load(store.folder(task) / "target.npz") as target:
        confidence = confidences(target["logits"] / mean.temperature).mean()
    assert confidence == pytest.approx(np.mean(usable), abs=1e-4)


def test_fifty_labels_and_no_more_are_looked_up(estimated):
    store, suite = estimated
    task = suite.tasks[1]
    labels = _target_labels(task, store)
    asked = []

    def labels_of(rows):
        asked.extend(rows.tolist())
        return labels[rows]

    path = store.folder(task) / "mixup" / "estimates.json"
    found = estimators.refine_with_labels(task, "labels-50", path, labels_of, store)
    assert found.temperature == saved(store, task, "labels-50").temperature
    with np.load(store.folder(task) / "target.npz") as target:
        assert asked == rows_to_label(target["logits"], 50, seed=task.seed).tolist()
    assert found.measured is not None
    again = estimators.refine_with_labels(task, "labels-50, repeat=1", path, labels_of, store)
    assert len(set(asked)) > 50  # other rows
    assert again.temperature != found.temperature


def test_the_released_code_uses_the_first_batch_only(estimated):
    """Its samples are those of 108 pairs; each counts once for every batch that keeps its place."""
    store, suite = estimated
    task = suite.tasks[0]
    classes = estimators._target_logits(task, store).argmax(axis=1)
    order, partner = estimators.released_pairs(len(classes), np.random.default_rng(task.seed))
    assert sorted(order) == sorted(partner) == list(range(200))
    assert sorted(order[:108]) == sorted(partner[:108])
    logits, labels = [], []
    images = np.asarray(domains_of(task, store)[1].inputs, np.float32)
    mixed = as_predictor(load_whole_network(task, store))(
        np.float32(0.65) * images[order] + np.float32(0.35) * images[partner]
    )
    for start in (0, 108):  # as the released loop does
        batch = slice(start, start + 108)
        for position in np.flatnonzero(classes[order[batch]] != classes[partner[batch]]):
            logits.append(mixed[position])  # without `start +`
            labels.append(classes[order[position]])
    expected = fit_temperature(np.array(logits), np.array(labels)).temperature
    assert saved(store, task, "pseudocal-released").temperature == pytest.approx(expected, abs=2e-3)


def test_heads_share_the_features_of_the_released_code(estimated, monkeypatch):
    store, suite = estimated
    task = suite.tasks[0]

    def computed_again(*_, **__):
        raise AssertionError

    monkeypatch.setattr(views, "compute_features", computed_again)
    monkeypatch.setattr(predict, "compute_features", computed_again)
    found = estimators.pseudocal_released(task, "pseudocal-released", store)
    assert found.temperature == saved(store, task, "pseudocal-released").temperature


def test_every_suite_of_classifiers_compares_them():
    for name in ("emoji", "digits", "emoji-source-free", "office-home"):
        assert set(ESTIMATORS) < set(built_in(name).calibrators)
    assert [name for name in ESTIMATORS if sees_labels(name)] == ["labels-50"]


def test_a_constant_is_the_same_everywhere(estimated):
    store, suite = estimated
    assert {store.scores(task)["constant"]["temperature"] for task in suite.tasks} == {2.0}
