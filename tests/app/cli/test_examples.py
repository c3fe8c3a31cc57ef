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


def test_there_are_six():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == [
        "hugging_face",
        "onnx_service",
        "saved_outputs",
        "tabular",
        "threshold_service",
        "torch_dataloader",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "saved_outputs",
        "torch_dataloader",
        pytest.param("hugging_face", marks=pytest.mark.filterwarnings("default")),
    ],
)
def test_the_calibration_error_falls(name):
    scores = run(name)
    assert scores["after"] < 0.8 * scores["before"]


def test_tabular():
    scores = run("tabular")
    assert scores["no labels"] < 0.8 * scores["before"]
    assert scores["50 labels"] < 0.8 * scores["before"]


def test_onnx_service():
    reply = run("onnx_service")
    assert 0 < reply["confidence"] < 1


def test_threshold_service(monkeypatch):
    """A service that reports a class only where the promise covers it, over HTTP."""
    monkeypatch.syspath_prepend(FOLDER)
    found = run("threshold_service")
    assert found["basis"] == "guaranteed"
    assert "At most 5%" in found["promise"]
    assert 0.2 < found["coverage"] < 0.95
    assert found["error"] <= 0.05 < found["error without a threshold"]
