"""The examples in the documentation run, and do what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "examples"


def run(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main()


@pytest.mark.parametrize("name", ["saved_logits", "tabular", "torch_dataloader"])
def test_the_calibration_error_falls(name):
    scores = run(name)
    assert scores["after"] < 0.8 * scores["before"]


def test_black_box():
    assert run("black_box") < 1  # a forest is not sure enough of itself


@pytest.mark.filterwarnings("default")  # of transformers
def test_hugging_face():
    assert run("hugging_face") > 0


def test_onnx_service():
    answer = run("onnx_service")
    assert 0 < answer["confidence"] < 1


def test_threshold_service(monkeypatch):
    """A service that reports a class only where the promise covers it, over HTTP."""
    monkeypatch.syspath_prepend(FOLDER)
    found = run("threshold_service")
    assert found["basis"] == "guaranteed"
    assert "At most 5%" in found["promise"]
    assert 0.2 < found["coverage"] < 0.95
    assert found["error"] <= 0.05 < found["error without a threshold"]
