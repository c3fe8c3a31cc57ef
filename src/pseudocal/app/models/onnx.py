"""ONNX: run a file with onnxruntime, and write it with the temperature inside its graph.

The tensor of logits keeps its name, so anything that reads it, a service or a softmax further down
the graph, gets the calibrated logits without a change. The original tensor is renamed
`<name>_uncalibrated`.

A calibrated graph can be calibrated again: the temperatures multiply. Every new name differs from
all names in the graph and its subgraphs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.models.model import (
    SIGMOID_EPS,
    Chunked,
    Expects,
    OpenModel,
    check_exported,
    or_input_error,
)
from pseudocal.arrays import Floats, InputError, Inputs, Predictor
from pseudocal.extras import require

DTYPES = {
    "tensor(double)": "float64",
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
}
CACHE_BYTES = 2**23  # on a CPU, forward passes with more bytes of inputs are slower
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
SOFTMAXES = {"Sigmoid", "Softmax"}
# allowed between a softmax and an output
PASSED = {"Cast", "Flatten", "Identity", "Reshape", "Squeeze"}
# the name of the constant, and the key of the record in the metadata
TEMPERATURE = "pseudocal_temperature"
TENSOR = "pseudocal_tensor"  # the key of the calibrated tensor's name


def open_onnx(
    path: Path,
    *,
    device: str = "cpu",
    logits_tensor: str | None = None,
    output_type: str | None = None,
    binary: bool = False,
    **_: Any,
) -> OpenModel:
    """Open an ONNX file.

    Args:
        path: the file.
        device: "cpu" or "cuda".
        logits_tensor: the tensor that holds the logits, an output of the graph or one inside it;
            None for the only output.
        output_type: whether that tensor holds "logits" or "probabilities"; None for logits, refused
            if a softmax made it.
        binary: whether the model returns one number per row, for the second of two classes.

    """
    onnx = require("onnx", "onnx")
    _ = require("onnxruntime", "onnx")
    with or_input_error(f"{path} is damaged or not ONNX"):
        model = onnx.load(path)
    name = _choose(model, logits_tensor)
    hidden = name not in [output.name for output in model.graph.output]
    logits = None if hidden else softmax_input(model, name)
    if logits is not None and output_type is None:
        raise InputError(
            f"the output {name!r} is a softmax of {logits!r} in the graph: calibrate that tensor, "
            "or say that the outputs are probabilities",
            setting="logits_tensor",
            value=f'"{logits}"',
        )
    probabilities = output_type == "probabilities"
    predict, entry = _predictor(_with_output(model, name) if hidden else path, name, device)

    def export(temperature: float, folder: Path, probe: Inputs) -> list[str]:
        before = predict(probe)
        expected = before / temperature
        if probabilities:
            expected = _power(before, temperature, binary)
        graph = calibrated_graph(
            model, name, temperature, probabilities=probabilities, binary=binary
        )
        target = folder / "model.onnx"
        target.write_bytes(graph.SerializeToString())
        again = open_onnx(target, logits_tensor=name, output_type=output_type, binary=binary)
        check_exported(again.predict(probe), expected, "graph")
        return [target.name]

    row_shape = tuple(d if isinstance(d, int) else None for d in entry.shape[1:])
    return OpenModel(
        kind="onnx",
        predict=predict,
        expects=Expects(row_shape or None, DTYPES[entry.type]),
        logits_tensor=None if hidden or probabilities else name,
        notes=(
            f"input {entry.name!r} {_shown(entry.shape)}",
            f"{output_type or 'logits'} in {name!r}",
        ),
        export=export,
    )


@dataclass(frozen=True)
class OnnxPredictor:
    """Run one output of a session; mixed images are rounded if the graph takes integers."""

    session: Any
    entry: str
    output: str
    dtype: str

    def __call__(self, x: Inputs, /) -> Floats:
        """Predict one batch of arrays."""
        x = np.asarray(x)
        if np.issubdtype(self.dtype, np.integer) and np.issubdtype(x.dtype, np.floating):
            x = np.rint(x)
        x = np.ascontiguousarray(x, dtype=self.dtype)
        (values,) = self.session.run([self.output], {self.entry: x})
        return np.asarray(values)


@dataclass(frozen=True)
class SmallPasses:
    """Run a model on a few inputs at a time, as many as fit into the processor's cache."""

    predict: Predictor
    most_bytes: int = CACHE_BYTES  # of the inputs of one forward pass

    def __call__(self, x: Inputs, /) -> Floats:
        """Predict one batch."""
        x = np.asarray(x)
        step = max(1, self.most_bytes * len(x) // max(1, x.nbytes))
        first = np.asarray(self.predict(x[:step]))
        if len(x) <= step:
            return first
        if first.shape[:1] != (step,):  # not one row for each input: reported by the caller
            return np.asarray(self.predict(x))
        values = np.empty((len(x), *first.shape[1:]), first.dtype)
        values[:step] = first
        for start in range(step, len(x), step):
            values[start : start + step] = self.predict(x[start : start + step])
        return values


def _choose(model: Any, logits_tensor: str | None) -> str:
    """The name of the tensor that holds the logits."""
    outputs: dict[str, str] = {
        each.name: _shown([d.dim_value or None for d in each.type.tensor_type.shape.dim])
        for each in model.graph.output
    }
    if logits_tensor is not None:
        inside = {name for node in model.graph.node for name in node.output}
        if logits_tensor not in outputs and logits_tensor not in inside:
            raise InputError(
                f"the graph has no tensor {logits_tensor!r}; its outputs are {', '.join(outputs)}",
                setting="logits_tensor",
                value="NAME",
            )
        return logits_tensor
    if not outputs:
        raise InputError("the graph of the ONNX file has no outputs")
    if len(outputs) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in outputs.items())
        raise InputError(
            f"the graph has {len(outputs)} outputs, {listed}: say which holds the logits",
            setting="logits_tensor",
            value="NAME",
        )
    return next(iter(outputs))


