"""Surgery on ONNX graphs: find the softmax at the end, and put a division by T where the logits are.

The tensor of logits keeps its name, so whoever reads it, a service or a softmax further down the graph, gets the
calibrated one without a change. What it was before is called `<name>_uncalibrated`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pseudocal.app.models.model import SIGMOID_EPS
from pseudocal.arrays import InputError

PASSED = {"Cast", "Flatten", "Identity", "Reshape", "Squeeze"}  # what may stand between a softmax and an output
SOFTMAXES = {"Sigmoid", "Softmax"}


def softmax_input(model: Any, name: str) -> str | None:
    """The tensor that a softmax or sigmoid turns into the output `name`, if one does."""
    makers = {out: node for node in model.graph.node for out in node.output}
    for _ in range(len(model.graph.node)):  # a damaged graph may go in circles
        node = makers.get(name)
        if node is None or not node.input:
            return None
        if node.op_type in SOFTMAXES:
            return str(node.input[0])
        if node.op_type not in PASSED:
            return None
        name = node.input[0]
    return None


def inner_type(model: Any, name: str) -> int:
    """The element type of a tensor in the graph, float32 where it cannot be inferred."""
    import onnx

    for value in [*model.graph.output, *model.graph.value_info]:
        if value.name == name:
            return int(value.type.tensor_type.elem_type)
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    return int(types.get(name, onnx.TensorProto.FLOAT))


def calibrated_graph(
    model: Any, name: str, temperature: float, *, probabilities: bool = False, binary: bool = False
) -> Any:
    """A copy of the model whose tensor `name` is calibrated: divided by T, or raised to 1/T if of probabilities."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    old = f"{name}_uncalibrated"
    place = _rename_output(copy.graph, name, old)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(inner_type(model, name))
    steps: list[tuple[str, ...]] = _POWER[binary] if probabilities else [("Div", "temperature")]
    constants = {"temperature": temperature, "floor": SIGMOID_EPS, "ceiling": 1 - SIGMOID_EPS, "one": 1.0}
    nodes = _chain(onnx, steps, old, name, axis=_class_axis(model, name))
    used = {part for node in nodes for part in node.input if part.startswith("pseudocal_")}
    for key, value in constants.items():
        if f"pseudocal_{key}" in used:
            copy.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, dtype), f"pseudocal_{key}"))
    for offset, node in enumerate(nodes):
        copy.graph.node.insert(place + 1 + offset, node)
    copy.metadata_props.add(key="pseudocal_temperature", value=repr(float(temperature)))
    return copy


# p^(1/T) over its sum is softmax(log p / T), where an impossible class stays one; for one sigmoid the same is
# sigmoid(logit(p) / T)
_POWER: dict[bool, list[tuple[str, ...]]] = {
    False: [("Log",), ("Div", "temperature"), ("Softmax",)],
    True: [("Max", "floor"), ("Min", "ceiling"), ("Logit",), ("Div", "temperature"), ("Sigmoid",)],
}


def _class_axis(model: Any, name: str) -> int:
    """Where the classes are: the last axis, or the second of four where every pixel has its own."""
    ranks = {o.name: len(o.type.tensor_type.shape.dim) for o in [*model.graph.output, *model.graph.value_info]}
    return 1 if ranks.get(name) == 4 else -1


def _chain(onnx: Any, steps: list[tuple[str, ...]], start: str, end: str, *, axis: int) -> list[Any]:
    """Nodes that follow one another from the tensor `start` to the tensor `end`."""
    nodes, value = [], start
    for i, (op, *constants) in enumerate(steps):
        result = end if i == len(steps) - 1 else f"{start}_{i}"
        if op == "Logit":  # log(p / (1 - p)), which ONNX has no operator for
            nodes += [
                onnx.helper.make_node("Sub", ["pseudocal_one", value], [f"{result}_rest"]),
                onnx.helper.make_node("Div", [value, f"{result}_rest"], [f"{result}_odds"]),
                onnx.helper.make_node("Log", [f"{result}_odds"], [result]),
            ]
        else:
            settings = {"axis": axis} if op == "Softmax" else {}
            inputs = [value, *(f"pseudocal_{c}" for c in constants)]
            nodes.append(onnx.helper.make_node(op, inputs, [result], **settings))
        value = result
    return nodes


def _rename_output(graph: Any, name: str, new: str) -> int:
    """Rename what the maker of a tensor calls it, not what its readers do; the position of that maker."""
    for position, node in enumerate(graph.node):
        for i, output in enumerate(node.output):
            if output == name:
                node.output[i] = new
                return position
    raise InputError(f"expected the tensor {name!r} to be made by a node of the graph, got an input or a constant")
