"""Edit ONNX graphs: find the softmax at the end, and insert a division of the logits by T.

The tensor of logits keeps its name, so anything that reads it, a service or a softmax further down
the graph, gets the calibrated logits without a change. The original tensor is renamed
`<name>_uncalibrated`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pseudocal.app.models.model import SIGMOID_EPS
from pseudocal.arrays import InputError

PASSED = {
    "Cast",
    "Flatten",
    "Identity",
    "Reshape",
    "Squeeze",
}  # allowed between a softmax and an output
SOFTMAXES = {"Sigmoid", "Softmax"}


def softmax_input(model: Any, name: str) -> str | None:
    """Return the tensor that a softmax or sigmoid turns into the output `name`, or None if there is no such node."""
    producers = {out: node for node in model.graph.node for out in node.output}
    for _ in range(len(model.graph.node)):  # a damaged graph may have cycles
        node = producers.get(name)
        if node is None or not node.input:
            return None
        if node.op_type in SOFTMAXES:
            return str(node.input[0])
        if node.op_type not in PASSED:
            return None
        name = node.input[0]
    return None


def inner_type(model: Any, name: str) -> int:
    """Return the element type of a tensor in the graph; float32 if it cannot be inferred."""
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
    """Copy the model and calibrate its tensor `name`.

    Logits are divided by T, probabilities raised to 1/T.
    """
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    old = f"{name}_uncalibrated"
    place = _rename_output(copy.graph, name, old)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(inner_type(model, name))
    steps: list[tuple[str, ...]] = _POWER[binary] if probabilities else [("Div", "temperature")]
    constants = {
        "temperature": temperature,
        "floor": SIGMOID_EPS,
        "ceiling": 1 - SIGMOID_EPS,
        "one": 1.0,
    }
    nodes = _chain(onnx, steps, old, name, axis=_class_axis(model, name))
    used = {part for node in nodes for part in node.input if part.startswith("pseudocal_")}
    for key, value in constants.items():
        if f"pseudocal_{key}" in used:
            copy.graph.initializer.append(
                onnx.numpy_helper.from_array(np.array(value, dtype), f"pseudocal_{key}")
            )
    for offset, node in enumerate(nodes):
        copy.graph.node.insert(place + 1 + offset, node)
    copy.metadata_props.add(key="pseudocal_temperature", value=repr(float(temperature)))
    return copy


# p^(1/T), normalised, is softmax(log p / T), in which a class of probability zero keeps probability
# zero. For a single sigmoid it is sigmoid(logit(p) / T).
_POWER: dict[bool, list[tuple[str, ...]]] = {
    False: [("Log",), ("Div", "temperature"), ("Softmax",)],
    True: [("Max", "floor"), ("Min", "ceiling"), ("Logit",), ("Div", "temperature"), ("Sigmoid",)],
}


def _class_axis(model: Any, name: str) -> int:
    """Return the axis of the classes: the last one, or the second of four for a segmenter."""
    ranks = {
        o.name: len(o.type.tensor_type.shape.dim)
        for o in [*model.graph.output, *model.graph.value_info]
    }
    return 1 if ranks.get(name) == 4 else -1


def _chain(
    onnx: Any, steps: list[tuple[str, ...]], start: str, end: str, *, axis: int
) -> list[Any]:
    """Make a chain of nodes from the tensor `start` to the tensor `end`."""
    nodes = []
    value = start
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
    """Rename a tensor where it is produced, not where it is read.

    Return the position of the producing node.
    """
    for position, node in enumerate(graph.node):
        for i, output in enumerate(node.output):
            if output == name:
                node.output[i] = new
                return position
    raise InputError(
        f"expected the tensor {name!r} to be made by a node of the graph, got an input or a constant"
    )