def _with_output(model: Any, name: str) -> bytes:
    """Return the model with one of its inner tensors as an additional output."""
    import onnx

    output = onnx.helper.make_tensor_value_info(name, inner_type(model, name), None)
    extended = copy.deepcopy(model)
    extended.graph.output.append(output)
    return bytes(extended.SerializeToString())


def _session(model: Path | bytes, device: str) -> Any:
    import onnxruntime as ort

    provider = PROVIDERS.get(device.split(":")[0])
    if provider not in ort.get_available_providers():
        raise InputError(
            f"onnxruntime cannot run on {device!r}; it has {ort.get_available_providers()}",
            setting="device",
        )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    # spinning threads would take the cores from those that decode the next images
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = model if isinstance(model, bytes) else str(model)
    with or_input_error("onnxruntime cannot run the graph"):
        # a fallback would print
        return ort.InferenceSession(source, options, providers=[provider], enable_fallback=0)


def _predictor(model: Path | bytes, name: str, device: str) -> tuple[Predictor, Any]:
    """Return a predictor of the tensor `name`, and the description of the model's input."""
    session = _session(model, device)
    entries = session.get_inputs()
    if len(entries) != 1:
        raise InputError(f"expected a graph with one input, got {[e.name for e in entries]}")
    entry = entries[0]
    if entry.type not in DTYPES:
        raise InputError(f"expected a numeric input, got {entry.type}")
    predict = OnnxPredictor(session, entry.name, name, DTYPES[entry.type])
    batch_size = entry.shape[0] if entry.shape else None
    if isinstance(batch_size, int):
        return Chunked(predict, batch_size), entry
    return SmallPasses(predict) if device.startswith("cpu") else predict, entry


def _power(p: Floats, temperature: float, binary: bool) -> Floats:
    """Raise probabilities to 1/T and normalise them, as the calibrated graph does."""
    power = 1 / temperature
    if binary:
        p = np.clip(p, SIGMOID_EPS, 1 - SIGMOID_EPS).astype(np.float64)
        return np.asarray(p**power / (p**power + (1 - p) ** power))
    p = p.astype(np.float64) ** power
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def _shown(shape: list[Any]) -> str:
    return "(" + ", ".join(str(d if isinstance(d, int) else "?") for d in shape) + ")"


