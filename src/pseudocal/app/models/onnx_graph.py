"""Edit ONNX graphs: find the softmax at the end, and insert a division of the logits by T.

The tensor of logits keeps its name, so anything that reads it, a service or a softmax further down
the graph, gets the calibrated logits without a change. The original tensor is renamed
`<name>_uncalibrated`.

A calibrated graph can be calibrated again: the temperatures multiply. Every new name differs from
all names in the graph and its subgraphs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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

    declared = _declared_type(model, name)
    if declared is None:
        declared = _declared_type(onnx.shape_inference.infer_shapes(model), name)
    return int(onnx.TensorProto.FLOAT) if declared is None else declared


def _declared_type(model: Any, name: str) -> int | None:
    """Return the element type that a graph states for a tensor; 0 means undefined."""
    for value in [*model.graph.output, *model.graph.value_info]:
        if value.name == name and value.type.tensor_type.elem_type:
            return int(value.type.tensor_type.elem_type)
    return None


def calibrated_graph(
    model: Any, name: str, temperature: float, *, probabilities: bool = False, binary: bool = False
) -> Any:
    """Copy the model and calibrate its tensor `name`.

    Logits are divided by T, probabilities raised to 1/T.

    Logits that are already divided by a temperature T1 are divided by T1 * T instead; no node is
    added.

    Args:
        model: the ONNX model.
        name: the tensor of logits or probabilities.
        temperature: the temperature T.
        probabilities: whether the tensor holds probabilities.
        binary: whether it holds one number per row, for the second of two classes.

    """
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constant = None if probabilities else _temperature_of(copy.graph, name)
    if constant is None:
        _insert(
            onnx,
            copy,
            name,
            temperature,
            _POWER[binary] if probabilities else [("Div", "temperature")],
        )
        earlier = _recorded(model, name)
    else:
        stored = onnx.numpy_helper.to_array(constant)
        earlier = _recorded(model, name)
        if (
            np.array(earlier, stored.dtype) != stored
        ):  # the constant is what counts; the record has more digits
            earlier = float(stored)
        product = np.array(earlier * temperature, stored.dtype).reshape(stored.shape)
        constant.CopyFrom(onnx.numpy_helper.from_array(product, constant.name))
    _record(copy, name, earlier * temperature)
    return copy


# p^(1/T), normalised, is softmax(log p / T), in which a class of probability zero keeps probability
# zero. For a single sigmoid it is sigmoid(logit(p) / T).
_POWER: dict[bool, list[tuple[str, ...]]] = {
    False: [("Log",), ("Div", "temperature"), ("Softmax",)],
    True: [("Max", "floor"), ("Min", "ceiling"), ("Logit",), ("Div", "temperature"), ("Sigmoid",)],
}
TEMPERATURE = (
    "pseudocal_temperature"  # the constant's name, and the key of the record in the metadata
)
TENSOR = "pseudocal_tensor"  # the key of the calibrated tensor's name


def _temperature_of(graph: Any, name: str) -> Any | None:
    """Return the constant that an earlier calibration divides the tensor `name` by, or None.

    Multiplying the constant is right for any division by a positive number that nothing else reads.
    """
    divisions = [
        node for node in graph.node if node.op_type == "Div" and list(node.output) == [name]
    ]
    if len(divisions) != 1 or not divisions[0].input[1].startswith(TEMPERATURE):
        return None
    key = divisions[0].input[1]
    constants = [each for each in graph.initializer if each.name == key]
    readers = [
        part
        for inner in _graphs(graph)
        for node in inner.node
        for part in node.input
        if part == key
    ]
    exposed = {value.name for value in [*graph.input, *graph.output]}
    if len(constants) != 1 or len(readers) != 1 or key in exposed:
        return None
    return constants[0] if _is_temperature(constants[0]) else None


def _is_temperature(constant: Any) -> bool:
    """Whether a constant is one positive number of 16, 32 or 64 bits inside the file."""
    import onnx

    floats = (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    if constant.data_type not in floats or constant.external_data:
        return False
    value = onnx.numpy_helper.to_array(constant)
    return value.size == 1 and math.isfinite(value.item()) and value.item() > 0


def _recorded(model: Any, name: str) -> float:
    """Return the temperature in the metadata, 1 if there is none for this tensor."""
    found = {each.key: each.value for each in model.metadata_props}
    if found.get(TENSOR, name) != name:
        return 1.0
    try:
        temperature = float(found.get(TEMPERATURE, "1"))
    except ValueError:
        return 1.0
    return temperature if math.isfinite(temperature) and temperature > 0 else 1.0


def _record(model: Any, name: str, temperature: float) -> None:
    """Write the temperature into the metadata, over an earlier one."""
    kept = [each for each in model.metadata_props if each.key not in (TEMPERATURE, TENSOR)]
    others = [(each.key, each.value) for each in kept]
    del model.metadata_props[:]
    for key, value in [*others, (TEMPERATURE, repr(float(temperature))), (TENSOR, name)]:
        model.metadata_props.add(key=key, value=value)


def _insert(
    onnx: Any, model: Any, name: str, temperature: float, steps: list[tuple[str, ...]]
) -> None:
    """Insert nodes between the node that makes the tensor `name` and all that read it."""
    names = FreshNames(model.graph)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(inner_type(model, name))
    axis = _class_axis(model, name)
    old = names.new(f"{name}_uncalibrated")
    place = _rename_output(model.graph, name, old)
    values = {
        "temperature": temperature,
        "floor": SIGMOID_EPS,
        "ceiling": 1 - SIGMOID_EPS,
        "one": 1.0,
    }
    needed = {constant for _, *constants in steps for constant in constants}
    if ("Logit",) in steps:
        needed.add("one")
    constants = {key: names.new(f"pseudocal_{key}") for key in values if key in needed}
    for key, unique in constants.items():
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(np.array(values[key], dtype), unique)
        )
    for offset, node in enumerate(_chain(onnx, steps, old, name, constants, names, axis)):
        model.graph.node.insert(place + 1 + offset, node)


class FreshNames:
    """Names that nothing in a graph has.

    Args:
        graph: the graph; names of its subgraphs count too.

    """

    def __init__(self, graph: Any) -> None:
        self._taken = {name for inner in _graphs(graph) for name in _names(inner)}

    def new(self, wanted: str) -> str:
        """Return the wanted name, or the first of `<wanted>_2`, `<wanted>_3` and so on that is free."""
        name = wanted
        number = 2
        while name in self._taken:
            name = f"{wanted}_{number}"
            number += 1
        self._taken.add(name)
        return name


def _graphs(graph: Any) -> Iterator[Any]:
    """The graph and the graphs inside its nodes, at any depth."""
    waiting = [graph]
    while waiting:
        found = waiting.pop()
        yield found
        for node in found.node:
            for attribute in node.attribute:
                waiting += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _names(graph: Any) -> Iterator[str]:
    """All names in one graph: of tensors, constants and nodes."""
    for value in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        yield value.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name
    for node in graph.node:
        yield node.name
        yield from node.input
        yield from node.output


def _class_axis(model: Any, name: str) -> int:
    """Return the axis of the classes: the last one, or the second of four for a segmenter."""
    ranks = {
        o.name: len(o.type.tensor_type.shape.dim)
        for o in [*model.graph.output, *model.graph.value_info]
    }
    return 1 if ranks.get(name) == 4 else -1


def _chain(
    onnx: Any,
    steps: list[tuple[str, ...]],
    start: str,
    end: str,
    constants: dict[str, str],
    names: FreshNames,
    axis: int,
) -> list[Any]:
    """Make a chain of nodes from the tensor `start` to the tensor `end`."""

    def node(op: str, inputs: list[str], output: str, **settings: Any) -> Any:
        return onnx.helper.make_node(
            op, inputs, [output], name=names.new(f"pseudocal_{op.lower()}"), **settings
        )

    nodes = []
    value = start
    for i, (op, *used) in enumerate(steps):
        result = end if i == len(steps) - 1 else names.new(f"{start}_{i}")
        if op == "Logit":  # log(p / (1 - p)), which ONNX has no operator for
            rest = names.new(f"{result}_rest")
            odds = names.new(f"{result}_odds")
            nodes.append(node("Sub", [constants["one"], value], rest))
            nodes.append(node("Div", [value, rest], odds))
            nodes.append(node("Log", [odds], result))
        else:
            settings = {"axis": axis} if op == "Softmax" else {}
            nodes.append(node(op, [value, *(constants[key] for key in used)], result, **settings))
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
