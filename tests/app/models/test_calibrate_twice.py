"""A calibrated ONNX file can be calibrated again.

The temperatures multiply, and no name is given twice.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pseudocal import Calibration
from pseudocal.app.cli import main
from pseudocal.app.models.files import open_model

onnx = pytest.importorskip("onnx")
TAKEN = (
    "y_uncalibrated",
    "y_uncalibrated_0",
    "y_uncalibrated_1",
    "y_uncalibrated_2",
    "y_uncalibrated_2_rest",
    "y_uncalibrated_2_odds",
    "pseudocal_temperature",
    "pseudocal_floor",
    "pseudocal_ceiling",
    "pseudocal_one",
    "pseudocal_div",
    "pseudocal_log",
)


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)


def saved(
    path: Path,
    *,
    after=(),
    more_nodes=(),
    constants=(),
    elem_type=onnx.TensorProto.FLOAT,
    classes=3,
) -> str:
    """A linear model from x to z, and nodes (operator, inputs, outputs) from z to y."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(1)
    weights = numpy_helper.from_array(4 * rng.normal(size=(5, classes)).astype(np.float32), "W")
    steps = [("MatMul", ["x", "W"], ["z"]), *(after or [("Identity", ["z"], ["y"])])]
    nodes = [helper.make_node(op, inputs, outputs) for op, inputs, outputs in steps]
    entry = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 5])
    end = helper.make_tensor_value_info("y", elem_type, ["n", classes])
    initializers = [
        weights,
        *(numpy_helper.from_array(np.array(1.5, np.float32), name) for name in constants),
    ]
    graph = helper.make_graph([*nodes, *more_nodes], "g", [entry], [end], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return str(path)


def metadata(path):
    found = onnx.load(path).metadata_props
    assert len({each.key for each in found}) == len(found)
    return {each.key: each.value for each in found}


def exported_again(path, temperature, x, tmp_path, **options):
    """Export a file with a temperature; return the new file."""
    folder = tmp_path / f"after {Path(path).stem} {len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    open_model(path, **options).export(temperature, folder, x)
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    return str(folder / "model.onnx")


def test_the_command_calibrates_a_file_three_times(tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    path = saved(tmp_path / "model.onnx")
    original = open_model(path).predict(x)
    product = 1.0
    for time in range(3):
        out = tmp_path / f"out{time}"
        words = [
            "calibrate",
            path,
            str(tmp_path / "x.npy"),
            "-o",
            str(out),
            "-q",
            "--seed",
            str(time),
        ]
        assert main(words) == 0
        product *= Calibration.load(out / "calibration.json").temperature
        path = str(out / "unconfirmed-model.onnx")
        np.testing.assert_allclose(open_model(path).predict(x), original / product, rtol=1e-6)
        assert float(metadata(path)["pseudocal_temperature"]) == pytest.approx(product, rel=1e-12)
    assert product != 1.0


def test_another_temperature_replaces_the_constant(tmp_path, x):
    once = exported_again(saved(tmp_path / "model.onnx"), 1.7, x, tmp_path)
    twice = exported_again(once, 0.6, x, tmp_path)
    thrice = exported_again(twice, 2.3, x, tmp_path)
    assert len(onnx.load(once).graph.node) == len(onnx.load(thrice).graph.node) == 3
    original = open_model(str(tmp_path / "model.onnx")).predict(x)
    np.testing.assert_allclose(
        open_model(thrice).predict(x), original / (1.7 * 0.6 * 2.3), rtol=1e-6
    )


def test_a_constant_that_the_metadata_contradicts_counts(tmp_path, x):
    once = exported_again(saved(tmp_path / "model.onnx"), 2.0, x, tmp_path)
    model = onnx.load(once)
    for each in model.metadata_props:
        if each.key == "pseudocal_temperature":
            each.value = "77"
    onnx.save(model, once)
    twice = exported_again(once, 3.0, x, tmp_path)
    assert metadata(twice)["pseudocal_temperature"] == "6.0"


def test_half_precision_keeps_the_digits_of_the_first_temperature(tmp_path, x):
    half = [("Cast", ["z"], ["y"])]
    path = saved(tmp_path / "model.onnx", after=half, elem_type=onnx.TensorProto.FLOAT16)
    model = onnx.load(path)
    model.graph.node[1].attribute.append(onnx.helper.make_attribute("to", onnx.TensorProto.FLOAT16))
    onnx.save(model, path)
    path = exported_again(path, 1.0001, x, tmp_path)  # 1 in half precision
    path = exported_again(path, 1.5, x, tmp_path)
    assert float(metadata(path)["pseudocal_temperature"]) == pytest.approx(1.50015, rel=1e-12)


@pytest.mark.parametrize("binary", [False, True])
def test_probabilities_can_be_calibrated_twice(tmp_path, x, binary):
    classes = 1 if binary else 3
    activation = [("Sigmoid" if binary else "Softmax", ["z"], ["y"])]
    path = saved(tmp_path / "model.onnx", after=activation, classes=classes)
    z = open_model(path, logits_tensor="z").predict(x).astype(np.float64) / (1.7 * 0.9)
    for temperature in (1.7, 0.9):
        path = exported_again(
            path, temperature, x, tmp_path, output_type="probabilities", binary=binary
        )
    expected = 1 / (1 + np.exp(-z)) if binary else np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    found = open_model(path, output_type="probabilities", binary=binary).predict(x)
    np.testing.assert_allclose(found, expected, atol=1e-4)  # a sigmoid is clipped
    assert float(metadata(path)["pseudocal_temperature"]) == pytest.approx(1.7 * 0.9)


@pytest.mark.parametrize("where", ["tensors", "constants", "nodes", "subgraph"])
@pytest.mark.parametrize("activation", ["Identity", "Softmax", "Sigmoid"])
def test_names_that_are_taken_are_not_given_again(tmp_path, x, where, activation):
    from onnx import TensorProto, helper

    binary = activation == "Sigmoid"
    nodes = []
    if where == "tensors":
        nodes = [helper.make_node("Abs", ["x"], [name]) for name in TAKEN]
    if where == "nodes":
        nodes = [
            helper.make_node("Abs", ["x"], [f"other{i}"], name=name) for i, name in enumerate(TAKEN)
        ]
    if where == "subgraph":
        value = helper.make_tensor("value", TensorProto.BOOL, [], [True])
        inner = [helper.make_node("Abs", ["x"], [name]) for name in TAKEN]
        ends = [helper.make_tensor_value_info(TAKEN[0], TensorProto.FLOAT, None)]
        branches = {"then_branch": helper.make_graph(inner, "then", [], ends)}
        other = helper.make_node("Abs", ["x"], ["inner"])
        ends = [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)]
        branches["else_branch"] = helper.make_graph([other], "else", [], ends)
        nodes = [
            helper.make_node("Constant", [], ["condition"], value=value),
            helper.make_node("If", ["condition"], ["chosen"], **branches),
        ]
    constants = TAKEN if where == "constants" else ()
    after = [(activation, ["z"], ["y"])]
    path = saved(
        tmp_path / "m.onnx",
        after=after,
        more_nodes=nodes,
        constants=constants,
        classes=1 if binary else 3,
    )
    options = {} if activation == "Identity" else {"output_type": "probabilities", "binary": binary}
    for _ in range(2):
        path = exported_again(path, 2.0, x, tmp_path, **options)
    graph = onnx.load(path).graph
    tensors = [name for node in graph.node for name in node.output] + [
        each.name for each in graph.initializer
    ]
    assert len(set(tensors)) == len(tensors)
    named = [node.name for node in graph.node if node.name]
    assert len(set(named)) == len(named)


def test_a_division_whose_constant_others_read_is_left_alone(tmp_path, x):
    after = [
        ("Div", ["z", "pseudocal_temperature"], ["y"]),
        ("Mul", ["z", "pseudocal_temperature"], ["other"]),
    ]
    path = saved(tmp_path / "model.onnx", after=after, constants=["pseudocal_temperature"])
    before = open_model(path).predict(x)
    other = open_model(path, logits_tensor="other").predict(x)
    path = exported_again(path, 2.0, x, tmp_path)
    np.testing.assert_allclose(open_model(path).predict(x), before / 2, rtol=1e-6)
    np.testing.assert_array_equal(open_model(path, logits_tensor="other").predict(x), other)
