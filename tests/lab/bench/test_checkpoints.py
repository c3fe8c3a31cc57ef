"""Somebody's checkpoint in the place of a training, and the paper's images in their layout on disk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from pseudocal.app.cli import app
from pseudocal.app.models import state_dicts
from pseudocal.arrays import InputError
from pseudocal.lab.bench import Store, run
from pseudocal.lab.bench.suite_file import parse_suite
from pseudocal.lab.data import layouts

CLASSES = ("Bed", "Bike", "TV")
pytestmark = pytest.mark.filterwarnings(
    "ignore::pseudocal.calibrators.trust.UnreliableCalibrationWarning"
)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Two domains of three classes as Office-Home has them, and a small network under the name of a large one."""
    monkeypatch.setenv("PSEUDOCAL_CACHE", str(tmp_path / "cache"))
    whole = layouts.BENCHMARKS["office-home"]
    monkeypatch.setitem(layouts.BENCHMARKS, "office-home", replace(whole, classes=3))
    small = lambda: state_dicts.ResNet((1, 1, 1, 1), deep=False)  # noqa: E731
    monkeypatch.setitem(state_dicts.ARCHITECTURES, "resnet34", small)
    colours = np.array([[230, 20, 20], [20, 230, 20], [20, 20, 230]])
    rng = np.random.default_rng(0)
    for domain in ("Art", "Clipart"):
        for name, colour in zip(CLASSES, colours, strict=True):
            (tmp_path / domain / name).mkdir(parents=True)
            for i in range(4):
                pixels = (colour + rng.integers(-20, 20, (40, 50, 3))).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / domain / name / f"{i}.png")
    torch.manual_seed(0)
    body, bottleneck, fc = small().eval(), torch.nn.Linear(512, 8), torch.nn.Linear(8, 3)
    plain = torch.tensor(colours / 255, dtype=torch.float32)[:, :, None, None].expand(3, 3, 64, 64)
    with torch.no_grad():
        fc.weight *= 30
        fc.bias.sub_(
            fc(bottleneck(body((plain - 0.45) / 0.225))).mean(dim=0)
        )  # so that no class wins everywhere
    tensors = {f"0.{name}": tensor for name, tensor in body.state_dict().items()}
    tensors |= {
        "1.bottleneck.weight": bottleneck.weight.detach(),
        "1.bottleneck.bias": bottleneck.bias.detach(),
    }
    tensors |= {f"1.fc.{name}": tensor for name, tensor in fc.state_dict().items()}
    torch.save(tensors, tmp_path / "bnm.pt")
    return tmp_path


def suite(root, calibrators, **more):
    task = {
        "data": "office-home",
        "source": "Art",
        "target": "Clipart",
        "method": "bnm",
        "backbone": "resnet34",
    }
    return parse_suite(
        {"calibrators": calibrators, "tasks": [task | {"checkpoint": str(root / "bnm.pt")} | more]},
        "mine",
    )


def test_a_checkpoint_is_calibrated_without_training(root):
    store, chosen = (
        Store(root / "out", root=root),
        suite(root, ["none", "tempscal", "mc-dropout", "oracle"]),
    )
    assert run(chosen, store) == []
    assert set(store.scores(chosen.tasks[0])) == {"none", "tempscal", "mc-dropout", "oracle"}
    from pseudocal.lab.bench.stages.predict import load_classifier
    from pseudocal.lab.bench.views import domains_of

    images = torch.from_numpy(domains_of(chosen.tasks[0], store)[1].inputs[:])
    tensors = torch.load(root / "bnm.pt")
    body = state_dicts.ARCHITECTURES["resnet34"]()
    body.load_state_dict(
        {name[2:]: tensor for name, tensor in tensors.items() if name.startswith("0.")}
    )
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        features = body.eval()((images / 255 - mean[:, None, None]) / std[:, None, None])
        features = features @ tensors["1.bottleneck.weight"].T + tensors["1.bottleneck.bias"]
        expected = features @ tensors["1.fc.weight"].T + tensors["1.fc.bias"]
        torch.testing.assert_close(
            load_classifier(chosen.tasks[0], store)(images), expected, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(("name", "kind"), [("SAFN", "afn"), ("MCD", "three-layer")])
def test_heads_with_dropout_are_accepted(root, name, kind):
    """PseudoCal's SAFN and MCD keep their dropout, which MC-Dropout turns on."""
    from pseudocal.lab.adapt.networks import build_head

    theirs = build_head(kind, 512, 8, 3)
    renamed = {"0.": "0.0.fc.", "1.": "0.0.bn."}
    tensors = torch.load(root / "bnm.pt")
    body = {key: tensor for key, tensor in tensors.items() if key.startswith("0.")}
    head = {f"1.fc.{key}": tensor for key, tensor in theirs.classifier.state_dict().items()}
    for key, tensor in theirs.bottleneck.state_dict().items():
        head[f"1.bottleneck.{renamed[key[:2]]}{key[2:]}"] = tensor
    torch.save(body | head, root / f"{name}.pt")
    chosen = suite(root, ["none", "mc-dropout"], checkpoint=str(root / f"{name}.pt"))
    store = Store(root / "out", root=root)
    assert run(chosen, store) == []
    scores = store.scores(chosen.tasks[0])
    assert scores["none"]["nll"] != scores["mc-dropout"]["nll"]
    from pseudocal.lab.bench.stages.predict import load_classifier

    network = load_classifier(chosen.tasks[0], store)
    for key, tensor in theirs.state_dict().items():
        torch.testing.assert_close(network.head.state_dict()[key], tensor)


def test_what_does_not_fit_is_said(root):
    with pytest.raises(InputError, match=r"expected \{seed\} in a checkpoint"):
        run(suite(root, ["ensemble", "oracle"]), Store(root / "out", root=root))
    (failure,) = run(suite(root, ["none"], backbone="resnet50"), Store(root / "out", root=root))
    assert (
        "0.layer1.0.conv1.weight has shape (64, 64, 3, 3), but (64, 64, 1, 1) in resnet50"
        in failure.error
    )


def test_the_command_calibrates_a_checkpoint(root):
    arguments = [
        "calibrate",
        str(root / "bnm.pt"),
        str(root / "Clipart"),
        "-o",
        str(root / "done"),
        "--json",
    ]
    ran = CliRunner().invoke(app, [*arguments, "--architecture", "resnet34"])
    assert ran.exit_code == 0, ran.output
    assert (root / "done" / "calibration.json").exists()
    refused = CliRunner().invoke(app, arguments)
    assert "name its architecture" in str(refused.exception)
