"""An ONNX file: run it with onnxruntime, and write it with the division by T inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.models.model import SIGMOID_EPS, Chunked, Expects, OpenModel, check_shipped
from pseudocal.app.models.onnx_graph import calibrated_graph, inner_type, softmax_input
from pseudocal.arrays import Floats, InputError, Inputs, Predictor
from pseudocal.extras import require
from pseudocal.skipped import one_line

DTYPES = {
    "tensor(double)": "float64",
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
}
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def open_onnx(
    path: Path,
    *,
    device: str = "cpu",
    output: str | None = None,
    outputs: str | None = None,
    binary: bool = False,
) -> OpenModel:
    """Open an ONNX file.

    Args:
        path: the file.
        device: "cpu" or "cuda".
        output: the tensor that holds the logits, an output of the graph or one inside it; None for
            the only output.
        outputs: whether that tensor holds "logits" or "probabilities"; None for logits, refused if
            a softmax made it.
        binary: whether the model returns one number per row, for the second of two classes.

    """
    graph = _load(path)
    name = _choose(graph, output)
    hidden = name not in [o.name for o in graph.graph.output]
    softmaxed = None if output and hidden else softmax_input(graph, name)
    if softmaxed and outputs is None:
        raise InputError(
            f'expected logits, got the output {name!r}, which is a softmax in the graph: give output="{softmaxed}" to '
            'calibrate the logits before it, or outputs="probabilities"'
        )
    predict, entry = _predictor(_with_output(graph, name) if hidden else path, name, device)
    return OpenModel(
        kind="onnx",
        predict=predict,
        expects=Expects(_row_shape(entry), DTYPES[entry.type]),
        output=None if hidden or outputs == "probabilities" else name,
        notes=(f"input {entry.name!r} {_shown(entry.shape)}", f"{outputs or 'logits'} in {name!r}"),
        ship=lambda temperature, folder, probe: _ship(
            graph,
            name,
            temperature,
            folder,
            predict(probe),
            probe,
            probabilities=outputs == "probabilities",
            binary=binary,
        ),
    )


@dataclass(frozen=True)
class OnnxPredictor:
    """Run one output of a session; mixed images are rounded if the graph takes integers.

    Attributes:
        session: the session of onnxruntime.
        entry: the name of the graph's input.
        output: the name of the output to compute.
        dtype: the name of the input's dtype.

    """

    session: Any
    entry: str
    output: str
    dtype: str

    def __call__(self, x: Inputs, /) -> Floats:
        """Predict one batch of arrays."""
        x = np.asarray(x)
        x = (
            np.rint(x)
            if np.issubdtype(self.dtype, np.integer) and np.issubdtype(x.dtype, np.floating)
            else x
        )
        (logits,) = self.session.run(
            [self.output], {self.entry: np.ascontiguousarray(x, dtype=self.dtype)}
        )
        return np.asarray(logits)


def _load(path: Path) -> Any:
    onnx = require("onnx", "onnx")
    _ = require("onnxruntime", "onnx")
    try:
        return onnx.load(path)
    except Exception as error:  # protobuf raises its own errors, a missing data file others
        raise InputError(
            f"expected an ONNX file, got {path}, which is damaged or not ONNX: {one_line(error)}"
        ) from error


def _choose(graph: Any, output: str | None) -> str:
    given: dict[str, str] = {o.name: _shown(_dims(o)) for o in graph.graph.output}
    inside = {name for node in graph.graph.node for name in node.output}
    if output is not None:
        if output not in given and output not in inside:
            raise InputError(f"expected an output among {', '.join(given)}, got {output!r}")
        return output
    if not given:
        raise InputError("expected an ONNX file, got a graph without outputs")
    if len(given) != 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in given.items())
        raise InputError(
            f"expected the name of the output that holds the logits, output=NAME, got none, with "
            f"{len(given)} outputs: {listed}"
        )
    return next(iter(given))


def _with_output(graph: Any, name: str) -> bytes:
    """Return the graph with one of its inner tensors as an additional output."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    copy.graph.output.append(
        onnx.helper.make_tensor_value_info(name, inner_type(graph, name), None)
    )
    return bytes(copy.SerializeToString())


def _session(model: Path | bytes, device: str) -> Any:
    import onnxruntime as ort

    provider = PROVIDERS.get(device.split(":")[0])
    if provider not in ort.get_available_providers():
        raise InputError(
            f"expected a device that onnxruntime has, {ort.get_available_providers()}, got {device!r}"
        )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    # spinning threads would take the cores from those that decode the next images
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        source = model if isinstance(model, bytes) else str(model)
        return ort.InferenceSession(
            source, options, providers=[provider], enable_fallback=0
        )  # which would print
    except Exception as error:
        raise InputError(
            f"expected a graph that onnxruntime can run, got {one_line(error)}"
        ) from error


def _only_input(session: Any) -> Any:
    entries = session.get_inputs()
    if len(entries) != 1:
        raise InputError(f"expected a graph with one input, got {[e.name for e in entries]}")
    if entries[0].type not in DTYPES:
        raise InputError(f"expected a numeric input, got {entries[0].type}")
    return entries[0]


def _predictor(model: Path | bytes, name: str, device: str) -> tuple[Predictor, Any]:
    """Return a predictor of the tensor `name`, and the description of the model's input."""
    session = _session(model, device)
    entry = _only_input(session)
    predict = OnnxPredictor(session, entry.name, name, DTYPES[entry.type])
    fixed = entry.shape[0] if entry.shape else None
    return (Chunked(predict, fixed) if isinstance(fixed, int) else predict), entry


def _ship(
    graph: Any,
    name: str,
    temperature: float,
    folder: Path,
    before: Floats,
    probe: Inputs,
    *,
    probabilities: bool,
    binary: bool,
) -> list[str]:
    """Write the calibrated graph, run it on a few inputs, and compare its outputs with the expected ones."""
    target = folder / "model.onnx"
    new = calibrated_graph(graph, name, temperature, probabilities=probabilities, binary=binary)
    target.write_bytes(new.SerializeToString())
    hidden = name not in [o.name for o in new.graph.output]
    after = _predictor(_with_output(new, name) if hidden else target, name, "cpu")[0](probe)
    expected = _power(before, 1 / temperature, binary) if probabilities else before / temperature
    check_shipped(after, expected, "graph")
    return [target.name]


def _power(p: Floats, power: float, binary: bool) -> Floats:
    """Raise probabilities to a power and normalise them, as the calibrated graph does."""
    p = (
        np.clip(p, SIGMOID_EPS, 1 - SIGMOID_EPS).astype(np.float64)
        if binary
        else p.astype(np.float64)
    )
    total = p**power + (1 - p) ** power if binary else (p**power).sum(axis=1, keepdims=True)
    return np.asarray(p**power / total)


def _row_shape(entry: Any) -> tuple[int | None, ...] | None:
    return tuple(d if isinstance(d, int) else None for d in entry.shape[1:]) or None


def _dims(value: Any) -> list[Any]:
    return [d.dim_value or d.dim_param or None for d in value.type.tensor_type.shape.dim]


def _shown(shape: list[Any]) -> str:
    return "(" + ", ".join(str(d if isinstance(d, int) else "?") for d in shape) + ")"
