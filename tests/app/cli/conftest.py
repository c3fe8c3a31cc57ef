"""Small networks in every kind of file, images and tables to run them on, and the command as a function."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from pseudocal.app.cli import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def pseudocal(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def image_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 images of one colour each, with noise, in two folders and two formats."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for i in range(60):
        colour = rng.uniform(40, 215, size=3)
        noisy = np.clip(colour + rng.normal(0, 25, size=(24, 30, 3)), 0, 255).astype(np.uint8)
        (folder / f"day {i % 2}").mkdir(exist_ok=True)
        Image.fromarray(noisy).save(
            folder / f"day {i % 2}" / f"{i:02d}.{'png' if i % 3 else 'jpg'}"
        )
    return folder


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("features") / "x.npy"
    np.save(path, np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32))
    return path


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ResNet as a Hugging Face folder with its preprocessor."""
    import json

    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        num_labels=4,
        return_dict=True,
    )
    model = ResNetForImageClassification(config).eval()
    with torch.no_grad():
        model.classifier[1].weight.mul_(20)  # an untrained network says the same of everything
        logits = model(
            pixel_values=torch.rand(64, 3, 16, 16) * 0.2 + torch.rand(64, 3, 1, 1)
        ).logits
        model.classifier[1].bias.sub_(logits.mean(dim=0))
    folder = tmp_path_factory.mktemp("hub")
    model.save_pretrained(folder)
    settings = {
        "size": {"height": 16, "width": 16},
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.25, 0.3],
        "resample": 2,
        "image_processor_type": "ViTImageProcessor",
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def vision(hub: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same ResNet in the other kinds of file."""
    import torch
    from transformers import ResNetForImageClassification

    class Logits(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(pixel_values=x).logits

    module = Logits(ResNetForImageClassification.from_pretrained(hub)).eval()
    return save_all(
        module, torch.rand(2, 3, 16, 16), tmp_path_factory.mktemp("vision"), "vision_model"
    )


def too_sure(seed: int) -> Any:
    """A logistic regression that is too sure of itself, trained on data of its own."""
    from sklearn.linear_model import LogisticRegression

    truth = np.random.default_rng(1).normal(size=(5, 3))
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 5))
    y = (x @ truth + rng.gumbel(size=(300, 3))).argmax(axis=1)
    model = LogisticRegression(C=10).fit(x, y)
    model.coef_ *= 1.5
    return model


@pytest.fixture(scope="session")
def classifier() -> Any:
    return too_sure(1)


@pytest.fixture(scope="session")
def tabular(classifier: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same logistic regression in every kind of file that takes a table."""
    return save_classifier(classifier, tmp_path_factory.mktemp("tabular"), "tabular_model")


@pytest.fixture(scope="session")
def results(
    tabular: dict[str, str], features: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What `calibrate` makes of that model and the table.

    For tests that begin there, each on a copy.
    """
    out = tmp_path_factory.mktemp("results") / "out"
    assert main(["calibrate", tabular["onnx"], str(features), "-o", str(out), "-q"]) == 0
    return out


@pytest.fixture(scope="session")
def collapsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One that gives nearly every input the same class, so that its temperature is refused."""
    model = too_sure(1)
    model.intercept_[0] += 7
    return save_classifier(model, tmp_path_factory.mktemp("collapsed"), "collapsed_model")


@pytest.fixture(scope="session")
def collapsed_hub(hub: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny ResNet with a bias towards one class, so that its temperature is refused."""
    import shutil

    import torch
    from transformers import ResNetForImageClassification

    folder = tmp_path_factory.mktemp("collapsed") / "hub"
    shutil.copytree(hub, folder)
    model = ResNetForImageClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier[1].bias[0] += 8
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tabular_second(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Another one of the same task."""
    return save_classifier(too_sure(2), tmp_path_factory.mktemp("second"), "second_model")


def save_classifier(classifier: Any, folder: Path, name: str) -> dict[str, str]:
    import skops.io
    import torch

    module = torch.nn.Linear(5, 3)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(classifier.coef_))
        module.bias.copy_(torch.tensor(classifier.intercept_))
    files = save_all(module.eval(), torch.zeros(2, 5), folder, name)
    skops.io.dump(classifier, folder / "model.skops")
    return files | {"sklearn": str(folder / "model.skops")}


def save_all(module: Any, x: Any, folder: Path, name: str) -> dict[str, str]:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dynamic = {"x": {0: "n"}, "logits": {0: "n"}}
        names: dict[str, Any] = {
            "input_names": ["x"],
            "output_names": ["logits"],
            "dynamic_axes": dynamic,
        }
        torch.onnx.export(module, (x,), folder / "model.onnx", dynamo=False, **names)
        program = torch.export.export(
            module, (x,), dynamic_shapes=({0: torch.export.Dim("n", max=4096)},)
        )
        torch.export.save(program, folder / "model.pt2")
        torch.jit.trace(module, x).save(folder / "model.pt")
    holder = ModuleType(name)
    holder.predict = lambda x: module(torch.as_tensor(x)).detach().numpy()  # type: ignore[attr-defined]
    holder.module = module  # type: ignore[attr-defined]
    sys.modules[name] = holder
    files = {kind: str(folder / f"model.{suffix}") for kind, suffix in SUFFIXES.items()}
    return files | {"callable": f"{name}:predict", "module": f"{name}:module"}


SUFFIXES = {"onnx": "onnx", "pt2": "pt2", "torchscript": "pt"}
