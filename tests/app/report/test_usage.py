"""The code of the report that applies the result."""

from __future__ import annotations

import pytest

from pseudocal.app.report.content import usage_of
from pseudocal.app.run import AboutModel


def about(kind: str, *files: str) -> AboutModel:
    return AboutModel(name="f", title="f", kind=kind, recipe=kind, output="z", files=files)


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("onnx", "model.onnx"),
        ("state dict", "model.pth"),
        ("pt2", "model.pt2"),
        ("new", "model.new"),
    ],
)
def test_an_exported_model_is_not_divided_again(kind, file):
    usage = usage_of(about(kind, file), 2.0)
    assert file in usage
    assert "contains the division by T" in usage
    assert "Calibration.load" not in usage


@pytest.mark.parametrize("kind", ["onnx", "sklearn", "callable", "new"])
def test_a_model_that_was_not_exported_is(kind):
    assert "Calibration.load" in usage_of(about(kind), 2.0)
