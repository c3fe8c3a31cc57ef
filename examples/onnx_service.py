"""ONNX in a service: calibrate the file once, then serve it with onnxruntime alone.

The calibrated file has the division by T inside, so the service changes the path of its model and
nothing else. A second model gives a first estimate, and 50 labels confirm it.
"""

from __future__ import annotations

import csv
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
    """Calibrate with the command, then reply to a request."""
    x, y = load_digits(return_X_y=True)
    noise = np.random.default_rng(0).normal(0, 5, size=x[900:].shape)
    target = (x[900:] + noise).astype(np.float32)
    with TemporaryDirectory() as name:
        folder = Path(name)
        for path, rows in (("digits.onnx", slice(0, 900, 2)), ("other.onnx", slice(1, 900, 2))):
            save_linear(LogisticRegression(max_iter=5000).fit(x[rows], y[rows]), folder / path)
        np.save(folder / "unlabelled.npy", target)
        out = folder / "out"
        second = ("--second-opinion", folder / "other.onnx")
        run("calibrate", folder / "digits.onnx", folder / "unlabelled.npy", "-o", out, *second)
        run("label", out, "-n", 50)
        give_labels(out / "to-label.csv", folder / "labels.csv", y[900:])
        run("refine", out, folder / "labels.csv")
        classify = service(out / "model.onnx")
        reply = classify(target[0])
    print(reply)
    return reply


def service(path: Path) -> Callable[[NDArray[np.float32]], dict[str, object]]:
    """What a web service keeps: a session, opened once, and a function for one request."""
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


def give_labels(table: Path, to: Path, truth: NDArray[np.int64]) -> None:
    """What a person does; here the labels are known."""
    with table.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    with to.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        for line in lines:
            writer.writerow(line | {"label": truth[int(line["file"])]})


def run(*words: object) -> None:
    """Run a command of pseudocal."""
    code = pseudocal([str(word) for word in words])
    assert code == 0


if __name__ == "__main__":
    main()
