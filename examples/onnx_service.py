"""ONNX in a service: calibrate the file once, then serve it with onnxruntime alone.

The calibrated file has the division by T inside. The service changes one thing, the path of its
model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from pseudocal.app.cli import main as pseudocal


def main() -> dict[str, object]:
    """Make a model and data from where it runs, calibrate with the command, answer a request."""
    x, y = load_digits(return_X_y=True)
    target = (x[900:] + np.random.default_rng(0).normal(0, 5, size=x[900:].shape)).astype(
        np.float32
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        save_linear(LogisticRegression(max_iter=2000).fit(x[:900], y[:900]), folder / "digits.onnx")
        np.save(folder / "unlabelled.npy", target)
        code = pseudocal(
            [
                "calibrate",
                f"{folder}/digits.onnx",
                f"{folder}/unlabelled.npy",
                "-o",
                f"{folder}/out",
            ]
        )
        assert code == 0
        # nothing has confirmed the calibration yet: see the recommendation that was printed
        classify = service(folder / "out" / "unconfirmed-model.onnx")
        answer = classify(target[0])
    print(answer)
    return answer


def service(path: Path) -> Callable[[NDArray[np.float32]], dict[str, object]]:
    """What a web service holds.

    A session that is opened once, and a function that answers one request.
    """
    session = ort.InferenceSession(path)

    def classify(pixels: NDArray[np.float32]) -> dict[str, object]:
        (logits,) = session.run(["logits"], {"pixels": pixels[None]})
        odds = np.exp(logits[0] - logits[0].max())
        return {"class": int(odds.argmax()), "confidence": round(float(odds.max() / odds.sum()), 4)}

    return classify


def save_linear(model: LogisticRegression, path: Path) -> None:
    """A logistic regression as an ONNX graph, to have one; yours comes from torch or elsewhere."""
    weights = [
        numpy_helper.from_array(model.coef_.T.astype(np.float32), "weight"),
        numpy_helper.from_array(model.intercept_.astype(np.float32), "bias"),
    ]
    nodes = [
        helper.make_node("MatMul", ["pixels", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["logits"]),
    ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 64])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "digits", [pixels], [logits], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path
    )


if __name__ == "__main__":
    main()