def softmax_input(model: Any, name: str) -> str | None:
    """The tensor that a softmax or sigmoid turns into the output `name`; None without one."""
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
    """
    import onnx

    calibrated = copy.deepcopy(model)
    constant = None if probabilities else _temperature_of(calibrated.graph, name)
    earlier = _recorded(model, name)
    if constant is None:
        _insert(calibrated, name, temperature, probabilities, binary)
    else:
        stored = onnx.numpy_helper.to_array(constant)
        # the constant is what counts; the record has more digits
        if np.array(earlier, stored.dtype) != stored:
            earlier = float(stored)
        product = np.array(earlier * temperature, stored.dtype).reshape(stored.shape)
        constant.CopyFrom(onnx.numpy_helper.from_array(product, constant.name))
    _record(calibrated, name, earlier * temperature)
    return calibrated


def _temperature_of(graph: Any, name: str) -> Any | None:
    """Return the constant that an earlier calibration divides the tensor `name` by, or None.

    Multiplying the constant is right for any division by a positive number that nothing else reads.
    """
    divisors = [
        node.input[1]
        for node in graph.node
        if node.op_type == "Div" and list(node.output) == [name]
    ]
    if len(divisors) != 1 or not divisors[0].startswith(TEMPERATURE):
        return None
    constants = [each for each in graph.initializer if each.name == divisors[0]]
    inputs = [key for inner in _graphs(graph) for node in inner.node for key in node.input]
    exposed = [value.name for value in [*graph.input, *graph.output]]
    alone = len(constants) == 1 and [*inputs, *exposed].count(divisors[0]) == 1
    return constants[0] if alone and _is_temperature(constants[0]) else None


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
    import onnx

    found = {each.key: each.value for each in model.metadata_props}
    others = {key: value for key, value in found.items() if key not in (TEMPERATURE, TENSOR)}
    ours = {TEMPERATURE: repr(float(temperature)), TENSOR: name}
    onnx.helper.set_model_props(model, others | ours)


def _insert(model: Any, name: str, temperature: float, probabilities: bool, binary: bool) -> None:
    """Insert nodes between the node that makes the tensor `name` and all that read it.

    p^(1/T), normalised, is softmax(log p / T), in which a class of probability zero keeps
    probability zero. For a single sigmoid it is sigmoid(logit(p) / T).
    """
    values = [*model.graph.output, *model.graph.value_info]
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in values}
    nodes = NewNodes(model, name)
    divisor = nodes.constant("temperature", temperature)
    value = nodes.old
    if probabilities and binary:
        floor = nodes.constant("floor", SIGMOID_EPS)
        ceiling = nodes.constant("ceiling", 1 - SIGMOID_EPS)
        one = nodes.constant("one", 1.0)
        value = nodes.add("Max", [value, floor], f"{nodes.old}_0")
        value = nodes.add("Min", [value, ceiling], f"{nodes.old}_1")
        rest = nodes.add("Sub", [one, value], f"{nodes.old}_2_rest")
        odds = nodes.add("Div", [value, rest], f"{nodes.old}_2_odds")
        value = nodes.add("Log", [odds], f"{nodes.old}_2")
        value = nodes.add("Div", [value, divisor], f"{nodes.old}_3")
        nodes.add("Sigmoid", [value], name)
    elif probabilities:
        value = nodes.add("Log", [value], f"{nodes.old}_0")
        value = nodes.add("Div", [value, divisor], f"{nodes.old}_1")
        # the classes are the second axis of a segmentation model's output, otherwise the last one
        nodes.add("Softmax", [value], name, axis=1 if ranks.get(name) == 4 else -1)
    else:
        nodes.add("Div", [value, divisor], name)


class NewNodes:
    """New nodes behind the node that makes a tensor, which gets another name: `old`.

    Names that the graph or its subgraphs have already get a number: `<name>_2` and so on.
    """

    def __init__(self, model: Any, name: str) -> None:
        import onnx

        self._onnx = onnx
        self._graph = model.graph
        self._tensor = name
        self._taken = {each for inner in _graphs(model.graph) for each in _names(inner)}
        self._dtype = onnx.helper.tensor_dtype_to_np_dtype(inner_type(model, name))
        self.old = self._new(f"{name}_uncalibrated")
        self._place = _rename_output(model.graph, name, self.old)

    def constant(self, key: str, value: float) -> str:
        """Add a constant, and return its name."""
        name = self._new(f"pseudocal_{key}")
        array = np.array(value, self._dtype)
        self._graph.initializer.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, inputs: list[str], output: str, **settings: Any) -> str:
        """Add a node behind those before, and return the name of its output."""
        if output != self._tensor:
            output = self._new(output)
        name = self._new(f"pseudocal_{op.lower()}")
        node = self._onnx.helper.make_node(op, inputs, [output], name=name, **settings)
        self._place += 1
        self._graph.node.insert(self._place, node)
        return output

    def _new(self, wanted: str) -> str:
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
                waiting += attribute.graphs
                if attribute.HasField("g"):
                    waiting.append(attribute.g)


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


def _rename_output(graph: Any, name: str, new: str) -> int:
    """Rename a tensor where it is produced, not where it is read; return where that is."""
    for position, node in enumerate(graph.node):
        for i, output in enumerate(node.output):
            if output == name:
                node.output[i] = new
                return position
    raise InputError(
        f"the tensor {name!r} is an input or a constant of the graph: name one that a node makes",
        setting="logits_tensor",
        value="NAME",
    )
