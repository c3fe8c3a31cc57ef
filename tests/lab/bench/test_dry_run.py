"""A dry run says what a run takes, and does nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from typer.testing import CliRunner

from pseudocal.app.cli import app
from pseudocal.app.models.state_dicts import ARCHITECTURES, ResNet
from pseudocal.lab.adapt import METHODS
from pseudocal.lab.adapt.backbones import Backbone
from pseudocal.lab.bench import Store, dry_run, run

pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)


@pytest.mark.parametrize(
    ("method", "gradient", "inference", "looks"),
    [
        ("mcc", 72, 0, 0),
        ("atdoc", 72, 36, 0),  # looks at its batch again
        ("mcd", 360, 72, 0),  # six passes
        ("pada", 72, 0, 19),  # new class weights, 20 intervals
        ("shot", 64, 0, 15),
        ("dine", 128, 0, 9),
    ],
)
def test_passes_of_a_step(method, gradient, inference, looks):
    passes = dry_run.count_passes(METHODS[method]["paper"])
    assert (passes.gradient, passes.inference, passes.looks) == (gradient, inference, looks)


def test_memory_without_data_is_that_of_a_training():
    network = ResNet((1, 1, 1, 1), deep=True)
    weights = {each.untyped_storage()._cdata for each in network.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        network.train()(torch.zeros(3, 3, 64, 64))
    activations = sum(storage.nbytes() for storage in kept.values())
    parameters = sum(each.nbytes for each in network.parameters())
    assert dry_run.training_memory(network, (3, 64, 64), 3) == 3 * parameters + activations


def test_the_passes_are_those_of_the_run(tiny, cache, tmp_path, monkeypatch):
    task = tiny.tasks[-1]  # trained end to end
    suite = replace(tiny, tasks=(task,), calibrators=("none", "pseudocal", "ensemble", "oracle"))
    store = Store(tmp_path / "out")
    (cost,) = dry_run.dry_run(suite, store)
    assert not (tmp_path / "out").exists()
    passed = {True: 0, False: 0}
    forward = Backbone.forward

    def counted(self, images):
        passed[torch.is_grad_enabled()] += len(images)
        return forward(self, images)

    monkeypatch.setattr(Backbone, "forward", counted)
    assert run(suite, store) == []
    assert cost.table == "digits, partial-set"
    assert (cost.models, cost.gradient) == (3, passed[True])
    assert cost.inference == pytest.approx(passed[False], rel=0.05)
    assert cost.hours > 0
    (after,) = dry_run.dry_run(suite, store)
    assert (after.models, after.gradient, after.inference, after.hours) == (0, 0, 0, 0)


def test_the_command_prints_a_table(tiny_file, cache, tmp_path):
    arguments = ["bench", "run", str(tiny_file), "--dry-run", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        *("table", "models", "passes", "without", "gradient", "memory,", "GB", "hours")
    ]
    assert lines[1].startswith("digits, closed-set")
    assert lines[2].startswith("digits, partial-set")
    assert "fitting calibrators and training heads on stored features are not included" in lines[-1]
    assert not list((tmp_path / "out").rglob("model.safetensors"))


def test_a_segmenter_has_frames(cache, tmp_path):
    from pseudocal.lab.bench.suite_file import parse_suite

    task: dict[str, Any] = {
        "data": "scenes",
        "source": "noto",
        "target": "fluent",
        "method": "source-only",
    }
    task |= {"width": 4, "iterations": 7, "options": {"batch": 2, "scenes": 4}}
    suite = parse_suite({"calibrators": ["none", "tempscal"], "tasks": [task]}, "scenes")
    (cost,) = dry_run.dry_run(suite, Store(tmp_path))
    assert (cost.models, cost.gradient) == (1, 14)
    assert cost.memory > 0


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("ResNet-34", "resnet34"),
        ("ResNet-50", "resnet50"),
        ("ResNet-101", "resnet101"),
        ("ViT-B/16", "vit-b16"),
    ],
)
def test_the_memory_in_the_docs(title, name):
    docs = Path(__file__).parents[3] / "docs"
    memory = dry_run.training_memory(ARCHITECTURES[name](), (3, 224, 224), 72)
    assert f"| {title} | {memory / 1e9:.1f} |" in (docs / "paper" / "gpu.md").read_text()


def test_what_never_ran_on_a_gpu_is_in_one_place():
    """Other pages point there, and no page but that one has a list."""
    docs = Path(__file__).parents[3] / "docs"
    assert "## Never run on a GPU" in (docs / "paper" / "gpu.md").read_text()
    assert "gpu.md#never-run-on-a-gpu" in (docs / "paper" / "bench.md").read_text()
    others = [path for path in docs.rglob("*.md") if path.name != "gpu.md"]
    claims = re.compile(r"(never|not|nothing)[^.|]{0,40}\b(ran|run)\b[^.|]{0,20}GPU", re.IGNORECASE)
    found = {path.name for path in others if claims.search(path.read_text())}
    assert found == {"bench.md"}
