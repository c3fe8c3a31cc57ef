"""What a model gives.

Several outputs, a softmax at the end, one number for two classes, a batch of one.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from pseudocal import Calibration, softmax


class Ending(nn.Module):
    def __init__(self, linear: nn.Module, end) -> None:
        super().__init__()
        self.linear, self.end = linear, end

    def forward(self, x):
        return self.end(self.linear(x))


@pytest.fixture
def export(tabular, tmp_path):
    linear = sys.modules["tabular_model"].module

    def to_onnx(end, names, n=None):
        path = tmp_path / "ending.onnx"
        axes = {name: {0: "n"} for name in ["x", *names]} if n is None else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Ending(linear, end).eval(), (torch.zeros(n or 2, 5),), path, dynamo=False,
                input_names=["x"], output_names=names, dynamic_axes=axes,
            )  # fmt: skip
        return path

    return to_onnx


@pytest.fixture
def plain(pseudocal, tabular, features, tmp_path) -> float:
    pseudocal("calibrate", tabular["onnx"], features, "-o", tmp_path / "plain")
    return Calibration.load(tmp_path / "plain" / "calibration.json").temperature


def run_onnx(path, features):
    import onnxruntime

    return onnxruntime.InferenceSession(path).run(None, {"x": np.load(features)})


def linear_logits(features):
    return sys.modules["tabular_model"].predict(np.load(features))


def test_of_several_outputs_one_is_chosen(pseudocal, export, features, plain, tmp_path):
    path = export(lambda z: (z, z.mean(dim=1)), ["logits", "mean"])
    done = pseudocal("calibrate", path, features, "-o", tmp_path / "out")
    assert done.code == 3
    assert (
        "2 outputs, logits (?, 3), mean (?): say which holds the logits; pass --logits-tensor NAME"
        in done.err
    )
    assert (
        pseudocal(
            "calibrate", path, features, "-o", tmp_path / "out", "--logits-tensor", "nothing"
        ).code
        == 3
    )
    done = pseudocal(
        "calibrate", path, features, "-o", tmp_path / "out", "--logits-tensor", "logits", "--json"
    )
    assert json.loads(done.out)["temperature"] == pytest.approx(plain, rel=1e-6)


def test_a_softmax_is_seen_and_asked_about(pseudocal, export, features, plain, tmp_path):
    path = export(lambda z: z.softmax(dim=1), ["probabilities"])
    done = pseudocal("calibrate", path, features, "-o", tmp_path / "out")
    assert done.code == 3
    assert "is a softmax of" in done.err
    inner = done.err.split("pass --logits-tensor ")[1].strip()
    done = pseudocal(
        "calibrate", path, features, "-o", tmp_path / "inner", "--logits-tensor", inner, "--json"
    )
    assert json.loads(done.out)["temperature"] == pytest.approx(plain, rel=1e-6)
    (after,) = run_onnx(tmp_path / "inner" / "unconfirmed-model.onnx", features)
    np.testing.assert_allclose(after, softmax(linear_logits(features) / plain), atol=1e-5)


def test_probabilities_are_served_by_their_logarithm(pseudocal, export, features, plain, tmp_path):
    path = export(lambda z: z.softmax(dim=1), ["probabilities"])
    done = pseudocal(
        "calibrate",
        path,
        features,
        "-o",
        tmp_path / "out",
        "--output-type",
        "probabilities",
        "--json",
    )
    assert json.loads(done.out)["temperature"] == pytest.approx(plain, rel=1e-3)
    (after,) = run_onnx(tmp_path / "out" / "unconfirmed-model.onnx", features)
    np.testing.assert_allclose(after, softmax(linear_logits(features) / plain), atol=1e-3)


def test_a_callable_that_gives_probabilities_is_asked_about(pseudocal, features, plain, tmp_path):
    module = sys.modules["tabular_model"]
    vars(module)["black_box"] = lambda x: softmax(module.predict(x))
    done = pseudocal("calibrate", "tabular_model:black_box", features, "-o", tmp_path / "out")
    assert done.code == 3
    assert "--output-type probabilities" in done.err
    for outputs, expected in (("probabilities", plain), ("logits", None)):
        done = pseudocal(
            "calibrate",
            "tabular_model:black_box",
            features,
            "-o",
            tmp_path / "out",
            "--output-type",
            outputs,
            "--json",
        )
        assert done.code == 0, done.err
        assert expected is None or json.loads(done.out)["temperature"] == pytest.approx(
            expected, rel=1e-3
        )


@pytest.mark.parametrize("end", ["logit", "sigmoid"])
def test_one_number_for_two_classes(end, pseudocal, export, features, tmp_path):
    logit = lambda z: 3 * (z[:, 1:2] - z[:, 0:1])  # noqa: E731
    path = export(logit if end == "logit" else lambda z: logit(z).sigmoid(), ["y"])
    assert pseudocal("calibrate", path, features, "-o", tmp_path / "out").code == 3
    given = ["--binary"] + (["--output-type", "probabilities"] if end == "sigmoid" else [])
    # by default nothing is applied to two classes without labels
    unchanged = pseudocal("calibrate", path, features, "-o", tmp_path / "unchanged", *given)
    assert unchanged.code == 0, unchanged.err
    assert "T = 1 (nothing applied); model unchanged" in unchanged.out
    assert "Label about 50 inputs to calibrate" in unchanged.out
    assert not (tmp_path / "unchanged" / "model.onnx").exists()
    given += ["--estimator", "mixup"]
    done = pseudocal("calibrate", path, features, "-o", tmp_path / "out", *given, "--json")
    assert done.code == 0, done.err
    temperature = json.loads(done.out)["temperature"]
    (before,), (after,) = (
        run_onnx(path, features),
        run_onnx(tmp_path / "out" / "unconfirmed-model.onnx", features),
    )
    if end == "sigmoid":
        clear = (before > 1e-3) & (before < 1 - 1e-3)
        before, after = (np.log(p[clear] / (1 - p[clear])) for p in (before, after))
    np.testing.assert_allclose(after, before / temperature, rtol=1e-3, atol=1e-5)


def test_a_graph_for_batches_of_one(pseudocal, export, features, plain, tmp_path):
    path = export(lambda z: z, ["logits"], n=1)
    done = pseudocal("calibrate", path, features, "-o", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["temperature"] == pytest.approx(plain, rel=1e-5)


def test_segmentation_has_no_second_opinion(pseudocal, tabular, features, tmp_path):
    vars(sys.modules["tabular_model"])["dense"] = lambda x: np.zeros((len(x), 3, 4, 4))
    twice = (
        "tabular_model:dense",
        features,
        "-o",
        tmp_path / "out",
        "--second-opinion",
        "tabular_model:dense",
    )
    done = pseudocal("calibrate", *twice)
    assert done.code == 3
    assert "no second opinion for a segmentation model" in done.err
