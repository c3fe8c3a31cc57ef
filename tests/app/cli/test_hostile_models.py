"""Model files that act.

The canary beside each is there only once somebody has said that the file is trusted.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pseudocal import InputError, PseudoCal
from pseudocal.app.models.files import model_file, open_model
from pseudocal.app.models.model import UntrustedError
from pseudocal.distributed import LocalExecutor, RayExecutor


class Hostile(NamedTuple):
    path: str
    canary: Path


def crafted_guard(legal: dict[str, str], folder: Path, canary: Path) -> Path:
    """An exported program with a guard, which torch runs before `forward`, that opens a file."""

    def craft(program: Any) -> None:
        program["guards_code"] = [f"open({str(canary)!r}, 'w').close() is None"]

    return with_program(legal["pt2"], folder / "model.pt2", craft)


def crafted_expression(legal: dict[str, str], folder: Path, canary: Path) -> Path:
    """An exported program with a size, which torch evaluates while it loads, that opens a file."""

    def craft(value: Any) -> None:
        if isinstance(value, dict) and "expr_str" in value:
            value["expr_str"] = f"open({str(canary)!r}, 'w').close() is None"
        for part in (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        ):
            craft(part)

    return with_program(legal["pt2"], folder / "model.pt2", craft)


def with_program(legal: str, path: Path, craft: Any) -> Path:
    with zipfile.ZipFile(legal) as old, zipfile.ZipFile(path, "w") as new:
        for item in old.namelist():
            content = old.read(item)
            if item.endswith("models/model.json"):
                program = json.loads(content)
                craft(program)
                content = json.dumps(program).encode()
            new.writestr(item, content)
    return path


def writing_forward(legal: dict[str, str], folder: Path, canary: Path) -> Path:
    """A TorchScript module that writes its input to a file."""
    import torch

    class Writing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module, self.path = torch.jit.load(legal["torchscript"]), str(canary)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.save(x, self.path)
            return self.module(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Writing()).save(folder / "model.pt")
    return folder / "model.pt"


@pytest.fixture(
    params=[crafted_guard, crafted_expression, writing_forward], ids=lambda make: make.__name__
)
def hostile(request, tabular, tmp_path) -> Hostile:
    (tmp_path / "hostile").mkdir()
    canary = tmp_path / "canary"
    return Hostile(str(request.param(tabular, tmp_path / "hostile", canary)), canary)


def test_it_acts_if_it_is_trusted(hostile, features):
    """Else the other tests would show nothing."""
    with suppress(InputError):  # an expression has done its work by the time torch stumbles over it
        open_model(hostile.path, trust=True).predict(np.load(features)[:2])
    assert hostile.canary.exists()


def test_it_is_refused_in_one_line_that_says_what_to_do(hostile):
    with pytest.raises(UntrustedError) as refusal:
        open_model(hostile.path)
    said = str(refusal.value)
    assert said.startswith(f"{hostile.path} is a ")
    assert "torch.onnx.export(" in said
    assert (refusal.value.setting, refusal.value.value) == ("trust", "True")
    assert "\n" not in said
    assert not hostile.canary.exists()


@pytest.mark.parametrize("more", [(), ("--ray", "local")], ids=["here", "on a cluster"])
@pytest.mark.parametrize("place", ["model", "second opinion"])
def test_the_command_refuses_it(place, more, hostile, pseudocal, tabular, features, tmp_path):
    models = (
        (hostile.path,) if place == "model" else (tabular["onnx"], "--second-opinion", hostile.path)
    )
    done = pseudocal("calibrate", models[0], features, "-o", tmp_path / "out", *models[1:], *more)
    assert (done.code, done.out) == (3, "")
    assert len(done.err.splitlines()) == 1
    assert done.err.endswith(" --trust-model\n")
    assert "trust=True" not in done.err
    assert not hostile.canary.exists()
    assert not (tmp_path / "out").exists()


def test_who_opens_it_by_name_refuses_it(hostile, features):
    x = np.load(features)
    with pytest.raises(UntrustedError):
        PseudoCal().fit(model_file(hostile.path), x, executor=LocalExecutor())
    with pytest.raises(UntrustedError):
        PseudoCal().fit(
            lambda x: x, x, second_opinion=model_file(hostile.path), executor=LocalExecutor()
        )
    assert not hostile.canary.exists()


@pytest.mark.slow
def test_workers_refuse_it(ray, hostile, features):
    with pytest.raises(InputError, match="which can run code"):
        PseudoCal().fit(
            model_file(hostile.path), np.load(features), executor=RayExecutor(workers=1, tries=1)
        )
    assert not hostile.canary.exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt2", "torchscript"])
def test_workers_open_what_is_trusted(
    kind, ray, pseudocal, tabular, tabular_second, features, tmp_path
):
    words = (
        "calibrate",
        tabular[kind],
        features,
        "-o",
        tmp_path / "out",
        "--second-opinion",
        tabular_second[kind],
    )
    done = pseudocal(*words, "--trust-model", "--ray", "local", "--workers", 1)
    assert done.code == 0, done.err


@pytest.mark.parametrize("kind", ["onnx", "sklearn", "callable", "module"])
def test_what_cannot_act_and_code_of_ones_own_need_no_trust(kind, tabular, features):
    assert open_model(tabular[kind]).predict(np.load(features)[:2]).shape == (2, 3)


@pytest.mark.parametrize("kind", ["pt2", "torchscript"])
def test_a_legal_file_opens_with_trust_alone(kind, tabular, features):
    with pytest.raises(UntrustedError):
        open_model(tabular[kind])
    assert open_model(tabular[kind], trust=True).predict(np.load(features)[:2]).shape == (2, 3)
