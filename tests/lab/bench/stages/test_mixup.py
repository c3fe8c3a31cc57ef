from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pseudocal import PseudoCal
from pseudocal.calibrators import Calibration, Ensemble
from pseudocal.lab.adapt.networks import Network
from pseudocal.lab.bench import Store, Task
from pseudocal.lab.bench.stages.predict import load_classifier
from pseudocal.lab.bench.views import backbone_of, domains_of
from pseudocal.mixup import STRATEGIES, partners
from pseudocal.predictors import as_predictor

# the tiny networks of these tests say nearly one class
pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)


def whole(task: Task, store: Store) -> Network:
    network = load_classifier(task, store)
    backbone = (
        backbone_of(task.backbone, task.weights, task.seed) if task.frozen else network.backbone
    )
    return Network(backbone, network.head).eval()


@pytest.mark.parametrize(
    "number", [1, 2]
)  # a head on frozen features, and a network trained as a whole
def test_scores_are_those_of_the_whole_network_on_images(tiny, done, number):
    task = tiny.tasks[number]
    images = domains_of(task, done)[1].inputs
    predict = as_predictor(whole(task, done))
    with np.load(done.folder(task) / "mixup" / "pseudocal.npz") as stored:
        first = stored["first"]
        second = stored["second"]
        np.testing.assert_array_equal(partners(len(images), seed=task.seed)[first], second)
        mixed = 0.65 * images[first] + 0.35 * images[second]
        np.testing.assert_allclose(stored["logits"], predict(mixed.astype(np.float32)), atol=1e-4)
        classes = predict(images).argmax(axis=1)
        np.testing.assert_array_equal(stored["labels"], classes[first])
        assert (classes[first] != classes[second]).all()
    expected = PseudoCal(seed=task.seed, epochs=1).fit(predict, images)
    assert done.scores(task)["pseudocal"]["temperature"] == pytest.approx(
        expected.temperature, rel=1e-5
    )
    found = Calibration.load(done.folder(task) / "calibrations" / "pseudocal.json")
    assert found.counts == expected.counts
    assert found.settings == expected.settings
    assert found.trust.verdict == expected.trust.verdict


def test_a_pseudo_ensemble_is_pseudocal_on_the_ensemble(tiny, done):
    task = tiny.tasks[2]
    images = domains_of(task, done)[1].inputs
    members = tuple(as_predictor(whole(member, done)) for member in task.members())
    expected = PseudoCal(seed=task.seed, epochs=1).fit(Ensemble(members), images)
    found = Calibration.load(done.folder(task) / "calibrations" / "pseudo-ensemble.json")
    assert found.method == "pseudo-ensemble"
    assert found.temperature == pytest.approx(expected.temperature, rel=1e-5)
    assert found.counts == expected.counts


@pytest.mark.parametrize(("name", "strategy"), [("cutmix", "CutMix"), ("lambda-0.8-soft", None)])
def test_other_mixup_variants_are_those_of_the_whole_network_too(tiny, done, name, strategy):
    task = tiny.tasks[1]
    settings: dict[str, Any] = {} if strategy else {"lam": 0.8, "labels": "soft"}
    chosen = STRATEGIES[strategy] if strategy else None
    images = domains_of(task, done)[1].inputs
    calibration = PseudoCal(seed=task.seed, epochs=1, **settings).fit(
        whole(task, done), images, strategy=chosen
    )
    assert done.scores(task)[name]["temperature"] == pytest.approx(
        calibration.temperature, rel=1e-5
    )
