"""The run folder: logits are written in any order, and arrays that do not fit are refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pseudocal import InputError
from pseudocal.app import run as module
from pseudocal.app.run import LogitWriter


def test_the_writer_refuses_what_does_not_fit(tmp_path):
    writer = LogitWriter(tmp_path, total=4)
    with pytest.raises(InputError, match="no input could be predicted"):
        writer.finish()
    writer.write(np.array([0]), np.zeros((1, 3)))
    with pytest.raises(InputError, match=r"expected logits \(1, 3\), got \(1, 2\)"):
        writer.write(np.array([1]), np.zeros((1, 2)))


def test_second_models_have_files_of_their_own_with_the_same_rows(tmp_path):
    writer = LogitWriter(tmp_path, total=4)
    writer.write(np.array([3, 1]), np.array([[3.0, 0], [1, 0]]), np.array([[6.0, 0], [2, 0]]))
    assert writer.finish().tolist() == [1, 3]
    assert np.load(tmp_path / "logits.npy").tolist() == [[1, 0], [3, 0]]
    assert np.load(tmp_path / "second-0.npy").tolist() == [[2, 0], [6, 0]]


def test_versions_include_the_package_of_a_format_that_another_process_imports(monkeypatch):
    monkeypatch.setattr(module, "version", lambda name: f"version of {name}")
    monkeypatch.delitem(sys.modules, "catboost", raising=False)  # other tests may have imported it
    assert "catboost" not in module.runtime_versions(["onnx"])
    assert module.runtime_versions(["catboost"])["catboost"] == "version of catboost"
